"""The reading of PMAL: robust and diverse images as prototypes that do not learn."""

from __future__ import annotations

import math

import pytest
import torch

from builders import LABELS, SEEN, WIDTH, make_case, normal, output_of, rng
from protofission.core.errors import InputError
from protofission.core.records import Sizes, Survey
from protofission.methods import METHODS, Pmal
from protofission.methods.pmal import MOST, robustness, set_logits
from protofission.models.heads import HeadSpec
from reference import pmal as scalar
from reference.risks import cross_entropy, softmax

close = pytest.approx


def set_logit(sims: list[float], temperature: float, attention: float) -> float:
    weights = softmax([attention * s for s in sims])
    return temperature * math.fsum(w * s for w, s in zip(weights, sims, strict=True))


@pytest.mark.parametrize("attention", [0.1, 10.0])
@pytest.mark.parametrize("seed", range(2))
def test_the_risk_and_the_score_equal_their_twins(attention, seed):
    case = make_case(Pmal(attention_temperature=attention), seed)
    scene = case.scene()
    logits = {
        key: [set_logit(own, scene.temperature, attention) for own in sims]
        for key, sims in scene.sims.items()
    }
    risks = [cross_entropy(logits["labeled", 0, i], y) for i, y in enumerate(LABELS)]
    (term,) = case.method.terms(case.step())
    assert term.value.item() == close(sum(risks) / len(risks), rel=1e-9)
    output = case.step().output
    found = case.method.ood_score(output, case.memory, SEEN).tolist()
    assert found == close([1 - max(softmax(logits[key])) for key in case.keys], rel=1e-9)


def test_one_prototype_and_equal_ones_need_no_attention():
    sims = normal(5, 3, 1).expand(5, 3, 4)
    assert torch.allclose(set_logits(output_of(sims), 7.0), sims[..., 0])


@pytest.mark.parametrize("seed", range(3))
def test_the_robustness_equals_its_twin(seed):
    rows = normal(7, 5, seed=seed)
    generator = rng(seed)
    perturbed = [
        (rows * (torch.rand(5, generator=generator, dtype=torch.float64) >= 0.4)).tolist()
        for _ in range(3)
    ]
    expected = scalar.robustness(rows.tolist(), perturbed)
    assert robustness(rows, 3, 0.4, rng(seed)).tolist() == close(expected)


def test_an_image_that_stands_on_few_features_is_less_robust_than_its_class():
    rows = 1 + 0.05 * normal(30, 64)
    rows[7, 4:] = 0
    assert robustness(rows, 20, 0.2, rng(0)).argmin() == 7


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_mined_images_equal_their_twins(share, seed):
    rows = normal(12, 4, seed=seed)
    method = Pmal(candidate_share=share)
    robust = robustness(rows, method.perturbations, method.dropped, rng(5)).tolist()
    expected = scalar.mined(rows.tolist(), robust, 3, share)
    found = method.mine(rows, 3, rng(5)).tolist()
    assert found == expected
    assert len(set(found)) == 3


def surveyed(features: torch.Tensor, labels: list[int], memory: torch.nn.Module) -> None:
    chunks = [output_of(normal(len(part), SEEN), part) for part in features.split(5)]
    Pmal().survey(memory, Survey(chunks, torch.tensor(labels), iter(())))


def test_the_images_are_mined_once_and_their_features_taken_anew():
    labels = [0, 1, 2, 1, 0, 2, 0, 1, 2, 0, 1]
    features = normal(len(labels), WIDTH)
    memory = Pmal().memory(Sizes(WIDTH, SEEN, SEEN, 2), rng(0)).double()
    surveyed(features, labels, memory)
    places = memory.places.clone()
    for c in range(SEEN):
        assert [labels[i] for i in places[c].tolist()] == [c, c]
    assert torch.equal(memory.prototypes, features[places])
    later = normal(len(labels), WIDTH, seed=8)
    surveyed(later, labels, memory)
    assert torch.equal(memory.places, places)
    assert torch.equal(memory.prototypes, later[places])


def test_a_class_of_many_images_is_looked_at_evenly_and_one_of_few_repeats_them():
    many = 2 * MOST + 1
    labels = [0] * many + [1, 2]
    features = normal(len(labels), WIDTH)
    memory = Pmal().memory(Sizes(WIDTH, SEEN, SEEN, 2), rng(0)).double()
    surveyed(features, labels, memory)
    assert (memory.places[0] % 3 == 0).all()
    assert memory.places[1:].tolist() == [[many, many], [many + 1, many + 1]]


def test_the_prototypes_of_the_head_are_the_mined_images_after_every_step():
    case = make_case(Pmal())
    step, before = case.step(), case.head.prototypes.detach().clone()
    targets = case.method.decide(step)
    case.method.update(step, targets)
    assert torch.equal(case.head.prototypes, before)  # nothing is mined yet
    surveyed(normal(len(LABELS), WIDTH), list(LABELS), case.memory)
    case.method.update(step, targets)
    assert torch.equal(case.head.prototypes, case.memory.prototypes)
    assert not torch.equal(case.head.prototypes, before)


def test_another_head_is_refused():
    with pytest.raises(InputError, match=r"^head\.kind = linear does not fit: pmal measures"):
        Pmal().check(HeadSpec("linear"))


def test_it_is_a_reading_and_has_no_version_with_fission():
    assert Pmal().traits.reading
    assert "pmal+pf" not in METHODS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"perturbations": 0}, r"^perturbations = 0 must be at least 1\.$"),
        ({"dropped": 1.0}, r"^dropped = 1.0 must be above 0 and below 1\.$"),
        ({"candidate_share": 0.0}, r"^candidate_share = 0.0 must be above 0, at most 1\.$"),
        ({"attention_temperature": 0.0}, r"^attention_temperature = 0.0 must be above 0\.$"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        Pmal(**options)
