"""A folder for Hugging Face's `load_dataset("imagefolder", data_dir=...)`: copies and a table.

Copies are named by the numbers of their rows: a word such as "test" in a name would make a split of
it. `metadata.jsonl` has the original path and the label of each; texts have the escapes of
predictions. Its reader takes texts that are all dates for dates, so names that are dates are
refused; and the types of columns from the first rows, so images with a label come first.
"""

from __future__ import annotations

import io
import json
import os
import re
from dataclasses import replace

from PIL import Image

from protofission.core.errors import quoted, require
from protofission.data.readers.decode import quiet_pillow
from protofission.data.readers.image_formats import RefusedError, check_content, formats_of
from protofission.triage.prediction_table import escape_text
from protofission.triage.workbench.exports.csv_table import EXPORT_COLUMNS, cells_of
from protofission.triage.workbench.exports.export_format import ExportFormat, ExportTask
from protofission.triage.workbench.exports.image_files import read_images
from protofission.triage.workbench.exports.labeled_images import LabeledImage

SUFFIXES_OF = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "BMP": ".bmp", "GIF": ".gif"} | {
    "MPO": ".jpg",
    "PPM": ".ppm",
    "TIFF": ".tif",
    "AVIF": ".avif",
    "HEIF": ".heic",
}
"""Suffixes of copies by Pillow's names of formats."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ][\d:.]+(Z|[+-][\d:]+)?)?")


def write(task: ExportTask) -> None:
    """Copy the images, and write the table."""
    for image in task.images.images:
        for name in (image.label or "", image.model_class, image.subclass, image.cluster):
            require(
                not _DATE.fullmatch(name),
                f"Hugging Face's reader takes {quoted(name)} for a date: give it another name.",
            )
    ordered = replace(task, images=task.images.order_by(_count_missing))
    (task.place / "images").mkdir()
    with (task.place / "metadata.jsonl").open("w", encoding="ascii") as table, quiet_pillow():
        for image, content in read_images(ordered):
            try:
                suffix = _suffix(image.path, content)
            except RefusedError as refusal:
                task.leave_out(image, str(refusal))
                continue
            copy = f"images/{image.row:08d}{suffix}"
            with (task.place / copy).open("xb") as file:
                file.write(content)
            cells = (
                escape_text(v) if isinstance(v, str) else v
                for v in cells_of(image, task.path_of(image))
            )
            values = dict(zip(EXPORT_COLUMNS, cells, strict=True))
            table.write(json.dumps({"file_name": copy, **values}, allow_nan=False) + "\n")


def _count_missing(image: LabeledImage) -> int:
    """The values that an image lacks: the reader takes types from the first rows."""
    return [image.label, image.probability, image.id_score].count(None)


def _suffix(path: str, content: bytes) -> str:
    """The suffix of the file's name, or if it tells no format that of its content."""
    named = os.path.splitext(path)[1].lower()
    if named in (".jpeg", ".tiff", ".pbm", ".pgm", ".pnm", *SUFFIXES_OF.values()):
        return named
    try:
        check_content(content)
        with Image.open(io.BytesIO(content), formats=formats_of(content)) as image:
            return SUFFIXES_OF[image.format or ""]
    except RefusedError:
        raise
    except Exception as error:  # parsers raise what they like
        raise RefusedError(f"it is no image ({type(error).__name__})") from None


HUGGING_FACE = ExportFormat(
    "Hugging Face",
    "Copies of the images with a metadata.jsonl, for the imagefolder reader of datasets.",
    write,
    reads=True,
    copies=True,
)
