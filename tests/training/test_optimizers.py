"""Optimizers against scalar twins and closed forms; who decays, and what the average keeps."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from builders import normal, rng
from protofission.models.backbones import BackboneSpec
from protofission.models.heads import HeadSpec
from protofission.models.model import Model
from protofission.training.optimizers import Lars, move_average, optimizer_of
from protofission.training.recipe import Recipe
from protofission.training.schedules import learning_rate

STEPS = 5
RATES = (0.3, 0.5, 0.2, 0.05, 0.4)
"""A learning rate that changes tells v = m v + lr r g' from v = m v + r g' with w -= lr v."""


@dataclass
class ScalarLars:
    """One tensor as a list of numbers."""

    weights: list[float]
    dimensions: int
    decay: float
    momentum: float = 0.7
    trust: float = 0.02
    velocity: list[float] = field(default_factory=list)

    def step(self, gradient: list[float], rate: float) -> None:
        pulled = [g + self.decay * w for g, w in zip(gradient, self.weights, strict=True)]
        length = math.sqrt(sum(w * w for w in self.weights))
        wanted = math.sqrt(sum(g * g for g in pulled))
        ratio = 1.0
        if self.dimensions > 1 and length > 0 and wanted > 0:
            ratio = self.trust * length / wanted
        before = self.velocity or [0.0] * len(pulled)
        self.velocity = [
            self.momentum * v + rate * ratio * g for v, g in zip(before, pulled, strict=True)
        ]
        self.weights = [w - v for w, v in zip(self.weights, self.velocity, strict=True)]


SHAPES: dict[str, tuple[Tensor, float]] = {
    # the start, and by what the gradients are multiplied
    "matrix": (normal(3, 4), 1.0),
    "kernel": (normal(2, 3, 2, 2, seed=1), 50.0),
    "vector": (normal(5, seed=2), 1.0),
    "number": (normal(1, seed=3)[0], 1.0),
    "zero matrix": (torch.zeros(2, 3, dtype=torch.float64), 1.0),
    "matrix without gradient": (normal(2, 2, seed=4), 0.0),
    "zero matrix without gradient": (torch.zeros(2, 2, dtype=torch.float64), 0.0),
}


def lars(decays: tuple[float, float]) -> tuple[dict[str, nn.Parameter], Lars]:
    """Parameters of all shapes; every other one is in a group with a decay of its own."""
    params = {name: nn.Parameter(start.clone()) for name, (start, _) in SHAPES.items()}
    every = list(params.values())
    groups = [
        {"params": every[0::2], "weight_decay": decays[0]},
        {"params": every[1::2], "weight_decay": decays[1]},
    ]
    return params, Lars(groups, lr=1.0, momentum=0.7, trust=0.02)


def gradient_of(number: int, step: int) -> Tensor:
    start, factor = list(SHAPES.values())[number]
    return factor * normal(start.numel(), seed=100 * number + step).view_as(start)


def advance(params: dict[str, nn.Parameter], optimizer: Lars, steps: range) -> None:
    for step in steps:
        for number, parameter in enumerate(params.values()):
            parameter.grad = gradient_of(number, step)
        for group in optimizer.param_groups:
            group["lr"] = RATES[step]
        optimizer.step()


@pytest.mark.parametrize("decays", [(0.0, 0.0), (0.1, 0.3)])
def test_lars_equals_its_scalar_twin_tensor_by_tensor(decays):
    params, optimizer = lars(decays)
    twins = [
        ScalarLars(start.flatten().tolist(), start.ndim, decays[number % 2])
        for number, (start, _) in enumerate(SHAPES.values())
    ]
    for step in range(STEPS):
        advance(params, optimizer, range(step, step + 1))
        for number, (name, twin) in enumerate(zip(params, twins, strict=True)):
            twin.step(gradient_of(number, step).flatten().tolist(), RATES[step])
            assert params[name].flatten().tolist() == pytest.approx(twin.weights, abs=1e-12), name
    assert params["zero matrix"].any()
    assert all(value.isfinite().all() for value in params.values())


def test_a_step_of_lars_is_as_long_as_trust_and_weights_say():
    """Without decay and momentum: |change| = lr trust |w|, whatever the gradient's length."""
    for factor in (1e-6, 1.0, 1e6):
        weights = nn.Parameter(normal(4, 3))
        before = weights.detach().clone()
        weights.grad = factor * normal(4, 3, seed=1)
        Lars([weights], lr=0.5, momentum=0.0).step()
        moved = (weights.detach() - before).norm() / before.norm()
        assert moved.item() == pytest.approx(0.5 * 0.001)


def test_lars_goes_on_from_its_saved_state_bit_for_bit():
    params, optimizer = lars((0.1, 0.3))
    advance(params, optimizer, range(3))
    saved = copy.deepcopy((params, optimizer.state_dict()))
    advance(params, optimizer, range(3, STEPS))
    again, fresh = lars((0.9, 0.9))  # the groups' own values come from the saved state
    with torch.no_grad():
        for name, value in saved[0].items():
            again[name].copy_(value)
    fresh.load_state_dict(saved[1])
    advance(again, fresh, range(3, STEPS))
    assert all(torch.equal(params[name], again[name]) for name in params)


def test_lars_leaves_alone_what_has_no_gradient():
    idle, busy = nn.Parameter(normal(2, 2)), nn.Parameter(normal(2, 2))
    before, optimizer = idle.detach().clone(), Lars([idle, busy], lr=1.0, weight_decay=0.5)
    busy.grad = normal(2, 2, seed=1)
    optimizer.step()
    assert torch.equal(idle, before)
    assert idle not in optimizer.state
    assert busy in optimizer.state


def model(stages: int | None = None) -> Model:
    backbone = BackboneSpec(width=4, blocks=(1, 1), stem="cifar").build(1, rng(0))
    backbone.learn_last(stages)
    return Model(backbone, HeadSpec("fission", prototypes=3).build(8, 4, 2, rng(0)))


@pytest.mark.parametrize("kind", ["sgd", "lars"])
@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("vectors", [False, True])
def test_delta_and_vectors_decay_only_where_the_recipe_says(kind, delta, vectors):
    recipe = Recipe(
        optimizer=kind, weight_decay=0.03, decay_delta=delta, decay_vectors=vectors, momentum=0.8
    )
    memory = nn.Module()
    memory.register_parameter("delta_of_no_head", nn.Parameter(torch.ones(2, 2)))
    memory.register_parameter("number", nn.Parameter(torch.tensor(1.0)))
    learning = nn.ModuleList([model(), memory])
    optimizer = optimizer_of(learning, recipe)
    assert type(optimizer) is {"sgd": torch.optim.SGD, "lars": Lars}[kind]
    grouped = [
        (id(parameter), group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    found = dict(grouped)
    assert len(grouped) == len(found) == len(list(learning.parameters()))
    names = dict(learning.named_parameters())
    assert names["0.head.delta"].ndim == 2
    for name, parameter in names.items():
        decays = delta if name == "0.head.delta" else vectors or parameter.ndim > 1
        assert found[id(parameter)] == (0.03 if decays else 0.0), name
    for group in optimizer.param_groups:
        assert (group["lr"], group["momentum"]) == (0.1, 0.8)
        assert group["params"]


def test_a_vector_of_delta_is_delta_first():
    """With decay for delta and none for vectors, delta decays even where it has one dimension."""
    head = nn.Module()
    head.register_parameter("delta", nn.Parameter(torch.ones(3)))
    module = nn.ModuleDict({"head": head})
    for decays in (False, True):
        recipe = Recipe(decay_delta=decays, decay_vectors=not decays)
        (group,) = optimizer_of(module, recipe).param_groups
        assert group["weight_decay"] == (5e-4 if decays else 0.0)


def test_frozen_parameters_are_in_no_group():
    learning = model(stages=1)
    frozen = {id(p) for p in learning.parameters() if not p.requires_grad}
    assert frozen
    optimizer = optimizer_of(learning, Recipe())
    grouped = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert grouped == {id(p) for p in learning.parameters()} - frozen


@pytest.mark.parametrize(("nesterov", "first"), [(False, 1.0), (True, 1.9)])
def test_nesterov_looks_one_momentum_ahead(nesterov, first):
    """A constant gradient g: the steps are lr g (1, 1 + m, ...), or one term further each."""
    weight = nn.Linear(1, 1, bias=False)
    start = weight.weight.item()
    recipe = Recipe(learning_rate=0.5, momentum=0.9, weight_decay=0.0, nesterov=nesterov)
    optimizer = optimizer_of(weight, recipe)
    moved = 0.0
    for step in range(3):
        weight.weight.grad = torch.ones(1, 1)
        optimizer.step()
        geometric = (first, 1 + 0.9 * first, 1 + 0.9 * (1 + 0.9 * first))[step]
        moved += 0.5 * geometric
        assert start - weight.weight.item() == pytest.approx(moved, rel=1e-5)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_a_weight_whose_first_gradient_comes_late_steps_as_torch_says(momentum, nesterov):
    """Until then it stays, without decay; its momentum begins with its first gradient."""
    learning, twin = (nn.ParameterDict({n: normal(3, 2) for n in ("a", "b")}) for _ in range(2))
    recipe = Recipe(learning_rate=0.5, momentum=momentum, weight_decay=0.1, nesterov=nesterov)
    options = {"lr": 0.5, "momentum": momentum, "weight_decay": 0.1, "nesterov": nesterov}
    optimizers = (
        (learning, optimizer_of(learning, recipe)),
        (twin, torch.optim.SGD(twin.parameters(), foreach=False, fused=False, **options)),
    )
    for step in range(STEPS):
        for params, optimizer in optimizers:
            optimizer.zero_grad()
            params["a"].grad = normal(3, 2, seed=step)
            if step >= 2:
                params["b"].grad = normal(3, 2, seed=step + 50)
            optimizer.step()
        assert torch.equal(learning["b"], normal(3, 2)) == (step < 2)
        for name, parameter in learning.items():
            torch.testing.assert_close(parameter, twin[name], rtol=1e-12, atol=1e-12, msg=name)


# Schedules beyond those of test_loop.py


@pytest.mark.parametrize("per_epoch", [1, 7, 98, 251])
@pytest.mark.parametrize(
    ("epochs", "milestones", "falls"),
    [(200, (0.7, 0.9), (140, 180)), (90, (1 / 3, 2 / 3), (30, 60)), (20, (0.7, 0.9), (14, 18))],
)
def test_the_rate_falls_at_the_first_step_of_its_epoch(per_epoch, epochs, milestones, falls):
    recipe = Recipe(learning_rate=1.0, milestones=milestones)
    for number, epoch in enumerate(falls):
        for step, fallen in ((epoch * per_epoch - 1, number), (epoch * per_epoch, number + 1)):
            rate = learning_rate(recipe, step, epochs * per_epoch, per_epoch)
            assert rate == pytest.approx(0.1**fallen), (step, per_epoch)


def test_milestones_count_from_the_end_of_the_warm_up():
    recipe = Recipe(learning_rate=1.0, milestones=(0.5,), warmup_epochs=2)
    rates = [learning_rate(recipe, step, 60, 10) for step in range(60)]
    assert rates[:20] == pytest.approx([(step + 1) / 20 for step in range(20)])
    assert rates[20:40] == [1.0] * 20
    assert rates[40:] == pytest.approx([0.1] * 20)


@pytest.mark.parametrize("schedule", ["step", "cosine", "fixmatch", "constant"])
def test_a_warm_up_longer_than_the_run_rises_to_its_end(schedule):
    recipe = Recipe(learning_rate=3.0, schedule=schedule, warmup_epochs=2)
    rates = [learning_rate(recipe, step, 10, 10) for step in range(10)]
    assert rates == pytest.approx([3 * (step + 1) / 20 for step in range(10)])
    assert learning_rate(recipe, 20, 20, 10) == 3.0  # no division by the steps that are left


# The moving average


def test_the_average_has_its_closed_form_and_the_model_s_buffers():
    """After n steps: d^n a + (1 - d) sum_i d^(n - 1 - i) m_i."""
    average, decay, number = model().double(), 0.8, 6
    moving = copy.deepcopy(average)
    starts = {name: p.detach().clone() for name, p in average.named_parameters()}
    seen: list[dict[str, Tensor]] = []
    for step in range(number):
        with torch.no_grad():
            for place, parameter in enumerate(moving.parameters()):
                parameter.add_(normal(*parameter.shape, seed=50 * step + place))
        moving(normal(4, 1, 8, 8, seed=step))  # moves the statistics
        seen.append({name: p.detach().clone() for name, p in moving.named_parameters()})
        move_average(average, moving, decay)
    for name, parameter in average.named_parameters():
        expected = decay**number * starts[name]
        for step, values in enumerate(seen):
            expected = expected + (1 - decay) * decay ** (number - 1 - step) * values[name]
        torch.testing.assert_close(parameter, expected, msg=name)
        assert torch.equal(dict(moving.named_parameters())[name], seen[-1][name]), name
    buffers = dict(average.named_buffers())
    assert any(name.endswith("num_batches_tracked") for name in buffers)
    for name, buffer in moving.named_buffers():
        assert torch.equal(buffers[name], buffer), name
        assert buffers[name].data_ptr() != buffer.data_ptr()
