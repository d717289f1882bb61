"""Images to label next: the choice, its reasons, the file and the benchmark."""

import csv
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Call
from protofission.core.errors import InputError
from protofission.triage.workbench import next_labels
from protofission.triage.workbench.actions import (
    NONE,
    UNLABELED,
    DrawRandom,
    Label,
    MergeClasses,
    RenameClass,
    Skip,
)
from protofission.triage.workbench.next_labels import (
    LEAST_KNOWN,
    LEAST_WEIGHT,
    LEVEL,
    THRESHOLD,
    TYPICAL,
    UNCERTAIN,
    UNLIKE,
    Prospects,
    choose_next,
    known_probabilities,
)
from protofission.triage.workbench.next_table import NEXT_COLUMNS, prospects_of
from protofission.triage.workbench.workbench import Workbench
from small_workbenches import small_model
from verbs import ended

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import label_next


def prospects(rows: int = 120, seed: int = 0, width: int = 8, **changes: Any) -> Prospects:
    """Images around a few directions, of which the first ten are decided."""
    random = np.random.default_rng(seed)
    units = random.normal(size=(6, width))[random.integers(6, size=rows)]
    units = units + 0.7 * random.normal(size=(rows, width))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    strange = random.random(rows) < 0.5
    found = Prospects(
        units=units.astype(np.float32),
        probs=random.dirichlet(np.full(4, 0.5), rows),
        id_scores=np.where(strange, 0.1 * random.random(rows), random.random(rows)),
        threshold=0.05,
        clusters=np.full(rows, -1),
        decided=np.arange(rows) < 10,
        groups=np.arange(rows),
    )
    return replace(found, **changes)


def slow_density(scores: np.ndarray, at: float) -> float:
    """Grenander's density: min over a < x of max over b >= x of F(a, b] / (b - a)."""
    ends = np.unique(np.concatenate([scores, [0.0, 1.0]]))
    share = [float((scores <= end).mean()) for end in ends]
    share[0] = 0.0
    at = max(at, float(ends[1]))
    slopes = [
        max((share[b] - share[a]) / (ends[b] - ends[a]) for b in range(len(ends)) if ends[b] >= at)
        for a in range(len(ends))
        if ends[a] < at
    ]
    return min(slopes)


def slow_choice(given: Prospects, number: int) -> list[int]:
    """The greedy choice by its definition, with all cosines at hand."""
    free = [i for i in range(len(given.units)) if not given.decided[i]]
    scores = given.id_scores[free]
    share = min(1.0, max(float((scores > LEVEL).mean()) / (1 - LEVEL), LEAST_KNOWN))
    weight = {}
    for i in free:
        known = min(1.0, share / slow_density(scores, float(given.id_scores[i])))
        first, second = sorted(given.probs[i].tolist(), reverse=True)[:2]
        weight[i] = (LEAST_WEIGHT + known) * (1 + 1 - (first - second))
    asked = [i for i in range(len(given.units)) if given.decided[i]]
    done = {int(given.groups[i]) for i in asked}
    units = given.units.astype(np.float64)

    def covered(by: list[int]) -> float:
        return sum(weight[i] * max([0.0, *(float(units[i] @ units[j]) for j in by)]) for i in free)

    chosen: list[int] = []
    while len(chosen) < number:
        left = [i for i in free if int(given.groups[i]) not in done]
        if not left:
            break
        chosen.append(max(left, key=lambda i: covered([*asked, *chosen, i])))
        done.add(int(given.groups[chosen[-1]]))
    return chosen


def rows_of(given: Prospects, number: int) -> list[int]:
    return [image.row for image in choose_next(given, number)]


@pytest.mark.parametrize("seed", range(3))
def test_the_choice_is_the_greedy_one_by_definition(seed: int) -> None:
    given = prospects(36, seed, groups=np.arange(36) // 2)
    assert rows_of(given, 8) == slow_choice(given, 8)


@pytest.mark.parametrize("seed", range(3))
def test_the_probability_to_be_known_is_that_of_grenander_s_density(seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = np.concatenate([random.random(30), 0.1 * random.random(20), [0.0, 0.0, 1.0, 0.5, 0.5]])
    share = float((scores > LEVEL).mean()) / (1 - LEVEL)
    slow = [min(1.0, share / slow_density(scores, float(at))) for at in scores]
    np.testing.assert_allclose(known_probabilities(scores), slow, rtol=1e-9)


def test_the_probability_to_be_known_is_right_where_the_truth_is_known() -> None:
    random = np.random.default_rng(0)
    is_known = random.random(20_000) < 0.4
    scores = np.where(is_known, random.random(20_000), random.beta(1, 20, 20_000))
    found = known_probabilities(scores)
    for low, high in ((0.0, 0.03), (0.03, 0.08), (0.08, 0.2), (0.3, 1.0)):
        some = (scores >= low) & (scores < high)
        assert found[some].mean() == pytest.approx(is_known[some].mean(), abs=0.05)
    assert (np.diff(found[np.argsort(scores)]) >= 0).all()
    assert known_probabilities(random.random(5000)).mean() > 0.95
    assert known_probabilities(np.zeros(0)).shape == (0,)
    assert known_probabilities(np.zeros(9)).max() <= LEAST_KNOWN


@pytest.mark.parametrize("number", [0, 1, 7, 60, 110, 1000])
def test_as_many_as_asked_for_are_chosen_each_once_and_none_that_is_decided(number: int) -> None:
    given = prospects()
    rows = rows_of(given, number)
    assert len(set(rows)) == len(rows) == min(number, 110)
    assert not given.decided[rows].any()


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_the_images_does_not_matter(seed: int) -> None:
    given = prospects(200, seed, groups=np.arange(200) // 3)
    order = np.random.default_rng(seed).permutation(200)
    moved = Prospects(
        units=given.units[order],
        probs=given.probs[order],
        id_scores=given.id_scores[order],
        threshold=given.threshold,
        clusters=given.clusters[order],
        decided=given.decided[order],
        groups=given.groups[order],
    )
    assert [int(order[row]) for row in rows_of(moved, 30)] == rows_of(given, 30)


def test_the_order_does_not_matter_where_some_images_stand_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(next_labels, "MOST_COVERED", 40)
    monkeypatch.setattr(next_labels, "MOST_CANDIDATES", 50)
    test_the_order_of_the_images_does_not_matter(0)
    assert len(rows_of(prospects(300), 20)) == 20
    assert len(rows_of(prospects(300), 290)) == 290  # more than candidates were meant


def test_the_first_of_a_longer_batch_are_a_shorter_one() -> None:
    assert rows_of(prospects(), 40)[:15] == rows_of(prospects(), 15)


def test_of_near_duplicates_one_is_chosen_and_none_where_one_is_decided() -> None:
    groups = np.arange(120) // 4  # rows 8 to 11 share a group, of which 8 and 9 are decided
    given = prospects(groups=groups)
    rows = rows_of(given, 1000)
    assert sorted(groups[rows]) == list(range(3, 30))


def test_copies_of_a_choice_come_last_even_in_groups_of_their_own() -> None:
    given = prospects()
    first = rows_of(given, 1)[0]
    several = {
        name: np.concatenate([getattr(given, name), getattr(given, name)[[first] * 5]])
        for name in ("units", "probs", "id_scores", "clusters", "decided")
    }
    doubled = replace(given, **several, groups=np.arange(125))
    rows = rows_of(doubled, 60)
    assert len({first, *range(120, 125)} & set(rows)) == 1


def test_strangers_and_sure_images_are_asked_about_less() -> None:
    random = np.random.default_rng(3)
    found = prospects(400, 3)
    strange = np.arange(400) % 2 == 0
    scores = np.where(strange, 0.03 * random.random(400), random.random(400))
    rows = rows_of(replace(found, id_scores=scores), 40)
    assert strange[rows].mean() < 0.4
    probs = np.full((400, 4), 0.25)
    probs[strange] = (0.97, 0.01, 0.01, 0.01)
    rows = rows_of(replace(found, id_scores=random.random(400), probs=probs), 40)
    assert strange[rows].mean() < 0.4


def test_an_image_near_an_answer_is_worth_little() -> None:
    """Two equal heaps, of which one has an answer: the other is asked about first."""
    random = np.random.default_rng(0)
    units = np.repeat(np.eye(8)[:2], 30, axis=0) + 0.05 * random.normal(size=(60, 8))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    changes = {"units": units, "decided": np.arange(60) == 0, "id_scores": random.random(60)}
    first = choose_next(prospects(60, probs=np.full((60, 4), 0.25), **changes), 1)[0]
    assert first.row >= 30


def one_of_each_reason() -> Prospects:
    """A hundred plain images of two heaps, and four that stand out, each in a heap of its own."""
    random = np.random.default_rng(1)
    units = np.repeat(np.eye(12)[:2], 50, axis=0) + 0.02 * random.normal(size=(100, 12))
    units = np.concatenate([units, units[:1], np.eye(12)[[1, 0, 5]]])
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    probs = np.tile([0.94, 0.04, 0.02], (104, 1))
    probs[101] = (0.1, 0.46, 0.44)
    scores = np.concatenate([np.linspace(0.3, 1, 100), [1.0, 0.9, 0.0501, 0.6]])
    decided = np.arange(104) == 100
    decided[50] = True
    fixed = {"units": units, "probs": probs, "id_scores": scores, "decided": decided}
    return prospects(104, **fixed, clusters=np.full(104, -1), groups=np.arange(104))


def test_reasons_say_in_what_an_image_stands_out() -> None:
    names = ["ash", "birch", "cedar"]
    found = {image.row: image for image in choose_next(one_of_each_reason(), 200)}
    assert len(found) == 102
    assert found[101].reason == UNCERTAIN
    assert found[101].words(names) == "uncertain between birch and cedar"
    assert found[102].words(names) == THRESHOLD == "near the threshold"
    assert found[103].words(names) == UNLIKE == "unlike any label"
    assert {image.reason for image in found.values()} == {UNCERTAIN, THRESHOLD, UNLIKE, TYPICAL}


def test_reasons_are_not_said_of_images_that_they_do_not_fit() -> None:
    sure = np.tile([0.8, 0.1, 0.06, 0.04], (200, 1)) + 0.001 * np.arange(200)[:, None]
    found = choose_next(prospects(200, probs=sure), 50)
    assert UNCERTAIN not in {image.reason for image in found}
    near = np.abs(np.random.default_rng(0).normal(1, 0.2, size=(200, 8)))
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    found = choose_next(prospects(200, units=near), 50)
    assert UNLIKE not in {image.reason for image in found}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_batch_has_all_reasons_and_is_not_called_typical_for_the_most_part(seed: int) -> None:
    reasons = [image.reason for image in choose_next(prospects(400, seed), 12)]
    assert set(reasons) == {UNCERTAIN, THRESHOLD, TYPICAL, UNLIKE}
    assert reasons.count(TYPICAL) < 5  # 6 and 7 if it weighed as much as the others


def test_the_suggestion_is_the_likeliest_answer() -> None:
    random = np.random.default_rng(0)
    given = prospects(400, 5)
    strange = np.arange(400) % 2 == 0
    scores = np.where(strange, 0.02 * random.random(400), random.random(400))
    for image in choose_next(replace(given, id_scores=scores), 100):
        best = int(given.probs[image.row].argmax())
        assert image.likeliest[0] == best
        assert image.suggestion == (NONE if scores[image.row] < 0.02 else best)
        assert 0 <= image.probability <= 1
        if image.suggestion == NONE:
            assert image.probability > 0.5
        else:
            assert image.probability <= given.probs[image.row].max()
        assert image.id_score == scores[image.row]


def test_one_class_and_no_labels_are_enough() -> None:
    given = prospects(30, probs=np.ones((30, 1)), decided=np.zeros(30, bool))
    found = choose_next(given, 5)
    assert len({image.row for image in found}) == 5
    assert all(image.reason != UNCERTAIN and image.likeliest == (0,) for image in found)
    nothing = prospects(30, decided=np.ones(30, bool))
    assert choose_next(nothing, 5) == []


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="probs has 3 rows for 120 images"):
        prospects(probs=np.ones((3, 2)))
    with pytest.raises(InputError, match="id_scores holds 1 values that are no numbers"):
        prospects(id_scores=np.append(np.zeros(119), np.nan))
    with pytest.raises(InputError, match="n = -1 images"):
        choose_next(prospects(), -1)


def test_a_hundred_thousand_images_take_seconds() -> None:
    given = prospects(100_000, width=64)
    start = time.process_time()
    assert len(choose_next(given, 200)) == 200
    assert time.process_time() - start < 15  # about 2 on an idle core


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_model(tmp_path)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_verb_writes_paths_suggestions_and_reasons(model: Path) -> None:
    out, before = model.parent / "next.csv", files_of(model)
    assert ended(["next", str(model), "--n", "20", "--out", str(out)]) == (0, "")
    assert files_of(model) == before
    assert tuple(out.read_text().splitlines()[0].split(",")) == NEXT_COLUMNS
    rows = table(out)
    assert len({row["path"] for row in rows}) == 20
    for row in rows:
        kind = int(row["path"].partition("-")[2][0])  # as small_workbenches names its files
        assert (model.parent / "pool" / row["path"]).is_file()
        right = ("ash", "birch", "cedar", "none of these", "none of these")[kind]
        assert row["suggestion"] == right
        assert 0.3 < float(row["probability"]) <= 1
        assert 0 <= float(row["id_score"]) <= 1
        assert row["reason"]
    assert {row["suggestion"] for row in rows} == {"ash", "birch", "cedar", "none of these"}


def test_a_file_that_is_there_is_kept_unless_forced(model: Path) -> None:
    out = model.parent / "next.csv"
    out.write_text("mine")
    code, said = ended(["next", str(model), "--out", str(out)])
    assert code == 2
    assert "is there already" in said
    assert "--force" in said
    assert out.read_text() == "mine"
    assert ended(["next", str(model), "--out", str(out), "--force"])[0] == 0
    assert len(table(out)) == 50


def test_the_verb_refuses_in_a_sentence(model: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (["next", str(model), "--n", "0"], "n = 0"),
        (["next", str(tmp_path)], "holds no bundle"),
        (["next", str(model), "--n", "many"], "whole number"),
    ):
        code, said = ended(arguments)
        assert code == 2
        assert words in said
        assert said.count("\n") == 1


def test_labels_and_skips_and_the_random_queue_are_left_out(model: Path, call: Call) -> None:
    out = model.parent / "next.csv"
    with Workbench.open(model) as workbench:
        free = np.flatnonzero(workbench.state.label_of == UNLABELED).tolist()
        paths = workbench.material.paths
        workbench.do(Label(tuple(free[:10]), 1, "next"))
        workbench.do(Label(tuple(free[10:20]), NONE, "grid"))
        workbench.do(Skip(tuple(free[20:30])))
        workbench.do(DrawRandom(tuple(free[30:35])))
        done = call("next", model, "--n", "999", "--out", out)  # while it is open
    found = {row["path"] for row in table(out)}
    sentence = f"{len(found)} images to label next (of 999: no more are left): {out}\n"
    assert done == (0, sentence, "")
    assert found <= {paths[row] for row in free[35:]}
    assert len(found) > 30


def test_names_of_the_workbench_are_used_and_escaped_and_merged_classes_are_one(
    model: Path,
) -> None:
    out = model.parent / "next.csv"
    with Workbench.open(model) as workbench:
        workbench.do(RenameClass(0, '=1+1,"x"'))
        workbench.do(MergeClasses((2,), 1))
        given, ids = prospects_of(*workbench.now)
    assert ids.tolist() == [0, 1]
    np.testing.assert_allclose(given.probs.sum(1), 1, atol=1e-6)
    assert ended(["next", str(model), "--out", str(out)])[0] == 0
    names = {row["suggestion"] for row in table(out)}
    assert names == {'\'=1+1,"x"', "birch", "none of these"}


def blobs() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 200)
    features = 1.2 * random.normal(size=(4, 20))[labels] + random.normal(size=(800, 20))
    return features.astype(np.float32), labels


def answered(given: Prospects) -> Any:
    """Of a benchmark, what its strategies look at."""
    rows = np.flatnonzero(~given.decided)
    return SimpleNamespace(
        open_rows=rows,
        features=given.units,
        label_of=np.where(given.decided, 0, UNLABELED),
        verdicts=SimpleNamespace(probs=torch.from_numpy(given.probs)),
    )


def test_strategies_beside_ours_are_what_their_names_say() -> None:
    given, random = prospects(60, 2), np.random.default_rng(0)
    now = answered(given)
    probs = np.sort(given.probs[now.open_rows], 1)
    for name, worst in (
        ("least certain", probs[:, -1]),
        ("margin", probs[:, -1] - probs[:, -2]),
    ):
        found = label_next.STRATEGIES[name](now, 9, random)
        assert found.tolist() == now.open_rows[np.argsort(worst)[:9]].tolist()
    found = label_next.STRATEGIES["random"](now, 9, random)
    assert len(set(found.tolist())) == 9
    assert set(found) <= set(now.open_rows)
    rows = (given.units - given.units.mean(0)) / given.units.std(0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    asked, slow = np.flatnonzero(given.decided).tolist(), []
    for _ in range(9):
        far = max(now.open_rows.tolist(), key=lambda i: min(1 - rows[asked + slow] @ rows[i]))
        slow.append(far)
    assert label_next.STRATEGIES["k-centre"](now, 9, random).tolist() == slow


def test_the_benchmark_goes_on_where_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, labels = blobs()
    np.savez(tmp_path / "blobs.npz", features=features, labels=labels)
    out = tmp_path / "out.jsonl"
    options = label_next.FitOptions
    monkeypatch.setattr(label_next, "FitOptions", lambda **given: options(steps=1, **given))
    monkeypatch.setattr(label_next, "BUDGETS", (10,))
    words = ["x", "run", str(out), f"blobs={tmp_path / 'blobs.npz'}"]
    words += ["--draws", "2", "--folds", "2", "--pool", "60", "--labels", "2"]
    words += ["--strategies", "ours", "margin"]
    monkeypatch.setattr(sys, "argv", words)
    label_next.main()
    lines = out.read_text().splitlines()
    rows = label_next.read_lines(out)
    assert len(lines) == len(rows) == 2 * 2 * 2
    assert all(row["asked"] == row["budget"] for row in rows if row["budget"])
    starts = {row["accuracy"] for row in rows if row["budget"] == 0 and row["draw"] == 0}
    assert len(starts) == 1
    out.write_text("\n".join(lines[:-1]) + '\n{"set": "blo')  # killed
    label_next.main()
    again = label_next.read_lines(out)
    figures = [{k: v for k, v in row.items() if "seconds" not in k} for row in (*rows, *again)]
    assert figures[:8] == figures[8:]
    text = label_next.report(out)
    mean = np.mean([r["auc"] for r in rows if (r["strategy"], r["budget"]) == ("margin", 10)])
    assert f"{100 * mean:.1f} ±" in text
