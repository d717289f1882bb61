"""Names for copies that every file system takes, each given once in its folder.

Characters that some system refuses, bytes that are no UTF-8, and a dot at the start, which hides a
file, become a percent sign and two hex digits for each byte, and so does a percent sign before two
hex digits: `urllib.parse.unquote_to_bytes` gives the name back. A name that is too long is cut. Of
names that are one where capitals do not count, all but the first get a number.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import defaultdict

LONGEST_NAME = 200
"""Most bytes of a name without a number; file systems take 255."""
LONGEST_SUFFIX = 20
"""Most bytes of what is kept as a suffix when a name is cut."""

_UNSAFE = re.compile(
    r"""[\x00-\x1f\x7f-\x9f"*/:<>?\\|\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff"""
    r"""\ud800-\udfff]|%(?=[0-9A-Fa-f]{2})|^[.\s]|[.\s]$"""
)
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(?=\.|$)", re.IGNORECASE)


def safe_name(name: str) -> str:
    """Escape a name for any file system."""
    safe = _UNSAFE.sub(lambda found: _percent(found[0]), name)
    if _DEVICE.match(safe):
        safe = _percent(safe[0]) + safe[1:]
    if len(os.fsencode(safe)) > LONGEST_NAME:
        stem, suffix = os.path.splitext(safe)
        suffix = suffix if len(os.fsencode(suffix)) <= LONGEST_SUFFIX else ""
        stem = stem if suffix else safe
        kept = os.fsencode(stem)[: LONGEST_NAME - len(os.fsencode(suffix))]
        stem = re.sub(r"%[0-9A-F]?$|[.\s]+$", "", kept.decode(errors="ignore"))
        safe = stem + suffix
    return safe or "%00"


def _percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode(errors="surrogateescape"))


class UniqueNames:
    """Names that are given once in each folder."""

    def __init__(self) -> None:
        self._next: defaultdict[tuple[str, str], int] = defaultdict(lambda: 2)
        self._taken: set[tuple[str, str]] = set()

    def take(self, folder: str, name: str) -> str:
        """Give a safe name in a folder: the name's own, or with a number before its suffix."""
        safe = safe_name(name)
        stem, suffix = os.path.splitext(safe)
        found = safe
        while (folder, _folded(found)) in self._taken:
            number = self._next[folder, _folded(safe)]
            self._next[folder, _folded(safe)] += 1
            found = f"{stem} ({number}){suffix}"
        self._taken.add((folder, _folded(found)))
        return found


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
