"""The views of a store for training: one of the versions it has, drawn by seed and step."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from protofission.core.records import WHOLE, Share, ViewName
from protofission.core.rng import step_rng
from protofission.data.augment.views import Augmentations, ViewRequest
from protofission.data.image_sets import TestData, TrainingData, pool_indices
from protofission.data.splits.split import Split
from protofission.data.store.reader import RowReader, Store

MAPPED = 400 * 2**20
"""Bytes of one view that are held in memory at a time: CIFAR's are, those of millions are not."""


class StoredViews(Augmentations):
    """The views of a store, float16; images are row numbers, those of test after those of train."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.first_test = store.plan.parts["train"].rows
        self._opened: dict[tuple[str, ViewName], RowReader] = {}

    def plain(self, images: Tensor) -> Tensor:
        """(n, ...): the features of the images without augmentation."""
        return self._features("plain", images, torch.zeros(len(images), dtype=torch.long))

    def view(
        self,
        name: ViewName,
        images: Tensor,
        generator: torch.Generator,
        share: Share = WHOLE,
        nth: int = 0,
    ) -> Tensor:
        """One of the stored versions of a view; another one for each `nth` of a step.

        Args:
            images: (n,) row numbers.
            generator: the step's; versions are a function of its seed.
        """
        request = ViewRequest(name, images, nth)
        return self._features(name, images, self._versions(request, generator, share))

    def views(
        self, requests: Sequence[ViewRequest], generator: torch.Generator, share: Share = WHOLE
    ) -> Tensor:
        """All views of a step as float32; read in one call if they have one name."""
        names = {r.name for r in requests}
        if len(names) > 1:
            return super().views(requests, generator, share)
        rows = torch.cat([r.images for r in requests])
        versions = torch.cat([self._versions(r, generator, share) for r in requests])
        return self._features(names.pop(), rows, versions).float()

    def _versions(self, request: ViewRequest, generator: torch.Generator, share: Share) -> Tensor:
        """(n,): the version of the view that each image gets."""
        if request.name == "plain":
            return torch.zeros(len(request.images), dtype=torch.long)
        batch = share.total(len(request.images))
        versions = self.store.plan.parts["train"].views[request.name]
        order = _version_order(generator.initial_seed(), request.name, batch, versions)
        return order[share.of(batch), request.nth]

    def _features(self, name: ViewName, rows: Tensor, versions: Tensor) -> Tensor:
        test = rows >= self.first_test
        if not test.any():
            return self._part("train", name, rows, versions)
        found = torch.empty(len(rows), *self.store.plan.item, dtype=torch.float16)
        found[~test] = self._part("train", name, rows[~test], versions[~test])
        found[test] = self._part("test", name, rows[test] - self.first_test, versions[test])
        return found

    def _part(self, part: str, name: ViewName, rows: Tensor, versions: Tensor) -> Tensor:
        if (part, name) not in self._opened:
            self._opened[part, name] = self.store.view_rows(part, name, MAPPED)
        count = self.store.plan.parts[part].views[name]
        places = (rows * count + versions).numpy()
        return torch.from_numpy(self._opened[part, name][places])


@functools.lru_cache(maxsize=4)
def _version_order(seed: int, name: ViewName, batch: int, versions: int) -> Tensor:
    """(batch, versions): the versions of each image, in the order in which a step uses them."""
    generator = step_rng(seed, 0, f"versions of {name}")
    return torch.rand(batch, versions, generator=generator).argsort(1)


def divide_store(
    store: Store, split: Split, *, pool_has_labeled: bool = False
) -> tuple[TrainingData, TestData]:
    """Divide the rows of a store by a split; classes are renumbered, the seen ones first."""
    fine = store.labeling()
    labeling = fine.coarse(split.merge) if split.classes == "coarse" else fine
    labels = split.renumber(labeling.train)
    training = TrainingData(
        labeled=torch.from_numpy(split.labeled),
        labels=torch.from_numpy(labels[split.labeled]),
        unlabeled=torch.from_numpy(pool_indices(split, pool_has_labeled)),
        num_seen=len(split.seen_classes),
        num_classes=len(split.seen_classes) + len(split.novel_classes),
        # the maps of a frozen trunk take the shape of the images they were made of
        shape=store.plan.item if len(store.plan.item) == 1 else tuple(store.plan.data["shape"]),
    )
    rows, judged, finer = torch.from_numpy(split.test), labels, fine.train
    if split.test_on == "test" and labeling.test is not None and fine.test is not None:
        rows = rows + len(labels)
        judged, finer = split.renumber(labeling.test), fine.test
    own = finer[split.test] if split.classes == "coarse" else None
    return training, TestData(rows, judged[split.test], own)
