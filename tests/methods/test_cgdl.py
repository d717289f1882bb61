"""CGDL: the ladder, its losses, the Gaussians of the classes, and the two rules."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from builders import LABELS, SEEN, WIDTH, Case, make_case, normal, output_of, rng
from protofission.core.errors import InputError
from protofission.core.records import Sizes, Survey
from protofission.methods.cgdl import Cgdl, Gaussian, class_gaussians, divergence, gaussian_product
from protofission.methods.with_fission import WithFission
from reference import cgdl as scalar
from reference.risks import cross_entropy

close = pytest.approx


def case_of(method: Cgdl, seed: int = 0, progress: float = 0.5) -> Case:
    """A case whose survey has been made."""
    case = make_case(method, seed, progress=progress)
    labels = torch.arange(12) % SEEN
    chunks = [output_of(normal(n, SEEN), 1 + 3 * normal(n, WIDTH, seed=n)) for n in (7, 5)]
    method.survey(case.memory, Survey(chunks, labels, []))
    return case


def weights_of(case: Case) -> dict[str, list]:
    return {name: p.tolist() for name, p in case.memory.named_parameters()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"generative_weight": 0.3, "latent_weight": 0.7},
        {"latent": 3, "hidden": 4},
        {"warmup": 1.0},
        {"warmup": 0.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_every_term_equals_its_twin(options, seed):
    method = Cgdl(**{"latent": 2, "hidden": 5, **options})
    case = case_of(method, seed)
    step = case.step()
    targets = method.decide(step)
    found = {t.name: t.weight * t.value.item() for t in method.charge(step, targets)}
    spread = case.features.std(0, correction=0)
    rows = ((case.features - case.features.mean(0)) / spread).tolist()
    expected = scalar.losses(weights_of(case), rows, list(LABELS), targets.noise.tolist())
    beta = min(1.0, case.progress / method.warmup) if method.warmup else 1.0
    scene = case.scene()
    own = [cross_entropy(scene.max_logits(("labeled", 0, i)), y) for i, y in enumerate(LABELS)]
    assert found == {
        "supervised": close(sum(own) / len(own)),
        "latent": close(method.latent_weight * expected["latent"]),
        "reconstruction": close(method.generative_weight * expected["reconstruction"]),
        "divergence": close(beta * method.generative_weight * expected["divergence"]),
    }


@pytest.mark.parametrize(("progress", "beta"), [(0.0, 0.0), (0.1, 0.4), (0.25, 1.0), (0.9, 1.0)])
def test_beta_rises_to_one_in_the_warm_up(progress, beta):
    assert Cgdl().beta(progress) == close(beta)


def test_the_divergence_by_hand():
    own = Gaussian(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 4.0]]))
    normal_prior = Gaussian(torch.zeros(1, 2), torch.ones(1, 2))
    expected = 0.5 * 1 + 0.5 * (4 - 1 - math.log(4))
    assert divergence(own, normal_prior).item() == close(expected)
    assert divergence(own, own).item() == 0


def test_two_gaussians_meet_nearer_to_the_surer_one():
    first = Gaussian(torch.tensor([[0.0]]), torch.tensor([[1.0]]))
    second = Gaussian(torch.tensor([[4.0]]), torch.tensor([[3.0]]))
    both = gaussian_product(first, second)
    assert both.mean.item() == close(1.0)
    assert both.variance.item() == close(0.75)


def test_what_is_rebuilt_does_not_learn_to_be_rebuilt_easily():
    """The gradient goes by way of the ladder: without the way up, none is left."""
    case = case_of(Cgdl(latent=2))
    with torch.no_grad():
        case.memory.up.weight.zero_()
    terms = {t.name: t.value for t in case.method.terms(case.step())}
    terms["reconstruction"].backward()
    assert case.features.grad.eq(0).all()


def test_the_noise_follows_the_step_s_generator():
    case = make_case(Cgdl())
    step = case.step()
    first = case.method.decide(step).noise
    assert torch.equal(case.method.decide(case.step()).noise, first)
    assert not torch.equal(case.method.decide(replace(step, generator=rng(1))).noise, first)
    assert first.shape == (2, len(LABELS), 32)


def test_the_survey_standardises_by_the_labeled_images_and_spares_constant_features():
    method = Cgdl()
    memory = method.memory(Sizes(WIDTH, SEEN, SEEN), rng(0)).double()
    rows = 2 * normal(10, WIDTH) + 5
    rows[:, 3] = 7.0
    chunks = [output_of(normal(len(p), SEEN), p) for p in rows.split([6, 3, 1])]
    method.survey(memory, Survey(chunks, torch.arange(10) % SEEN, []))
    assert_close(memory.mean, rows.mean(0))
    spread = rows.std(0, correction=0)
    assert_close(memory.deviation, spread.clamp_min(1e-3 * spread.max()))
    rules = memory.rules(rows)
    assert_close(memory.means, rules.mean(0))
    assert_close(memory.deviations, rules.std(0, correction=0))


@pytest.mark.parametrize("seed", range(2))
def test_the_gaussian_of_a_class_is_that_of_its_images(seed):
    labels = torch.tensor([0, 1, 0, 3, 1, 0, 0, 1])
    latents = Gaussian(normal(8, 3, seed=seed), normal(8, 3, seed=seed + 9).square())
    centres, covariances = class_gaussians(latents, labels, 4, 3)
    for c in (0, 1, 3):
        rows, own = latents.mean[labels == c], latents.variance[labels == c]
        assert_close(centres[c], rows.mean(0))
        gaps = rows - rows.mean(0)
        assert_close(covariances[c], gaps.T @ gaps / len(rows) + own.mean(0).diag())
    assert_close(covariances[2], torch.eye(3).double())
    assert centres[2].eq(0).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_score_is_the_worse_of_the_two_rules(seed):
    method = Cgdl(latent=2, hidden=5)
    case = case_of(method, seed)
    memory, weights = case.memory, weights_of(case)
    output = case.step().output
    expected = []
    for row in case.features:
        standard = ((row - memory.mean) / memory.deviation).tolist()
        top, _, _, rebuilt = scalar.climb(weights, standard, ([0.0] * 2, [0.0] * 2))
        error = sum((a - b) ** 2 for a, b in zip(standard, rebuilt, strict=True))
        place = torch.tensor([m for m, _ in top]).double()
        far = min(
            ((place - c) @ p @ (place - c)).item()
            for c, p in zip(memory.centres, memory.precisions, strict=True)
        )
        both = zip((error, far), memory.means.tolist(), memory.deviations.tolist(), strict=True)
        expected.append([(value - mean) / spread for value, mean, spread in both])
    found = method.ood_score(output, memory, SEEN)
    assert found.tolist() == close([max(rules) for rules in expected])
    assert not found.requires_grad
    for number, rule in enumerate(("reconstruction", "latent")):
        alone = replace(method, rule=rule).ood_score(output, memory, SEEN)
        assert alone.tolist() == close([rules[number] for rules in expected])


def test_either_rule_alone_rejects():
    """Features that vary in no known way are rebuilt badly; far latents are in no Gaussian."""
    method = Cgdl(latent=2, hidden=5)
    case = case_of(method)
    output = case.step().output
    before = method.ood_score(output, case.memory, SEEN)
    for rule in (0, 1):
        worse = make_case(method)
        worse.memory.load_state_dict(case.memory.state_dict())
        worse.memory.means[rule] -= 100 * worse.memory.deviations[rule]
        assert (method.ood_score(output, worse.memory, SEEN) > before + 1).all()


def test_the_ladder_is_charged_once_whatever_the_head():
    wrapped, plain = make_case(WithFission(Cgdl())), make_case(Cgdl())
    wrapped.memory.get_submodule("base").load_state_dict(plain.memory.state_dict())
    own = {t.name: t.value for t in plain.method.terms(plain.step())}
    terms = wrapped.method.terms(wrapped.step(plain.features))
    found = {t.name: t.value for t in terms}
    for name in ("latent", "reconstruction", "divergence"):
        assert_close(found[name], own[name])


def test_descending_teaches_the_ladder_to_rebuild_and_to_tell_classes():
    method = Cgdl(hidden=16, latent=3, generative_weight=0.1)
    case = make_case(method)
    optimizer = torch.optim.Adam(case.memory.parameters(), lr=0.02)
    values = []
    for _ in range(60):
        optimizer.zero_grad()
        terms = method.terms(case.step(case.features.detach()))
        sum(t.weight * t.value for t in terms).backward()
        optimizer.step()
        values.append({t.name: t.value.item() for t in terms})
    assert values[-1]["reconstruction"] < 0.5 * values[0]["reconstruction"]
    assert values[-1]["latent"] < 0.5 * values[0]["latent"]


def test_the_ladder_has_its_own_optimiser():
    assert Cgdl().traits.memory_optimizer.learning_rate == 1e-3
    assert Cgdl(ladder_rate=0.1).traits.memory_optimizer.learning_rate == 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup": 1.5}, "^warmup = 1.5 must be between 0 and 1"),
        ({"rule": "neither"}, "rule"),
        ({"ladder_rate": -1.0}, "^ladder_rate = -1.0 must be above 0"),
        ({"latent": 0}, "^latent = 0 must be at least 1"),
        ({"hidden": 0}, "^hidden = 0 must be at least 1"),
        ({"generative_weight": -1.0}, "^generative_weight = -1.0 must be at least 0"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        Cgdl(**options)
