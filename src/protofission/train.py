"""The one loop: SimCLR, supervised, FixMatch and ORCA, with any head.

`train` is a generator that yields after every step; showing, judging, saving and stopping are plain
code around it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from protofission.data.batches import Batches
from protofission.data.datasets import Augmentations
from protofission.data.images import TrainingData, floats
from protofission.errors import require
from protofission.experiment import Experiment, Recipe
from protofission.models.model import Model
from protofission.records import Output, Step, Terms, total
from protofission.rng import step_rng

CHUNK = 1024
"""Images in one forward where no gradient is wanted."""


@dataclass
class TrainState:
    """All that changes during training."""

    model: Model
    memory: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0


@dataclass(frozen=True)
class StepReport:
    """What a step did."""

    step: int
    epoch: int
    ends_epoch: bool
    terms: Terms
    """Detached."""


def start(
    experiment: Experiment, data: TrainingData, backbone: dict[str, Tensor] | None = None
) -> TrainState:
    """A model at its random start, or with a pretrained backbone's weights, and its optimiser."""
    experiment.check()
    method, seed = experiment.method, experiment.seed
    num_classes = data.num_classes if method.discovers else data.num_seen
    body = experiment.backbone.build(data.labeled.shape[1], step_rng(seed, 0, "backbone"))
    if backbone is not None:
        body.load_state_dict(backbone)
    body.learn_last(experiment.recipe.trainable_stages)
    generator = step_rng(seed, 0, "head")
    head = experiment.head.build(body.num_features, num_classes, data.num_seen, generator)
    memory = method.memory(num_classes, experiment.head.slots)
    model = Model(body, head)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return TrainState(model, memory, _optimizer(nn.ModuleList([model, memory]), experiment.recipe))


def train(
    state: TrainState, experiment: Experiment, data: TrainingData, augmentations: Augmentations
) -> Iterator[StepReport]:
    """Train from `state.step` to the end, in place; yields after every step."""
    method, recipe = experiment.method, experiment.recipe
    batches = Batches(
        data,
        method.views,
        augmentations,
        recipe.labeled_batch,
        recipe.unlabeled_batch,
        experiment.seed,
    )
    per_epoch = steps_per_epoch(recipe, data)
    num_steps = recipe.epochs * per_epoch
    while state.step < num_steps:
        number = state.step
        if method.surveys and number % per_epoch == 0:
            method.survey(state.memory, outputs(state.model, data.unlabeled))
        state.model.train()
        for group in state.optimizer.param_groups:
            group["lr"] = learning_rate(recipe, number / num_steps)
        batch = batches.at(number)
        step = Step(
            output=state.model(batch.inputs),
            labels=batch.labels,
            layout=batch.layout,
            num_seen=data.num_seen,
            memory=state.memory,
            generator=step_rng(experiment.seed, number, "method"),
            progress=number / num_steps,
        )
        targets = method.decide(step)
        terms = method.charge(step, targets)
        loss = total(terms)
        charged = float(loss.detach())
        require(
            math.isfinite(charged),
            f"The loss is {charged} at step {number}: lower recipe.learning_rate "
            f"({recipe.learning_rate}) or head.temperature ({experiment.head.temperature}).",
        )
        state.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        state.optimizer.step()
        method.update(step, targets)
        state.step += 1
        yield StepReport(
            step=number,
            epoch=number // per_epoch,
            ends_epoch=state.step % per_epoch == 0,
            terms=tuple(term._replace(value=term.value.detach()) for term in terms),
        )


@torch.no_grad()
def outputs(model: Model, inputs: Tensor) -> Iterator[Output]:
    """The model's outputs for plain inputs, chunk by chunk, in evaluation mode."""
    model.eval()
    for chunk in torch.split(inputs, CHUNK):
        with torch.no_grad():
            yield model(floats(chunk))


def steps_per_epoch(recipe: Recipe, data: TrainingData) -> int:
    """The steps of one epoch; the last batch of a pass reaches into the next."""
    if recipe.steps_per_epoch is not None:
        return recipe.steps_per_epoch
    if recipe.epoch == "labeled":
        return math.ceil(len(data.labeled) / recipe.labeled_batch)
    return math.ceil(len(data.unlabeled) / recipe.unlabeled_batch)


def learning_rate(recipe: Recipe, progress: float) -> float:
    """The learning rate at a share of training done."""
    if recipe.schedule == "cosine":
        return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
    return recipe.learning_rate * 0.1 ** ((progress >= 0.7) + (progress >= 0.9))


def _optimizer(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """SGD; delta goes without weight decay unless the recipe says otherwise."""
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    free = [p for name, p in named if name.endswith(".delta") and not recipe.decay_delta]
    rest = [p for name, p in named if not any(p is other for other in free)]
    groups = [
        {"params": rest, "weight_decay": recipe.weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]
    return torch.optim.SGD(
        [group for group in groups if group["params"]],
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
    )
