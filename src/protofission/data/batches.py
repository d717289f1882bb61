"""Batches as a function of (seed, step): an epoch is a permutation, views are drawn per step."""

from __future__ import annotations

import torch
from torch import Tensor

from protofission.core.devices import send
from protofission.core.errors import require
from protofission.core.records import WHOLE, Batch, Layout, Share, Views
from protofission.core.rng import step_rng
from protofission.data.augment.views import Augmentations, ViewRequest, send_images
from protofission.data.image_sets import TrainingData


class IndexStream:
    """Endless epochs of the indices 0 to size - 1, each in a random order, cut into batches.

    A batch may span two epochs; within an epoch no index repeats.
    """

    def __init__(self, size: int, batch: int, seed: int, stream: str) -> None:
        require(
            size >= 1 or batch == 0,
            f"There is no {stream} image, but a batch wants {batch}: add some.",
        )
        self.size, self.batch, self.seed, self.stream = size, batch, seed, stream
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.long)

    def at(self, step: int) -> Tensor:
        """(batch,): the indices at a step."""
        if not self.batch:
            return torch.empty(0, dtype=torch.long)
        start, stop = step * self.batch, (step + 1) * self.batch
        parts = []
        while start < stop:
            epoch, place = divmod(start, self.size)
            parts.append(self._permutation(epoch)[place : place + stop - start])
            start += len(parts[-1])
        return torch.cat(parts)

    def _permutation(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            generator = step_rng(self.seed, epoch, f"order of {self.stream}")
            self._epoch, self._order = epoch, torch.randperm(self.size, generator=generator)
        return self._order


class Batches:
    """All views of each step's labeled and unlabeled images, as one tensor for one forward."""

    def __init__(
        self,
        data: TrainingData,
        views: Views,
        augmentations: Augmentations,
        labeled_batch: int,
        unlabeled_batch: int,
        seed: int,
        share: Share = WHOLE,
        device: torch.device | None = None,
    ) -> None:
        self.data, self.views, self.augmentations, self.seed = data, views, augmentations, seed
        self.share, self.device = share, device
        self.layout = Layout(
            labeled_batch if views.labeled else 0,
            unlabeled_batch if views.unlabeled else 0,
            len(views.labeled),
            len(views.unlabeled),
        )
        self._labeled = IndexStream(len(data.labeled), self.layout.labeled, seed, "labeled")
        self._unlabeled = IndexStream(len(data.unlabeled), self.layout.unlabeled, seed, "unlabeled")

    def at(self, step: int) -> Batch:
        """The batch at a step: the inputs of this process's share, the labels of all."""
        generator = step_rng(self.seed, step, "views")
        labeled, unlabeled = self._labeled.at(step), self._unlabeled.at(step)
        images = {
            "labeled": self._take_share(self.data.labeled, labeled),
            "unlabeled": self._take_share(self.data.unlabeled, unlabeled),
        }
        requests = [
            ViewRequest(name, images[kind], names[:number].count(name))
            for number in range(max(len(self.views.labeled), len(self.views.unlabeled)))
            for kind, names in (
                ("labeled", self.views.labeled),
                ("unlabeled", self.views.unlabeled),
            )
            for name in names[number : number + 1]
        ]
        return Batch(
            send(self.augmentations.views(requests, generator, self.share), self.device),
            send(self.data.labels[labeled], self.device),
            self.layout,
            send(unlabeled, self.device),
        )

    def _take_share(self, images: Tensor, indices: Tensor) -> Tensor:
        """The images of this process's share of a batch, where its views are drawn."""
        return send_images(images[indices[self.share.of(len(indices))]], self.device)
