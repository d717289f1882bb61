"""The hidden names under which files are written until they are whole."""

from __future__ import annotations

import re
import secrets
from pathlib import Path


def partial_path(path: Path) -> Path:
    """Name a new hidden file beside `path`: `.NAME.` and 16 random hexadecimal digits."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")


def is_partial(path: Path) -> bool:
    """Whether a name is one of `partial_path`, as a killed process leaves it."""
    return re.fullmatch(r"\..+\.[0-9a-f]{16}", path.name) is not None


def clear_partial(folder: Path) -> None:
    """Delete what killed processes were writing in a folder that no other process works in."""
    for path in filter(is_partial, folder.glob(".*")):
        path.unlink(missing_ok=True)
