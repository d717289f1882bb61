"""CPL: its two losses, its two rules of rejection, and the head that it keeps."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from builders import LABELS, Case, make_case, normal, output_of, step_of
from protofission.core.errors import InputError
from protofission.core.records import total
from protofission.methods import METHODS, Cpl, Supervised, WithFission
from protofission.methods.cpl import class_logits
from protofission.models.heads import HeadSpec
from protofission.models.heads.distance import DistanceHead
from reference import open_set as scalar

close = pytest.approx


def twin(case: Case) -> dict[str, float]:
    rows = case.rows("labeled", 0)
    return scalar.cpl(
        case.features[rows].tolist(),
        list(LABELS),
        case.head.prototypes.tolist(),
        case.head.temperature,
        case.head.offset,
        case.method.prototype_weight,
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("weight", [0.001, 0.7])
def test_every_term_equals_its_twin(seed, slots, weight):
    head = HeadSpec("distance", prototypes=slots, temperature=3.0, offset=0.5)
    case = make_case(Cpl(prototype_weight=weight), seed, head=head)
    found = {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}
    assert found == {name: close(value, rel=1e-9) for name, value in twin(case).items()}


def test_a_class_is_as_probable_as_its_prototypes_together():
    output = output_of(torch.tensor([[[-1.0, -2.0], [-3.0, -3.0]]]).double())
    expected = (math.exp(-1) + math.exp(-2)) / (math.exp(-1) + math.exp(-2) + 2 * math.exp(-3))
    assert class_logits(output).softmax(-1)[0, 0].item() == close(expected)
    alone = output_of(normal(4, 3))
    assert_close(class_logits(alone), alone.logits)


def test_copies_of_a_prototype_in_every_class_change_nothing():
    case = make_case(Cpl(), head=HeadSpec("distance", prototypes=1))
    before = total(case.method.terms(case.step()))
    repeated = DistanceHead(6, 3, 5, temperature=case.head.temperature).double()
    with torch.no_grad():
        repeated.prototypes.copy_(case.head.prototypes.expand(3, 5, 6))
    case.head = repeated
    assert_close(total(case.method.terms(case.step())), before)


def test_all_prototypes_learn_from_the_risk_and_the_nearest_from_the_prototype_loss():
    case = make_case(Cpl())
    for name, every in (("distance", True), ("prototype", False)):
        case.head.zero_grad()
        terms = {t.name: t.value for t in case.method.terms(case.step())}
        terms[name].backward()
        moved = case.head.prototypes.grad.norm(dim=-1) > 1e-9
        assert bool(moved.all()) == every
        assert moved.any(-1).all()


def test_an_image_on_its_prototype_costs_no_prototype_loss():
    head = HeadSpec("distance", prototypes=2).build(4, 3, 3, torch.Generator()).double()
    features = head.prototypes[[0, 2], [1, 0]].detach()
    step = step_of(Cpl(), head(features), [0, 2], 0)
    prototype = next(t for t in Cpl().terms(step) if t.name == "prototype")
    assert prototype.value.item() == close(0, abs=1e-12)
    shifted = step_of(Cpl(), head(features + 0.5), [0, 2], 0)
    prototype = next(t for t in Cpl().terms(shifted) if t.name == "prototype")
    assert prototype.value.item() <= 4 * 0.25 + 1e-12


def test_one_prototype_and_no_prototype_loss_is_supervised_on_distances():
    case = make_case(Cpl(prototype_weight=0.0), head=HeadSpec("distance", prototypes=1))
    assert_close(total(case.method.terms(case.step())), total(Supervised().terms(case.step())))


def test_strangers_are_told_by_probability_or_by_distance():
    sims = torch.tensor([[[-9.0, -9.0], [0.0, -9.0]], [[-1.0, -1.0], [-1.0, -1.0]]]).double() - 5
    output = output_of(sims, temperature=2.0)
    memory = torch.nn.Module()
    by_probability = Cpl().ood_score(output, memory, 2)
    assert by_probability[0] < 1e-6
    assert by_probability[1].item() == close(0.5)
    by_distance = Cpl(reject_by="distance").ood_score(output, memory, 2)
    assert by_distance.tolist() == [5.0, 6.0]


def test_only_the_labeled_images_are_looked_at():
    assert Cpl().traits.views.unlabeled == ()
    assert Cpl().traits.novel == "reject"


def test_other_heads_are_refused_and_with_them_fission():
    Cpl().check(HeadSpec("distance"))
    for kind in ("linear", "cosine", "reciprocal"):
        with pytest.raises(InputError, match=rf"^head.kind = {kind} does not fit: cpl measures"):
            Cpl().check(HeadSpec(kind))
    assert "cpl+pf" not in METHODS
    fission = WithFission(Cpl())
    with pytest.raises(InputError, match=r"^head.kind = fission does not fit"):
        fission.check(fission.traits.head)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prototype_weight": -1}, "^prototype_weight = -1 must be at least 0"),
        ({"reject_by": "distanc"}, "'distanc'.*'distance'"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        Cpl(**options)
