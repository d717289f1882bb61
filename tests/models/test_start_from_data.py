"""Prototypes that start from the data: the closed form of l, blobs, little data, refusals."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor
from torch.testing import assert_close

from builders import normal, rng
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS
from protofission.fission import FissionHead, combine
from protofission.models.heads import HeadSpec
from protofission.models.heads.cosine import CosineHead
from protofission.models.heads.distance import DistanceHead
from protofission.models.heads.fission import SHORTEST, local_parts
from protofission.models.heads.linear import LinearHead
from protofission.models.heads.projection import ProjectionHead
from protofission.models.heads.reciprocal import ReciprocalHead
from protofission.models.start_from_data import start_from_data

SEEN, CLASSES, SLOTS, WIDTH = 3, 6, 3, 16


# --- l of Eq. 1


def combined(g: Tensor, l: Tensor, share: float) -> Tensor:
    delta = torch.full((1, len(l)), math.atanh(2 * share - 1), dtype=torch.float64)
    return combine(g[None], l[None], delta)[0]


@settings(max_examples=40)
@given(share=some.floats(0.5, 0.999), width=some.integers(2, 40), seed=some.integers(0, 99))
def test_the_combined_prototype_points_where_it_is_wanted(share, width, seed):
    g, *wanted = F.normalize(normal(6, width, seed=seed), dim=-1)
    near = torch.stack([w if w @ g > 0 else -w for w in wanted])
    wanted = F.normalize(near + 2 * SHORTEST * g, dim=-1)  # at 1/2 none beyond can be reached
    l = local_parts(g, wanted, torch.full((5,), share, dtype=torch.float64))
    assert_close(l.norm(dim=-1), torch.ones(5, dtype=torch.float64))
    p = F.normalize(combined(g, l, share), dim=-1)
    assert_close(p, wanted, atol=1e-6, rtol=0)


def test_at_one_half_l_is_g_reflected_at_the_wanted_direction():
    g, *wanted = F.normalize(normal(40, 5), dim=-1)
    wanted = torch.stack([w for w in wanted if w @ g > SHORTEST])
    l = local_parts(g, wanted, torch.full((len(wanted),), 0.5, dtype=torch.float64))
    assert len(wanted) > 5
    assert_close(l, 2 * (wanted @ g)[:, None] * wanted - g)


@pytest.mark.parametrize("share", [0.02, 0.2, 0.4, 0.49, 0.499, 0.5, 0.501, 0.51, 0.6, 0.98])
def test_no_other_l_comes_nearer(share):
    """The twin tries all l in the plane of g and w; one of the opposite half would not help."""
    g = torch.tensor([1.0, 0.0], dtype=torch.float64)
    turn = torch.arange(0, 2 * math.pi, 2e-4, dtype=torch.float64)
    tried = combined(g, torch.stack([turn.cos(), turn.sin()], -1), share)
    tried = F.normalize(tried[tried.norm(dim=-1) >= SHORTEST * (1 - 1e-9)], dim=-1)
    angles = torch.linspace(-3.1, 3.1, 25, dtype=torch.float64)
    wanted = torch.stack([angles.cos(), angles.sin()], -1)
    l = local_parts(g, wanted, torch.full((25,), share, dtype=torch.float64))
    assert_close(l.norm(dim=-1), torch.ones(25, dtype=torch.float64))
    p = combined(g, l, share)
    assert p.norm(dim=-1).min() >= SHORTEST - 1e-9
    found = (F.normalize(p, dim=-1) * wanted).sum(-1)
    assert_close(found, (wanted @ tried.T).amax(-1), atol=5e-4, rtol=0)


@pytest.mark.parametrize("delta", [-20.0, 0.0, 20.0])
def test_l_is_finite_and_of_length_1_at_the_ends_of_lambda(delta):
    head = FissionHead(WIDTH, CLASSES, SLOTS, delta=delta, generator=rng(0))
    start_from_data(head, *scene(), SEEN, seed=0)
    assert_close(head.l.norm(dim=-1), torch.ones(CLASSES, SLOTS))


# --- blobs on the sphere


def blob_centres(close: float = 0.4) -> Tensor:
    """(C, V, D): a class is an axis, its sub-blobs lean from it to axes of their own."""
    axes = torch.eye(WIDTH)
    return F.normalize(axes[:CLASSES, None] + close * axes[None, CLASSES : CLASSES + SLOTS], dim=-1)


def blobs(each: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features of all blobs, of any length, with their classes and sub-blobs."""
    kinds = torch.cartesian_prod(torch.arange(CLASSES), torch.arange(SLOTS), torch.arange(each))
    classes, subs = kinds[:, 0], kinds[:, 1]
    rows = blob_centres()[classes, subs] + 0.02 * normal(len(kinds), WIDTH, seed=seed).float()
    lengths = torch.rand(len(rows), 1, generator=rng(seed)) * 20 + 0.1
    return rows * lengths, classes, subs


def scene(each: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """Labeled features, their labels, and a pool of all classes, the seen ones among them."""
    features, classes, _ = blobs(each, seed=1)
    return features[classes < SEEN], classes[classes < SEEN], blobs(each)[0]


def one_to_one(first: Tensor, second: Tensor) -> bool:
    pairs = set(zip(first.tolist(), second.tolist(), strict=True))
    return len(pairs) == len(set(first.tolist())) == len(set(second.tolist()))


def make(
    kind: str = "fission", seed: int = 0, **options
) -> CosineHead | FissionHead | DistanceHead:
    spec = HeadSpec(kind, prototypes=SLOTS, **options)
    return spec.build(WIDTH, CLASSES, SEEN, rng(seed))


@pytest.mark.parametrize("delta", [0.0, 0.5, 2.0])
def test_every_blob_has_its_head_and_every_sub_blob_its_slot(delta):
    head, before = make(delta=delta), make(delta=delta)
    start_from_data(head, *scene(), SEEN, seed=0)
    features, classes, subs = blobs(5, seed=2)
    output = head(features)
    heads = output.logits.argmax(-1)
    assert torch.equal(heads[classes < SEEN], classes[classes < SEEN])
    assert one_to_one(heads, classes)
    slots = output.similarities[torch.arange(len(heads)), heads].argmax(-1)
    assert one_to_one(heads * SLOTS + slots, classes * SLOTS + subs)
    assert output.nearest.amax(-1).min() > 0.98
    assert torch.equal(head.delta, before.delta)
    assert_close(head.l.norm(dim=-1), torch.ones(CLASSES, SLOTS))
    for c in range(SEEN):
        labeled, labels, _ = scene()
        mean = F.normalize(labeled[labels == c], dim=-1).mean(0)
        assert_close(head.g[c], F.normalize(mean, dim=-1))


def test_a_cosine_head_starts_at_the_means():
    head = make("cosine")
    labeled, labels, pool = scene()
    start_from_data(head, labeled, labels, pool, SEEN, seed=0)
    features, classes, _ = blobs(5, seed=2)
    heads = head(features).logits.argmax(-1)
    assert torch.equal(heads[classes < SEEN], classes[classes < SEEN])
    assert one_to_one(heads, classes)
    pooled = blobs(8)[1]
    for c in range(CLASSES):
        own = labeled[labels == c] if c < SEEN else pool[pooled == c]
        mean = F.normalize(F.normalize(own, dim=-1).mean(0), dim=-1)
        assert_close(head.weight[heads[classes == c][0]], mean)


def heaps(each: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features of blobs that differ by length alone in pairs, with their classes and sub-blobs."""
    _, classes, subs = blobs(each)
    axes = torch.eye(WIDTH)
    centres = 10 * (classes // 2 + 1)[:, None] * axes[classes // 2]
    centres = centres + 6 * (classes % 2)[:, None] * axes[classes // 2] + 2 * axes[8 + subs]
    return centres + 0.1 * normal(len(classes), WIDTH, seed=seed).float(), classes, subs


def test_a_distance_head_starts_at_means_of_features_as_they_are():
    """Classes 2k and 2k + 1 lie in one direction, so that no angle tells them apart."""
    labeled, classes, _ = heaps(8, seed=1)
    labels, labeled = classes[classes < SEEN], labeled[classes < SEEN]
    head = make("distance")
    start_from_data(head, labeled, labels, heaps(8)[0], SEEN, seed=0)
    features, classes, subs = heaps(5, seed=2)
    output = head(features)
    heads = output.logits.argmax(-1)
    assert torch.equal(heads[classes < SEEN], classes[classes < SEEN])
    assert one_to_one(heads, classes)
    slots = output.similarities[torch.arange(len(heads)), heads].argmax(-1)
    assert one_to_one(heads * SLOTS + slots, classes * SLOTS + subs)
    one = HeadSpec("distance", prototypes=1).build(WIDTH, CLASSES, SEEN, rng(0))
    start_from_data(one, labeled, labels, heaps(8)[0], SEEN, seed=0)
    for c in range(SEEN):
        assert_close(one.prototypes[c, 0], labeled[labels == c].mean(0))


def test_one_prototype_of_fission_is_the_cosine_head_s():
    cosine = make("cosine")
    fission = HeadSpec("fission", prototypes=1).build(WIDTH, CLASSES, SEEN, rng(3))
    for head in (cosine, fission):
        start_from_data(head, *scene(), SEEN, seed=4)
    assert_close(fission.prototypes().combined[:, 0], cosine.weight)


def test_a_novel_blob_beside_a_seen_class_is_not_stolen():
    """At 18 degrees from class 0, with a bigger novel blob farther off, for any seed."""
    axes = torch.eye(WIDTH)
    centres = F.normalize(torch.stack([axes[0], axes[1], axes[0] + 0.33 * axes[2], axes[3]]), dim=1)
    classes = torch.tensor([0, 1, 2, 3]).repeat_interleave(torch.tensor([30, 30, 10, 60]))
    pool = centres[classes] + 0.02 * normal(len(classes), WIDTH).float()
    for seed in range(10):
        head = CosineHead(WIDTH, 4, generator=rng(0))
        start_from_data(head, centres[[0, 1]].repeat(3, 1), torch.tensor([0, 1] * 3), pool, 2, seed)
        heads = head(pool).logits.argmax(-1)
        assert torch.equal(heads[classes < 2], classes[classes < 2])
        assert one_to_one(heads, classes)


def test_the_order_of_the_pool_does_not_matter():
    labeled, labels, pool = scene()
    one, two = make(), make()
    start_from_data(one, labeled, labels, pool, SEEN, seed=0)
    shuffled = pool[torch.randperm(len(pool), generator=rng(5))]
    start_from_data(two, labeled, labels, shuffled, SEEN, seed=0)
    first, second = (F.normalize(head.prototypes().combined, dim=-1) for head in (one, two))
    assert_close(first[:SEEN], second[:SEEN])
    cosines = first[SEEN:].flatten(0, 1) @ second[SEEN:].flatten(0, 1).T
    assert_close(cosines.amax(0), torch.ones(len(cosines)))
    assert one_to_one(torch.arange(len(cosines)), cosines.argmax(0))


def test_tied_novel_prototypes_are_set_and_nothing_else():
    head = FissionHead(WIDTH, CLASSES, 4, num_seen=SEEN, novel_prototypes=2, generator=rng(0))
    before = head.l.detach().clone()
    start_from_data(head, *scene(), SEEN, seed=0)
    changed = (head.l != before).any(-1)
    assert changed[:SEEN].all()
    assert changed[SEEN:].tolist() == [[True, True, False, False]] * (CLASSES - SEEN)
    features, classes, _ = blobs(5, seed=2)
    assert one_to_one(head(features).logits.argmax(-1), classes)


# --- what is the same, and what is not


def test_a_start_is_a_function_of_its_seed():
    labels, pool = torch.tensor([0, 1, 2] * 4), normal(90, WIDTH).float()
    labeled = normal(12, WIDTH, seed=1).float()

    def started(seed: int) -> Tensor:
        head = make()
        start_from_data(head, labeled, labels, pool, SEEN, seed)
        return head.prototypes().combined.detach()

    torch.manual_seed(1)
    state, first = torch.get_rng_state(), started(0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(started(0), first)
    assert not torch.allclose(started(1), first)


def test_gradients_flow_after_the_start():
    head = make()
    start_from_data(head, *(x.requires_grad_(x.is_floating_point()) for x in scene()), SEEN, 0)
    head(blobs(1)[0]).logits.sum().backward()
    assert head.g.is_leaf
    assert head.l.grad.isfinite().all()


# --- little, nothing, or the same again

AXES = torch.eye(WIDTH)
ONE_EACH = (AXES[:SEEN], torch.arange(SEEN))
LITTLE = {
    "one labeled image a class": (*ONE_EACH, blobs(2)[0]),
    "an empty pool": (*ONE_EACH, AXES[:0]),
    "a pool of one": (*ONE_EACH, AXES[5:6]),
    "a pool that repeats one image": (*ONE_EACH, AXES[5:6].repeat(40, 1)),
    "a pool of the labeled images": (*ONE_EACH, AXES[:SEEN].repeat(5, 1)),
    "zeros": (torch.zeros(SEEN, WIDTH), torch.arange(SEEN), torch.zeros(4, WIDTH)),
    "zeros among them": (*ONE_EACH, torch.cat([torch.zeros(4, WIDTH), AXES])),
    "labeled zeros": (torch.zeros(SEEN, WIDTH), torch.arange(SEEN), AXES),
    "opposites": (
        torch.cat([AXES[:SEEN], AXES[:SEEN], -AXES[:SEEN]]),
        torch.arange(SEEN).repeat(3),
        torch.cat([AXES, AXES, -AXES]),
    ),
    "features that cancel out": (
        torch.cat([AXES[:SEEN], -AXES[:SEEN]]),
        torch.arange(SEEN).repeat(2),
        torch.cat([AXES, -AXES]),
    ),
    "tiny and huge": (1e-30 * AXES[:SEEN], torch.arange(SEEN), 1e30 * blobs(2)[0]),
}


@pytest.mark.parametrize("name", [name for name in LITTLE if name != "tiny and huge"])
def test_little_data_gives_a_distance_head_distinct_and_finite_prototypes(name):
    labeled, labels, pool = LITTLE[name]
    head = make("distance")
    start_from_data(head, labeled, labels, pool, SEEN, seed=0)
    assert head.prototypes.isfinite().all()
    apart = torch.cdist(head.prototypes, head.prototypes) + torch.eye(SLOTS)
    assert apart.min() > 1e-3


@pytest.mark.parametrize("name", LITTLE)
@pytest.mark.parametrize("kind", ["cosine", "fission"])
def test_little_data_gives_distinct_and_finite_prototypes(kind, name):
    labeled, labels, pool = LITTLE[name]
    head = make(kind)
    start_from_data(head, labeled, labels, pool, SEEN, seed=0)
    combined = head(normal(2, WIDTH).float()).prototypes.combined.detach()
    assert combined.isfinite().all()
    assert combined.norm(dim=-1).min() > SHORTEST - 1e-6
    slots = F.normalize(combined, dim=-1)
    cosines = slots @ slots.mT - 2 * torch.eye(slots.shape[1])  # of one class
    assert cosines.max() < 0.9999


def test_a_class_without_features_keeps_its_random_start():
    head, before = make(), make()
    start_from_data(head, AXES[[0, 2]], torch.tensor([0, 2]), AXES[4:6], SEEN, seed=0)
    same = (head.l == before.l).flatten(1).all(-1) & (head.g == before.g).all(-1)
    assert same.tolist() == [False, True, False, False, False, True]
    assert_close(head.g[[0, 2]], AXES[[0, 2]])
    assert sorted(head.g[3:5].argmax(-1).tolist()) == [4, 5]


def test_repeated_prototypes_stand_near_the_one_image():
    head = make()
    start_from_data(head, *ONE_EACH, AXES[:0], SEEN, seed=0)
    cosines = head(AXES[:SEEN]).similarities[torch.arange(SEEN), torch.arange(SEEN)]
    assert_close(cosines[:, 0], torch.ones(SEEN))
    assert cosines.min() > 0.99


def test_a_head_without_novel_classes_leaves_the_pool_alone():
    labeled, labels, pool = scene()
    heads = [FissionHead(WIDTH, SEEN, SLOTS, generator=rng(0)) for _ in range(2)]
    start_from_data(heads[0], labeled, labels, pool, SEEN, seed=0)
    start_from_data(heads[1], labeled, labels, -pool, SEEN, seed=0)
    assert torch.equal(heads[0].l, heads[1].l)
    assert torch.equal(heads[0](labeled).logits.argmax(-1), labels)


# --- refusals


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (LinearHead(WIDTH, CLASSES), "LinearHead"),
        (ProjectionHead(WIDTH, CLASSES), "ProjectionHead"),
        (FissionHead(WIDTH, CLASSES, similarity="euclidean"), "FissionHead"),
        (ReciprocalHead(WIDTH, CLASSES), "ReciprocalHead"),
    ],
)
def test_other_heads_are_refused(head, name):
    with pytest.raises(InputError, match=rf"^A start from the data.*{name}: let it"):
        start_from_data(head, *scene(), SEEN, seed=0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labeled": AXES[:2]}, r"Labels have the shape \(3,\), but \(2,\) is wanted"),
        ({"labels": torch.tensor([0, 1, 3])}, "Labels run from 0 to 3"),
        ({"labels": torch.tensor([0, 1, NO_CLASS])}, r"no class \(-1\)"),
        ({"pool": AXES[:, :4]}, r"shape \(16, 4\)"),
        ({"pool": AXES / 0}, "16 of 16 feature vectors hold NaN"),
        ({"num_seen": 7}, "num_seen = 7 is above the head's 6 classes"),
    ],
)
def test_bad_features_and_labels_are_refused(changed, message):
    given = {"labeled": ONE_EACH[0], "labels": ONE_EACH[1], "pool": AXES, "num_seen": SEEN}
    with pytest.raises(InputError, match=message):
        start_from_data(make(), **{**given, **changed}, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "linear"}, "not for linear: set head.init=random"),
        ({"kind": "projection"}, "not for projection: set head.init=random"),
        ({"kind": "reciprocal"}, "not for reciprocal: set head.init=random"),
        ({"kind": "fission", "similarity": "euclidean"}, "wants similarity = cosine, not euclid"),
        ({"kind": "fission", "similarity": "mahalanobis"}, "= cosine, not mahalanobis"),
    ],
)
def test_a_spec_refuses_a_start_that_its_head_cannot_have(options, message):
    HeadSpec(**options).check()
    with pytest.raises(InputError, match=rf"^init = data .*{message}"):
        HeadSpec(**options, init="data").check()


def test_a_spec_knows_its_starts():
    for kind in ("cosine", "fission", "distance"):
        HeadSpec(kind, init="data").check()
    assert HeadSpec().init == "random"
    with pytest.raises(InputError, match=r"Unknown init 'date'\. Did you mean 'data'"):
        HeadSpec(init="date")
