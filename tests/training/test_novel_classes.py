"""Classes from clusters: names by matching, k-means with and without anchors, judging by each."""

from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from builders import normal, rng
from conftest import Call
from protofission.core.errors import InputError
from protofission.core.options import override
from protofission.core.records import Output, Prototypes
from protofission.data.image_sets import TestData, TrainingData
from protofission.training.evaluate import predict
from protofission.training.experiment import Experiment
from protofission.training.novel_classes import cluster_into_classes, match_clusters
from protofission.training.predictions import NO_SLOT, Predictions
from protofission.training.presets import preset
from protofission.training.run import perform
from protofission.training.run_folder import RunFolder
from protofission.training.run_metrics import compute_metrics
from runs import digits, small

CENTRES = torch.eye(6, dtype=torch.float64)
"""Five directions for classes, and one for what is left."""


def blobs(classes: list[int], spread: float = 0.02, seed: int = 0) -> Tensor:
    """Rows near the directions of their classes, each of another length."""
    rows = CENTRES[classes] + spread * normal(len(classes), 6, seed=seed)
    lengths = 0.1 + 5 * torch.rand(len(classes), 1, generator=rng(seed), dtype=torch.float64)
    return rows * lengths


def best_by_trying(clusters: list[int], labels: list[int], num_seen: int, number: int) -> int:
    """The most labeled images that any one-to-one naming of clusters gets right."""
    pairs = list(zip(clusters, labels, strict=True))
    namings = permutations(range(number), num_seen)  # the cluster of each class
    return max(sum(naming[label] == own for own, label in pairs) for naming in namings)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("num_seen", "number"), [(1, 1), (2, 2), (3, 5), (4, 6), (1, 4)])
def test_no_other_naming_gets_more_labeled_images_right(
    num_seen: int, number: int, seed: int
) -> None:
    clusters = torch.randint(number, (30,), generator=rng(seed))
    labels = torch.randint(num_seen, (30,), generator=rng(seed + 100))
    names = match_clusters(clusters, labels, num_seen, number)
    assert sorted(names.tolist()) == list(range(number))
    right = int((names[clusters] == labels).sum())
    assert right == best_by_trying(clusters.tolist(), labels.tolist(), num_seen, number)


def test_clusters_without_a_class_are_numbered_in_their_order() -> None:
    names = match_clusters(torch.tensor([3, 3, 1]), torch.tensor([0, 0, 1]), 2, 5)
    assert names.tolist() == [2, 1, 3, 0, 4]


def test_without_labeled_images_every_cluster_has_a_name_all_the_same() -> None:
    none = torch.empty(0, dtype=torch.long)
    assert sorted(match_clusters(none, none, 2, 4).tolist()) == [0, 1, 2, 3]


WAYS = pytest.mark.parametrize("anchored", [False, True], ids=["cluster", "anchor"])


@WAYS
@pytest.mark.parametrize("seed", range(4))
def test_well_separated_classes_are_found_exactly(anchored: bool, seed: int) -> None:
    known, true = [0, 1, 2] * 8, [0, 1, 2, 3, 4] * 12
    found = cluster_into_classes(
        blobs(known, seed=seed),
        torch.tensor(known),
        blobs(true, seed=seed + 50),
        3,
        5,
        seed,
        anchored=anchored,
    )
    heads = found.heads.tolist()
    assert [h for h, y in zip(heads, true, strict=True) if y < 3] == [y for y in true if y < 3]
    pairs = {(h, y) for h, y in zip(heads, true, strict=True) if y >= 3}
    assert len(pairs) == 2
    assert {h for h, _ in pairs} == {3, 4}
    assert found.centers.norm(dim=1).tolist() == pytest.approx([1.0] * 5)
    assert (found.centers[:3] - CENTRES[:3]).abs().max() < 0.05


@WAYS
def test_scores_are_higher_the_farther_a_row_is_from_the_seen_classes(anchored: bool) -> None:
    known, true = [0, 1, 2] * 8, [0, 1, 2, 3, 4] * 12
    rows, labels = blobs(true, seed=1), torch.tensor(true)
    found = cluster_into_classes(
        blobs(known), torch.tensor(known), rows, 3, 5, 0, anchored=anchored
    )
    assert found.scores[labels >= 3].min() > found.scores[labels < 3].max()
    cosines = nn.functional.normalize(rows, dim=1) @ found.centers.T
    torch.testing.assert_close(found.scores, 1 - cosines[:, :3].amax(1))
    torch.testing.assert_close(found.similarities, cosines.amax(1))
    assert torch.equal(found.heads, cosines.argmax(1))


def test_anchors_hold_a_class_together_that_k_means_would_tear_apart() -> None:
    """Class 0 has two far ends: without anchors they are two clusters, with them one class."""
    ends = torch.cat([blobs([0] * 20), blobs([5] * 20)])
    others = blobs([1] * 20, seed=3)
    labeled = torch.cat([ends, others])
    labels = torch.tensor([0] * 40 + [1] * 20)
    held = cluster_into_classes(labeled, labels, labeled, 2, 2, 0, anchored=True)
    middle = nn.functional.normalize(nn.functional.normalize(ends, dim=1).mean(0), dim=0)
    torch.testing.assert_close(held.centers[0], middle)
    free = cluster_into_classes(labeled, labels, labeled, 2, 3, 0, anchored=False)
    assert len(set(free.heads[:40].tolist())) == 2


def test_anchored_rows_move_the_center_of_their_class_however_far_they_are() -> None:
    """One row of class 1 lies with class 0: its class's mean goes with it all the same."""
    labeled = torch.cat([blobs([0] * 5, 0.0), blobs([1] * 4, 0.0), blobs([0], 0.0)])
    labels = torch.tensor([0] * 5 + [1] * 5)
    found = cluster_into_classes(labeled, labels, labeled[:0], 2, 2, 0, anchored=True)
    assert found.centers[1, :2].tolist() == pytest.approx([1 / 17**0.5, 4 / 17**0.5])


@WAYS
def test_fewer_different_rows_than_classes_leave_classes_without_a_center(anchored: bool) -> None:
    known = [0, 1] * 3
    found = cluster_into_classes(
        blobs(known, 0.0),
        torch.tensor(known),
        blobs([0, 1, 2], 0.0),
        2,
        6,
        0,
        anchored=anchored,
    )
    assert found.heads.tolist() == [0, 1, 2]
    assert found.centers.norm(dim=1).tolist() == pytest.approx([1, 1, 1, 0, 0, 0])
    assert found.scores.tolist() == pytest.approx([0, 0, 1])


def test_fewer_clusters_than_seen_classes_have_seen_names() -> None:
    same = CENTRES[:1].repeat(9, 1)
    found = cluster_into_classes(same, torch.arange(9) % 3, same, 3, 5, 0, anchored=False)
    assert len(set(found.heads.tolist())) == 1
    assert found.heads[0] < 3
    assert found.scores.tolist() == pytest.approx([0.0] * 9)


@WAYS
def test_features_of_length_zero_move_no_center(anchored: bool) -> None:
    known, true = [0, 1, 2] * 8, [0, 1, 2, 3, 4] * 12
    labeled, rows = blobs(known), blobs(true, seed=1)
    usual = cluster_into_classes(labeled, torch.tensor(known), rows, 3, 5, 0, anchored=anchored)
    nothing = torch.zeros(15, 6, dtype=torch.float64)
    found = cluster_into_classes(
        torch.cat([labeled, nothing]),
        torch.tensor(known + [0] * 15),
        torch.cat([rows, nothing]),
        3,
        5,
        0,
        anchored=anchored,
    )
    torch.testing.assert_close(found.centers[:3], usual.centers[:3])
    both = found.centers[3:] @ usual.centers[3:].T
    assert both.amax(1).tolist() == pytest.approx([1.0, 1.0])
    assert found.similarities[len(rows) :].tolist() == [0.0] * 15
    assert found.scores[len(rows) :].tolist() == [1.0] * 15


@WAYS
def test_a_model_whose_features_are_all_zero_is_judged_all_the_same(anchored: bool) -> None:
    nothing = torch.zeros(4, 3)
    found = cluster_into_classes(
        nothing, torch.tensor([0, 1, 0, 1]), nothing, 2, 4, 0, anchored=anchored
    )
    assert found.heads.tolist() == [0] * 4
    assert found.scores.tolist() == [1.0] * 4
    assert not found.centers.any()


@WAYS
def test_the_seed_alone_decides(anchored: bool) -> None:
    known = [0, 1, 2] * 8
    labeled, rows = blobs(known, 0.6), normal(80, 6, seed=9)

    def centers(seed: int) -> Tensor:
        labels = torch.tensor(known)
        return cluster_into_classes(labeled, labels, rows, 3, 6, seed, anchored=anchored).centers

    before = torch.get_rng_state()
    assert torch.equal(centers(0), centers(0))
    assert torch.equal(before, torch.get_rng_state())
    assert any(not torch.equal(centers(0), centers(seed)) for seed in (1, 2, 3, 4))


@WAYS
def test_the_lengths_of_features_mean_nothing(anchored: bool) -> None:
    known = [0, 1, 2] * 8
    labeled, rows = blobs(known, 0.4), blobs([0, 1, 2, 3, 4] * 6, 0.4, seed=2)
    usual = cluster_into_classes(labeled, torch.tensor(known), rows, 3, 5, 0, anchored=anchored)
    longer = cluster_into_classes(
        4 * labeled, torch.tensor(known), 0.5 * rows, 3, 5, 0, anchored=anchored
    )
    assert torch.equal(usual.heads, longer.heads)


class Ready(nn.Module):
    """A model whose inputs are features, and whose head is given."""

    def __init__(self, head: Callable[[Tensor], Tensor], width: int = 6) -> None:
        super().__init__()
        self.backbone, self.scores, self.head = nn.Identity(), head, self.forward
        self.backbone.num_features = width

    def forward(self, features: Tensor) -> Output:
        sims = self.scores(features)[..., None]
        vectors = torch.arange(sims.shape[1]).float()[:, None, None].expand(-1, 1, 2)
        prototypes = Prototypes(vectors, vectors, torch.zeros(sims.shape[1:]))
        return Output(features, sims, sims[..., 0], prototypes)


def judged(name: str, model: nn.Module, *assignments: str, finer: bool = False) -> Predictions:
    """Predictions for five classes, of which three are labeled."""
    experiment: Experiment = preset("digits", name)
    for assignment in assignments:
        experiment = override(experiment, assignment)
    experiment.check()
    known, true = [0, 1, 2] * 8, [0, 1, 2, 3, 4] * 12
    training = TrainingData(
        blobs(known).float(), torch.tensor(known), blobs(true, seed=1).float(), 3, 5
    )
    labels = np.array(true)
    test = TestData(blobs(true, seed=1).float(), labels, labels * 2 if finer else None)
    memory = nn.ModuleDict({"base": nn.Module()})
    return predict(model, memory, experiment, training, test)  # type: ignore[arg-type]


def directions(*order: int) -> Callable[[Tensor], Tensor]:
    """A head whose similarities are the features along some directions."""
    return lambda features: features[:, list(order)]


@pytest.mark.parametrize("name", ["simclr-kmeans", "gcd"])
@pytest.mark.parametrize("finer", [False, True], ids=["", "finer classes"])
def test_clusters_speak_for_a_projection(name: str, finer: bool) -> None:
    """Its coordinates, here two, are no classes; nothing of them is in the predictions."""
    found = judged(name, Ready(lambda features: features[:, :2] * 100), finer=finer)
    numbers = compute_metrics(found)
    assert numbers.strict.seen == numbers.strict.novel == numbers.auc == 1
    assert found.prototypes.shape == (5, 1, 6)
    assert found.slot_usage.sum() == len(found.labels)
    assert numbers.prototypes.effective == 1
    assert found.similarities.min() > 0.9
    assert found.ood_scores.max() < 1.2


def test_nameless_heads_get_the_names_that_the_labels_match_them_with() -> None:
    """Heads stand for the classes 4, 2, 0, 3, 1: all that is told of them follows the names."""
    found = judged("dtc", Ready(directions(4, 2, 0, 3, 1)), finer=True)
    numbers = compute_metrics(found)
    assert numbers.strict.seen == numbers.strict.novel == 1
    assert found.prototypes[:, 0, 0].tolist() == [2, 4, 1, 0, 3]
    assert found.heads[:5].tolist() == [0, 1, 2, 4, 3]  # novel ones in the order of their heads


def test_the_ood_score_of_nameless_heads_looks_at_those_of_seen_classes() -> None:
    """In whatever order the heads stand."""
    one, other = (
        judged("dtc", Ready(directions(*order)), "judging.ood_score=max_logit")
        for order in ((4, 2, 0, 3, 1), (0, 1, 2, 3, 4))
    )
    np.testing.assert_array_equal(one.ood_scores, other.ood_scores)
    assert compute_metrics(one).auc == 1


def test_a_method_that_rejects_can_be_judged_both_ways() -> None:
    """By rejecting, the seen heads stay; by clusters, they are those of the features."""
    wrong = Ready(directions(1, 0, 2))  # takes the first two classes for each other
    rejected = judged("fixmatch", wrong, "judging.ood_score=max_logit")
    same = judged("fixmatch", wrong, "judging.ood_score=max_logit", "judging.novel=reject")
    assert rejected.heads.tolist() == same.heads.tolist()
    accepted = rejected.slots != NO_SLOT
    assert accepted[rejected.labels < 3].mean() > 0.5
    assert not accepted[rejected.labels >= 3].any()
    assert set(rejected.heads[(rejected.labels == 0) & accepted].tolist()) == {1}

    clusters = judged("fixmatch", wrong, "judging.ood_score=max_logit", "judging.novel=cluster")
    assert compute_metrics(clusters).strict.all == 1
    assert clusters.prototypes.shape == (5, 1, 6)
    np.testing.assert_array_equal(clusters.ood_scores, rejected.ood_scores)


@pytest.mark.parametrize("name", ["orca", "dtc"])
def test_a_method_with_heads_for_novel_classes_can_be_judged_by_clusters(name: str) -> None:
    useless = Ready(lambda features: features[:, :5] * 0 + torch.arange(5))
    found = judged(name, useless, "judging.novel=cluster")
    assert compute_metrics(found).strict.all == 1


@pytest.mark.parametrize("name", ["orca", "dtc", "gcd", "simclr-kmeans"])
def test_a_method_with_a_way_of_its_own_does_not_reject(name: str) -> None:
    with pytest.raises(InputError, match=rf"^judging.novel = reject does not fit {name}, "):
        override(preset("digits", name), "judging.novel=reject").check()


@pytest.mark.parametrize("name", ["simclr", "gcd", "simclr-kmeans"])
def test_a_score_of_class_logits_is_refused_where_there_are_none(name: str) -> None:
    with pytest.raises(InputError, match=rf"^judging.ood_score = energy .* {name} has none"):
        override(preset("digits", name), "judging.ood_score=energy").check()


@pytest.mark.parametrize("name", ["gcd", "dtc"])
def test_predictions_of_a_run_are_told_of_every_test_image(name: str, tmp_path: Path) -> None:
    data, folder = digits(), RunFolder(tmp_path / "run")
    for _ in perform(small(name), data, folder):
        pass
    found = folder.predictions()
    assert found.heads.shape == data.test.labels.shape
    assert np.isfinite(found.ood_scores).all()
    assert found.prototypes.shape[:2] == (10, 1)
    assert found.slot_usage.sum() == len(found.heads)
    assert folder.metrics().prototypes.effective == 1


FEW = ("backbone.width=4", "recipe.epochs=1", "recipe.steps_per_epoch=2")


def test_a_run_of_clusters_writes_all_files(tmp_path: Path, call: Call) -> None:
    name, out = "simclr-kmeans", tmp_path / "run"
    options = [f"--set={assignment}" for assignment in FEW]
    said = call("train", name, "--preset", "digits", "--out", out, *options)
    assert (said.code, said.err) == (0, "")
    assert "AUC" in said.out
    names = {path.name for path in out.iterdir()}
    assert names >= {
        "experiment.json",
        "finished",
        "history.json",
        "metrics.json",
        "predictions.npz",
        "split.json",
        "weights.safetensors",
    }
    told = call("report", out, "--out", tmp_path / "report")
    assert (told.code, told.err) == (0, "")
    assert name in (tmp_path / "report" / "report.html").read_text()


@pytest.mark.slow
def test_the_page_of_a_demo_holds_clusters_beside_heads(tmp_path: Path, call: Call) -> None:
    options = [f"--set={assignment}" for assignment in FEW]
    few = [f"--set=simclr:{assignment}" for assignment in FEW[1:]]
    methods = ("gcd", "dtc", "supervised+pf")
    said = call("demo", "--out", tmp_path, "--methods", *methods, *options, *few)
    assert (said.code, said.err) == (0, "")
    page = (tmp_path / "report.html").read_text()
    assert all(f"{name}, seed 0" in page for name in methods)
