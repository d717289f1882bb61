"""Pictures of images for the browser: decoded with care and encoded by us, thumbnails kept.

A file of the user is never sent as it is: its bytes could be anything, of any type.
"""

from __future__ import annotations

import io
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from protofission.data.readers.decode import ORIENTATION, Decoding, decode
from protofission.data.readers.image_formats import (
    RefusedError,
    check_content,
    formats_of,
    unidentified,
)
from protofission.system.plain_files import read_plain
from protofission.system.processors import processors

THUMBNAIL_SIDE, PICTURE_SIDE = 160, 1600
"""Most pixels of the longer side of a thumbnail, and of a picture."""
CRISP = 64
"""Images up to this side are encoded without loss."""
QUALITY = 85
"""Quality of JPEG pictures."""
LAYOUT = 1
"""The number of the layout of the file of thumbnails; another one's file is made anew."""
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS thumbnails
    (image INTEGER PRIMARY KEY, version TEXT NOT NULL, kind TEXT NOT NULL, content BLOB NOT NULL);
"""


class MissingImageError(Exception):
    """The file of an image is gone or cannot be read; the message is a sentence."""


@dataclass(frozen=True)
class Picture:
    """An encoded picture."""

    content: bytes
    kind: str
    """Its media type."""
    version: str
    """A text that changes when the user's file does."""


class Pictures:
    """Thumbnails and pictures of the images of a model.

    Args:
        file: gives the file of an image by its row.
        name: gives its name for a sentence.
        kept: the file of thumbnails, made if it is missing; None keeps none.
    """

    def __init__(
        self, file: Callable[[int], Path], name: Callable[[int], str], kept: Path | None
    ) -> None:
        self._file, self._name = file, name
        self._at_work = threading.BoundedSemaphore(max(2, processors()))
        self._lock = threading.Lock()
        self._kept = None if kept is None else _open(kept)

    def thumbnail(self, row: int) -> Picture:
        """The thumbnail of an image, made once for each version of its file.

        Raises:
            MissingImageError: the file is gone, or no image any more.
        """
        version = self.version(row)
        found = self._find(row, version)
        if found is None:
            found = self._make(row, version, THUMBNAIL_SIDE)
            self._keep(row, found)
        return found

    def picture(self, row: int) -> Picture:
        """The image itself, shrunk if it is large; as `thumbnail` otherwise."""
        return self._make(row, self.version(row), PICTURE_SIDE)

    def version(self, row: int) -> str:
        """A text that changes when the file does.

        Raises:
            MissingImageError: the file is gone.
        """
        try:
            found = self._file(row).stat()
        except (OSError, ValueError) as error:
            raise self._missing(row, getattr(error, "strerror", None) or str(error)) from None
        return f"{found.st_mtime_ns:x}-{found.st_size:x}"

    def close(self) -> None:
        """Close the file of thumbnails."""
        with self._lock:
            if self._kept is not None:
                self._kept.close()
                self._kept = None

    def _make(self, row: int, version: str, side: int) -> Picture:
        with self._at_work:  # pixels of a few images at a time, however many are asked for
            try:
                content = read_plain(self._file(row), Decoding.byte_limit)
                return encode_picture(content, side, version)
            except OSError as error:
                raise self._missing(row, error.strerror or str(error)) from None
            except RefusedError as error:
                raise self._missing(row, str(error)) from None

    def _missing(self, row: int, why: str) -> MissingImageError:
        return MissingImageError(
            f"{self._name(row)} cannot be shown ({why}): put the file back, or skip the image."
        )

    def _find(self, row: int, version: str) -> Picture | None:
        with self._lock, suppress(sqlite3.Error):
            if self._kept is not None:
                found = self._kept.execute(
                    "SELECT kind, content FROM thumbnails WHERE image = ? AND version = ?",
                    (row, version),
                ).fetchone()
                if found is not None:
                    return Picture(bytes(found[1]), str(found[0]), version)
        return None

    def _keep(self, row: int, made: Picture) -> None:
        with self._lock, suppress(sqlite3.Error):  # a full disk costs time, no more
            if self._kept is not None:
                with self._kept:
                    self._kept.execute(
                        "INSERT OR REPLACE INTO thumbnails VALUES (?, ?, ?, ?)",
                        (row, made.version, made.kind, made.content),
                    )


def encode_picture(content: bytes, side: int, version: str = "") -> Picture:
    """Decode a file's content, and encode it with a longer side of at most `side` pixels.

    Raises:
        RefusedError: it is no image that can be used.
    """
    height, width = _upright_size(content)
    scale = min(1.0, side / max(height, width))
    to = Decoding(max(1, round(height * scale)), max(1, round(width * scale)))
    picture = Image.fromarray(np.moveaxis(decode(content, to), 0, -1))
    encoded = io.BytesIO()
    if max(to.height, to.width) <= CRISP:
        picture.save(encoded, "PNG")
        return Picture(encoded.getvalue(), "image/png", version)
    picture.save(encoded, "JPEG", quality=QUALITY)
    return Picture(encoded.getvalue(), "image/jpeg", version)


def _upright_size(content: bytes) -> tuple[int, int]:
    """(height, width) by the file's header, after the turn that EXIF asks for."""
    if not content:
        raise RefusedError("an empty file")
    try:
        check_content(content)
        with Image.open(io.BytesIO(content), formats=formats_of(content)) as image:
            width, height = image.size
            turned = False
            with suppress(Exception):  # the image itself may be sound
                turned = int(image.getexif().get(ORIENTATION, 1)) >= 5
    except RefusedError:
        raise
    except Exception:  # decoders raise what they like
        raise unidentified(content) from None
    return (width, height) if turned else (height, width)


def _open(path: Path) -> sqlite3.Connection | None:
    """Open the file of thumbnails; one that is damaged or another's is replaced."""
    for _ in range(2):
        with suppress(sqlite3.Error, OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            opened = sqlite3.connect(path, check_same_thread=False)
            try:
                (layout,) = opened.execute("PRAGMA user_version").fetchone()
                if layout not in (0, LAYOUT):
                    raise sqlite3.DatabaseError
                opened.executescript(_SCHEMA)
                opened.execute(f"PRAGMA user_version = {LAYOUT}")
                opened.execute("SELECT image, version, kind, content FROM thumbnails LIMIT 1")
                return opened
            except sqlite3.Error:
                opened.close()
        for ending in ("", "-wal", "-shm"):
            with suppress(OSError):
                path.with_name(path.name + ending).unlink(missing_ok=True)
    return None
