"""A list of labeled images as CSV, which `protofission fit` reads in place of a folder.

Paths are relative to the list, or absolute. Names stand as they are, bytes that are no UTF-8 too,
since the list is read as it stands; a relative path is no formula of a spreadsheet, as it begins
with ./ where it would be one.
"""

from __future__ import annotations

import os
import re
from collections import Counter

from protofission.core.errors import quoted, require
from protofission.data.readers.image_lists import NO_LABELS
from protofission.triage.workbench.exports.export_format import ExportFormat, ExportTask
from protofission.triage.workbench.exports.labeled_images import LabeledImage

_QUOTED = re.compile(r'[",\r\n]')


def write(task: ExportTask) -> None:
    """Write the images that have a class; the others are left out.

    Raises:
        InputError: a class whose name stands for no label in a list, or no image with a class.
    """
    folder = os.path.realpath(task.place.parent)
    kept: list[LabeledImage] = []
    for image in task.images.images:
        if image.label is None:
            why = "none of these" if image.none_of_these else "no label"
            task.notes.left_out[image.file] = f"{why}: the list holds images with a class"
        else:
            kept.append(image)
    classes = Counter(image.label for image in kept)
    require(bool(classes), "No image has a class, and a list of none cannot be fitted: label some.")
    for name in NO_LABELS:
        require(
            name not in classes,
            f"The class {quoted(name)} stands for no label in a list: give it another name.",
        )
    with task.place.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write("path,label\n")
        for image in kept:
            path = image.file if task.paths == "absolute" else _from(folder, image.file)
            file.write(f"{_cell(path)},{_cell(image.label or '')}\n")


def _from(folder: str, file: str) -> str:
    path = os.path.relpath(file, folder)
    return path if path[0].isalnum() or path.startswith("../") else f"./{path}"


def _cell(text: str) -> str:
    return '"{}"'.format(text.replace('"', '""')) if _QUOTED.search(text) else text


CLASS_LIST = ExportFormat(
    "List by class",
    "A CSV list of paths and labels, which protofission fit reads as its labeled images.",
    write,
    ".csv",
)
