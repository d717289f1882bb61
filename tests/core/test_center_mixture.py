"""The mixture of known and free centers: against a scalar twin, in its limits and on drawn data."""

import math

import pytest
import torch
import torch.nn.functional as F

from builders import normal, rng
from protofission.core.center_mixture import (
    CONCENTRATION,
    ROUNDS,
    CenterMixture,
    fit_centers,
    log_priors,
    start_centers,
)
from protofission.core.errors import InputError
from protofission.core.kmeans import SPHERE, far_rows
from reference.prototypes import dot, unit


def scalar_centers(labeled, labels, pool, centers, priors, rounds):
    """Expectation maximization, row by row and center by center."""
    for _ in range(rounds):
        sums = [[0.0] * len(pool[0]) for _ in centers]
        for row, own in zip(labeled, labels, strict=True):
            sums[own] = [s + x for s, x in zip(sums[own], row, strict=True)]
        for row in pool:
            weights = [p * math.exp(10 * dot(row, c)) for p, c in zip(priors, centers, strict=True)]
            for k, weight in enumerate(weights):
                part = weight / sum(weights)
                sums[k] = [s + part * x for s, x in zip(sums[k], row, strict=True)]
        centers = [unit(each) for each in sums]
    return centers


def drawn(known=3, strange=2, count=40, width=6, noise=0.3, seed=0):
    """Labels of known classes, and a pool of them and of strangers, around the first axes."""
    places = torch.arange(count * (known + strange)) % (known + strange)
    labels, axes = torch.arange(4 * known) % known, torch.eye(width).double()
    pool = axes[places] + noise * normal(len(places), width, seed=seed)
    labeled = axes[labels] + noise * normal(len(labels), width, seed=seed + 1)
    return F.normalize(labeled, dim=1), labels, F.normalize(pool, dim=1), places


def fit(labeled, labels, pool, free, share, seed=0):
    start = start_centers(labeled, labels, pool, free, rng(seed))
    return fit_centers(start, labeled, labels, pool, share)


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_centers_are_those_of_the_scalar_twin(share):
    labeled, labels, pool, _ = drawn(noise=0.6)
    found = fit(labeled, labels, pool, 4, share, 3)
    starts = F.normalize(torch.stack([labeled[labels == c].mean(0) for c in range(3)]), dim=1)
    free = far_rows(pool, starts, 4, rng(3), SPHERE)
    priors = [(1 - share) / 3] * 3 + [share / 4] * 4
    assert found.log_priors.exp().tolist() == pytest.approx(priors)
    start = [*starts.tolist(), *free.tolist()]
    wanted = scalar_centers(labeled.tolist(), labels.tolist(), pool.tolist(), start, priors, ROUNDS)
    assert torch.allclose(found.centers, torch.tensor(wanted).double(), atol=1e-9)
    logits = found.logits(pool[:5])
    for row, own in zip(pool[:5].tolist(), logits.tolist(), strict=True):
        each = [10 * dot(row, c) + math.log(p) for c, p in zip(wanted, priors, strict=True)]
        assert own == pytest.approx(each, abs=1e-8)
    assert torch.allclose(found.memberships(pool).sum(1), torch.ones(len(pool)).double())


def test_known_centers_find_their_classes_and_free_ones_the_strangers():
    labeled, labels, pool, places = drawn(noise=0.12)
    found = fit(labeled, labels, pool, 2, 0.4)
    members = found.memberships(pool)
    assert (members[:, :3].argmax(1) == places)[places < 3].all()
    odds = members[:, :3].sum(1)
    assert odds[places < 3].min() > 0.9 > 0.1 > odds[places >= 3].max()


def test_a_label_counts_for_its_class_wherever_it_lies():
    """Without labels, the first two centers would swap what the pool holds."""
    labeled, labels, pool, places = drawn(known=2, strange=1, noise=0.12)
    swapped = fit(labeled, 1 - labels, pool, 1, 0.3).memberships(pool)
    assert (swapped[:, :2].argmax(1) == 1 - places)[places < 2].all()


def test_a_free_center_without_a_row_of_its_own_is_equally_far_from_all():
    labeled = torch.eye(3).double()
    starts = start_centers(labeled, torch.arange(3), labeled.repeat(5, 1), 6, rng(0))
    assert starts.shape == (9, 3)
    assert not starts[3:].any()  # every row of the pool lies on a known center
    found = fit(labeled, torch.arange(3), labeled.repeat(5, 1), 6, 0.5)
    assert torch.allclose(found.centers[:3], labeled, atol=1e-2)
    assert found.logits(labeled).isfinite().all()


def test_a_center_whose_rows_cancel_out_stays():
    labeled = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]).double()
    found = fit(labeled, torch.tensor([0, 0, 1]), labeled[:0], 2, 0.5)
    assert found.centers.isfinite().all()
    assert found.centers[1].tolist() == pytest.approx([0, 1])


@pytest.mark.parametrize(("share", "used"), [(0.0, 0.05), (0.3, 0.3), (1.0, 0.95)])
def test_neither_side_is_left_without_a_prior(share, used):
    priors = log_priors(2, 3, share).exp()
    assert priors.tolist() == pytest.approx([(1 - used) / 2] * 2 + [used / 3] * 3)


def test_centers_without_labels_are_refused():
    with pytest.raises(InputError, match="need labels"):
        start_centers(torch.eye(2)[:0], torch.arange(0), torch.eye(2), 2, rng(0))


def test_the_concentration_is_a_length_of_centers():
    """So a model keeps T times the centers, and needs one product."""
    mixture = CenterMixture(torch.eye(3).double(), torch.zeros(3).double())
    rows = F.normalize(normal(7, 3), dim=1)
    assert torch.allclose(mixture.logits(rows), rows @ (CONCENTRATION * mixture.centers).T)
