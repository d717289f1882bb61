"""From outputs to predictions: rejection, clusters, slots and scores on cases made by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_info, threadpool_limits
from torch import Tensor, nn

from protofission.core.options import override
from protofission.core.records import Output, Prototypes
from protofission.data.image_sets import TestData, TrainingData
from protofission.training.evaluate import kmeans_clusters, ood_scores, predict
from protofission.training.experiment import Experiment
from protofission.training.predictions import NO_SLOT
from protofission.training.presets import preset
from protofission.training.run_metrics import compute_metrics

MEMORY = nn.ModuleDict({"base": nn.Module()})
"""Of a method that remembers nothing, with fission or without."""


class Ready(nn.Module):
    """A model whose inputs are its similarities already."""

    def __init__(self, features: Callable[[Tensor], Tensor] = lambda x: x.flatten(1)) -> None:
        super().__init__()
        self.features = features
        self.backbone, self.head = nn.Identity(), self.forward

    def forward(self, sims: Tensor) -> Output:
        shape = sims.shape[1:]
        prototypes = Prototypes(torch.ones(*shape, 2), torch.ones(*shape, 2), torch.ones(shape) / 2)
        return Output(self.features(sims), sims, sims.amax(-1), prototypes)


def experiment(name: str, *assignments: str) -> Experiment:
    found = preset("digits", name)
    for assignment in assignments:
        found = override(found, assignment)
    return found


def data(
    labeled: Tensor, test: Tensor, num_seen: int, num_classes: int
) -> tuple[TrainingData, TestData]:
    labels = torch.arange(len(labeled)) % num_seen
    training = TrainingData(labeled, labels, test, num_seen, num_classes)
    return training, TestData(test, np.zeros(len(test), np.int64))


def single(rows: list[list[float]]) -> Tensor:
    """(N, C) logits as (N, C, 1) similarities."""
    return torch.tensor(rows)[..., None]


def test_the_share_to_keep_is_of_the_labeled_images() -> None:
    labeled = single([[float(5 + i), -9.0] for i in range(0, 10)] + [[-9.0, 20.0]] * 10)
    # 19 of 20 labeled images have a logit of 6 or more: 0.95 keeps what is as sure as that.
    test = single([[6.5, -9.0], [5.2, -9.0], [4.0, -9.0], [-9.0, 30.0]])
    training, judged = data(labeled, test, 2, 3)
    model = Ready()
    kept = predict(model, MEMORY, experiment("fixmatch-sigmoid"), training, judged)  # type: ignore[arg-type]
    assert kept.heads.tolist()[0] == 0
    assert kept.heads.tolist()[2:] == [2, 1]
    assert kept.slots.tolist() == [0, NO_SLOT, NO_SLOT, 0]
    loose = experiment("fixmatch-sigmoid", "judging.keep=0.05")
    all_but_sure = predict(model, MEMORY, loose, training, judged)  # type: ignore[arg-type]
    assert all_but_sure.slots.tolist() == [NO_SLOT, NO_SLOT, NO_SLOT, 0]


def test_the_rejected_are_clustered_by_their_features() -> None:
    far = [[-5.0, -5.0], [-5.1, -5.0], [-5.0, -9.0], [-5.1, -9.0], [-9.0, -5.0]]
    labeled = single([[9.0, -9.0], [-9.0, 9.0]])
    training, judged = data(labeled, single([*far, [9.0, -9.0]]), 2, 5)
    found = predict(Ready(), MEMORY, experiment("fixmatch-sigmoid"), training, judged)  # type: ignore[arg-type]
    heads = found.heads.tolist()
    assert heads[5] == 0
    assert sorted(set(heads[:5])) == [2, 3, 4]
    assert heads[0] == heads[1]
    assert heads[2] == heads[3]
    assert len({heads[0], heads[2], heads[4]}) == 3


def test_a_method_with_novel_heads_rejects_nothing() -> None:
    sims = torch.tensor([[[0.1, 0.7], [0.2, 0.3]], [[0.1, 0.2], [0.4, 0.3]]])  # (2, 2, 2)
    training, judged = data(sims[:1], sims, 1, 2)
    found = predict(Ready(), MEMORY, experiment("orca+pf"), training, judged)  # type: ignore[arg-type]
    assert found.heads.tolist() == [0, 1]
    assert found.slots.tolist() == [1, 0]
    assert found.similarities.tolist() == pytest.approx([0.7, 0.4])


def test_scores_look_at_seen_heads_unless_told_otherwise() -> None:
    output = Ready()(single([[0.0, 1.0, 9.0]]))
    seen = experiment("orca")
    probs = torch.tensor([0.0, 1.0, 9.0]).softmax(-1)
    assert ood_scores(output, seen, MEMORY, 2).item() == pytest.approx(1 - probs[1].item())
    everything = replace(seen, judging=replace(seen.judging, auc_heads="all"))
    assert ood_scores(output, everything, MEMORY, 2).item() == pytest.approx(1 - probs[2].item())
    logit = experiment("orca", "judging.ood_score=max_logit")
    assert ood_scores(output, logit, MEMORY, 2).item() == -1


def test_clusters_are_found_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of several threads depend on which of them ends first."""
    used: set[int] = set()
    fit = KMeans.fit

    def noted(self: KMeans, points: np.ndarray) -> KMeans:
        used.update(library["num_threads"] for library in threadpool_info())
        return fit(self, points)

    monkeypatch.setattr(KMeans, "fit", noted)
    with threadpool_limits(2):
        found = kmeans_clusters(torch.tensor([[0.0], [9.0], [0.1], [9.1]]).__getitem__, 4, 2, 0)
    assert found[0] == found[2] != found[1] == found[3]
    assert used == {1}


def test_fewer_images_than_clusters_have_one_each() -> None:
    assert kmeans_clusters(torch.randn(3, 2).__getitem__, 3, 5, 0).tolist() == [0, 1, 2]
    assert kmeans_clusters(torch.randn(0, 2).__getitem__, 0, 5, 0).tolist() == []


def test_where_finer_classes_are_known_each_class_is_divided_twice() -> None:
    """By the prototypes of the true class, whatever was predicted, and by k-means of features."""
    sims = torch.tensor(
        [
            [[5.0, 1.0], [0.0, 0.0]],
            [[4.0, 1.0], [9.0, 0.0]],  # predicted as the other class
            [[1.0, 5.0], [0.0, 0.0]],
            [[0.0, 0.0], [1.0, 3.0]],
            [[0.0, 0.0], [3.0, 1.0]],
        ]
    )
    training, _ = data(sims, sims, 2, 2)
    finer = np.array([3, 3, 1, 7, 8])
    judged = TestData(sims, np.array([0, 0, 0, 1, 1]), finer)
    found = predict(Ready(), MEMORY, experiment("orca+pf"), training, judged)  # type: ignore[arg-type]
    assert found.own_slots.tolist() == [0, 0, 1, 1, 0]
    assert found.finer.tolist() == finer.tolist()
    assert sorted(set(found.own_clusters[:3].tolist())) == [0, 1]
    numbers = compute_metrics(found)
    assert (numbers.subclasses.nmi, numbers.subclasses.accuracy) == (1.0, 1.0)
    without, _ = data(sims, sims, 2, 2)
    plain = predict(Ready(), MEMORY, experiment("orca+pf"), without, TestData(sims, judged.labels))  # type: ignore[arg-type]
    assert len(plain.own_slots) == 0
    assert np.isnan(compute_metrics(plain).subclasses.nmi)
