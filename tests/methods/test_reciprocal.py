"""RPL and ARPL: cross entropy by reciprocal points, and the two forms of open-space risk."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from builders import LABELS, SEEN, Case, make_case, normal, output_of, rng, step_of
from protofission.core.errors import InputError
from protofission.core.records import Sizes, total
from protofission.methods import METHODS, Arpl, Rpl, WithFission
from protofission.models.heads import HeadSpec
from reference import open_set as scalar

close = pytest.approx
METHOD = {"rpl": Rpl(), "arpl": Arpl()}


def with_radius(case: Case) -> Case:
    """Radii amid the distances, so that some images are within and some beyond."""
    with torch.no_grad():
        radius = case.memory.radius
        radius.copy_(2.0 + 0.5 * normal(*radius.shape))
    return case


def twin(case: Case) -> dict[str, float]:
    method = case.method
    return scalar.reciprocal(
        case.features[case.rows("labeled", 0)].tolist(),
        list(LABELS),
        case.head.points.tolist(),
        case.memory.radius.tolist(),
        case.head.temperature,
        method.open_weight,
        method.margin if isinstance(method, Arpl) else None,
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "method",
    [Rpl(), Rpl(open_weight=0.7), Arpl(), Arpl(margin=0.0), Arpl(margin=0.3, open_weight=2.0)],
    ids=str,
)
def test_every_term_equals_its_twin(method, seed):
    case = with_radius(make_case(method, seed))
    found = {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}
    assert found == {name: close(value, rel=1e-9) for name, value in twin(case).items()}


def open_space(case: Case) -> torch.Tensor:
    return next(t.value for t in case.method.terms(case.step()) if t.name == "open_space")


def test_the_twins_see_images_within_the_radius_and_beyond():
    case = with_radius(make_case(Arpl(margin=0.0), 1))
    open_space(case).backward()
    moved = case.features.grad.norm(dim=-1) > 0
    assert 0 < moved.sum() < len(LABELS)


def test_each_class_of_rpl_has_a_radius_and_all_of_arpl_share_one():
    sizes = Sizes(6, SEEN, SEEN)
    assert Rpl().memory(sizes, rng(0)).radius.tolist() == [0.0] * SEEN
    assert Arpl().memory(sizes, rng(0)).radius.tolist() == [0.0]
    assert Arpl().memory(sizes, rng(0)).radius.requires_grad


def test_the_best_radius_of_rpl_is_the_mean_distance_of_the_class():
    case = make_case(Rpl())
    far = case.step().output.nearest[case.rows("labeled", 0)].detach()
    labels = torch.tensor(LABELS)
    own = far.gather(1, labels[:, None])[:, 0]
    with torch.no_grad():
        for c in range(SEEN):
            case.memory.radius[c] = own[labels == c].mean()
    open_space(case).backward()
    assert_close(case.memory.radius.grad, torch.zeros(SEEN).double(), atol=1e-12, rtol=0)


def test_within_the_radius_arpl_charges_nothing():
    case = make_case(Arpl())
    with torch.no_grad():
        case.memory.radius.fill_(1e3)
    assert open_space(case).item() == 0
    with torch.no_grad():
        case.memory.radius.fill_(-1.0)
    wide, narrow = open_space(case).item(), case.method.margin
    case.method = Arpl(margin=0.0)
    assert open_space(case).item() == close(wide - narrow)


@pytest.mark.parametrize("name", METHOD)
def test_the_risk_pushes_an_image_away_from_the_point_of_its_class(name):
    case = make_case(METHOD[name])
    step = case.step()
    risk = next(t.value for t in case.method.terms(step) if t.name == "reciprocal")
    risk.backward()
    with torch.no_grad():
        moved = case.step(case.features - 0.01 * case.features.grad)
    rows, labels = case.rows("labeled", 0), torch.tensor(LABELS)[:, None]
    probs = [s.logits[rows].softmax(-1).gather(1, labels) for s in (step, moved)]
    assert probs[1].log().mean() > probs[0].log().mean()


@pytest.mark.parametrize("name", METHOD)
def test_the_radius_learns_where_the_optimiser_finds_it(name):
    case = make_case(METHOD[name])
    total(case.method.terms(case.step())).backward()
    assert case.memory.radius.grad.abs().sum() > 0
    assert case.method.traits.memory_optimizer is None


def test_strangers_are_told_by_probability_or_by_distance():
    output = output_of(torch.tensor([[5.0, 1.0], [3.0, 3.0]]).double())
    memory = torch.nn.Module()
    for method in (Rpl(reject_by="distance"), Arpl()):
        assert method.ood_score(output, memory, 2).tolist() == [-5.0, -3.0]
    for method in (Rpl(), Arpl(reject_by="probability")):
        assert method.ood_score(output, memory, 2)[1].item() == close(0.5)


@pytest.mark.parametrize("name", METHOD)
def test_only_the_labeled_images_are_looked_at(name):
    assert METHODS[name] == METHOD[name]
    assert METHOD[name].traits.views.unlabeled == ()
    assert METHOD[name].traits.novel == "reject"
    assert step_of(METHOD[name], output_of(normal(2, 3)), [0, 1], 0).layout.rows == 2


@pytest.mark.parametrize("name", METHOD)
def test_other_heads_are_refused_and_with_them_fission(name):
    method = METHOD[name]
    method.check(method.traits.head)
    other = Arpl().traits.head if name == "rpl" else Rpl().traits.head
    for head in (HeadSpec("linear"), other):
        with pytest.raises(InputError, match=rf"^head.kind = {head.kind} does not fit: .* recip"):
            method.check(head)
    assert f"{name}+pf" not in METHODS
    with pytest.raises(InputError, match=r"^head.kind = fission does not fit"):
        WithFission(method).check(WithFission(method).traits.head)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rpl(open_weight=-1), "^open_weight = -1 must be at least 0"),
        (lambda: Arpl(margin=-0.1), r"^margin = -0.1 must be at least 0\.$"),
        (lambda: Rpl(reject_by="far"), "Unknown reject_by 'far'"),
    ],
)
def test_bad_options_are_refused_by_name(make, message):
    with pytest.raises(InputError, match=message):
        make()
