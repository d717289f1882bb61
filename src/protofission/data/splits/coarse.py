"""Coarse labels for training; fine labels tell whether the prototypes find sub-classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from protofission.data.splits.labeling import Labeling, all_but, join, shuffle_classes
from protofission.data.splits.mismatch import choose_test
from protofission.data.splits.spec import Parts, SplitSpec, check_counts, first_classes


@dataclass(frozen=True, kw_only=True)
class CoarseSplit(SplitSpec):
    """Ours: classes are coarse (CIFAR-100 has 20), each a group of finer ones (of 5).

    Each seen class has `labels_per_class` labeled images, drawn without regard to their fine class;
    all others, of any class or none, are the pool. The test set is the official one, all classes.
    All class numbers and counts are of coarse classes; fine labels are used in evaluation only.
    With `merge`, any data set has coarse classes: the more classes are merged, the more mixed.
    """

    name: str = field(default="coarse", init=False)
    classes: ClassVar[Literal["fine", "coarse"]] = "coarse"
    merge: int | None = None
    """Fine classes that make a coarse one, in the order of their numbers; if None, the data set's
    own coarse classes are used."""
    labels_per_class: int = 500
    """Labeled images of each seen coarse class; 500 are a fifth of CIFAR-100's."""
    num_seen: int | None = None
    """S: the first S coarse classes are seen; by default all of them."""
    test_per_class: int | None = None
    """Hold out this many training images of each class as the test set, instead of the official."""

    def _check(self) -> None:
        check_counts(1, labels_per_class=self.labels_per_class, test_per_class=self.test_per_class)
        check_counts(1, merge=self.merge)

    def _parts(self, data: Labeling) -> Parts:
        seen = first_classes(self.num_seen, data.num_classes, data.num_classes)
        held_out = self.test_per_class or 0
        labeled, test = [], []
        for label, order in enumerate(shuffle_classes(data, self.seed)):
            first = self.labels_per_class if label in seen else 0
            remedy = "lower labels_per_class" + (" or test_per_class" if held_out else "")
            data.check_enough(label, len(order), first + held_out, remedy)
            labeled.append(order[:first])
            test.append(order[len(order) - held_out :])
        chosen, left_out = join(labeled), join(test)
        pool = all_but(len(data.train), chosen, left_out)
        return Parts(seen, chosen, pool, *choose_test(data, left_out))
