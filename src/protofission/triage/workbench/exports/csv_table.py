"""A table of all that is known of the images, as CSV; texts have the escapes of predictions."""

from __future__ import annotations

from protofission.triage.prediction_table import csv_line, is_escaped
from protofission.triage.workbench.exports.export_format import ExportFormat, ExportTask
from protofission.triage.workbench.exports.labeled_images import LabeledImage

EXPORT_COLUMNS = (
    "row",
    "folder",
    "path",
    "label",
    "none_of_these",
    "source",
    "class",
    "probability",
    "subclass",
    "id_score",
    "decision",
    "cluster",
)


def cells_of(image: LabeledImage, path: str) -> tuple[str | float | None, ...]:
    """The values of an image for EXPORT_COLUMNS."""
    row, folder, _, _, *others = image
    return row, folder, path, *others


def write(task: ExportTask) -> None:
    """Write the table."""
    with task.place.open("w", encoding="utf-8", newline="") as file:
        file.write(csv_line(EXPORT_COLUMNS))
        for image in task.images.images:
            path = task.path_of(image)
            task.notes.escaped += is_escaped(path)
            file.write(csv_line(cells_of(image, path)))


CSV = ExportFormat(
    "CSV",
    "A table with a row for each image: its label, the source of the label, and the model's "
    "word. Characters of names that a terminal or a spreadsheet would obey are escaped.",
    write,
    ".csv",
)
