"""Exports of labeled images: one file a format, and EXPORTS, which has them by name."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from protofission.core.errors import InputError, printable, require, unknown
from protofission.core.progress import Progress
from protofission.data.readers.image_lists import is_list
from protofission.system.new_outputs import check_new, new_file, new_folder
from protofission.system.paths import path_of
from protofission.triage.workbench.exports.class_folders import CLASS_FOLDERS
from protofission.triage.workbench.exports.class_list import CLASS_LIST
from protofission.triage.workbench.exports.coco import COCO
from protofission.triage.workbench.exports.csv_table import CSV
from protofission.triage.workbench.exports.export_format import (
    Exported,
    ExportFormat,
    ExportNotes,
    ExportTask,
    MissingImagesError,
    PathStyle,
)
from protofission.triage.workbench.exports.hugging_face import HUGGING_FACE
from protofission.triage.workbench.exports.image_files import check_room, missing_files
from protofission.triage.workbench.exports.label_studio import LABEL_STUDIO
from protofission.triage.workbench.exports.labeled_images import LabeledImages
from protofission.triage.workbench.exports.parquet_table import PARQUET

__all__ = [
    "EXPORTS",
    "ExportFormat",
    "Exported",
    "MissingImagesError",
    "export_images",
    "format_of_name",
]

EXPORTS = {
    "folders": CLASS_FOLDERS,
    "list": CLASS_LIST,
    "csv": CSV,
    "parquet": PARQUET,
    "coco": COCO,
    "hugging-face": HUGGING_FACE,
    "label-studio": LABEL_STUDIO,
}


def export_images(
    images: LabeledImages,
    out: Path | str,
    form: str,
    *,
    paths: PathStyle = "relative",
    skip_missing: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write images to a new file or folder, whole or not at all; the originals stay as they are.

    Args:
        form: a name of EXPORTS.
        paths: relative to the folders of the images (in a list to the list), or absolute.
        skip_missing: leave images out that cannot be read, where the format needs their files.
        progress: called with the number of images done, and of all.

    Raises:
        MissingImagesError: images that cannot be read, if they are not to be skipped.
        InputError: the destination is there or cannot be written, there is no image, or the format
            cannot have it.
    """
    if form not in EXPORTS:
        raise unknown("format", form, EXPORTS)
    if paths not in ("relative", "absolute"):
        raise unknown("style of paths", paths, ("relative", "absolute"))
    export, out = EXPORTS[form], Path(os.path.abspath(path_of(out)))
    check_new(out)
    require(
        out.parent.is_dir() or not out.parent.exists(),
        f"{printable(str(out.parent))} is no folder: name another place.",
    )
    _check_apart(images, out)
    require(bool(images.images), "There is no image to export: label some, or export all.")
    notes = ExportNotes()
    if export.reads:
        gone = missing_files(images)
        if gone and not skip_missing:
            raise MissingImagesError(gone)
        notes.left_out |= gone
        images = images.keep(lambda image: image.file not in gone) if gone else images
        require(bool(images.images), f"None of the {len(gone):,} images can be read: name folders.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if export.copies:
            check_room(images, out.parent)
        with _new(export, out) as place:
            export.write(ExportTask(images, place, paths, notes, skip_missing, progress))
    except OSError as error:
        raise InputError(
            f"{printable(str(out))} cannot be written ({error.strerror or error}), and nothing of "
            "it is left: make room, or name another place."
        ) from None
    rooted = export.rooted and paths == "relative"
    given = {image.file for image in images.images}
    return Exported(
        out,
        len(given - notes.left_out.keys()),
        notes.left_out,
        notes.renamed,
        notes.escaped,
        images.root if rooted else None,
    )


def format_of_name(out: Path | str) -> str:
    """The format that a name asks for: a table by its suffix, else class folders."""
    suffix = Path(out).suffix.lower()
    return {".csv": "csv", ".parquet": "parquet", ".json": "coco"}.get(suffix, "folders")


def _new(export: ExportFormat, out: Path) -> AbstractContextManager[Path]:
    return new_file(out) if export.suffix else new_folder(out)


def _check_apart(images: LabeledImages, out: Path) -> None:
    """Refuse a destination among the images, where the next fit would take it for images."""
    place = Path(os.path.realpath(out.parent)) / out.name
    for folder in images.folders:
        require(
            _holds_list(folder) or not place.is_relative_to(os.path.realpath(folder)),
            f"{printable(str(out))} lies in the folder of images {printable(folder)}: name a "
            "place outside of it.",
        )


def _holds_list(folder: str) -> bool:
    """Whether a folder may be that of a list of images, and so one that holds other things."""
    with suppress(OSError), os.scandir(folder) as entries:
        return any(is_list(Path(entry.name)) for entry in entries)
    return False
