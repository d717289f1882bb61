"""The reading of P-ODN: prototypes, radiuses and the three zones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from builders import LABELS, SEEN, Case, make_case, normal, output_of, rng
from protofission.core.errors import InputError
from protofission.core.records import Sizes
from protofission.methods import METHODS, POdn
from protofission.models.heads import HeadSpec
from reference import p_odn as scalar

close = pytest.approx
HEAD = HeadSpec("distance", prototypes=1)


def case_of(method: POdn, seed: int = 0) -> Case:
    case = make_case(method, seed, head=HEAD)
    with torch.no_grad():
        case.memory.radiuses.copy_(normal(SEEN, seed=seed).abs() + 0.2)
    return case


def terms_of(case: Case) -> dict[str, float]:
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


@pytest.mark.parametrize("options", [{}, {"prototype_weight": 0.3}, {"radius_weight": 2.0}])
@pytest.mark.parametrize("seed", range(3))
def test_every_term_equals_its_twin(options, seed):
    case = case_of(POdn(**options), seed)
    weights = {"prototype_weight": 0.001, "radius_weight": 0.1, **options}
    expected = scalar.p_odn(case.scene(), case.memory.radiuses.tolist(), **weights)
    assert terms_of(case) == close(expected, rel=1e-9)
    assert not options or terms_of(case) != close(terms_of(case_of(POdn(), seed)), rel=1e-6)


def scores(far: torch.Tensor, radiuses: list[float], method: POdn) -> list[float]:
    memory = method.memory(Sizes(6, len(radiuses), len(radiuses)), rng(0)).double()
    with torch.no_grad():
        memory.radiuses.copy_(torch.tensor(radiuses))
    return method.ood_score(output_of(-far), memory, len(radiuses)).tolist()


@pytest.mark.parametrize("zone", [(1.0, 3.0), (0.5, 1.5), (0.1, 50.0)])
def test_the_score_equals_its_twin_in_every_zone(zone):
    far = 3 * normal(40, 3).abs()
    radiuses = [0.4, 0.8, 1.2]
    method = replace(POdn(), accept_within=zone[0], reject_beyond=zone[1])
    found = scores(far, radiuses, method)
    expected = [scalar.score(row, radiuses, *zone) for row in far.tolist()]
    assert found == close(expected)
    inner = [zone[0] < s < zone[1] for s in expected]
    assert 0 < sum(inner) <= len(inner)


def test_between_the_thresholds_an_image_near_two_prototypes_is_the_more_foreign():
    far = torch.tensor([[0.5, 9.0], [2.0, 9.0], [2.0, 2.1], [4.0, 4.0]], dtype=torch.float64)
    near, clear, torn, outside = scores(far, [1.0, 1.0], POdn())
    assert near == close(0.5)
    assert clear == close(1 + 2 * 2 / 9)
    assert torn == close(1 + 2 * 2 / 2.1)
    assert outside == close(4.0)
    assert near < clear < torn < outside


def test_one_class_alone_has_no_second_prototype():
    far = torch.tensor([[0.5], [2.0], [4.0]], dtype=torch.float64)
    assert scores(far, [1.0], POdn()) == close([0.5, 3.0, 4.0])


def test_radiuses_are_drawn_to_the_mean_distance_of_their_class():
    case = case_of(POdn())
    step = case.step()
    radius = next(t for t in case.method.terms(step) if t.name == "radius").value
    (gradient,) = torch.autograd.grad(radius, case.memory.radiuses)
    far = -step.output.nearest.detach()
    for c in range(SEEN):
        own = [far[i, c].item() for i, y in enumerate(LABELS) if y == c]
        expected = -2 * sum(d - case.memory.radiuses[c].item() for d in own) / len(LABELS)
        assert gradient[c].item() == close(expected)


@pytest.mark.parametrize("head", [HeadSpec("linear"), HeadSpec("distance", prototypes=5)])
def test_another_head_is_refused(head):
    with pytest.raises(InputError, match=r"does not fit: p-odn measures distances from one"):
        POdn().check(head)
    POdn().check(HEAD)


@pytest.mark.parametrize(("near", "far"), [(0.0, 3.0), (3.0, 3.0), (4.0, 3.0)])
def test_zones_that_are_none_are_refused(near, far):
    with pytest.raises(InputError, match=rf"^accept_within = {near} must be above 0 and below"):
        POdn(accept_within=near, reject_beyond=far)


def test_it_is_a_reading_and_has_no_version_with_fission():
    assert POdn().traits.reading
    assert "p-odn+pf" not in METHODS
