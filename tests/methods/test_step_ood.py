"""STEP: the graph of neighbours, keep and unzip, and the score."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from builders import LABELS, SEEN, UNLABELED, WIDTH, Case, make_case, normal, output_of, rng
from protofission.core.errors import InputError
from protofission.core.records import Sizes, Survey
from protofission.methods.step_ood import StepOOD
from protofission.methods.with_fission import WithFission
from reference import step as scalar

close = pytest.approx
EVERY = len(LABELS) + UNLABELED


def case_of(method: StepOOD, seed: int = 0) -> Case:
    """A case whose survey has been made."""
    case = make_case(method, seed)
    labels = torch.arange(12) % SEEN
    chunks = [output_of(normal(n, SEEN, seed=n), 3 * normal(n, WIDTH, seed=n)) for n in (7, 5)]
    method.survey(case.memory, Survey(chunks, labels, []))
    return case


def terms_of(case: Case) -> dict[str, float]:
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"neighbours": 5, "margin": 40.0},
        {"neighbours": 1, "keep_weight": 0.3, "unzip_weight": 2.0, "margin": 40.0},
        {"ridge": 0.1, "margin": 40.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_every_term_equals_its_twin(options, seed):
    method = StepOOD(**options)
    case = case_of(method, seed)
    kept = case.memory
    expected = scalar.losses(
        case.features.tolist(),
        kept.whitening.tolist(),
        kept.projection.tolist(),
        method.neighbours,
        method.margin,
    )
    found = terms_of(case)
    assert found["keep"] == close(method.keep_weight * expected["keep"])
    assert found["unzip"] == close(method.unzip_weight * expected["unzip"])


def test_the_survey_whitens_by_the_covariance_of_all_labeled_images_and_a_ridge():
    """Chunks of different lengths: P_MD' P_MD is the inverse of the covariance."""
    rows, labels = 2 * normal(11, WIDTH) + 1, torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 0, 0, 1])
    method = StepOOD(ridge=0.5)
    memory = method.memory(Sizes(WIDTH, SEEN, SEEN), rng(0)).double()
    chunks = [output_of(normal(len(part), SEEN), part) for part in rows.split([6, 4, 1])]
    method.survey(memory, Survey(chunks, labels, []))
    covariance = torch.tensor(scalar.covariance(rows.tolist(), 0.5), dtype=torch.float64)
    identity = torch.eye(WIDTH, dtype=torch.float64)
    assert_close(memory.whitening.T @ memory.whitening @ covariance, identity)
    for c in range(SEEN):
        assert_close(memory.centres[c], rows[labels == c].mean(0))


def test_a_ridge_too_small_for_features_that_are_alike_is_refused():
    method = StepOOD(ridge=1e-30)
    memory = method.memory(Sizes(WIDTH, SEEN, SEEN), rng(0))
    rows = torch.tensor([[1.0], [-1.0]]).expand(2, WIDTH)
    survey = Survey([output_of(normal(2, SEEN), rows)], torch.tensor([0, 1]), [])
    with pytest.raises(InputError, match=r"method\.ridge = 1e-30: raise it, to 1 for instance"):
        method.survey(memory, survey)
    replace(method, ridge=1.0).survey(memory, survey)


def test_neighbours_are_the_nearest_by_mahalanobis_distance_and_never_oneself():
    """One coordinate varies ten times as much among the labels, so it counts a hundredth."""
    method = StepOOD(neighbours=1)
    case = make_case(method)
    with torch.no_grad():
        case.memory.whitening.copy_(torch.tensor([0.1, 1, 1, 1, 1, 1]).diag())
    features = torch.zeros(EVERY, WIDTH, dtype=torch.float64)
    features[:, 1] = 100.0 * torch.arange(EVERY)
    features[1] = features[0] + torch.tensor([5.0, 0, 0, 0, 0, 0])  # 0.5 away
    features[2] = features[0] + torch.tensor([0.0, 1, 0, 0, 0, 0])  # 1 away
    targets = method.decide(case.step(features))
    assert targets.neighbours[0].item() == 1
    assert targets.distances[0].item() == close(0.25)
    assert (targets.neighbours[:, 0] != torch.arange(EVERY)).all()


def test_a_batch_smaller_than_the_number_of_neighbours_gives_all_others():
    case = make_case(StepOOD(neighbours=500))
    assert case.method.decide(case.step()).neighbours.shape == (EVERY, EVERY - 1)


def test_keep_is_zero_where_the_projection_is_no_wider_than_the_mahalanobis_space():
    case = case_of(StepOOD())
    with torch.no_grad():
        case.memory.projection.copy_(case.memory.whitening)
    assert terms_of(case)["keep"] == close(0, abs=1e-9)
    with torch.no_grad():
        case.memory.projection.mul_(2)
    targets = case.method.decide(case.step())
    assert terms_of(case)["keep"] == close(3 * targets.distances.mean().item())


def test_unzip_ends_at_the_margin():
    case = case_of(StepOOD())
    with torch.no_grad():
        case.memory.projection.mul_(1000)
    assert terms_of(case)["unzip"] == 0
    with torch.no_grad():
        case.memory.projection.zero_()
    assert terms_of(case)["unzip"] == close(3)


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_projection_learns_from_all_images_and_the_features_from_labels_alone(wrapped):
    method = WithFission(StepOOD()) if wrapped else StepOOD()
    case = make_case(method)
    terms = {t.name: t.value for t in method.terms(case.step())}
    (terms["keep"] + terms["unzip"]).backward()
    (projection,) = case.memory.parameters()
    assert projection.grad.norm() > 0
    assert case.features.grad is None
    terms["supervised"].backward()
    assert case.features.grad[case.rows("labeled", 0)].norm() > 0
    assert case.features.grad[case.rows("unlabeled", 0)].eq(0).all()


def test_descending_pulls_strangers_apart_and_keeps_neighbours():
    """Two tight groups: the projection widens the gap, not the groups."""
    method = StepOOD(neighbours=3, margin=20.0)
    case = make_case(method)
    rows = 0.1 * normal(EVERY, WIDTH)
    rows[: EVERY // 2, 0] += 3
    optimizer = torch.optim.Adam(case.memory.parameters(), lr=0.05)

    def ratio() -> float:
        places = (rows @ case.memory.projection.T).detach()
        gap = (places[: EVERY // 2].mean(0) - places[EVERY // 2 :].mean(0)).norm()
        return (gap / places[: EVERY // 2].std(0).norm()).item()

    before = ratio()
    for _ in range(80):
        optimizer.zero_grad()
        step = case.step(rows)
        sum(t.value for t in method.other_terms(step, method.decide(step))).backward()
        optimizer.step()
    assert ratio() > 1.5 * before


@pytest.mark.parametrize("seed", range(3))
def test_the_score_is_the_distance_from_the_nearest_centre_after_the_projection(seed):
    case = case_of(StepOOD(), seed)
    found = case.method.ood_score(case.step().output, case.memory, SEEN)
    weights = case.memory.projection.tolist(), case.memory.centres.tolist()
    assert found.tolist() == close([scalar.score(row, *weights) for row in case.features.tolist()])
    assert not found.requires_grad
    wrapped = make_case(WithFission(StepOOD()), seed)
    wrapped.memory.get_submodule("base").load_state_dict(case.memory.state_dict())
    output = replace(wrapped.step().output, features=case.features.detach())
    assert_close(wrapped.method.ood_score(output, wrapped.memory, SEEN), found)


def test_a_class_without_labels_leaves_its_centre_at_zero():
    method = StepOOD()
    memory = method.memory(Sizes(WIDTH, SEEN, SEEN), rng(0))
    rows = normal(4, WIDTH, dtype=torch.float32)
    chunk = output_of(normal(4, SEEN), rows)
    method.survey(memory, Survey([chunk], torch.tensor([0, 1, 1, 0]), []))
    assert memory.centres[2].eq(0).all()
    assert memory.whitening.isfinite().all()


def test_the_projection_has_its_own_optimiser():
    assert StepOOD().traits.memory_optimizer == (3e-4, 1e-4)
    assert StepOOD(projection_rate=0.1).traits.memory_optimizer.learning_rate == 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neighbours": 0}, "^neighbours = 0 must be at least 1"),
        ({"margin": 0.0}, "^margin = 0.0 must be above 0"),
        ({"ridge": -1.0}, "^ridge = -1.0 must be above 0"),
        ({"projection_rate": 0.0}, "^projection_rate = 0.0 must be above 0"),
        ({"keep_weight": -1.0}, "^keep_weight = -1.0 must be at least 0"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        StepOOD(**options)
