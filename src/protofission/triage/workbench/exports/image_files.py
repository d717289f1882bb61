"""The files of images to export: looked for, read and copied; never moved or changed."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from protofission.core.errors import printable, require
from protofission.data.readers.file_listing import content_of
from protofission.data.readers.image_formats import RefusedError
from protofission.triage.workbench.exports.export_format import ExportTask
from protofission.triage.workbench.exports.labeled_images import LabeledImage, LabeledImages

MOST_BYTES = 2**28
"""Most bytes of an image file, as for those that are decoded."""
REPORT_EVERY = 64
"""Images between two reports of progress."""


def missing_files(images: LabeledImages) -> dict[str, str]:
    """Reasons by absolute path: files that are gone, cannot be read, or are no files."""
    found = {}
    for image in images.images:
        try:
            if not stat.S_ISREG(os.stat(image.file).st_mode):
                found[image.file] = "it is no plain file"
            elif not os.access(image.file, os.R_OK):
                found[image.file] = "it may not be read"
        except (OSError, ValueError) as error:
            found[image.file] = getattr(error, "strerror", None) or str(error)
    return found


def check_room(images: LabeledImages, folder: Path) -> None:
    """Refuse copies for which a disk has no room."""
    wanted, left = 0, shutil.disk_usage(folder).free
    for image in images.images:
        with suppress(OSError):  # one that is gone by now is missed when it is read
            wanted += os.stat(image.file).st_size
    require(
        wanted <= left,
        f"The copies take {wanted:,} bytes, and {printable(str(folder))} has room for {left:,}: "
        "make room, or name a folder on another disk.",
    )


def read_images(task: ExportTask) -> Iterator[tuple[LabeledImage, bytes]]:
    """Read the files of all images; those that cannot be read are left out, or end the export."""
    for number, image in enumerate(task.images.images):
        try:
            content = content_of(Path(image.file), MOST_BYTES)
            if len(content) > MOST_BYTES:
                raise RefusedError(f"more than {MOST_BYTES:,} bytes")
        except RefusedError as refusal:
            task.leave_out(image, str(refusal))
        else:
            yield image, content
        if number % REPORT_EVERY == 0:
            task.report(number)
    task.report(len(task.images.images))
