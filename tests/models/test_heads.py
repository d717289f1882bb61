"""Heads: features in, one `Output` out, whichever head it is."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from builders import LABELS, SEEN, WIDTH, make_head, normal, rng, scalar_similarities
from protofission.core.distances import squared_distances
from protofission.core.errors import InputError
from protofission.fission import FissionHead, combine
from protofission.methods import METHODS, Orca, WithFission
from protofission.models.heads import HeadSpec, sizes_of
from protofission.models.heads.cosine import CosineHead
from protofission.models.heads.distance import DistanceHead
from protofission.models.heads.linear import LinearHead
from protofission.models.heads.projection import ProjectionHead
from protofission.models.heads.reciprocal import ReciprocalHead

SPECS = {
    "linear": HeadSpec("linear"),
    "cosine": HeadSpec("cosine", temperature=7.0, offset=2.0),
    "projection": HeadSpec("projection"),
    "fission": HeadSpec("fission", prototypes=4, temperature=7.0, offset=2.0),
    "fission euclidean": HeadSpec("fission", prototypes=2, similarity="euclidean"),
    "fission mahalanobis": HeadSpec("fission", prototypes=2, similarity="mahalanobis"),
    "distance": HeadSpec("distance", prototypes=4, temperature=7.0, offset=2.0),
    "one distance": HeadSpec("distance", prototypes=1),
    "reciprocal": HeadSpec("reciprocal", temperature=7.0, offset=2.0),
    "reciprocal-dot": HeadSpec("reciprocal-dot", temperature=7.0, offset=2.0),
}
CLASSES = 5


@pytest.mark.parametrize("name", SPECS)
def test_outputs_equal_their_twin_and_hang_together(name):
    spec = SPECS[name]
    head, features = make_head(spec, CLASSES, 0), normal(7, WIDTH)
    output = head(features)
    expected = [scalar_similarities(head, row) for row in features.tolist()]
    assert_close(output.similarities, torch.tensor(expected, dtype=torch.float64))
    assert output.features is features
    assert torch.equal(output.nearest, output.similarities.amax(-1))
    assert torch.equal(output.logits, output.slot_logits.amax(-1))
    tempered = spec.kind not in ("linear", "projection")
    t, b = (spec.temperature, spec.offset) if tempered else (1.0, 0.0)
    assert_close(output.logits, t * output.nearest - b)
    assert_close(output.slot_logits, t * output.similarities - b)
    heads, slots = output.similarities.shape[1:]
    assert heads == (WIDTH if spec.kind == "projection" else CLASSES)
    several = spec.kind in ("fission", "distance")
    assert slots == spec.slots == (spec.prototypes if several else 1)
    assert sizes_of(head) == (heads, slots, WIDTH)
    prototypes = output.prototypes
    assert prototypes.combined.shape == prototypes.local.shape == (heads, slots, WIDTH)
    assert prototypes.mixing.shape == (heads, slots)


def test_prototypes_are_what_features_are_compared_with():
    head = make_head(SPECS["fission"], CLASSES, 0)
    prototypes = head(normal(1, WIDTH)).prototypes
    assert_close(prototypes.combined, combine(head.g, head.l, head.delta))
    assert torch.equal(prototypes.local, head.l)
    assert_close(prototypes.mixing, (head.delta.tanh() + 1) / 2)
    at_prototypes = head(prototypes.combined.flatten(0, 1))
    own = at_prototypes.similarities.flatten(1).diagonal()
    assert_close(own, torch.ones_like(own))


def test_a_distance_head_is_nearest_to_its_own_prototypes():
    head = make_head(SPECS["distance"], CLASSES, 0)
    flat = head.prototypes.detach().flatten(0, 1)
    output = head(flat)
    own = output.similarities.flatten(1).diagonal()
    assert_close(own, torch.zeros_like(own), atol=1e-12, rtol=0)
    assert output.nearest.argmax(-1).tolist() == [c for c in range(CLASSES) for _ in range(4)]
    assert output.prototypes.combined is head.prototypes


@pytest.mark.parametrize(("dot", "factor"), [(False, 2 / WIDTH), (True, 1 + 2 / WIDTH)])
def test_the_softmax_of_reciprocal_points_is_that_of_a_linear_head(dot, factor):
    """|f|^2 is the same for all classes: W = -(2 / D) r, or -(1 + 2 / D) r, and b = |r|^2 / D."""
    head = make_head(SPECS["reciprocal-dot" if dot else "reciprocal"], CLASSES, 0)
    features, points = normal(7, WIDTH), head.points
    linear = 7 * (points.square().sum(-1) / WIDTH - factor * features @ points.T)
    assert_close(head(features).logits.softmax(-1), linear.softmax(-1))


def test_the_mean_distance_from_several_reciprocal_points_is_that_from_their_mean():
    """But for a constant of the class, so that one point a class is enough."""
    several, features = normal(4, WIDTH), normal(7, WIDTH, seed=1)
    one = several.mean(0, keepdim=True)
    spread = squared_distances(several, one).mean()
    apart = squared_distances(features, several).mean(1)
    assert_close(apart, squared_distances(features, one)[:, 0] + spread)


@pytest.mark.parametrize("kind", ["cosine", "fission"])
def test_the_temperature_stands_once(kind):
    """T cos lies within [-T, T] and reaches both ends."""
    head = HeadSpec(kind, prototypes=3).build(WIDTH, CLASSES, SEEN, rng(0)).double()
    features = torch.cat([50 * normal(200, WIDTH), head(normal(1, WIDTH)).prototypes.combined[0]])
    logits = torch.cat([head(features).logits, head(-features).slot_logits.amin(-1)])
    assert logits.max().item() == pytest.approx(10)
    assert logits.min().item() == pytest.approx(-10)


def test_novel_classes_with_fewer_prototypes_repeat_them_over_the_slots():
    head = FissionHead(
        WIDTH, 4, 6, num_seen=2, novel_prototypes=2, delta=0.3, generator=rng(0)
    ).double()
    with torch.no_grad():
        head.delta.add_(normal(4, 6))
    output = head(normal(5, WIDTH))
    own = combine(head.g, head.l, head.delta)
    assert_close(output.prototypes.combined[:2], own[:2])
    for slot in range(6):
        assert_close(output.prototypes.combined[2:, slot], own[2:, slot % 2])
        assert_close(output.prototypes.local[2:, slot], head.l[2:, slot % 2])
        assert_close(output.similarities[:, 2:, slot], output.similarities[:, 2:, slot % 2])
    output.logits.sum().backward()
    assert head.l.grad[2:, 2:].eq(0).all()
    assert head.delta.grad[2:, 2:].eq(0).all()


@pytest.mark.parametrize("novel", [None, 6])
def test_as_many_novel_prototypes_as_slots_tie_nothing(novel):
    head = FissionHead(WIDTH, 4, 6, num_seen=2, novel_prototypes=novel, generator=rng(0))
    assert_close(head.prototypes().combined, combine(head.g, head.l, head.delta))


def test_a_spec_hands_all_its_options_to_the_head():
    spec = HeadSpec(
        "fission",
        prototypes=6,
        novel_prototypes=3,
        similarity="mahalanobis",
        temperature=4.0,
        offset=1.5,
        delta=-0.7,
    )
    head = spec.build(WIDTH, 4, 2, rng(1))
    same = FissionHead(
        WIDTH,
        4,
        6,
        num_seen=2,
        novel_prototypes=3,
        similarity="mahalanobis",
        temperature=4.0,
        offset=1.5,
        delta=-0.7,
        generator=rng(1),
    )
    features = normal(3, WIDTH, dtype=torch.float32)
    assert torch.equal(head(features).logits, same(features).logits)
    assert head.delta.eq(-0.7).all()


def test_mahalanobis_starts_as_euclidean():
    features = normal(3, WIDTH, dtype=torch.float32)
    euclidean, mahalanobis = (
        FissionHead(WIDTH, 4, 3, similarity=kind, generator=rng(1))(features).logits
        for kind in ("euclidean", "mahalanobis")
    )
    assert_close(euclidean, mahalanobis)


def test_heads_that_methods_want():
    """Linear without T and b for plain FixMatch, 10 cos for ORCA, Eq. 10 with fission."""
    wanted = {name: method.traits.head for name, method in METHODS.items()}
    kinds = {
        "supervised": "linear",
        "supervised+pf": "fission",
        "fixmatch": "linear",
        "fixmatch+pf": "fission",
        "fixmatch-sigmoid": "linear",
        "fixmatch-sigmoid+pf": "fission",
        "orca": "cosine",
        "orca+pf": "fission",
        "simclr": "projection",
        "cpl": "distance",
        "rpl": "reciprocal",
        "arpl": "reciprocal-dot",
    }
    assert {name: wanted[name].kind for name in kinds} == kinds
    for name in ("orca", "orca+pf", "fixmatch+pf", "supervised+pf"):
        assert (wanted[name].temperature, wanted[name].offset) == (10.0, 0.0)
    eq10 = wanted["fixmatch-sigmoid+pf"]
    assert (eq10.temperature, eq10.offset, eq10.prototypes) == (10.0, 5.0, 5)
    output = wanted["fixmatch-sigmoid"].build(WIDTH, 3, 3, rng(0))(normal(2, WIDTH).float())
    assert (output.temperature, output.offset) == (1.0, 0.0)


HEADS = {
    "linear": lambda d=WIDTH, c=4: LinearHead(d, c),
    "cosine": lambda d=WIDTH, c=4: CosineHead(d, c),
    "projection": lambda d=WIDTH, c=4: ProjectionHead(d, c),
    "fission": lambda d=WIDTH, c=4: FissionHead(d, c, 3),
    "distance": lambda d=WIDTH, c=4: DistanceHead(d, c, 3),
    "reciprocal": lambda d=WIDTH, c=4: ReciprocalHead(d, c),
}


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.zeros(3, WIDTH + 1), rf"shape \(3, {WIDTH + 1}\).*\(N, {WIDTH}\)"),
        (torch.zeros(WIDTH), rf"shape \({WIDTH},\)"),
        (torch.full((3, WIDTH), torch.nan), "3 of 3 feature vectors hold NaN"),
        (torch.tensor([[0.0] * WIDTH, [torch.inf] * WIDTH]), "1 of 2 feature vectors"),
    ],
)
def test_heads_refuse_features_that_they_cannot_read(kind, features, message):
    with pytest.raises(InputError, match=message):
        HEADS[kind]()(features)


@pytest.mark.parametrize("kind", HEADS)
def test_a_forward_looks_at_no_value_on_an_accelerator(kind):
    """A look waits for all that is under way; on the meta device it is an error."""
    head, features = HEADS[kind]().to("meta"), torch.empty(6, WIDTH, device="meta")
    with pytest.raises(RuntimeError):
        features.sum().item()
    assert len(head(features).similarities) == 6
    with pytest.raises(InputError, match="Features have the shape"):
        head(features[:, 1:])


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("size", [0, -2])
def test_heads_refuse_sizes_below_1(kind, size):
    with pytest.raises(InputError, match=rf"^num_features = {size} must be at least 1\.$"):
        HEADS[kind](size)
    with pytest.raises(InputError, match=rf"^num_\w+ = {size} must be at least 1\.$"):
        HEADS[kind](WIDTH, size)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FissionHead(WIDTH, 3, 0), r"^prototypes = 0 must be at least 1\.$"),
        (lambda: DistanceHead(WIDTH, 3, 0), r"^prototypes = 0 must be at least 1\.$"),
        (lambda: FissionHead(WIDTH, 3, similarity="cosin"), "'cosin'.*'cosine'"),
        (lambda: FissionHead(WIDTH, 3, 5, novel_prototypes=2), "2 must divide prototypes = 5"),
        (lambda: FissionHead(WIDTH, 3, 5, novel_prototypes=0), "0 must divide prototypes = 5"),
        (lambda: FissionHead(WIDTH, 3, 5, novel_prototypes=10), "10 must divide prototypes = 5"),
        (lambda: FissionHead(WIDTH, 3, 4, novel_prototypes=2), "2 wants num_seen"),
        (lambda: HeadSpec("fision"), "'fision'.*'fission'"),
        (lambda: HeadSpec(similarity="dot"), "Unknown similarity 'dot'"),
        (lambda: HeadSpec(prototypes=-1), r"^prototypes = -1 must be at least 1\.$"),
        (lambda: HeadSpec(temperature=0), r"^temperature = 0 must be above 0\.$"),
    ],
)
def test_bad_options_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_gradient_reaches_the_nearest_slot_alone():
    """Eq. 3 charges one prototype of each class; consistency is what reaches the others."""
    head = make_head(SPECS["fission"], CLASSES, 0)
    output = head(normal(1, WIDTH))
    output.logits.sum().backward()
    nearest = F.one_hot(output.similarities[0].argmax(-1), 4).bool()  # (C, V)
    assert head.l.grad.norm(dim=-1)[nearest].gt(0).all()
    assert head.l.grad.norm(dim=-1)[~nearest].eq(0).all()


def test_novel_slots_exist_where_a_method_discovers():
    for name in ("supervised", "fixmatch+pf", "fixmatch-sigmoid", "orca", "orca+pf", "cpl", "arpl"):
        method = METHODS[name]
        base = method.base if isinstance(method, WithFission) else method
        assert method.traits.has_novel_heads == isinstance(base, Orca)
        assert method.traits.survey_before_epoch == isinstance(base, Orca)
    assert max(LABELS) < SEEN
