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
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from protofission.data.augmentations import Augmentations
from protofission.data.batches import Batches
from protofission.data.images import TrainingData
from protofission.data.store import StoredViews
from protofission.errors import require
from protofission.experiment import Experiment, Recipe
from protofission.models.adapters import Adapter, AdapterSpec
from protofission.models.bodies import Body, BodySpec
from protofission.models.checkpoints import Fit, check_origin, load_backbone
from protofission.models.model import Model
from protofission.models.starts import start_from_data
from protofission.optimizers import learning_rate, move_average, optimizer_of, own_optimizer
from protofission.passes import CHUNK, Plain, embedded, survey_of
from protofission.processes import ALONE, Processes
from protofission.records import (
    NO_CLASS,
    Batch,
    Output,
    Sizes,
    Step,
    Targets,
    Terms,
    total,
)
from protofission.rng import step_rng
from protofission.threads import ahead, one_thread

LOOKED_AT = 10_000
"""Labeled images, and images of the pool, that prototypes may start from."""


class Learnt(NamedTuple):
    """What has learnt: the model, and beside it the method's memory, which fits this model."""

    model: Model
    memory: nn.Module


@dataclass
class TrainState:
    """All that changes during training."""

    model: Model
    memory: nn.Module
    optimizer: torch.optim.Optimizer
    own_optimizer: torch.optim.Optimizer | None = None
    """Of the memory's parameters, where the method wants another for them."""
    average: Learnt | None = None
    """The moving average of both, if there is one."""
    fit: Fit | None = None
    """How pretrained weights fitted the backbone, if there were any."""
    step: int = 0

    @property
    def judged(self) -> Learnt:
        """Whose predictions count."""
        return self.average or Learnt(self.model, self.memory)

    def forget_head(self) -> None:
        """After a new start of the head: it has no momentum, and the average has it as it is."""
        for parameter in self.model.head.parameters():
            for kept in self.optimizer.state[parameter].values():
                kept.zero_()
        if self.average is not None:
            self.average.model.head.load_state_dict(self.model.head.state_dict())

    def _parts(self) -> dict[str, nn.Module]:
        """All modules, by name."""
        found = {"model": self.model, "memory": self.memory}
        if self.average is not None:
            found |= {"average": self.average.model, "average_memory": self.average.memory}
        return found

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """By name."""
        own = {} if self.own_optimizer is None else {"own_optimizer": self.own_optimizer}
        return {"optimizer": self.optimizer, **own}

    def tensors(self) -> dict[str, Tensor]:
        """Everything, by name."""
        found = {
            f"{part}.{name}": value
            for part, module in self._parts().items()
            for name, value in module.state_dict().items()
        }
        for part, optimizer in self.optimizers().items():
            for number, kept in optimizer.state_dict()["state"].items():
                found |= {
                    f"{part}.{number}.{name}": value
                    for name, value in kept.items()
                    if isinstance(value, Tensor)
                }
        return {**found, "step": torch.tensor(self.step)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Put back what `tensors` gave."""
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = value
        for part, module in self._parts().items():
            module.load_state_dict(parts.get(part, {}))
        for part, optimizer in self.optimizers().items():
            kept: dict[int, dict[str, Tensor]] = {}
            for name, value in parts.get(part, {}).items():
                number, _, rest = name.partition(".")
                kept.setdefault(int(number), {})[rest] = value
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": kept, "param_groups": groups})
        self.step = int(tensors["step"])


@dataclass(frozen=True)
class StepReport:
    """What a step did."""

    step: int
    epoch: int
    ends_epoch: bool
    terms: Terms
    """Detached."""
    trusted: float | None
    """The share of the unlabeled images that were taken for a class, if that is the aim."""
    learning_rate: float


def start(
    experiment: Experiment,
    data: TrainingData,
    augmentations: Augmentations,
    processes: Processes = ALONE,
    *,
    restored: bool = False,
) -> TrainState:
    """A model at its start, and its optimiser.

    Args:
        restored: a saved state follows, so that nothing is read from files or from the data.
    """
    experiment.check(processes.share.size)
    method, recipe, seed = experiment.method, experiment.recipe, experiment.seed
    experiment.backbone.check(data.shape)
    stored = augmentations.store if isinstance(augmentations, StoredViews) else None
    require(
        (stored is not None and len(stored.plan.item) == 3) == (recipe.trunk_cache > 0),
        "recipe.trunk_cache wants the maps of a frozen trunk, and maps want recipe.trunk_cache: "
        "load the data by protofission.trunks.load_data.",
    )
    if stored is not None:
        stored.check(method.views)
    require(
        not method.views.unlabeled or len(data.unlabeled) >= recipe.unlabeled_batch,
        f"The pool has {len(data.unlabeled)} images, fewer than a batch of "
        f"{recipe.unlabeled_batch}: lower recipe.unlabeled_batch, or add images.",
    )
    steps = number_of_steps(recipe, data)
    require(
        method.begins <= (steps - 1) / steps,
        f"The head begins after {method.begins} of the training, and {steps} steps leave none for "
        "it: train longer, or let it begin earlier.",
    )
    num_classes = data.num_classes if method.discovers else data.num_seen
    body = experiment.backbone.build(data.shape[0], step_rng(seed, 0, "backbone"))
    fit = None if restored else load_weights(body, experiment.backbone)
    body.learn_last(
        recipe.trainable_stages, recipe.frozen_statistics, cached=recipe.trunk_cache > 0
    )
    generator = step_rng(seed, 0, "head")
    head = experiment.head.build(body.num_features, num_classes, data.num_seen, generator)
    sizes = Sizes(body.num_features, num_classes, data.num_seen, experiment.head.slots)
    memory = method.memory(sizes, step_rng(seed, 0, "memory")).to(processes.device)
    model = Model(body, head).to(processes.device)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if not restored:
        _standardise(data, augmentations, model)
        if method.begins == 0:
            _start_head(data, augmentations, model, experiment, processes)
    average = None
    if recipe.ema:
        average = Learnt(copy.deepcopy(model), copy.deepcopy(memory))
        nn.ModuleList(average).requires_grad_(False)
    own = own_optimizer(memory, method.optimizer)
    learning = [model, memory] if own is None else [model]
    optimizer = processes.setup(optimizer_of(nn.ModuleList(learning), recipe))
    return TrainState(model, memory, optimizer, own and processes.setup(own), average, fit)


def load_weights(body: Body, spec: BodySpec) -> Fit | None:
    """The weights that a backbone names, if it does."""
    if isinstance(body, Adapter) or isinstance(spec, AdapterSpec) or spec.weights is None:
        return None
    check_origin(spec, spec.weights)
    return load_backbone(body, spec.weights)


@torch.no_grad()
def _standardise(data: TrainingData, augmentations: Augmentations, model: Model) -> None:
    """Give an adapter the mean and deviation of all features, before the first step."""
    if isinstance(model.backbone, Adapter):
        parts = [part for part in (data.labeled, data.unlabeled) if len(part)]
        chunks = (augmentations.plain(c) for part in parts for c in torch.split(part, CHUNK))
        model.backbone.standardise_by(chunks)


@torch.no_grad()
def _start_head(
    data: TrainingData,
    augmentations: Augmentations,
    model: Model,
    experiment: Experiment,
    processes: Processes,
) -> None:
    """Let prototypes start from the data, if they are to: before the first step, or a later one."""
    if experiment.head.init != "data":
        return
    generator = step_rng(experiment.seed, 0, "images that prototypes start from")
    labeled = _some_of_each(data.labels, LOOKED_AT // data.num_seen, generator)
    pool = torch.randperm(len(data.unlabeled), generator=generator)[:LOOKED_AT]
    known = embedded(model, data.labeled[labeled], augmentations.plain, processes)
    others = embedded(model, data.unlabeled[pool], augmentations.plain, processes)
    labels, num_seen = data.labels[labeled].to(processes.device), data.num_seen
    if experiment.method.novel == "match":  # clusters have no names before the matching
        known, labels, others, num_seen = known[:0], labels[:0], torch.cat([known, others]), 0
    start_from_data(model.head, known, labels, others, num_seen, experiment.seed)


def _some_of_each(labels: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """The places of at most so many rows of each class, at least of one, at random."""
    order = torch.randperm(len(labels), generator=generator)
    order = order[labels[order].argsort(stable=True)]
    firsts = torch.searchsorted(labels[order], labels[order])
    return order[torch.arange(len(order)) - firsts < max(most, 1)]


def train(
    state: TrainState,
    experiment: Experiment,
    data: TrainingData,
    augmentations: Augmentations,
    processes: Processes = ALONE,
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
        processes.share,
        processes.device,
    )
    per_epoch, num_steps = steps_per_epoch(recipe, data), number_of_steps(recipe, data)
    light = isinstance(state.model.backbone, Adapter)  # many small operations, few large ones
    with ahead(batches.at, wanted=light) as upcoming:
        while state.step < num_steps:
            number = state.step
            if number and (number - 1) / num_steps < method.begins <= number / num_steps:
                _start_head(data, augmentations, state.model, experiment, processes)
                state.forget_head()
            if method.surveys and number % per_epoch == 0:
                method.survey(
                    state.memory, survey_of(state.model, data, augmentations.plain, processes)
                )
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
                    again=Replay(state.model, batch) if method.replays else None,
                    head=state.model.head if method.averages else None,
                )
                targets = method.decide(step)
                if number + 1 < num_steps:
                    upcoming.begin(number + 1)
                terms = method.charge(step, targets)
                loss = total(terms)
                _check_finite(loss, experiment, number)
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
                ends_epoch=state.step % per_epoch == 0 or state.step == num_steps,
                terms=tuple(term._replace(value=term.value.detach()) for term in terms),
                trusted=_trusted(step, targets) if method.trusts else None,
                learning_rate=rate,
            )


def forward(model: Model, batch: Batch, processes: Processes = ALONE) -> Output:
    """The outputs of a whole batch: features of one's own share, gathered, then the head."""
    with processes.autocast():
        features = model.backbone(batch.inputs)
    features = processes.gathered(features.float())
    if processes.share.size > 1:
        features = features[batch.layout.places(processes.share.size).to(features.device)]
    return cast(Output, model.head(features))


class Replay:
    """`Again` for a model and a batch, in one process."""

    def __init__(self, model: Model, batch: Batch) -> None:
        self._model, self._inputs = model, batch.inputs

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights that learn."""
        return {name: p for name, p in self._model.named_parameters() if p.requires_grad}

    def __call__(self, weights: Mapping[str, Tensor]) -> Output:
        """The output with other weights; statistics are copies."""
        kept = {name: buffer.clone() for name, buffer in self._model.named_buffers()}
        return cast(Output, functional_call(self._model, {**kept, **weights}, (self._inputs,)))


def _descend(state: TrainState, loss: Tensor, recipe: Recipe, processes: Processes) -> None:
    """One step of the optimiser down the gradient of a loss."""
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


def _check_finite(loss: Tensor, experiment: Experiment, step: int) -> None:
    charged = float(loss.detach())
    require(
        math.isfinite(charged),
        f"The loss is {charged} at step {step}: lower recipe.learning_rate "
        f"({experiment.recipe.learning_rate}) or head.temperature ({experiment.head.temperature}), "
        "or set recipe.clip.",
    )


def _trusted(step: Step, targets: Targets) -> float:
    views = range(step.layout.unlabeled_views)
    classes = [step.unlabeled(targets.classes, view) for view in views]
    return int(functools.reduce(torch.maximum, classes).ne(NO_CLASS).sum()) / step.layout.unlabeled


def judged_memory(
    state: TrainState,
    experiment: Experiment,
    data: TrainingData,
    plain: Plain,
    processes: Processes,
) -> nn.Module:
    """The memory by which the judged model is judged: where scores want it, surveyed anew."""
    model, memory = state.judged
    if not experiment.method.scores_by_survey:
        return memory
    memory = copy.deepcopy(memory)
    experiment.method.survey(memory, survey_of(model, data, plain, processes))
    return memory


def steps_per_epoch(recipe: Recipe, data: TrainingData) -> int:
    """The steps of one epoch; the last batch of a pass reaches into the next."""
    if recipe.steps_per_epoch is not None:
        return recipe.steps_per_epoch
    if recipe.epoch == "labeled":
        return math.ceil(len(data.labeled) / recipe.labeled_batch)
    require(
        len(data.unlabeled) > 0,
        "The pool is empty, so an epoch cannot be a pass over it: set recipe.epoch=labeled.",
    )
    return math.ceil(len(data.unlabeled) / recipe.unlabeled_batch)


def number_of_steps(recipe: Recipe, data: TrainingData) -> int:
    """The steps of a whole run."""
    return recipe.steps or (recipe.epochs or 0) * steps_per_epoch(recipe, data)
