"""Coarse labels for training, fine ones for judging what the prototypes of a class found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from protofission.data.splits.labeling import Labeling, all_but, in_drawn_order, joined
from protofission.data.splits.mismatch import judged_on
from protofission.data.splits.spec import Parts, SplitSpec, check_counts, first_classes


@dataclass(frozen=True, kw_only=True)
class CoarseSplit(SplitSpec):
    """Ours: the classes are the coarse ones (CIFAR-100's 20), each made of finer ones (of 5).

    Each seen class has `labels_per_class` labeled images, drawn whatever their fine class; all
    others, of any class or none, are the pool. Judged on the official test set, all classes. All
    indices and counts are of coarse classes; the fine labels belong to judging only.
    """

    name: str = field(default="coarse", init=False)
    classes: ClassVar[Literal["fine", "coarse"]] = "coarse"
    labels_per_class: int = 500
    """Of each seen coarse class: of CIFAR-100's, a fifth."""
    num_seen: int | None = None
    """S: the first S coarse classes are seen; all of them where none is given."""
    test_per_class: int | None = None
    """Hold so many training images of each class out as the test set, instead of the official."""

    def _check(self) -> None:
        check_counts(1, labels_per_class=self.labels_per_class, test_per_class=self.test_per_class)

    def _parts(self, data: Labeling) -> Parts:
        seen = first_classes(self.num_seen, data.num_classes, data.num_classes)
        held_out = self.test_per_class or 0
        labeled, test = [], []
        for label, order in enumerate(in_drawn_order(data, self.seed)):
            first = self.labels_per_class if label in seen else 0
            remedy = "lower labels_per_class" + (" or test_per_class" if held_out else "")
            data.need(label, len(order), first + held_out, remedy)
            labeled.append(order[:first])
            test.append(order[len(order) - held_out :])
        chosen, left_out = joined(labeled), joined(test)
        pool = all_but(len(data.train), chosen, left_out)
        return Parts(seen, chosen, pool, *judged_on(data, left_out))
