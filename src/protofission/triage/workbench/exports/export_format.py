"""Formats of exports: the record that each of them has in EXPORTS, and the outcome of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from protofission.core.errors import InputError, printable
from protofission.core.progress import Progress
from protofission.triage.workbench.exports.labeled_images import LabeledImage, LabeledImages

PathStyle = Literal["relative", "absolute"]
SHOWN = 10
"""Most files that a sentence names."""


class MissingImagesError(InputError):
    """Images whose files are gone or cannot be read, where a format needs them.

    Args:
        missing: reasons by absolute path.
    """

    def __init__(self, missing: dict[str, str]) -> None:
        few = "; ".join(f"{printable(p)}: {why}" for p, why in list(missing.items())[:SHOWN])
        more = f"; and {len(missing) - SHOWN:,} more" if len(missing) > SHOWN else ""
        what = "image cannot" if len(missing) == 1 else "images cannot"
        super().__init__(
            f"{len(missing):,} {what} be read, and nothing was written ({few}{more}): put back "
            "what is missing, name its folder, or skip what is missing."
        )
        self.missing = tuple(missing)


@dataclass
class ExportNotes:
    """Notes of a writer on what it could not write as it was."""

    left_out: dict[str, str] = field(default_factory=dict)
    """Reasons by absolute path of an image."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Original names by those in the export."""
    escaped: int = 0
    """Number of images that a table names with escapes."""


@dataclass(frozen=True)
class ExportTask:
    """One export: images, and the hidden file or folder to write them to."""

    images: LabeledImages
    place: Path
    """A file that is there and empty, or an empty folder, in the folder of the destination."""
    paths: PathStyle
    notes: ExportNotes
    skip_missing: bool = False
    """Whether images that cannot be read are left out; else they end the export."""
    progress: Progress | None = None

    def leave_out(self, image: LabeledImage, reason: str) -> None:
        """Note that an image cannot be read.

        Raises:
            MissingImagesError: such images are not to be skipped.
        """
        if not self.skip_missing:
            raise MissingImagesError({image.file: reason})
        self.notes.left_out[image.file] = reason

    def path_of(self, image: LabeledImage) -> str:
        """The path of an image as tables have it: relative to its folder, or absolute."""
        return image.path if self.paths == "relative" else image.file

    def path_from_root(self, image: LabeledImage) -> str:
        """The path of an image for formats with one folder of images, or its absolute path."""
        return self.images.below_root(image) if self.paths == "relative" else image.file

    def report(self, done: int) -> None:
        """Tell the caller how many images are done."""
        if self.progress is not None:
            self.progress(done, len(self.images.images))


@dataclass(frozen=True)
class ExportFormat:
    """A format, as EXPORTS has it."""

    title: str
    about: str
    """A sentence for a page or a help text."""
    write: Callable[[ExportTask], None]
    suffix: str = ""
    """Suffix of the file; empty if the format is a folder."""
    reads: bool = False
    """Whether the files of the images are opened."""
    copies: bool = False
    """Whether they are copied."""
    rooted: bool = False
    """Whether relative paths are from the root of all images on."""


@dataclass(frozen=True)
class Exported:
    """The outcome of an export."""

    path: Path
    images: int
    left_out: dict[str, str]
    """Reasons by absolute path of an image."""
    renamed: dict[str, str]
    """Original names by those in the export, where they differ."""
    escaped: int
    """Number of images that a table names with escapes."""
    root: Path | None
    """Folder that relative paths are relative to, if there is one such folder."""

    def sentence(self) -> str:
        """The outcome in a line or two."""
        parts = [f"{self.images:,} image{'s' * (self.images != 1)}: {printable(str(self.path))}."]
        for reason, number in Counter(self.left_out.values()).most_common(5):
            parts.append(f"Left out: {number:,} ({reason}).")
        return " ".join([*parts, *self.notes()])

    def notes(self) -> list[str]:
        """Notes for who reads the names and paths, a sentence each."""
        notes = []
        if self.renamed:
            notes.append(f"Renamed: {len(self.renamed):,}, listed in images.csv.")
        if self.escaped:
            few = "1 name has" if self.escaped == 1 else f"{self.escaped:,} names have"
            notes.append(
                f"{few} characters that a terminal or a spreadsheet would obey, and stand escaped; "
                "a list has names as they are."
            )
        if self.root is not None:
            notes.append(f"Paths are relative to {printable(str(self.root))}.")
        return notes
