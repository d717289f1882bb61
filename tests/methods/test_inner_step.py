"""The inner step: equal to one by hand, without a trace on the model, and refused to processes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradgradcheck
from torch.testing import assert_close

from builders import make_case, normal, rng
from protofission.core.errors import InputError
from protofission.core.records import Batch, Layout, Output, Step, total
from protofission.core.rng import step_rng
from protofission.core.threaded_products import linear
from protofission.data.batches import Batches
from protofission.fission import unit
from protofission.methods import METHODS
from protofission.methods.parts.inner_step import SmallNet, output_after_step
from protofission.models.heads.cosine import CosineHead
from protofission.models.model import Model
from protofission.training.loop import Replay, forward
from protofission.training.state import TrainState, start
from runs import digits, small
from scalar_nets import scalar_net

BILEVEL = [name for name, method in METHODS.items() if method.traits.inner_step]


class Body(nn.Module):
    """A map, batch norm and a rectifier, in double precision."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)
        for number, parameter in enumerate(self.parameters()):
            parameter.data = normal(*parameter.shape, seed=number)

    def forward(self, rows: Tensor) -> Tensor:
        return self.norm(self.map(rows)).relu()


def small_model() -> Model:
    with torch.random.fork_rng():
        return Model(Body(), CosineHead(6, 3, generator=rng(0))).double().train()  # type: ignore[arg-type]


def step_on(model: Model) -> Step:
    layout, labels = Layout(5, 0, 1, 0), torch.tensor([0, 1, 2, 0, 1])
    batch = Batch(normal(5, 4).float(), labels, layout, torch.empty(0, dtype=torch.long))
    replay = Replay(model, batch)
    replay._inputs = normal(5, 4)  # in double precision, for differences
    return Step(replay({}), labels, layout, 3, nn.Module(), rng(0), again=replay)


def loss_of(strength: Tensor) -> Callable[[Output], Tensor]:
    def loss(output: Output) -> Tensor:
        return (strength * output.logits.tanh()).square().mean() + output.features.mean()

    return loss


def by_hand(model: Model, strength: Tensor, rate: float) -> Tensor:
    """The logits of a copy of the model whose weights have moved, by torch.autograd alone."""
    twin = copy.deepcopy(model)
    slopes = torch.autograd.grad(
        loss_of(strength)(twin(normal(5, 4))), [p for p in twin.parameters() if p.requires_grad]
    )
    with torch.no_grad():
        learning = [p for p in twin.parameters() if p.requires_grad]
        for parameter, slope in zip(learning, slopes, strict=True):
            parameter -= rate * slope
    return twin(normal(5, 4)).logits


@pytest.mark.parametrize("rate", [1e-3, 0.7])
def test_an_inner_step_equals_one_written_by_hand(rate: float) -> None:
    model, strength = small_model(), torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    found = output_after_step(step_on(model), loss_of(strength), rate).logits
    assert_close(found, by_hand(model, strength, rate), rtol=1e-12, atol=1e-12)
    assert (found - model(normal(5, 4)).logits).abs().max() > rate / 100


def test_weights_that_do_not_learn_take_no_part_in_the_inner_step() -> None:
    model, strength = small_model(), torch.ones(3, dtype=torch.float64)
    model.backbone.requires_grad_(False)
    step = step_on(model)
    assert set(step.again.weights) == {"head.weight"}  # type: ignore[union-attr]
    found = output_after_step(step, loss_of(strength), 0.7).logits
    assert_close(found, by_hand(model, strength, 0.7), rtol=1e-12, atol=1e-12)


def test_the_gradient_through_an_inner_step_is_that_of_differences() -> None:
    """Of what the loss depends on beside the model, through batch norm and cosines."""
    model, wanted = small_model(), normal(5, 3, seed=9)
    strength = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
    outer = (output_after_step(step_on(model), loss_of(strength), 0.7).logits * wanted).sum()
    (found,) = torch.autograd.grad(outer, strength)
    for place in range(3):
        width = 1e-5 * torch.eye(3, dtype=torch.float64)[place]
        values = [
            (by_hand(model, strength.detach() + w, 0.7) * wanted).sum() for w in (width, -width)
        ]
        assert found[place].item() == pytest.approx((values[0] - values[1]).item() / 2e-5, rel=1e-6)


def test_an_inner_step_leaves_no_trace_on_the_model() -> None:
    model = small_model()
    before = copy.deepcopy(model.state_dict())
    strength = torch.ones(3, dtype=torch.float64, requires_grad=True)
    output_after_step(step_on(model), loss_of(strength), 0.7).logits.sum().backward()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())
    assert strength.grad is not None


def test_a_replay_with_the_model_s_own_weights_is_the_forward_pass() -> None:
    model = small_model()
    step = step_on(model)
    assert step.again is not None
    assert_close(step.again(step.again.weights).logits, model(normal(5, 4)).logits)


def real_step(name: str) -> tuple[TrainState, Any, Step]:
    """A step on the digits, as the loop makes it."""
    data, experiment = digits(), small(name)
    state = start(experiment, data.training, data.augmentations)
    state.model.train()
    recipe, views = experiment.recipe, experiment.method.traits.views
    sizes = recipe.labeled_batch, recipe.unlabeled_batch
    batch = Batches(data.training, views, data.augmentations, *sizes, seed=0).at(0)
    step = Step(
        forward(state.model, batch),
        batch.labels,
        batch.layout,
        5,
        state.memory,
        step_rng(0, 0, "method"),
        places=batch.places,
        again=Replay(state.model, batch),
    )
    return state, experiment.method, step


@pytest.mark.parametrize("name", BILEVEL)
def test_the_outer_term_teaches_the_net_and_not_the_model(name: str) -> None:
    state, method, step = real_step(name)
    buffers = {key: value.clone() for key, value in state.model.named_buffers()}
    targets = method.decide(step)
    terms = {term.name: term for term in method.other_terms(step, targets)}
    terms["outer"].value.backward()
    assert all(parameter.grad is None for parameter in state.model.parameters())
    for key, parameter in state.memory.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().max() > 0, key
    for key, value in state.model.named_buffers():
        assert torch.equal(value, buffers[key]), key


@pytest.mark.parametrize("name", BILEVEL)
def test_the_rest_of_the_loss_teaches_the_model_and_not_the_net(name: str) -> None:
    state, method, step = real_step(name)
    total([t for t in method.terms(step) if t.name != "outer"]).backward()
    assert all(parameter.grad is None for parameter in state.memory.parameters())
    learning = [p for p in state.model.parameters() if p.requires_grad]
    assert all(p.grad is not None for p in learning)
    assert any(p.grad.abs().max() > 0 for p in learning if p.grad is not None)


@pytest.mark.parametrize("name", BILEVEL)
def test_several_processes_are_refused_in_a_sentence(name: str) -> None:
    experiment = small(name)
    experiment.check(1)
    with pytest.raises(InputError, match=r"^\S+ takes an inner step .* use 1\.$") as refused:
        experiment.check(2)
    assert name in str(refused.value)


def test_there_are_bilevel_methods_of_both_kinds() -> None:
    assert {"ds3l", "ds3l+pf", "openldn", "openldn+pf"} <= set(BILEVEL)


@pytest.mark.parametrize("name", BILEVEL)
def test_the_outer_term_of_a_case_reaches_every_parameter_of_the_net(name: str) -> None:
    case = make_case(METHODS[name], progress=0.3)
    terms = case.method.other_terms(case.step(), case.method.decide(case.step()))
    total(terms).backward()
    assert all(parameter.grad is None for parameter in case.head.parameters())
    assert all(p.grad.abs().max() > 0 for p in case.memory.parameters())


def test_what_a_model_computes_has_second_derivatives() -> None:
    rows, weight, bias = normal(4, 3), normal(2, 3, seed=1), normal(2, seed=2)
    leaves = [tensor.requires_grad_() for tensor in (rows, weight, bias)]
    assert gradgradcheck(unit, leaves[:1])
    assert gradgradcheck(linear, leaves)


def test_the_small_net_equals_its_twin_and_starts_by_its_generator() -> None:
    net, rows = SmallNet(4, 7, rng(1)).double(), normal(5, 4)
    assert net(rows).tolist() == pytest.approx([scalar_net(net)(row) for row in rows.tolist()])
    assert torch.equal(SmallNet(4, 7, rng(1)).hidden, SmallNet(4, 7, rng(1)).hidden)
    assert not torch.equal(SmallNet(4, 7, rng(1)).hidden, SmallNet(4, 7, rng(2)).hidden)


def test_pairs_are_the_net_on_one_row_behind_the_other() -> None:
    net, rows = SmallNet(8, 5, rng(1)).double(), normal(6, 4)
    expected = [[net(torch.cat([a, b])).item() for b in rows] for a in rows]
    assert_close(net.pairs(rows), torch.tensor(expected, dtype=torch.float64))
    assert not torch.allclose(net.pairs(rows), net.pairs(rows).T)
