"""Paths as a caller gives them, and what is there of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from protofission.core.errors import require


def path_of(given: Path | str) -> Path:
    """Expand ~ in a path; an empty text, which would be the current folder, is refused."""
    require(given != "", "A path is empty: name a file or a folder; the current folder is '.'.")
    return Path(given).expanduser()


def paths_of(given: Path | str | Iterable[Path | str]) -> list[Path]:
    """Expand one path or several, as `path_of`."""
    several = [given] if isinstance(given, Path | str) else given
    return [path_of(each) for each in several]


def nearest_there(path: Path) -> Path:
    """A path, or its nearest parent that is there."""
    return next(place for place in (path, *path.parents) if place.exists())
