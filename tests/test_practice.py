"""The comparison of benchmarks/practice.py: its cells, baselines, measures and tables."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import practice
from practice_parts.baselines import BASELINES, Baselines
from practice_parts.cells import Cell, Scene, draw_scene
from practice_parts.measures import Judged, measure, measure_clusters
from practice_parts.report import (
    OLD,
    OURS,
    Results,
    against_best,
    in_range_of_test,
    matches,
    report,
)


def blobs(classes: int = 6, each: int = 60) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features of well separated classes."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    features = random.normal(size=(classes, 60))[labels] + random.normal(size=(len(labels), 60))
    return features.astype(np.float32), labels


@pytest.fixture(scope="module")
def scene() -> Scene:
    return draw_scene(Cell("blobs", 0, 10, 0.3), *blobs())


def test_parts_of_a_cell_are_apart_and_as_asked_for() -> None:
    features, labels = blobs()
    features[:, 0] = np.arange(len(features))
    found = draw_scene(Cell("blobs", 1, 10, 0.3), features, labels)
    rows = [part[:, 0].astype(int) for part in (found.labeled, found.pool, found.test)]
    assert len(np.unique(np.concatenate(rows))) == sum(map(len, rows))
    assert np.bincount(found.labels).tolist() == [10, 10, 10]
    assert (found.pool_truth >= found.known).mean() == pytest.approx(0.3, abs=0.01)
    assert np.bincount(found.truth).tolist() == [20] * 6
    for part, truth in zip(rows, (found.labels, found.pool_truth, found.truth), strict=True):
        pairs = set(zip(labels[part].tolist(), truth.tolist(), strict=True))
        assert len(pairs) == len({true for _, true in pairs})  # one class, one number


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_finds_classes_and_strangers(name: str, scene: Scene) -> None:
    judged, _ = BASELINES[name](Baselines(scene))
    found = measure(scene, judged)
    assert found["accuracy"] > 0.95
    assert found["auc"] > (0.6 if name == "self-training" else 0.7)  # 0.5 is chance
    assert judged.pool_scores.shape == (len(scene.pool),)
    assert roc_auc_score(scene.pool_truth < scene.known, judged.pool_scores) > 0.6


def test_measures_are_those_of_scikit_learn_and_by_hand(scene: Scene) -> None:
    random = np.random.default_rng(1)
    scores = scene.is_known + random.normal(size=len(scene.truth))
    classes = random.integers(0, scene.known, len(scene.truth))
    found = measure(scene, Judged(scores, classes, None, scores))
    assert found["auc"] == pytest.approx(roc_auc_score(scene.is_known, scores))
    threshold = np.sort(scores[scene.is_known])[int(0.05 * scene.is_known.sum())]
    assert found["rejected95"] == pytest.approx((scores[~scene.is_known] < threshold).mean())
    rejected = np.ones(len(scene.truth), bool)
    rejected[np.flatnonzero(~scene.is_known)[::2]] = False
    clusters = (scene.truth + 1) % scene.strange  # the classes of strangers by other numbers
    measured = measure_clusters(scene, rejected, clusters, scene.strange)
    assert measured == {"clusters": 1.0, "named": 0.5}


def lines(**by_method: tuple[float, float]) -> list[dict[str, Any]]:
    """Lines of a cell: AUC and accuracy of each method."""
    names = {"ours": OURS, "distance": "relative Mahalanobis", "free": "K + M"}
    own = {"set": "a", "draw": 0, "labels": 20, "share": 0.5, "seconds": 1.0, "kept": 0.9}
    own |= {"expected": 0.95, "in_range": True, "rejected": 0.5, "control": False}
    own |= {"range": [0.9, 1.0], "known_test": 100}
    return [
        {**own, "method": names[name], "auc": auc, "accuracy": accuracy}
        for name, (auc, accuracy) in by_method.items()
    ]


def test_a_cell_is_won_against_the_best_baseline_of_each_quantity() -> None:
    rows = lines(ours=(0.9, 0.9), distance=(0.88, 0.7), free=(0.7, 0.92))
    results = Results(rows)
    assert [m.outcome for m in matches(results, "auc", single=True)] == [1]
    (accuracy,) = matches(results, "accuracy", single=True)
    assert (accuracy.outcome, accuracy.by) == (-1, "K + M")
    level = Results(lines(ours=(0.9, 0.9), distance=(0.91, 0.89), free=(0.7, 0.7)))
    assert [m.outcome for m in matches(level, "auc", single=False)] == [0]
    counts = against_best(results).rows[0][1:]
    assert counts == ["1", "1", "0", "0", "100 %", "0", "0", "1", "0 %"]
    assert report(rows)["losses"].rows == [
        ["accuracy", "a", "20", "50 %", "90.0", "92.0", "K + M"],
    ]


def test_a_range_is_held_by_as_many_test_sets_as_it_says() -> None:
    random = np.random.default_rng(0)
    shares = 0.9 + 0.01 * random.normal(size=4000)
    kept = random.binomial(400, shares) / 400
    row = {"expected": 0.9, "range": [0.9 - 1.96 * 0.01, 0.9 + 1.96 * 0.01], "known_test": 400}
    held = [in_range_of_test({**row, "kept": value}) for value in kept]
    assert np.mean(held) == pytest.approx(0.95, abs=0.01)
    raw = [abs(value - 0.9) <= 1.96 * 0.01 for value in kept]
    assert np.mean(raw) < 0.8  # the test's own chance is most of it


def test_each_baseline_stands_in_one_row_with_an_interval_over_sets() -> None:
    first = lines(ours=(0.9, 0.9), distance=(0.8, 0.9))
    second = [{**row, "set": "b"} for row in lines(ours=(0.9, 0.9), distance=(0.6, 0.8))]
    (row,) = report([*first, *second])["each baseline"].rows
    # Differences 0.1 and 0.3: half the interval is t(1) * 0.1 = 12.706 * 0.1.
    assert row == ["relative Mahalanobis", "+0.200 [-1.071, +1.471]", "+5.0 [-58.5, +68.5]"]
    assert report(first)["each baseline"].rows == [["relative Mahalanobis", "+0.100", "+0.0"]]


def test_without_baselines_an_older_fit_alone_stands_beside_ours() -> None:
    own = {**lines(ours=(0.9, 0.9))[0], "rejected95": 0.5}
    tables = report([own, {**own, "method": OLD, "auc": 0.8}])
    assert tables["older fit"].rows[-1][:5] == ["all", "1", "0.800", "0.900", "+0.100"]
    assert not {"best baseline", "each baseline", "losses"} & set(tables)


def test_cells_with_a_method_missing_are_left_out_and_errors_listed() -> None:
    whole = lines(ours=(0.9, 0.9), distance=(0.8, 0.8))
    part = [{**row, "draw": 1} for row in lines(ours=(0.1, 0.1))]
    failed = {"set": "a", "draw": 1, "labels": 20, "share": 0.5, "error": "ValueError: no"}
    tables = report([*whole, *part, {**failed, "method": "relative Mahalanobis"}])
    assert tables["methods"].rows[0][:3] == [OURS, "0.900", "90.0"]
    assert tables["failures"].rows[0][-1] == "ValueError: no"


def test_a_run_goes_on_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, labels = blobs()
    np.savez(tmp_path / "blobs.npz", features=features, labels=labels)
    out = tmp_path / "out.jsonl"
    command = ["practice.py", "run", str(out), f"blobs={tmp_path / 'blobs.npz'}", "--draws", "1"]
    command += ["--labels", "10", "--shares", "0.3", "0.5", "--methods", "relative Mahalanobis"]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(practice, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(practice, "as_completed", lambda futures: futures)
    practice.main()
    first, second = out.read_text().splitlines()
    out.write_text(f"{first}\n{second[:40]}")  # a kill in the midst of the second line
    practice.main()
    rows = practice.read_rows(out)
    assert [row["share"] for row in rows] == [0.3, 0.5]
    assert rows[0] == json.loads(first)
    assert rows[1]["auc"] == json.loads(second)["auc"]
    assert rows[1]["auc"] > 0.9


class Here:
    """Stand-in for a pool of processes: computes in this one."""

    def __init__(self, *args: object, **options: object) -> None:
        self.found: Any = None

    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, function: Any, *arguments: Any) -> "Here":
        done = Here()
        done.found = function(*arguments)
        return done

    def result(self) -> Any:
        return self.found
