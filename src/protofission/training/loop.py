"""The one loop: every method, with any head, in one process or many.

`train` is a generator that yields after every step; showing, judging, saving and stopping are plain
code around it.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from protofission.core.errors import require
from protofission.core.records import NO_CLASS, Batch, Output, Step, Targets, Terms, total
from protofission.core.rng import step_rng
from protofission.core.threads import one_thread, prefetcher
from protofission.data.augment.views import Augmentations
from protofission.data.batches import Batches
from protofission.data.image_sets import TrainingData
from protofission.models.adapters import Adapter
from protofission.models.model import Model
from protofission.system.distributed import ALONE, Processes
from protofission.training.experiment import Experiment
from protofission.training.optimizers import move_average
from protofission.training.outputs import Plain, survey_data
from protofission.training.recipe import Recipe
from protofission.training.schedules import learning_rate, number_of_steps, steps_per_epoch
from protofission.training.state import TrainState, start_head


@dataclass(frozen=True)
class StepReport:
    """The numbers of one training step."""

    step: int
    epoch: int
    ends_epoch: bool
    terms: Terms
    """Terms of the loss; their values are detached."""
    trusted: Tensor | float | None
    """The share of the unlabeled images whose target is a class, if the method reports it."""
    learning_rate: float
    checked: bool = True
    """Whether the losses of all steps up to this one are known to be finite."""


READ_EVERY = 50
"""Steps on an accelerator between two looks at the losses: to look is to wait for the device."""


def train(
    state: TrainState,
    experiment: Experiment,
    data: TrainingData,
    augmentations: Augmentations,
    processes: Processes = ALONE,
) -> Iterator[StepReport]:
    """Train from `state.step` to the end, in place; yields after every step."""
    method, recipe = experiment.method, experiment.recipe
    traits = method.traits
    batches = Batches(
        data,
        traits.views,
        augmentations,
        recipe.labeled_batch,
        recipe.unlabeled_batch,
        experiment.seed,
        processes.share,
        processes.device,
    )
    per_epoch, num_steps = steps_per_epoch(recipe, data), number_of_steps(recipe, data)
    light = isinstance(state.model.backbone, Adapter)  # many small operations, few large ones
    look_every = 1 if processes.device.type == "cpu" else READ_EVERY
    losses: list[Tensor] = []  # not looked at yet
    with prefetcher(batches.at, wanted=light) as upcoming:
        while state.step < num_steps:
            number = state.step
            if number and (number - 1) / num_steps < traits.head_starts_at <= number / num_steps:
                start_head(data, augmentations, state.model, experiment, processes)
                state.reset_head_momentum()
            if traits.survey_before_epoch and number % per_epoch == 0:
                method.survey(
                    state.memory, survey_data(state.model, data, augmentations.plain, processes)
                )
            ends_epoch = (number + 1) % per_epoch == 0 or number + 1 == num_steps
            rate = learning_rate(recipe, number, num_steps, per_epoch)
            for group in state.optimizer.param_groups:
                group["lr"] = rate
            with one_thread(light):
                state.model.train()
                batch = upcoming.at(number)
                step = Step(
                    output=forward(state.model, batch, processes),
                    labels=batch.labels,
                    layout=batch.layout,
                    num_seen=data.num_seen,
                    memory=state.memory,
                    generator=step_rng(experiment.seed, number, "method"),
                    progress=number / num_steps,
                    places=batch.places,
                    again=Replay(state.model, batch) if traits.inner_step else None,
                    head=state.model.head,
                )
                targets = method.decide(step)
                if number + 1 < num_steps:
                    upcoming.begin(number + 1)
                terms = method.charge(step, targets)
                loss = total(terms)
                losses.append(loss.detach())
                checked = ends_epoch or len(losses) >= look_every
                if checked:
                    _check_finite(losses, experiment, number)
                    losses = []
                _descend(state, loss, recipe, processes)
                method.update(step, targets)
                if state.average is not None:
                    move_average(state.average.model, state.model, recipe.ema)
                    move_average(state.average.memory, state.memory, recipe.ema)
                upcoming.wait()
            state.step += 1
            yield StepReport(
                step=number,
                epoch=number // per_epoch,
                ends_epoch=ends_epoch,
                terms=tuple(term._replace(value=term.value.detach()) for term in terms),
                trusted=_trusted_share(step, targets) if traits.reports_trusted else None,
                learning_rate=rate,
                checked=checked,
            )


def forward(model: Model, batch: Batch, processes: Processes = ALONE) -> Output:
    """Outputs of a whole batch: features of this process's share, gathered, then the head."""
    with processes.autocast():
        features = model.backbone(batch.inputs)
    features = processes.gather(features.float())
    if processes.share.size > 1:
        features = features[batch.layout.places(processes.share.size).to(features.device)]
    return cast(Output, model.head(features))


class Replay:
    """`Again` for a model and a batch, in one process."""

    def __init__(self, model: Model, batch: Batch) -> None:
        self._model, self._inputs = model, batch.inputs

    @property
    def weights(self) -> dict[str, Tensor]:
        """The trainable weights by name."""
        return {name: p for name, p in self._model.named_parameters() if p.requires_grad}

    def __call__(self, weights: Mapping[str, Tensor]) -> Output:
        """The output with other weights; buffers are copies, so statistics do not change."""
        kept = {name: buffer.clone() for name, buffer in self._model.named_buffers()}
        return cast(Output, functional_call(self._model, {**kept, **weights}, (self._inputs,)))


def _descend(state: TrainState, loss: Tensor, recipe: Recipe, processes: Processes) -> None:
    """Backpropagate a loss, clip the gradients and step the optimizers."""
    optimizers = state.optimizers().values()
    learning = [[p for group in o.param_groups for p in group["params"]] for o in optimizers]
    for parameter in itertools.chain(*learning):
        parameter.grad = None
    processes.backward(loss)
    processes.average(state.model, state.memory)
    for optimizer, own in zip(optimizers, learning, strict=True):
        if recipe.clip is not None:
            nn.utils.clip_grad_norm_(own, recipe.clip)
        optimizer.step()


def _check_finite(losses: list[Tensor], experiment: Experiment, last: int) -> None:
    """Refuse the first loss that is not finite, of the steps up to the last."""
    for step, charged in enumerate(torch.stack(losses).cpu().tolist(), last + 1 - len(losses)):
        require(
            math.isfinite(charged),
            f"The loss is {charged} at step {step}: lower recipe.learning_rate "
            f"({experiment.recipe.learning_rate}) or head.temperature "
            f"({experiment.head.temperature}), or set recipe.clip.",
        )


def _trusted_share(step: Step, targets: Targets) -> Tensor:
    """The share of the unlabeled images whose target is a class in any view, float64."""
    views = range(step.layout.unlabeled_views)
    classes = [step.unlabeled(targets.classes, view) for view in views]
    trusted = functools.reduce(torch.maximum, classes).ne(NO_CLASS).sum()
    return trusted.double() / step.layout.unlabeled


def evaluation_memory(
    state: TrainState,
    experiment: Experiment,
    data: TrainingData,
    plain: Plain,
    processes: Processes,
) -> nn.Module:
    """The memory to evaluate with: a copy that is surveyed anew if OOD scores need it."""
    model, memory = state.for_evaluation
    if not experiment.method.traits.survey_before_scoring:
        return memory
    memory = copy.deepcopy(memory)
    experiment.method.survey(memory, survey_data(model, data, plain, processes))
    return memory
