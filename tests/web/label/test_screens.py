"""The screens of the workbench on a small model: each route that reads, and its refusals."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from label_servers import LabelClient, label_client

SCRIPT = "<script>alert(1)</script>\"'&"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LabelClient]:
    with label_client(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabelClient]:
    """One that no test changes."""
    with label_client(tmp_path_factory.mktemp("reader")) as found:
        yield found


def test_the_overview_counts_what_the_model_and_the_person_said(client: LabelClient) -> None:
    before = client.get("/api/overview")
    verdicts = client.workbench.material.verdicts
    decided = np.bincount(verdicts.decisions.numpy()[60:], minlength=3).tolist()
    assert [before["counts"][k] for k in ("accepted", "rejected", "novel")] == decided
    assert (before["counts"]["labeled"], before["counts"]["unlabeled"]) == (60, 80)
    assert [c["name"] for c in before["classes"]] == ["ash", "birch", "cedar"]
    assert [c["labels"] for c in before["classes"]] == [20, 20, 20]
    shares = before["histogram"]
    assert sum(shares["known"]) == pytest.approx(1)
    assert len(shares["pool"]) == len(shares["edges"]) - 1
    assert any(abs(edge - shares["threshold"]) < 1e-6 for edge in shares["edges"])
    assert (before["changed"], before["can_undo"], before["last_action"]) == (None, None, 0)
    row = client.rows("class:0:accepted")[0]
    client.act("label", images=[row, 3], class_id=1, source="grid")
    client.act("label", images=[61], class_id=-1, source="grid")
    client.act("skip", images=[62, 63])
    client.act("add_class", name="oak")
    client.act("merge_classes", classes=[2], into=1)
    after = client.get("/api/overview")
    assert after["counts"]["labeled"] == 61
    assert (after["counts"]["none"], after["counts"]["skipped"]) == (1, 2)
    assert after["changed"] == (
        "Since the model was fitted: 3 images with another label, 1 new class, 1 class merged."
    )
    assert [(c["id"], c["labels"], c["new"]) for c in after["classes"]] == [
        (0, 19, False),
        (1, 42, False),
        (3, 0, True),
    ]
    assert "merge" in after["can_undo"]


def test_every_set_is_what_its_name_says(client: LabelClient) -> None:
    table = client.parts.desk.now().table
    every = set(range(140))
    assert client.rows("all") == sorted(every)
    accepted = table.decisions == 0
    for own in range(3):
        parts = {p: client.rows(f"class:{own}:{p}") for p in ("accepted", "rejected", "labeled")}
        wanted = (table.classes == own) & (np.arange(140) >= 60)
        assert set(parts["accepted"]) == set(np.flatnonzero(wanted & accepted).tolist())
        assert set(parts["rejected"]) == set(np.flatnonzero(wanted & ~accepted).tolist())
        scores = table.id_scores[parts["accepted"]]
        assert (np.diff(scores) <= 0).all()
        assert parts["labeled"] == client.rows(f"label:{own}") == list(range(own, 60, 3))
        edge = client.rows(f"class:{own}:borderline")
        assert set(edge) <= set(parts["accepted"]) | set(parts["rejected"])
        assert len(edge) == min(24, int(wanted.sum()))
    by_decision = [client.rows(f"decision:{d}") for d in ("accept", "reject", "novel")]
    assert sorted(chain(*by_decision)) == list(range(60, 140))
    clusters = [client.rows(f"cluster:{k}") for k in range(2)]
    assert sorted(chain(*clusters)) == sorted(by_decision[1])
    client.act("label", images=[60, 61], class_id=-1, source="grid")
    client.act("skip", images=[70])
    assert client.rows("none") == [60, 61]
    assert client.rows("skipped") == [70]
    assert set(client.rows("unlabeled")) == every - set(range(62))
    assert client.rows("labeled") == list(range(60))
    drawn = client.post("/api/random", {"n": 5})["drawn"]
    assert client.rows("random") == drawn


def test_the_borderline_is_nearest_to_the_threshold_on_both_sides(reader: LabelClient) -> None:
    table = reader.parts.desk.now().table
    rows = reader.rows("class:0:borderline")
    above = table.id_scores[rows] >= table.threshold
    scores = table.id_scores[rows]
    for side in (above, ~above):
        distances = np.abs(scores[side] - table.threshold)
        assert (np.diff(distances) >= 0).all()


@pytest.mark.parametrize(
    "name",
    [
        *("", "foo", "class:0", "class:x:accepted", "class:0:all", "class:99:accepted"),
        *("label:-1", "cluster:-1", "cluster:1.5", "decision:maybe", "all:1", "subclass:0"),
        *("x" * 100, "\0", "class:0:accepted:1", "cluster:99999999999999999999", "label:\u0661"),
    ],
)
def test_a_set_that_is_none_is_refused_in_a_sentence(reader: LabelClient, name: str) -> None:
    found = reader.http.get("/api/images", params={"set": name})
    assert found.status_code == 400
    assert found.json()["error"].endswith((".", ". Known"))
    assert len(found.json()["error"]) < 500


def test_windows_of_a_set_join_to_the_whole(reader: LabelClient) -> None:
    whole = reader.get("/api/images?set=unlabeled&limit=2000")["images"]
    parts = []
    for start in range(0, 90, 30):
        found = reader.get(f"/api/images?set=unlabeled&offset={start}&limit=30")
        assert (found["total"], found["offset"]) == (80, start)
        parts += found["images"]
    assert parts == whole
    row, name, own, probability, score, decision, label, cluster, subclass = whole[0]
    verdicts = reader.workbench.material.verdicts
    assert (row, name) == (60, "60-0.png")
    assert own == int(verdicts.classes[60])
    assert probability == pytest.approx(float(verdicts.probs[60].max()), abs=1e-4)
    assert score == pytest.approx(float(verdicts.id_scores[60]), abs=1e-4)
    assert (decision, label, cluster) == ("accept", None, None)
    assert subclass == int(verdicts.subclasses[60])
    rows = [5, 139, 60]
    chosen = reader.post("/api/images", {"rows": rows})["images"]
    assert [line[0] for line in chosen] == rows
    assert chosen[0][6] == 2


@pytest.mark.parametrize(
    "query", ["limit=2001", "limit=-1", "offset=-1", "limit=x", "offset=1e3", "only=names"]
)
def test_windows_are_bounded(reader: LabelClient, query: str) -> None:
    reader.get(f"/api/images?set=all&{query}", 400)


@pytest.mark.parametrize(
    "rows", [[140], [-1], ["1"], [True], [1.0], "1", None, [0] * 2001, {"a": 1}, [10**30]]
)
def test_rows_that_are_none_are_refused(reader: LabelClient, rows: Any) -> None:
    reader.post("/api/images", {"rows": rows}, 400)


def test_a_class_has_strips_and_columns(client: LabelClient) -> None:
    found = client.get("/api/classes/1")
    assert (found["id"], found["name"]) == (1, "birch")
    assert found["best"] == client.rows("class:1:accepted")[:24]
    assert found["totals"]["labeled"] == 20
    own = [part for part in found["subclasses"] if part["size"]]
    assert sum(part["size"] for part in own) == len(client.rows("class:1:accepted")) + 20
    for part in own:
        assert set(part["rows"]) <= set(client.rows(f"subclass:1:{part['number']}"))
    client.act("merge_classes", classes=[1], into=0)
    assert {part["class_id"] for part in client.get("/api/classes/0")["subclasses"]} == {0, 1}
    client.get("/api/classes/1", 400)
    client.get("/api/classes/77", 400)
    client.get("/api/classes/x", 400)


def test_clusters_are_cards_that_can_be_split_and_promoted(client: LabelClient) -> None:
    first, second = client.get("/api/clusters")
    assert first["size"] >= second["size"] > 0
    rows = client.rows(f"cluster:{first['number']}")
    assert rows[0] == first["medoid"]
    assert first["nearest"] == rows[1:9]
    assert first["farthest"] == rows[9:][-4:][::-1]
    assert first["stability"] > 0.9  # two blobs that are far apart
    done = client.post(f"/api/clusters/{first['number']}/split", {"parts": 3})
    assert done["overview"]["can_undo"] == "split a cluster into 3"
    cards = client.get("/api/clusters")
    assert len(cards) == 4
    assert sum(card["size"] for card in cards) == first["size"] + second["size"]
    client.act("promote_clusters", clusters=[second["number"]], name="oak")
    promoted = next(c for c in client.get("/api/clusters") if c["number"] == second["number"])
    assert (promoted["size"], promoted["medoid"], promoted["promoted"]) == (0, None, 3)
    assert len(client.rows("label:3")) == second["size"]
    client.post(f"/api/clusters/{second['number']}/split", {"parts": 2}, 400)
    client.post("/api/clusters/0/split", {"parts": 1}, 400)
    client.post("/api/clusters/0/split", {"parts": 2, "more": 1}, 400)
    client.post("/api/clusters/99/split", {"parts": 2}, 400)


def test_the_nearest_images_are_those_of_the_largest_cosine(reader: LabelClient) -> None:
    units = reader.parts.desk.space.units.astype(np.float64)
    assert np.allclose((units**2).sum(1), 1, atol=1e-5)
    for row in (0, 77, 139):
        cosines = units @ units[row]
        cosines[row] = -2
        found = reader.get(f"/api/similar/{row}?n=7")
        assert [near["row"] for near in found] == np.argsort(-cosines)[:7].tolist()
        assert [n["cosine"] for n in found] == pytest.approx(np.sort(cosines)[::-1][:7], abs=1e-4)
    assert len(reader.get("/api/similar/5?n=500")) == 139
    reader.get("/api/similar/140", 400)
    reader.get("/api/similar/-1", 400)
    reader.get("/api/similar/1?n=501", 400)


def test_the_map_has_a_place_for_every_image_and_keeps_it(client: LabelClient) -> None:
    before = client.get("/api/map")
    assert {len(before[k]) for k in ("x", "y", "decision", "class", "label", "cluster")} == {140}
    assert min(before["x"]) == 0
    assert max(before["y"]) == 65535
    kinds = np.array([int(name[-5]) for name in client.workbench.material.paths[60:]])
    places = np.stack([before["x"], before["y"]], 1)[60:].astype(float)
    within = np.mean([places[kinds == k].std(0).mean() for k in range(5)])
    assert within < 0.5 * places.std(0).mean()  # images of a kind lie together
    client.act("label", images=[60], class_id=2, source="map")
    after = client.get("/api/map")
    assert (after["x"], after["y"], after["label"][60]) == (before["x"], before["y"], 2)
    assert before["label"][60] == -2
    assert "x" not in client.get("/api/map?only=state")


def test_next_suggests_images_that_are_open(client: LabelClient) -> None:
    drawn = client.post("/api/random", {"n": 10})["drawn"]
    found = client.get("/api/next?n=20")
    rows = [one["row"] for one in found]
    assert len(set(rows)) == 20
    assert min(rows) >= 60
    assert not set(rows) & set(drawn)
    assert {one["suggestion"] for one in found} <= {-1, 0, 1, 2}
    client.act("label", images=rows[:5], class_id=0, source="next")
    client.act("skip", images=rows[5:8])
    client.act("merge_classes", classes=[0, 1], into=2)
    again = client.get("/api/next?n=20")
    assert not {one["row"] for one in again} & set(rows[:8])
    assert {one["suggestion"] for one in again} <= {-1, 2}
    client.get("/api/next?n=101", 400)
    client.get("/api/next?n=0", 400)


def test_problems_are_listed_and_settled(client: LabelClient) -> None:
    found = client.get("/api/problems")
    assert found["unreadable"] == [{"path": "cut.png", "reason": "it is cut short"}]
    assert found["totals"] == {k: len(found[k]) for k in found["totals"]}
    groups = [tuple(rows) for rows in found["copies"] + found["near_duplicates"]]
    assert sorted(groups) == sorted(client.workbench.material.duplicates)


def test_doubts_vanish_when_the_label_changes_and_stay_when_it_is_confirmed(
    client: LabelClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from protofission.triage.label_verdicts import judge_labels

    material = client.workbench.material
    probs = np.full((60, 3), 0.05)
    probs[np.arange(60), material.labels] = 0.9
    probs[[4, 7], :] = (0.98, 0.01, 0.01)
    verdicts = judge_labels(material.labels, probs, np.arange(60) % 5)
    monkeypatch.setitem(material.__dict__, "label_verdicts", verdicts)
    doubts = client.get("/api/problems")["doubts"]
    assert [(d["row"], d["label"], d["likeliest"]) for d in doubts] == [(4, 1, 0), (7, 1, 0)]
    client.act("confirm_labels", images=[7])
    client.act("label", images=[4], class_id=0, source="problems")
    (left,) = client.get("/api/problems")["doubts"]
    assert (left["row"], left["confirmed"]) == (7, True)
