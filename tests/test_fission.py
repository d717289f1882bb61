"""Eqs. 1-8 against their scalar twins, and the facts that docs/method.md states of them."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from builders import normal, output_of, rng
from protofission.core.checks import check_features
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS
from protofission.fission import (
    FissionHead,
    assignments,
    class_usage,
    combine,
    consistency_loss,
    diversity_loss,
    fission_loss,
    kl_to_prior,
    local_diversity_loss,
    max_logits,
    mixing,
    random_directions,
    similarity,
    unit,
)
from reference import prototypes as scalar
from reference.risks import cross_entropy

SEEDS = range(3)
C, V, D, N = 3, 4, 5, 9
close = pytest.approx


def parts(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """g, l, delta."""
    return 3 * normal(C, D, seed=seed), normal(C, V, D, seed=seed + 1), normal(C, V, seed=seed + 2)


def drawn_labels(seed: int) -> torch.Tensor:
    """Classes of N rows, some of no class."""
    return torch.randint(-1, C, (N,), generator=rng(seed))


def as_classes(labels: torch.Tensor) -> list[int | None]:
    return [None if y == NO_CLASS else y for y in labels.tolist()]


def drawn_assignments(seed: int, rows: int = N) -> torch.Tensor:
    return (2 * normal(rows, V, seed=seed)).softmax(-1)


@pytest.mark.parametrize("seed", SEEDS)
def test_prototypes_equal_their_twin(seed):
    g, l, delta = parts(seed)
    expected = scalar.combine(g.tolist(), l.tolist(), delta.tolist())
    assert_close(combine(g, l, delta), torch.tensor(expected, dtype=torch.float64))


def test_the_length_of_g_and_l_means_nothing():
    g, l, delta = parts(0)
    assert_close(combine(7 * g, l / 9, delta), combine(g, l, delta))


def test_mixing_runs_from_the_shared_part_to_the_own_part():
    g, l, _ = parts(0)
    assert mixing(torch.zeros(1, dtype=torch.float64)).item() == 0.5
    shared = F.normalize(g, dim=-1)[:, None].expand(C, V, D)
    assert_close(combine(g, l, torch.full((C, V), -40.0).double()), shared)
    assert_close(combine(g, l, torch.full((C, V), 40.0).double()), F.normalize(l, dim=-1))


@given(st.floats(-1e30, 1e30) | st.floats(-30, 30), st.sampled_from([torch.float32, torch.float64]))
def test_lambda_stays_inside_0_and_1(delta, dtype):
    value = mixing(torch.tensor(delta, dtype=dtype))
    assert value.dtype == dtype
    assert 0 < value.item() < 1
    assert value.item() == close(scalar.mixing(delta), abs=2e-7)


@pytest.mark.parametrize("kind", ["cosine", "euclidean", "mahalanobis"])
@pytest.mark.parametrize("seed", SEEDS)
def test_similarities_equal_their_twin(kind, seed):
    features, prototypes = 2 * normal(N, D, seed=seed), normal(C, V, D, seed=seed + 9)
    root = normal(D, D, seed=seed + 5) if kind == "mahalanobis" else None
    sims = similarity(features, prototypes, kind, root)
    weights = None if root is None else root.tolist()
    expected = [
        scalar.similarities(f, prototypes.tolist(), kind, weights) for f in features.tolist()
    ]
    assert_close(sims, torch.tensor(expected, dtype=torch.float64))
    best = [scalar.max_logit(row) for row in expected]
    assert_close(max_logits(sims), torch.tensor(best, dtype=torch.float64))


def test_euclidean_is_the_cosine_of_unit_vectors_and_mahalanobis_its_generalization():
    features = F.normalize(normal(N, D), dim=-1)
    prototypes = F.normalize(normal(C, V, D, seed=1), dim=-1)
    cosines = similarity(features, prototypes)
    assert_close(similarity(features, prototypes, "euclidean"), cosines)
    identity = torch.eye(D, dtype=torch.float64)
    assert_close(similarity(features, prototypes, "mahalanobis", identity), cosines)


def test_the_max_logit_is_the_best_slot_and_not_their_mean():
    sims = torch.tensor([[[0.1, 0.9, -0.5], [0.2, 0.3, 0.25]]])
    assert max_logits(sims).tolist() == [[close(0.9), close(0.3)]]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("seed", SEEDS)
def test_local_diversity_equals_its_twin(reduction, seed):
    l = 3 * normal(C, V, D, seed=seed)
    expected = scalar.local_diversity(l.tolist(), reduction)
    assert local_diversity_loss(l, reduction).item() == close(expected, abs=1e-12)


def test_local_diversity_by_hand():
    same = torch.tensor([[[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]])
    opposite = torch.tensor([[[1.0, 0.0], [-4.0, 0.0]]])
    assert local_diversity_loss(same).item() == close(1)
    assert local_diversity_loss(same, "sum").item() == close(6)  # 3 x 2 ordered pairs
    assert local_diversity_loss(opposite).item() == close(-1)
    assert local_diversity_loss(normal(C, 1, D)).item() == close(0, abs=1e-12)


@pytest.mark.parametrize("temperature", [10.0, 3.0])
def test_assignments_equal_their_twin(temperature):
    sims, labels = normal(N, C, V), drawn_labels(0).clamp_min(0)
    rows = zip(sims.tolist(), labels.tolist(), strict=True)
    expected = [scalar.assignment(row[y], temperature) for row, y in rows]
    assert_close(
        assignments(sims, labels, temperature), torch.tensor(expected, dtype=torch.float64)
    )


@pytest.mark.parametrize("min_samples", [0, 1, 2, 3])
@pytest.mark.parametrize("prior", ["uniform", "shared", "by class"])
@pytest.mark.parametrize("reduce", ["batch_mean", "per_sample"])
@pytest.mark.parametrize("seed", SEEDS)
def test_diversity_equals_its_twin(seed, reduce, prior, min_samples):
    """Over one class more than the rows are of: an absent class never counts."""
    assigned, labels = drawn_assignments(seed), drawn_labels(seed)
    q = {
        "uniform": None,
        "shared": normal(V, seed=7).softmax(-1),
        "by class": normal(C + 1, V, seed=8).softmax(-1),
    }[prior]
    expected = scalar.diversity(
        assigned.tolist(),
        as_classes(labels),
        C + 1,
        None if q is None else q.tolist(),
        reduce,
        min_samples,
    )
    found = diversity_loss(assigned, labels, C + 1, q, reduce=reduce, min_samples=min_samples)
    assert found.item() == close(expected, rel=1e-12, abs=1e-14)


def test_class_usage_is_the_mean_over_a_class_and_its_count():
    assigned, labels = drawn_assignments(0), torch.tensor([0, 0, 2, -1, 2, 2, 0, -1, 0])
    usage, counts = class_usage(assigned, labels, C)
    assert counts.tolist() == [4, 0, 3]
    assert usage[1].tolist() == [0, 0, 0, 0]
    for c in (0, 2):
        expected, _ = scalar.usage(assigned.tolist(), as_classes(labels), c)
        assert usage[c].tolist() == close(expected)


def test_even_use_costs_nothing_and_one_slot_log_v():
    labels = torch.zeros(V, dtype=torch.long)
    even = torch.eye(V, dtype=torch.float64)  # each row sure of a slot of its own
    collapsed = even[:1].expand(V, V)
    assert diversity_loss(even, labels, C).item() == close(0, abs=1e-7)
    assert diversity_loss(collapsed, labels, C).item() == close(math.log(V), rel=1e-6)
    assert diversity_loss(even, labels, C, reduce="per_sample").item() == close(
        math.log(V), rel=1e-6
    )


def test_kl_of_the_mean_and_mean_of_the_kl_by_hand():
    """Two rows that mirror each other are even together, and each is not."""
    assigned = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    labels = torch.zeros(2, dtype=torch.long)
    assert diversity_loss(assigned, labels, 1).item() == close(0, abs=1e-6)
    assert diversity_loss(assigned, labels, 1, reduce="per_sample").item() == close(
        0.9 * math.log(1.8) + 0.1 * math.log(0.2), abs=1e-6
    )  # 0.368


def test_every_class_present_weighs_the_same_in_both_reductions():
    """Three collapsed rows of class 0, one even row of class 1: the mean of log 2 and 0."""
    assigned = torch.tensor([[1.0, 0.0]] * 3 + [[0.5, 0.5]])
    labels = torch.tensor([0, 0, 0, 1])
    for reduce in ("batch_mean", "per_sample"):
        found = diversity_loss(assigned, labels, 5, reduce=reduce)
        assert found.item() == close(math.log(2) / 2, abs=1e-6)


@pytest.mark.parametrize("reduce", ["batch_mean", "per_sample"])
def test_diversity_vanishes_at_the_prior_only(reduce):
    prior = torch.tensor([0.5, 0.25, 0.125, 0.125])
    labels = torch.zeros(3, dtype=torch.long)
    assert diversity_loss(prior.expand(3, V), labels, C, prior, reduce=reduce).item() == close(
        0, abs=1e-6
    )
    even = torch.full((3, V), 0.25)
    hand = 0.25 * (math.log(0.5) + 2 * math.log(2))  # sum of 0.25 log(0.25 / q)
    assert diversity_loss(even, labels, C, prior, reduce=reduce).item() == close(hand, abs=1e-6)


@pytest.mark.parametrize(("rows", "floor"), [(1, 1.61), (2, 0.92), (3, 0.51), (4, 0.22), (5, 0.0)])
def test_fewer_samples_than_slots_leave_a_floor(rows, floor):
    """Samples that are each sure of a slot cannot use V = 5 slots evenly where they are fewer."""
    sure = torch.eye(5, dtype=torch.float64)
    labels = torch.zeros(rows, dtype=torch.long)
    least = min(
        diversity_loss(sure[list(slots)], labels, 1).item()
        for slots in product(range(5), repeat=rows)
        if list(slots) == sorted(slots)
    )
    assert least == close(math.log(5 / rows), rel=1e-6, abs=1e-6)
    assert round(least, 2) == close(floor)


def test_a_batch_without_classes_costs_nothing_and_harms_no_gradient():
    sims = normal(N, C, V).requires_grad_()
    labels = torch.full((N,), NO_CLASS)
    loss = diversity_loss(assignments(sims, labels), labels, C)
    loss.backward()
    assert loss.item() == 0
    assert sims.grad.tolist() == torch.zeros(N, C, V).tolist()


def test_rows_without_a_class_do_not_count():
    sims, labels = normal(N, C, V), torch.tensor([0, 1, 0, 1, 2, 2, -1, -1, -1])
    assert_close(
        diversity_loss(assignments(sims, labels), labels, C),
        diversity_loss(assignments(sims[:6], labels[:6]), labels[:6], C),
    )


@pytest.mark.parametrize("slots", [3, 5])
def test_kl_is_zero_for_even_use_to_the_precision_of_the_type(slots):
    even = torch.full((slots,), 1 / slots, dtype=torch.float64)
    assert kl_to_prior(even).item() == close(0, abs=1e-15)


def labeled_risk(logits: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, torch.arange(len(logits)) % C)


def scalar_risk(logits: list[list[float]]) -> float:
    return scalar.mean([cross_entropy(row, i % C) for i, row in enumerate(logits)])


def test_consistency_equals_its_twin_and_a_loop_over_slots():
    slots = 3 * normal(N, C, V)
    found = consistency_loss(labeled_risk, slots)
    assert found.item() == close(scalar.consistency(scalar_risk, slots.tolist()))
    assert_close(found, torch.stack([labeled_risk(slots[..., i]) for i in range(V)]).mean())


def test_consistency_takes_any_scalar_risk():
    """A risk that is linear in the logits: the mean over slots, by hand."""
    slots = torch.arange(12.0).view(2, 2, 3)
    assert consistency_loss(lambda z: z[0, 1] - z[1, 0], slots).item() == close(4 - 7)


@pytest.mark.parametrize("prior", [None, (0.4, 0.3, 0.2, 0.1)])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_overall_loss_equals_its_twin(seed, prior):
    sims, labels = normal(N, C, V, seed=seed).tanh(), drawn_labels(seed)
    output = output_of(sims, temperature=7.0, offset=2.0)
    found = fission_loss(
        labeled_risk,
        output,
        labels,
        diversity_weight=0.3,
        consistency_weight=0.7,
        assign_temperature=4.0,
        prior=None if prior is None else torch.tensor(prior),
    )
    expected = scalar.overall(
        scalar_risk,
        sims.tolist(),
        as_classes(labels),
        temperature=7.0,
        offset=2.0,
        diversity_weight=0.3,
        consistency_weight=0.7,
        assign_temperature=4.0,
        prior=None if prior is None else list(prior),
    )
    assert found.item() == close(expected, rel=1e-7)  # the prior is float32


def test_the_weights_of_the_overall_loss_are_the_paper_s():
    sims, labels = normal(N, C, V).tanh(), drawn_labels(1)
    assert_close(
        fission_loss(labeled_risk, output_of(sims), labels),
        labeled_risk(sims.amax(-1))
        + 0.001 * diversity_loss(assignments(sims, labels), labels, C)
        + 0.6 * consistency_loss(labeled_risk, sims),
    )


def permute(sims: torch.Tensor, order: list[int], classes: slice) -> torch.Tensor:
    moved = sims.clone()
    moved[:, classes] = moved[:, classes][..., order]
    return moved


def test_the_order_of_one_class_s_slots_matters_to_consistency_alone():
    sims, labels = normal(N, C, V), drawn_labels(0)
    l, order = normal(C, V, D), [2, 0, 3, 1]
    moved = permute(sims, order, slice(1, 2))
    moved_l = l.clone()
    moved_l[1] = l[1][order]
    assert_close(max_logits(moved), max_logits(sims))
    for reduce in ("batch_mean", "per_sample"):
        losses = [
            diversity_loss(assignments(s, labels), labels, C, reduce=reduce) for s in (sims, moved)
        ]
        assert_close(*losses)
    assert_close(local_diversity_loss(moved_l), local_diversity_loss(l))
    assert abs(consistency_loss(labeled_risk, moved) - consistency_loss(labeled_risk, sims)) > 1e-3


def test_the_same_order_of_slots_in_all_classes_changes_nothing():
    sims, labels = normal(N, C, V), drawn_labels(0)
    moved = permute(sims, [2, 0, 3, 1], slice(None))
    assert_close(
        fission_loss(labeled_risk, output_of(moved), labels, diversity_weight=0.5),
        fission_loss(labeled_risk, output_of(sims), labels, diversity_weight=0.5),
    )


def test_one_slot_makes_diversity_zero_and_consistency_the_max_risk():
    sims, labels = normal(N, C, 1), drawn_labels(0)
    assert diversity_loss(assignments(sims, labels), labels, C).item() == 0
    assert_close(consistency_loss(labeled_risk, sims), labeled_risk(max_logits(sims)))


def test_infinities_that_cancel_are_refused_and_a_sum_that_overflows_is_not():
    features = torch.full((4, 2), 3e38)
    check_features(features, 2)
    features[1, 0], features[3, 1] = torch.inf, -torch.inf
    with pytest.raises(InputError, match=r"^2 of 4 feature vectors hold NaN or infinity"):
        check_features(features, 2)


def leaves(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(t.clone().requires_grad_() for t in tensors)


@pytest.mark.parametrize("shape", [(6, D), (C, V, D)])
def test_unit_vectors_are_those_of_torch_and_so_is_their_gradient(shape):
    vectors = 3 * normal(*shape)
    vectors[1] = 0
    (mine,), (theirs,) = leaves(vectors), leaves(vectors)
    pull = normal(*shape, seed=1)
    unit(mine).backward(pull)
    F.normalize(theirs, dim=-1).backward(pull)
    assert torch.equal(unit(vectors), F.normalize(vectors, dim=-1))
    assert torch.equal(torch.vmap(unit)(vectors), unit(vectors))
    assert_close(mine.grad, theirs.grad)
    assert gradgradcheck(unit, leaves(normal(*shape)))


def test_gradients_of_prototypes():
    assert gradcheck(combine, leaves(*parts(0)))
    assert gradcheck(mixing, leaves(normal(C, V)))


@pytest.mark.parametrize("kind", ["cosine", "euclidean", "mahalanobis"])
def test_gradients_of_similarities(kind):
    root = normal(D, D, seed=3) if kind == "mahalanobis" else None
    inputs = leaves(normal(4, D), normal(C, 2, D, seed=1), *([] if root is None else [root]))
    assert gradcheck(lambda f, p, *w: similarity(f, p, kind, *w), inputs)


def test_gradients_of_the_forces():
    sims, labels = normal(5, C, 2), torch.tensor([0, 0, 1, -1, 0])
    assert gradcheck(local_diversity_loss, leaves(normal(C, V, D)))
    for reduce in ("batch_mean", "per_sample"):
        assert gradcheck(
            lambda s, how=reduce: diversity_loss(assignments(s, labels), labels, C, reduce=how),
            leaves(sims),
        )
    assert gradcheck(lambda s: consistency_loss(labeled_risk, s), leaves(sims))
    assert gradcheck(
        lambda s: fission_loss(labeled_risk, output_of(s), labels, diversity_weight=0.5),
        leaves(sims),
    )


@pytest.mark.parametrize("kind", ["cosine", "euclidean", "mahalanobis"])
def test_gradients_of_the_head_from_features_to_loss(kind):
    head = FissionHead(3, 2, 2, similarity=kind, generator=rng(0)).double()
    names = [name for name, _ in head.named_parameters()]
    labels = torch.tensor([0, 0, 1])

    def loss(features, *values):
        parameters = dict(zip(names, values, strict=True))
        output = torch.func.functional_call(head, parameters, (features,))
        risk = fission_loss(
            lambda z: F.cross_entropy(z, labels), output, labels, diversity_weight=0.5
        )
        return risk + local_diversity_loss(output.prototypes.local)

    start = [p.detach() + 0.1 * normal(*p.shape) for p in head.parameters()]
    assert gradcheck(loss, leaves(normal(3, 3), *start))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_where_vectors_vanish_and_numbers_are_huge(dtype):
    head = FissionHead(D, C, V, temperature=1e4).to(dtype)
    with torch.no_grad():
        head.g[0] = 0
        head.l[1] = 0
        head.delta[0], head.delta[1] = 1e30, -1e30
        head.l[2], head.g[2] = 1.0, -1.0  # they cancel at lambda = 1/2
    features = normal(N, D, dtype=dtype) * 1e3
    features[0] = 0
    features.requires_grad_()
    output, labels = head(features), drawn_labels(0)
    loss = fission_loss(labeled_risk, output, labels, diversity_weight=1.0, assign_temperature=1e4)
    (loss + local_diversity_loss(output.prototypes.local)).backward()
    assert math.isfinite(loss.item())
    for tensor in (features, *head.parameters()):
        assert tensor.grad.isfinite().all()


def test_the_start_is_even_mixing_of_unit_vectors_the_same_for_the_same_generator():
    heads = [FissionHead(D, C, V, generator=rng(4)) for _ in range(2)]
    for a, b in zip(heads[0].parameters(), heads[1].parameters(), strict=True):
        assert torch.equal(a, b)
    head = heads[0]
    assert head.delta.eq(0).all()
    assert head.prototypes().mixing.eq(0.5).all()
    assert_close(head.g.norm(dim=-1), torch.ones(C))
    assert_close(head.l.norm(dim=-1), torch.ones(C, V))


def test_random_directions_are_unit_vectors_without_a_preferred_side():
    directions = random_directions(4000, 3, generator=rng(0))
    assert_close(directions.norm(dim=-1), torch.ones(4000))
    assert directions.mean(0).abs().max() < 0.05
    assert_close(directions.square().mean(0), torch.full((3,), 1 / 3), atol=0.02, rtol=0)
