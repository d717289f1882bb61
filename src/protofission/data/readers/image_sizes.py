"""The usual size of images, by the headers of some of their files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from protofission.data.readers.decode import Decoding, quiet_pillow
from protofission.data.readers.file_listing import list_files
from protofission.data.readers.image_formats import check_content, formats_of
from protofission.data.readers.image_lists import is_list, read_list
from protofission.system.plain_files import read_plain

MOST_MEASURED = 256
"""Most files whose headers are read."""


def median_short_side(sources: Sequence[Path], most: int = MOST_MEASURED) -> int | None:
    """The median of the images' short sides, in pixels; None if no header can be read.

    Args:
        sources: folders and .csv or .parquet lists of images.
        most: files that are looked at, evenly spread over all; those that cannot be read are
            skipped.
    """
    files = [file for source in sources for file in _files_of(source)]
    number = min(len(files), most)
    chosen = [files[place * len(files) // number] for place in range(number)]
    with quiet_pillow():
        sides = sorted(side for file in chosen if (side := _short_side(file)) is not None)
    return sides[len(sides) // 2] if sides else None


def _files_of(source: Path) -> list[Path]:
    if is_list(source) and not source.is_dir():
        return [source.parent / path for path in read_list(source)[0]]
    return [source / entry.path for entry in list_files(source).files]


def _short_side(path: Path) -> int | None:
    try:
        content = read_plain(path, Decoding.byte_limit)
        check_content(content)
        with Image.open(io.BytesIO(content), formats=formats_of(content)) as image:
            return min(image.size)
    except Exception:  # decoders raise what they like; the report of all files names this one
        return None
