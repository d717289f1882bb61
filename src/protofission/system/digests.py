"""Digests of bytes and arrays."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from protofission.system.plain_files import open_plain


def digest(content: bytes | NDArray[Any]) -> str:
    """BLAKE2b of bytes, or of an array's bytes in C order: 128 bits as 32 hexadecimal digits."""
    if not isinstance(content, bytes):
        content = content.tobytes()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def file_digest(path: Path) -> str:
    """The `digest` of a plain file, which is read in parts.

    Raises:
        OSError: as `open_plain`.
    """
    with open_plain(path) as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()


def sha256_hex(content: bytes) -> str:
    """SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()
