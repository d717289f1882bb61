"""Changes of the workbench by HTTP: actions, undo, exports, refits, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from label_servers import ORIGIN, LabelClient, label_client
from protofission.triage.workbench.actions import Action

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


def test_a_change_is_undone_and_done_again_also_after_a_restart(client: LabelClient) -> None:
    client.act("label", images=[60, 61, 62], class_id=0, source="grid")
    client.act("label", images=[60], class_id=1, source="grid")
    client.close()
    again = LabelClient(client.model)
    try:
        assert again.get("/api/overview")["last_action"] == 2
        done = again.post("/api/undo")
        assert done["id"] == done["last_action"] == 3
        assert again.rows("label:0")[-3:] == [60, 61, 62]
        again.post("/api/undo", {"expected": 2}, 409)
        again.post("/api/undo", {"expected": 1})
        assert again.rows("unlabeled") == list(range(60, 140))
        assert "nothing to undo" in again.post("/api/undo", None, 409)["error"]
        again.post("/api/redo")
        again.post("/api/redo")
        assert again.rows("label:1")[-1] == 60
        assert "nothing" in again.post("/api/redo", None, 409)["error"]
    finally:
        again.close()


def test_images_of_several_classes_are_one_change_also_after_a_restart(client: LabelClient) -> None:
    before = client.rows("label:0"), client.rows("label:1"), client.rows("none")
    client.act("label_each", images=[60, 61, 62, 63], classes=[1, 0, -1, 1], source="next")
    assert client.rows("label:1")[-2:] == [60, 63]
    assert (client.rows("label:0")[-1], client.rows("none")[-1]) == (61, 62)
    client.close()
    again = LabelClient(client.model)
    try:
        assert again.get("/api/overview")["can_undo"] == "label 4 images in 3 classes"
        again.post("/api/undo")
        assert (again.rows("label:0"), again.rows("label:1"), again.rows("none")) == before
        assert "nothing to undo" in again.post("/api/undo", None, 409)["error"]
        again.post("/api/redo")
        assert again.rows("label:1")[-2:] == [60, 63]
    finally:
        again.close()


def test_every_bulk_change_is_one_undo_also_after_a_restart(client: LabelClient) -> None:
    def everything(of: LabelClient) -> list[Any]:
        found = [of.get(path) for path in ("/api/clusters", "/api/classes/0", "/api/overview")]
        for key in ("last_action", "can_undo", "can_redo", "changed"):
            for one in found[1:]:
                one.pop(key, None)
        return [*found, of.rows("none"), of.rows("unlabeled")]

    first, second = (one["number"] for one in client.get("/api/clusters")[:2])
    changes: dict[str, dict[str, Any]] = {
        "junk_clusters": {"clusters": [first, second]},
        "promote_clusters": {"clusters": [second, first], "name": "oak"},
        "merge_clusters": {"clusters": [second], "into": first},
        "label_as_new": {"images": [60, 61], "name": "fir", "source": "grid"},
        "label_each": {"images": [60, 61], "classes": [-1, 0], "source": "next"},
        "merge_classes": {"classes": [1, 2], "into": 0},
        "dissolve_subclasses": {"class_id": 0},
    }
    before = everything(client)
    for kind, content in changes.items():
        client.act(kind, **content)
        after = everything(client)
        assert after != before, kind
        client.close()
        client = LabelClient(client.model)
        client.post("/api/undo")
        assert everything(client) == before, kind
        client.post("/api/redo")
        assert everything(client) == after, kind
        client.post("/api/undo")
        assert "nothing to undo" in client.post("/api/undo", None, 409)["error"]
    client.close()


def test_a_bulk_change_that_does_not_fit_changes_nothing(client: LabelClient) -> None:
    first = client.get("/api/clusters")[0]["number"]
    wrong = {"kind": "junk_clusters", "content": {"clusters": [first, 999]}}
    assert "no cluster 999" in client.post("/api/actions", wrong, 400)["error"]
    wrong = {"kind": "junk_clusters", "content": {"clusters": [first, first]}}
    assert "names one twice" in client.post("/api/actions", wrong, 400)["error"]
    wrong = {"kind": "promote_clusters", "content": {"clusters": [], "name": "oak"}}
    assert "clusters names 0" in client.post("/api/actions", wrong, 400)["error"]
    content = {"images": [60], "name": "ash", "source": "grid"}
    wrong = {"kind": "label_as_new", "content": content}
    assert "is called 'ash' already" in client.post("/api/actions", wrong, 400)["error"]
    assert client.get("/api/overview")["last_action"] == 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kind": "label"},
        {"kind": "label", "content": {}},
        {"kind": "label", "content": {"images": [1], "class_id": 0}},
        {"kind": "label", "content": {"images": [1], "class_id": 9, "source": "grid"}},
        {"kind": "label", "content": {"images": [999], "class_id": 0, "source": "grid"}},
        {"kind": "label", "content": {"images": [], "class_id": 0, "source": "grid"}},
        {"kind": "label", "content": {"images": [61, 61], "class_id": 0, "source": "grid"}},
        {"kind": "label", "content": {"images": [61], "class_id": 0, "source": "gird"}},
        {"kind": "label", "content": [1]},
        {"kind": "skip", "content": {"images": [61], "more": 1}},
        {"kind": "add_class", "content": {"name": ""}},
        {"kind": "add_class", "content": {"name": "ash"}},
        {"kind": "add_class", "content": {"name": "a\u202eb"}},
        {"kind": "add_class", "content": {"name": "x" * 101}},
        {"kind": "undo", "content": {"action": 1}},
        {"kind": "keep_refit", "content": {"version": 1}},
        {"kind": "draw_random", "content": {"images": [61]}},
        {"kind": ["label"], "content": {}},
        {"kind": "nothing", "content": {}, "more": 1},
    ],
)
def test_an_action_that_is_none_changes_nothing(reader: LabelClient, body: dict[str, Any]) -> None:
    found = reader.post("/api/actions", body, 400)
    assert found["error"].endswith(".")
    assert reader.get("/api/last")["last_action"] == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"1", b"{", b'{"a": NaN}', b'{"a":1,"a":2}', b"\xff", b"[" * 5000, b"null"],
)
def test_a_body_that_is_no_object_is_refused(reader: LabelClient, content: bytes) -> None:
    sent = {"Origin": ORIGIN, "Content-Type": "application/json"}
    found = reader.http.post("/api/actions", content=content, headers=sent)
    assert found.status_code == 400
    assert found.json()["error"].endswith(".")


def test_every_kind_of_action_is_taken(client: LabelClient) -> None:
    from protofission.triage.workbench.actions import ACTIONS
    from protofission.web.label.changing_routes import OWN_ROUTES

    wanted: dict[str, dict[str, Any]] = {
        "label": {"images": [60], "class_id": 0, "source": "grid"},
        "label_each": {"images": [62, 63], "classes": [0, 1], "source": "next"},
        "label_as_new": {"images": [64, 65], "name": "fir", "source": "map"},
        "skip": {"images": [61]},
        "confirm_labels": {"images": [0]},
        "add_class": {"name": "oak"},
        "rename_class": {"class_id": 0, "name": "elm"},
        "name_subclass": {"class_id": 0, "subclass": 0, "name": "small"},
        "merge_subclasses": {"class_id": 0, "subclasses": [1], "into": 0},
        "promote_subclass": {"class_id": 0, "subclass": 0, "name": "large"},
        "dissolve_subclasses": {"class_id": 1},
        "name_cluster": {"cluster": 0, "name": "weeds"},
        "merge_clusters": {"clusters": [1], "into": 0},
        "promote_clusters": {"clusters": [0], "name": "weed"},
        "merge_classes": {"classes": [1], "into": 2},
    }
    for kind, content in wanted.items():
        client.act(kind.replace("_", "-"), **content)
        assert client.get("/api/overview")["can_undo"]
    for _ in wanted:
        client.post("/api/undo")
    client.act("junk_clusters", clusters=[1])
    assert {*wanted, "junk_clusters", *OWN_ROUTES} == ACTIONS.keys()
    for path in ("/api/overview", "/api/clusters", "/api/classes/0", "/api/map", "/api/next"):
        client.get(path)


def test_exports_are_written_beside_the_model_and_downloaded(client: LabelClient) -> None:
    client.act("label", images=[60], class_id=1, source="grid")
    formats = {one["name"] for one in client.get("/api/export")["formats"]}
    assert {"folders", "list", "csv", "parquet", "coco", "hugging-face", "label-studio"} <= formats
    done = client.post("/api/export", {"format": "csv", "what": "labeled"})
    assert (done["name"], done["rows"]) == ("labeled-csv.csv", 61)
    got = client.http.get(done["download"])
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"] == 'attachment; filename="labeled-csv.csv"'
    assert got.content == Path(done["path"]).read_bytes()
    again = client.post("/api/export", {"format": "csv", "what": "labeled"})
    assert again["name"] == "labeled-csv-2.csv"
    folder = client.post("/api/export", {"format": "folders", "what": "labeled"})
    assert folder["download"] is None
    assert list(Path(folder["path"]).rglob("birch"))
    names = {entry["name"] for entry in client.get("/api/export")["done"]}
    assert names == {"labeled-csv.csv", "labeled-csv-2.csv", "labeled-folders"}
    for body in ({"format": "x", "what": "all"}, {"format": "csv", "what": "x"}, {"what": "all"}):
        client.post("/api/export", body, 400)
    client.workbench.material.file(3).unlink()
    assert "3.png" in client.post("/api/export", {"format": "folders"}, 409)["error"]
    kept = client.post("/api/export", {"format": "folders", "skip_missing": True})
    assert (kept["rows"], len(kept["left_out"])) == (60, 1)


def test_a_link_among_the_exports_is_not_followed(client: LabelClient) -> None:
    client.post("/api/export", {"format": "csv", "what": "labeled"})
    link = client.model / "workbench" / "exports" / "secret.csv"
    link.symlink_to(client.model / "images.json")
    assert client.http.get("/api/export/secret.csv").status_code == 404


@pytest.mark.slow
def test_a_refit_runs_beside_the_server_and_is_kept_undone_or_dropped(client: LabelClient) -> None:
    client.act("label", images=client.rows("cluster:0"), class_id=-1, source="cluster")
    assert client.post("/api/refit/keep", None, 409)["error"].startswith("No refit waits")
    client.post("/api/refit/revert", None, 409)
    assert client.post("/api/refit", None, 202)["running"]
    assert client.get("/api/last")["refit"]["running"]
    client.post("/api/refit", None, 409)
    client.act("skip", images=[60])  # it does not stand in the way
    status = client.parts.refit.wait(600)
    assert (status.error, status.waiting) == (None, True)
    result = client.get("/api/refit")["result"]
    assert {"before", "after", "sentences", "moved"} <= result.keys()
    kept = client.post("/api/refit/keep")
    assert kept["overview"]["version"] == 1
    assert kept["overview"]["can_undo"] == "keep version 1 of the model"
    assert client.post("/api/undo")["overview"]["version"] == 0
    assert client.post("/api/redo")["overview"]["version"] == 1
    assert client.post("/api/refit/revert")["overview"]["version"] == 0
    for name in ("all", "class:0:accepted", "decision:reject"):
        client.rows(name)


def test_actions_are_a_closed_list() -> None:
    from typing import get_args

    from protofission.triage.workbench.actions import ACTIONS

    assert set(get_args(Action)) == set(ACTIONS.values())
