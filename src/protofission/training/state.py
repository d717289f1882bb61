"""The state of training: models, memories, optimizers, step; and its start."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from protofission.core.errors import require
from protofission.core.records import Sizes
from protofission.core.rng import step_rng
from protofission.data.augment.views import Augmentations
from protofission.data.image_sets import TrainingData
from protofission.data.store.stored_views import StoredViews
from protofission.models.adapters import Adapter, AdapterSpec
from protofission.models.checkpoints import LoadReport, check_origin, load_backbone
from protofission.models.model import Body, BodySpec, Model
from protofission.models.start_from_data import start_from_data
from protofission.system.distributed import ALONE, Processes
from protofission.training.experiment import Experiment
from protofission.training.optimizers import optimizer_of, own_optimizer
from protofission.training.outputs import FORWARD_ROWS, compute_features
from protofission.training.schedules import number_of_steps

START_IMAGES = 10_000
"""Most labeled images, and most images of the pool, that prototypes start from."""


class ModelAndMemory(NamedTuple):
    """A model, and the method's memory that belongs to it."""

    model: Model
    memory: nn.Module


@dataclass
class TrainState:
    """Everything that changes during training."""

    model: Model
    memory: nn.Module
    optimizer: torch.optim.Optimizer
    own_optimizer: torch.optim.Optimizer | None = None
    """Optimizer of the memory's parameters, if the method has one of its own."""
    average: ModelAndMemory | None = None
    """The moving average of both, if there is one."""
    fit: LoadReport | None = None
    """Report on loading the pretrained weights, if there were any."""
    step: int = 0

    @property
    def for_evaluation(self) -> ModelAndMemory:
        """The moving average if there is one, else the model and memory as they are."""
        return self.average or ModelAndMemory(self.model, self.memory)

    def reset_head_momentum(self) -> None:
        """Zero the head's momentum and copy the head into the average, after its new start."""
        for parameter in self.model.head.parameters():
            for kept in self.optimizer.state[parameter].values():
                kept.zero_()
        if self.average is not None:
            self.average.model.head.load_state_dict(self.model.head.state_dict())

    def _modules(self) -> dict[str, nn.Module]:
        """All modules, by name."""
        found = {"model": self.model, "memory": self.memory}
        if self.average is not None:
            found |= {"average": self.average.model, "average_memory": self.average.memory}
        return found

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """The optimizers by name."""
        own = {} if self.own_optimizer is None else {"own_optimizer": self.own_optimizer}
        return {"optimizer": self.optimizer, **own}

    def tensors(self) -> dict[str, Tensor]:
        """Tensors of all modules and optimizers, and the step, by name."""
        found = {
            f"{part}.{name}": value
            for part, module in self._modules().items()
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
        """Load what `tensors` returned."""
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = value
        for part, module in self._modules().items():
            module.load_state_dict(parts.get(part, {}))
        for part, optimizer in self.optimizers().items():
            kept: dict[int, dict[str, Tensor]] = {}
            for name, value in parts.get(part, {}).items():
                number, _, rest = name.partition(".")
                kept.setdefault(int(number), {})[rest] = value
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": kept, "param_groups": groups})
            _match_layout(optimizer)
        self.step = int(tensors["step"])


def _match_layout(optimizer: torch.optim.Optimizer) -> None:
    """Give an optimizer's tensors the memory format of their weights.

    Files hold tensors in the order of their dimensions, and torch's fused step walks weight and
    momentum as they lie in memory: those of a channels-last convolution would not match.
    """
    for weight, kept in optimizer.state.items():
        for name, value in kept.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                kept[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def start(
    experiment: Experiment,
    data: TrainingData,
    augmentations: Augmentations,
    processes: Processes = ALONE,
    *,
    restored: bool = False,
) -> TrainState:
    """Build a model, its memory and its optimizers, ready for the first step.

    Args:
        restored: `restore` follows, so nothing is read from weight files or from the data.
    """
    experiment.check(processes.share.size)
    method, recipe, seed = experiment.method, experiment.recipe, experiment.seed
    traits = method.traits
    experiment.backbone.check(data.shape)
    stored = augmentations.store if isinstance(augmentations, StoredViews) else None
    require(
        (stored is not None and len(stored.plan.item) == 3) == (recipe.trunk_cache > 0),
        "recipe.trunk_cache wants the maps of a frozen trunk, and maps want recipe.trunk_cache: "
        "load the data by protofission.training.trunk_cache.load_data.",
    )
    if stored is not None:
        stored.check(traits.views)
    require(
        not traits.views.unlabeled or len(data.unlabeled) >= recipe.unlabeled_batch,
        f"The pool has {len(data.unlabeled)} images, fewer than a batch of "
        f"{recipe.unlabeled_batch}: lower recipe.unlabeled_batch, or add images.",
    )
    steps = number_of_steps(recipe, data)
    require(
        traits.head_starts_at <= (steps - 1) / steps,
        f"The head begins after {traits.head_starts_at} of the training, and {steps} steps leave "
        "none for it: train longer, or let it begin earlier.",
    )
    num_classes = data.num_classes if traits.has_novel_heads else data.num_seen
    experiment.check_memory(data.shape, num_classes, processes.share.size)
    body = experiment.backbone.build(data.shape[0], step_rng(seed, 0, "backbone"))
    fit = None if restored else load_weights(body, experiment.backbone)
    body.learn_last(
        recipe.trainable_stages, recipe.frozen_statistics, cached=recipe.trunk_cache > 0
    )
    generator = step_rng(seed, 0, "head")
    head = experiment.head.build(body.num_features, num_classes, data.num_seen, generator)
    sizes = Sizes(body.num_features, num_classes, data.num_seen, experiment.head.slots)
    memory = method.memory(sizes, step_rng(seed, 0, "memory")).to(processes.device)
    model = Model(body, head).to(  # type: ignore[call-overload]
        processes.device, memory_format=torch.channels_last
    )
    if not restored:
        _standardize(data, augmentations, model)
        if traits.head_starts_at == 0:
            start_head(data, augmentations, model, experiment, processes)
    average = None
    if recipe.ema:
        average = ModelAndMemory(copy.deepcopy(model), copy.deepcopy(memory))
        nn.ModuleList(average).requires_grad_(False)
    own = own_optimizer(memory, traits.memory_optimizer)
    learning = [model, memory] if own is None else [model]
    optimizer = processes.setup(optimizer_of(nn.ModuleList(learning), recipe))
    return TrainState(model, memory, optimizer, own and processes.setup(own), average, fit)


def load_weights(body: Body, spec: BodySpec) -> LoadReport | None:
    """Load the pretrained weights that a backbone names; None if it names none."""
    if isinstance(body, Adapter) or isinstance(spec, AdapterSpec) or spec.weights is None:
        return None
    check_origin(spec, spec.weights)
    return load_backbone(body, spec.weights)


@torch.no_grad()
def _standardize(data: TrainingData, augmentations: Augmentations, model: Model) -> None:
    """Give an adapter the mean and deviation of all features, before the first step."""
    if isinstance(model.backbone, Adapter):
        parts = [part for part in (data.labeled, data.unlabeled) if len(part)]
        chunks = (augmentations.plain(c) for part in parts for c in torch.split(part, FORWARD_ROWS))
        model.backbone.standardize_by(chunks)


@torch.no_grad()
def start_head(
    data: TrainingData,
    augmentations: Augmentations,
    model: Model,
    experiment: Experiment,
    processes: Processes,
) -> None:
    """Start the head's prototypes from the data if `head.init` says so."""
    if experiment.head.init != "data":
        return
    generator = step_rng(experiment.seed, 0, "images that prototypes start from")
    labeled = _some_of_each(data.labels, START_IMAGES // data.num_seen, generator)
    pool = torch.randperm(len(data.unlabeled), generator=generator)[:START_IMAGES]
    known = compute_features(model, data.labeled[labeled], augmentations.plain, processes)
    others = compute_features(model, data.unlabeled[pool], augmentations.plain, processes)
    labels, num_seen = data.labels[labeled].to(processes.device), data.num_seen
    if experiment.method.traits.novel == "match":  # clusters have no names before the matching
        known, labels, others, num_seen = known[:0], labels[:0], torch.cat([known, others]), 0
    start_from_data(model.head, known, labels, others, num_seen, experiment.seed)


def _some_of_each(labels: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Places of at most `most` random rows of each class, and of at least one."""
    order = torch.randperm(len(labels), generator=generator)
    order = order[labels[order].argsort(stable=True)]
    firsts = torch.searchsorted(labels[order], labels[order])
    return order[torch.arange(len(order)) - firsts < max(most, 1)]
