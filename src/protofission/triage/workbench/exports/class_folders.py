"""Copies of the images in a folder for each class.

`classes/` holds a folder for each class, and is what `protofission fit` and other tools read;
`none_of_these/` holds strangers, `unlabeled/` a folder for each cluster of images without a label.
`images.csv` lists the copies with their originals: names that some file system refuses are escaped,
and names that are taken get a number.
"""

from __future__ import annotations

import os

from protofission.triage.prediction_table import csv_line
from protofission.triage.workbench.exports.csv_table import EXPORT_COLUMNS, cells_of
from protofission.triage.workbench.exports.export_format import ExportFormat, ExportTask
from protofission.triage.workbench.exports.image_files import read_images
from protofission.triage.workbench.exports.labeled_images import LabeledImage
from protofission.triage.workbench.exports.safe_names import UniqueNames

NO_CLUSTER = "no cluster"


class _Places:
    """Paths of copies in the export."""

    def __init__(self, task: ExportTask) -> None:
        self.names, self.renamed = UniqueNames(), task.notes.renamed
        self.folders: dict[tuple[str, str], str] = {}
        for name in task.images.class_names:  # in their order, whatever the images'
            self.folder("classes", name)

    def folder(self, top: str, name: str) -> str:
        if (top, name) not in self.folders:
            found = f"{top}/{self.names.take(top, name)}"
            self.folders[top, name] = found
            if found != f"{top}/{name}":
                self.renamed[found] = name
        return self.folders[top, name]

    def copy(self, image: LabeledImage) -> str:
        if image.label is not None:
            folder = self.folder("classes", image.label)
        elif image.none_of_these:
            folder = "none_of_these"
        else:
            folder = self.folder("unlabeled", image.cluster or NO_CLUSTER)
        name = os.path.basename(image.path)
        found = f"{folder}/{self.names.take(folder, name)}"
        if found != f"{folder}/{name}":
            self.renamed[found] = image.path
        return found


def write(task: ExportTask) -> None:
    """Copy the images, and list the copies."""
    places = _Places(task)
    lines = [csv_line(("copy", *EXPORT_COLUMNS))]
    for image, content in read_images(task):
        copy = places.copy(image)
        target = task.place / copy
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.write(content)
        lines.append(csv_line((copy, *cells_of(image, task.path_of(image)))))
    (task.place / "images.csv").write_text("".join(lines), encoding="utf-8")


CLASS_FOLDERS = ExportFormat(
    "Class folders",
    "Copies of the images in a folder for each class, with a table of the originals.",
    write,
    reads=True,
    copies=True,
)
