"""Forward passes without gradient over any number of images, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from protofission.core.devices import send
from protofission.core.records import Output, Survey
from protofission.core.threads import one_thread
from protofission.data.augment.views import send_images
from protofission.data.image_sets import TrainingData, floats
from protofission.models.adapters import Adapter
from protofission.models.model import Model
from protofission.system.distributed import ALONE, Processes

Plain = Callable[[Tensor], Tensor]
"""Turns inputs into what a backbone takes, as `Augmentations.plain` does."""
FORWARD_ROWS = 1024
"""Images in one forward where no gradient is wanted."""


class OutputChunks:
    """The model's outputs for inputs, chunk by chunk; computed anew by each iteration."""

    def __init__(self, model: Model, inputs: Tensor, plain: Plain, processes: Processes) -> None:
        self._arguments = model, inputs, plain, processes

    def __iter__(self) -> Iterator[Output]:
        return outputs(*self._arguments)


def survey_data(model: Model, data: TrainingData, plain: Plain, processes: Processes) -> Survey:
    """The outputs for all labeled images and the pool, for `Method.survey`."""
    return Survey(
        OutputChunks(model, data.labeled, plain, processes),
        data.labels.to(processes.device),
        OutputChunks(model, data.unlabeled, plain, processes),
    )


@torch.no_grad()
def outputs(
    model: Model,
    inputs: Tensor,
    plain: Plain = floats,
    processes: Processes = ALONE,
) -> Iterator[Output]:
    """The model's outputs for inputs, chunk by chunk, in evaluation mode.

    Each process runs the backbone on its share of a chunk, and all get the outputs of the chunk.

    Args:
        plain: turns inputs into what the backbone takes.
    """
    model.eval()
    for chunk in torch.split(inputs, FORWARD_ROWS * processes.share.size) if len(inputs) else ():
        with one_thread(isinstance(model.backbone, Adapter)):
            output = model.head(_backbone_features(model, chunk, plain, processes))
        yield output


def compute_features(
    model: Model, inputs: Tensor, plain: Plain, processes: Processes = ALONE
) -> Tensor:
    """(n, D): the features of inputs, in evaluation mode."""
    found = [output.features for output in outputs(model, inputs, plain, processes)]
    return torch.cat(found) if found else torch.empty(0, model.backbone.num_features)


def _backbone_features(model: Model, images: Tensor, plain: Plain, processes: Processes) -> Tensor:
    """(n, D): the features of images; each process computes its share, all get the whole."""
    own = images[processes.share.of(len(images))]
    inputs = send(plain(send_images(own, processes.device)).float(), processes.device)
    with processes.autocast():
        features: Tensor = model.backbone(inputs).float()
    if processes.share.size == 1:
        return features
    most = -(-len(images) // processes.share.size)
    padded = nn.functional.pad(features, (0, 0, 0, most - len(own)))
    return processes.gather(padded)[: len(images)]
