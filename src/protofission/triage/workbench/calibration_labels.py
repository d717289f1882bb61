"""The labels of a refit: all train, and those that were drawn at random calibrate.

**Proved, and assumed.** A threshold keeps its promise for new images that are exchangeable with the
labels that set it. The labels of the folders are taken for such, as by `fit`. A label that somebody
chose is not, however it was chosen; so it trains every model and sets nothing. A queue of random
images is drawn from all of the pool, those that have a label included, before anybody looks: from
the rest alone, the draw would lack what was chosen before. Its images of known classes are then a
random sample of those of the pool, and their labels calibrate, if every image of the queue has an
answer; otherwise the open ones, rather the hard ones, would be missing. That much is proved: the
set of calibrating rows is a function of the folders, of the draws and of what is known, and no
choice of other labels changes it. Assumed is, first, that answers are right and are by the classes
that there are now. Second, that new images are drawn like the labels of folders and queues
together; where these differ from each other, the promise is for the mixture. Third, that labels
were chosen without an eye to the images that calibrate. That never quite holds, since the model
that chose learned from those: what it is surest of is what is most like them. If every model then
learned from the chosen ones, labels would score higher than new images do. So a chosen image is
held out with the calibrating image that it is most like (`triage.folds.join_nearest`). In the
simulation of benchmarks/refit_promise.py, where the easiest are chosen, that is the difference
between a promise that is kept and one that is not. Labels that were drawn after the last choice
need no such assumption.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from protofission.core.array_types import Ints
from protofission.core.errors import quoted, require
from protofission.triage.fit_data import MOST_CLASSES
from protofission.triage.folds import Mask
from protofission.triage.workbench.actions import NONE, UNLABELED

SHOWN_NAMES = 5
"""Most classes that a sentence names."""


@dataclass(frozen=True, eq=False)
class GivenLabels:
    """The labels of N images as a person left them; the first L had one by their folders."""

    label_of: Ints
    """(N,): the id of a class, NONE or UNLABELED."""
    num_labeled: int
    """L."""
    queues: tuple[Ints, ...]
    """The rows of each random draw."""
    class_names: Mapping[int, str]
    """Names of the classes by id."""


@dataclass(frozen=True, eq=False)
class RefitLabels:
    """The labels and the pool of a refit, both in the order of rows."""

    rows: Ints
    """(L',): images with a label of a class."""
    labels: Ints
    """(L',): their classes, as places in `class_ids`."""
    calibrates: Mask
    """(L',): labels of the folders, and those of random queues that were answered."""
    class_ids: tuple[int, ...]
    """(S,): classes with labels, in the order of ids."""
    class_names: tuple[str, ...]
    """(S,)"""
    pool: Ints
    """(U',): all other images."""
    strangers: Mask
    """(U',): images that were answered with NONE."""
    drawn: Mask
    """(L',): labels that calibrate because they were drawn at random."""
    sentences: tuple[str, ...]
    """On the labels: what calibrates, what does not, and why."""

    @property
    def promised(self) -> Mask:
        """(S,): classes with a label that calibrates."""
        found: Mask = np.zeros(len(self.class_ids), bool)
        found[self.labels[self.calibrates]] = True
        return found


def labels_of_refit(given: GivenLabels, repeated: Mask) -> RefitLabels:
    """Divide images into labels, those that calibrate among them, and the pool.

    Args:
        repeated: (N,): images that are copies of others of the folders; their labels are not used.

    Raises:
        InputError: fewer than two classes have labels.
    """
    label_of = given.label_of
    ids = np.array(sorted(given.class_names), np.int64)
    has_class = np.isin(label_of, ids)
    require(
        bool((has_class | (label_of == NONE) | (label_of == UNLABELED)).all()),
        "An image has a label of a class that is not there: give its name.",
    )
    labeled = has_class & ~repeated
    rows, pool = np.flatnonzero(labeled), np.flatnonzero(~labeled)
    used, labels = np.unique(label_of[rows], return_inverse=True)
    names = tuple(given.class_names[number] for number in used.tolist())
    _check_classes(names, labels)
    answered = [queue for queue in given.queues if (label_of[queue] != UNLABELED).all()]
    drawn = np.zeros(len(label_of), bool)
    for queue in answered:
        drawn[queue] = True
    drawn[: given.num_labeled] = False
    calibrates = (rows < given.num_labeled) | drawn[rows]
    found = RefitLabels(
        rows,
        labels.reshape(-1).astype(np.int64),
        calibrates,
        tuple(used.tolist()),
        names,
        pool,
        label_of[pool] == NONE,
        drawn[rows],
        (),
    )
    empty = [given.class_names[number] for number in ids.tolist() if number not in used]
    sentences = _sentences(found, given, len(answered), empty)
    return RefitLabels(**{**vars(found), "sentences": sentences})


def _check_classes(names: Sequence[str], labels: Ints) -> None:
    require(
        len(names) >= 2,
        f"{len(names)} class{'es' * (len(names) != 1)} with labels: to tell classes apart takes "
        "two, so label images of another.",
    )
    require(
        len(names) <= MOST_CLASSES,
        f"There are {len(names):,} classes with labels, and a refit takes at most "
        f"{MOST_CLASSES:,}: merge some.",
    )
    require(
        int(np.bincount(labels.reshape(-1)).max()) >= 2,
        f"Each of the {len(names)} classes has a single label, so none can be held out: label "
        "more images.",
    )


def _sentences(
    found: RefitLabels, given: GivenLabels, answered: int, empty: Sequence[str]
) -> tuple[str, ...]:
    of_folders = int((found.calibrates & ~found.drawn).sum())
    of_draws, chosen = int(found.drawn.sum()), int((~found.calibrates).sum())
    lines = []
    if not of_folders + of_draws:
        lines.append(
            "Every label was chosen, so none sets a threshold: draw images at random, and answer "
            "all of them."
        )
    elif of_draws or chosen:
        sets = f"{_number(of_folders, 'label')} of the folders"
        sets += f" and {of_draws:,} of images drawn at random" if of_draws else ""
        lines.append(f"Threshold and temperature are set by {sets} alone.")
    if chosen:
        told = "was chosen, trains and sets" if chosen == 1 else "were chosen, train and set"
        lines.append(f"{_number(chosen, 'label')} {told} neither.")
    if answered < len(given.queues):
        left = [queue for queue in given.queues if (given.label_of[queue] == UNLABELED).any()]
        waiting = np.unique(np.concatenate(left))
        missing = int((given.label_of[waiting] == UNLABELED).sum())
        lines.append(
            f"{missing:,} of {len(waiting):,} images drawn at random {_have(missing)} no answer "
            "yet, so labels of the others only train: answer all, and they calibrate."
        )
    if empty:
        lines.append(f"{_list_names(empty)} {_have(len(empty))} no labels: left out.")
    unpromised = [
        name for name, sure in zip(found.class_names, found.promised, strict=True) if not sure
    ]
    if unpromised:
        lines.append(
            f"Nothing is promised for {_list_names(unpromised)}: no label of "
            f"{'it' if len(unpromised) == 1 else 'them'} was drawn at random."
        )
    return tuple(lines)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _list_names(names: Sequence[str]) -> str:
    shown = ", ".join(quoted(name) for name in names[:SHOWN_NAMES])
    more = len(names) - SHOWN_NAMES
    return f"{shown} and {more:,} more" if more > 0 else shown
