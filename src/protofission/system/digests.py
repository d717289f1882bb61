"""Digests of bytes and arrays."""

from __future__ import annotations

import hashlib
from typing import Any

from numpy.typing import NDArray


def digest(content: bytes | NDArray[Any]) -> str:
    """BLAKE2b of bytes, or of an array's bytes in C order: 128 bits as 32 hexadecimal digits."""
    if not isinstance(content, bytes):
        content = content.tobytes()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def sha256_hex(content: bytes) -> str:
    """SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()
