"""Passes over all images without gradient: the outputs of a model, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from protofission.core.records import Output, Survey
from protofission.core.threads import one_thread
from protofission.data.image_sets import TrainingData, floats
from protofission.models.adapters import Adapter
from protofission.models.model import Model
from protofission.system.distributed import ALONE, Processes

Plain = Callable[[Tensor], Tensor]
"""Makes of inputs what a backbone takes: `Augmentations.plain`."""
FORWARD_ROWS = 1024
"""Images in one forward where no gradient is wanted."""


class Pass:
    """The model's outputs for inputs, anew whenever they are gone through."""

    def __init__(self, model: Model, inputs: Tensor, plain: Plain, processes: Processes) -> None:
        self._all = model, inputs, plain, processes

    def __iter__(self) -> Iterator[Output]:
        return outputs(*self._all)


def survey_of(model: Model, data: TrainingData, plain: Plain, processes: Processes) -> Survey:
    """What a method may look at before an epoch, or before it is judged."""
    return Survey(
        Pass(model, data.labeled, plain, processes),
        data.labels.to(processes.device),
        Pass(model, data.unlabeled, plain, processes),
    )


@torch.no_grad()
def outputs(
    model: Model,
    inputs: Tensor,
    plain: Plain = floats,
    processes: Processes = ALONE,
) -> Iterator[Output]:
    """The model's outputs for inputs, chunk by chunk, in evaluation mode.

    Each process runs the backbone on its share of a chunk, and all see the outputs of the chunk.

    Args:
        plain: makes of inputs what the backbone takes, `Augmentations.plain`.
    """
    model.eval()
    for chunk in torch.split(inputs, FORWARD_ROWS * processes.share.size) if len(inputs) else ():
        with one_thread(isinstance(model.backbone, Adapter)):
            output = model.head(_embedded(model, chunk, plain, processes))
        yield output


def embedded(model: Model, inputs: Tensor, plain: Plain, processes: Processes = ALONE) -> Tensor:
    """(n, D): the features of inputs, in evaluation mode."""
    found = [output.features for output in outputs(model, inputs, plain, processes)]
    return torch.cat(found) if found else torch.empty(0, model.backbone.num_features)


def _embedded(model: Model, images: Tensor, plain: Plain, processes: Processes) -> Tensor:
    """(n, D): the features of images that the processes share among them."""
    own = images[processes.share.of(len(images))]
    with processes.autocast():
        features: Tensor = model.backbone(plain(own.to(processes.device)).float()).float()
    if processes.share.size == 1:
        return features
    most = -(-len(images) // processes.share.size)
    padded = nn.functional.pad(features, (0, 0, 0, most - len(own)))
    return processes.gather(padded)[: len(images)]
