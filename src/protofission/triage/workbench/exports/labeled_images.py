"""Labeled images as they are exported: the user's word first, the model's where it is asked for."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from protofission.core.errors import unknown
from protofission.triage.calibrated_model import ACCEPT, DECISIONS
from protofission.triage.prediction_table import shortest_floats
from protofission.triage.workbench.actions import NONE, UNLABELED
from protofission.triage.workbench.cells import LABEL_SOURCES
from protofission.triage.workbench.groups import NO_GROUP_NUMBER

if TYPE_CHECKING:
    from protofission.triage.workbench.material import Material
    from protofission.triage.workbench.state import WorkbenchState

LabelChoice = Literal["labeled", "accepted", "all"]
"""Images to export: those that the user labeled; those that the model accepts too; all."""
FOLDER_NAMES = ("labeled", "pool")
BY_MODEL = "model"
"""Source of a label that the model gave."""


class LabeledImage(NamedTuple):
    """An image with its label, and with the model's word on it.

    A number is the Python float whose text is the shortest of its float32.
    """

    row: int
    """Number in the model's images."""
    folder: str
    """Folder that the path is relative to: labeled or pool."""
    path: str
    file: str
    """Absolute path."""
    label: str | None
    """Name of its class; None if it has no label, or is none of the classes."""
    none_of_these: bool
    """Whether the user said that it is none of the classes."""
    source: str
    """Origin of the label: the user's folder, a screen, or BY_MODEL; empty if there is none."""
    model_class: str
    """Likeliest class by the model; empty if there is none."""
    probability: float | None
    subclass: str
    id_score: float | None
    decision: str
    """One of DECISIONS."""
    cluster: str
    """Cluster of an image that was not accepted, if it is in one."""


@dataclass(frozen=True)
class LabeledImages:
    """Images to export, in the order of their rows."""

    images: tuple[LabeledImage, ...]
    class_names: tuple[str, ...]
    """All classes, also those without an image, in order; each name once."""
    folders: tuple[str, ...]
    """Absolute folders that paths are relative to."""

    @cached_property
    def root(self) -> Path:
        """The deepest folder that holds all folders of images, and all images elsewhere."""
        tops = {os.path.normpath(folder) for folder in self.folders}
        parents = {os.path.dirname(os.path.normpath(image.file)) for image in self.images}
        tops |= {p for p in parents if not any(Path(p).is_relative_to(top) for top in tops)}
        return Path(os.path.commonpath(tops)) if tops else Path("/")

    def below_root(self, image: LabeledImage) -> str:
        """The path of an image from `root` on."""
        top = str(self.root).rstrip(os.sep) + os.sep
        return os.path.normpath(image.file).removeprefix(top)

    def keep(self, wanted: Callable[[LabeledImage], bool]) -> LabeledImages:
        """The same with some images only."""
        return replace(self, images=tuple(filter(wanted, self.images)))

    def order_by(self, key: Callable[[LabeledImage], int]) -> LabeledImages:
        """The same in another order; images that are equal in it keep theirs."""
        return replace(self, images=tuple(sorted(self.images, key=key)))

    @classmethod
    def of(
        cls, images: Iterable[LabeledImage], class_names: Iterable[str], folders: Iterable[str]
    ) -> LabeledImages:
        """Join images with names of classes."""
        return cls(tuple(images), tuple(dict.fromkeys(class_names)), tuple(folders))


def labeled_images(
    material: Material, state: WorkbenchState, what: LabelChoice = "labeled"
) -> LabeledImages:
    """Join the images of a workbench with their labels, and with the model's word on them.

    Args:
        what: "labeled" for images that the user labeled, be it as none of the classes; "accepted"
            for those and the ones that the model accepts, with its class; "all" for all images.
    """
    if what not in get_args(LabelChoice):
        raise unknown("choice of images", what, get_args(LabelChoice))
    names = {own: state.classes[state.resolve(own)].name for own in state.classes}
    folders = tuple(map(str, material.folders))
    images = []
    words = _model_words(material, state, names)
    labels, sources = state.label_of.tolist(), state.source_of.tolist()
    for row, (label, source, word) in enumerate(zip(labels, sources, words, strict=True)):
        accepted = word.decision == DECISIONS[ACCEPT]
        if label == UNLABELED and (what == "labeled" or (what == "accepted" and not accepted)):
            continue
        by_model = label == UNLABELED and accepted and word.name != ""
        place, path = material.kept.folder_of[row], material.paths[row]
        images.append(
            LabeledImage(
                row,
                FOLDER_NAMES[place],
                path,
                _absolute(folders[place], path),
                word.name if by_model else names.get(label),
                label == NONE,
                BY_MODEL if by_model else "" if label == UNLABELED else LABEL_SOURCES[source],
                *word,
            )
        )
    classes = (own.name for own in state.live_classes)
    return LabeledImages.of(images, classes, folders)


class _ModelWord(NamedTuple):
    """The last fields of a LabeledImage."""

    name: str
    probability: float | None
    subclass: str
    id_score: float | None
    decision: str
    cluster: str


def _model_words(
    material: Material, state: WorkbenchState, names: dict[int, str]
) -> Iterable[_ModelWord]:
    """The model's word on each image, with the names that the user gave."""
    found, model, groups = material.verdicts, material.model_rows, state.groups
    classes = [names[own] for own in groups.classes]
    subclasses = [
        ("",) * len(own) if class_id in groups.dissolved else own
        for class_id, own in zip(groups.classes, groups.subclass_names, strict=True)
    ]
    probabilities = found.probs.gather(1, found.classes[:, None])[:, 0]
    for place, probability, subclass, score, decision, cluster in zip(
        model.classes.tolist(),
        shortest_floats(probabilities.numpy()),
        groups.subclass_numbers(model).tolist(),
        shortest_floats(found.id_scores.numpy()),
        found.decisions.tolist(),
        groups.cluster_numbers(model).tolist(),
        strict=True,
    ):
        if not (math.isfinite(probability) and math.isfinite(score)):  # no word on it
            yield _ModelWord("", None, "", None, DECISIONS[decision], "")
            continue
        yield _ModelWord(
            classes[place],
            probability,
            subclasses[place][subclass],
            score,
            DECISIONS[decision],
            "" if cluster == NO_GROUP_NUMBER else groups.cluster_names[cluster],
        )


def _absolute(folder: str, path: str) -> str:
    """The file of a path; where it goes up, links before that are followed first."""
    file = os.path.join(folder, path)
    if ".." not in path.split("/"):
        return file
    return os.path.join(os.path.realpath(os.path.dirname(file)), os.path.basename(file))
