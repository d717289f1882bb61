"""Every split once more, image by image: lists and loops. The random draws are handed in."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

Split = dict[str, list[int]]
"""labeled, unlabeled, validation, test: ascending."""

Permutation = Callable[[int], list[int]]
"""A fresh permutation of 0 ... n - 1 at each call."""


class ShortError(Exception):
    """A class has too few images: (class, images it has, images that are wanted)."""


def split(
    labeled: list[int],
    unlabeled: list[int],
    test: list[int],
    validation: list[int] | None = None,
) -> Split:
    parts = {"labeled": labeled, "unlabeled": unlabeled, "test": test}
    parts["validation"] = validation or []
    return {name: sorted(part) for name, part in parts.items()}


def of_class(labels: list[int], label: int) -> list[int]:
    return [place for place, one in enumerate(labels) if one == label]


def with_label(labels: list[int]) -> list[int]:
    return [place for place, one in enumerate(labels) if one != -1]


def check(label: int, has: int, wanted: int) -> None:
    if has < wanted:
        raise ShortError(label, has, wanted)


def orca(labels: list[int], num_seen: int, share: float, draw: Callable[[], float]) -> Split:
    labeled, rest = [], []
    for place, label in enumerate(labels):
        is_seen = label != -1 and label < num_seen
        if is_seen and draw() < share:
            labeled.append(place)
        else:
            rest.append(place)
    for label in range(num_seen):
        check(label, sum(1 for place in labeled if labels[place] == label), 1)
    return split(labeled, rest, [place for place in rest if labels[place] != -1])


def gcd(labels: list[int], num_seen: int, share: float, permutation: Permutation) -> Split:
    seen = [place for place, label in enumerate(labels) if 0 <= label < num_seen]
    labeled = [seen[k] for k in permutation(len(seen))[: int(share * len(seen))]]
    for label in range(num_seen):
        check(label, sum(1 for place in labeled if labels[place] == label), 1)
    rest = [place for place in range(len(labels)) if place not in labeled]
    return split(labeled, rest, [place for place in rest if labels[place] != -1])


def openldn(
    labels: list[int],
    test: list[int],
    num_classes: int,
    num_seen: int,
    share: float,
    validation_share: float,
    shuffle: Callable[[list[int]], None],
) -> Split:
    labeled: list[int] = []
    validation: list[int] = []
    for label in range(num_classes):
        images = of_class(labels, label)
        shuffle(images)
        wanted = math.ceil(share * len(images)) if label < num_seen else 0
        left_out = max(1, int(validation_share * len(images)))
        check(label, len(images), left_out + (max(wanted, 1) if label < num_seen else 0))
        labeled += images[:wanted]
        validation += images[-left_out:]
    pool = [k for k in range(len(labels)) if k not in labeled and k not in validation]
    return split(labeled, pool, with_label(test), validation)


def evenly(total: int, classes: list[int]) -> dict[int, int]:
    """Deal images to classes one by one."""
    sizes = dict.fromkeys(classes, 0)
    for number in range(total):
        sizes[classes[number % len(classes)]] += 1
    return sizes


def nearest(number: Fraction) -> int:
    """The nearest whole number; of two, the even one."""
    below = number.numerator // number.denominator
    gap = number - below
    if gap == Fraction(1, 2):
        return below if below % 2 == 0 else below + 1
    return below if gap < Fraction(1, 2) else below + 1


def mismatch(
    labels: list[int],
    test: list[int],
    num_classes: int,
    num_seen: int,
    labels_per_class: int,
    pool: tuple[int, int],
    test_per_class: int | None,
    numbers: list[int],
) -> Split:
    """`ds3l` and `controlled`: a pool of so many seen and so many novel images."""
    seen, novel = list(range(num_seen)), list(range(num_seen, num_classes))
    sizes = {**evenly(pool[0], seen), **evenly(pool[1], novel)}
    labeled: list[int] = []
    unlabeled: list[int] = []
    held_out: list[int] = []
    for label in range(num_classes):
        images = sorted(of_class(labels, label), key=lambda place: numbers[place])
        first = labels_per_class if label in seen else 0
        check(label, len(images), first + sizes[label] + (test_per_class or 0))
        labeled += [images.pop(0) for _ in range(first)]
        unlabeled += [images.pop(0) for _ in range(sizes[label])]
        held_out += [images.pop() for _ in range(test_per_class or 0)]
    return split(labeled, unlabeled, held_out if test_per_class else with_label(test))


def ds3l_pool(ratio: str, unlabeled: int) -> tuple[int, int]:
    novel = nearest(Fraction(ratio) * unlabeled)
    return unlabeled - novel, novel


def controlled_pool(ratio: str, seen_images: int) -> tuple[int, int]:
    return seen_images, nearest(Fraction(ratio) / (1 - Fraction(ratio)) * seen_images)


def ds3l_code(
    labels: list[int],
    test: list[int],
    num_classes: int,
    seen: list[int],
    labels_per_class: int,
    unlabeled_images: int,
    ratio: float,
    set_aside: int,
    permutation: Permutation,
) -> Split:
    order = permutation(len(labels))
    novel = [label for label in range(num_classes) if label not in seen]
    each_seen = int(unlabeled_images * (1.0 - ratio)) // len(seen)
    each_novel = (unlabeled_images - each_seen * len(seen)) // len(novel)
    labeled: list[int] = []
    unlabeled: list[int] = []
    for label in range(num_classes):
        images = [place for place in order[set_aside:] if labels[place] == label]
        first, more = (labels_per_class, each_seen) if label in seen else (0, each_novel)
        check(label, len(images), first + more)
        labeled += images[:first]
        unlabeled += images[first : first + more]
    return split(
        labeled,
        unlabeled,
        [place for place, label in enumerate(test) if label in seen],
        [place for place in order[:set_aside] if labels[place] in seen],
    )


def oliver(
    labels: list[int],
    test: list[int],
    seen: list[int],
    pool_classes: list[int],
    labels_per_class: int,
    set_aside: int,
    permutation: Permutation,
) -> Split:
    order = permutation(len(labels))
    labeled: list[int] = []
    for label in seen:
        images = [place for place in order[set_aside:] if labels[place] == label]
        check(label, len(images), labels_per_class)
        labeled += images[:labels_per_class]
    return split(
        labeled,
        [place for place in order[set_aside:] if labels[place] in pool_classes],
        [place for place, label in enumerate(test) if label in seen],
        [place for place in order[:set_aside] if labels[place] in seen],
    )


def per_class(
    labels: list[int],
    test: list[int],
    seen: list[int],
    sizes: tuple[int, int],
    pool_has_labeled: bool,
    permutation: Permutation,
) -> Split:
    """`openmatch` and `iomatch`: so many labeled and validation images of each seen class."""
    labeled: list[int] = []
    validation: list[int] = []
    for label in seen:
        images = of_class(labels, label)
        check(label, len(images), sum(sizes))
        drawn = [images[k] for k in permutation(len(images))]
        labeled += drawn[: sizes[0]]
        validation += drawn[sizes[0] : sum(sizes)]
    out = validation if pool_has_labeled else validation + labeled
    pool = [place for place in range(len(labels)) if place not in out]
    return split(labeled, pool, with_label(test), validation)


def coarse(
    labels: list[int],
    test: list[int],
    num_classes: int,
    num_seen: int,
    labels_per_class: int,
    numbers: list[int],
) -> Split:
    labeled: list[int] = []
    for label in range(num_classes):
        images = sorted(of_class(labels, label), key=lambda place: numbers[place])
        first = labels_per_class if label < num_seen else 0
        check(label, len(images), first)
        labeled += images[:first]
    pool = [place for place in range(len(labels)) if place not in labeled]
    return split(labeled, pool, with_label(test))
