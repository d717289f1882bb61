"""Labeled images as they are exported: the user's word first, the model's where it is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

LabelChoice = Literal["labeled", "accepted", "all"]
"""Images to export: those that the user labeled; those that the model accepts too; all."""
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
        return os.path.relpath(os.path.normpath(image.file), self.root)

    def keep(self, wanted: Callable[[LabeledImage], bool]) -> LabeledImages:
        """The same with some images only."""
        return replace(self, images=tuple(filter(wanted, self.images)))

    @classmethod
    def of(
        cls, images: Iterable[LabeledImage], class_names: Iterable[str], folders: Iterable[str]
    ) -> LabeledImages:
        """Join images with names of classes."""
        return cls(tuple(images), tuple(dict.fromkeys(class_names)), tuple(folders))
