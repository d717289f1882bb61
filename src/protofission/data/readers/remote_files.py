"""Files of object stores, such as s3://BUCKET/KEY, through fsspec."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, BinaryIO, cast

from protofission.core.errors import InputError, printable
from protofission.data.readers.image_formats import RefusedError
from protofission.system.optional_libraries import import_optional

PROTOCOLS = {"s3": "buckets", "gs": "buckets", "hf": "hub"}
"""Protocols, and the extras that install what they need."""
_ADDRESS = re.compile(rf"({'|'.join(PROTOCOLS)}):/{{1,2}}(?=[^/])")


def remote_url(path: Path | str) -> str | None:
    """The address of a path in an object store, such as s3://BUCKET/KEY; None for other paths.

    A Path has lost one of the two slashes, which is put back.
    """
    text = str(path)
    found = _ADDRESS.match(text)
    return f"{found[1]}://{text[found.end() :]}" if found else None


def file_system(url: str) -> Any:
    """The file system of an address."""
    protocol = url.partition(":")[0]
    fsspec = import_optional("fsspec", PROTOCOLS[protocol], printable(url))
    try:
        return fsspec.filesystem(protocol)
    except ImportError:
        raise InputError(
            f'{printable(url)} needs a package: pip install "protofission[{PROTOCOLS[protocol]}]".'
        ) from None


def open_remote(url: str) -> BinaryIO:
    """Open a file of an object store for reading.

    Raises:
        OSError: it cannot be opened.
    """
    try:
        return cast(BinaryIO, file_system(url).open(url, "rb"))
    except InputError:
        raise
    except Exception as error:  # libraries of object stores have errors of their own
        raise OSError(0, _reason(error), url) from None


def read_remote(url: str, byte_limit: int) -> bytes:
    """Read a file of an object store, at most one byte beyond the limit.

    Raises:
        RefusedError: it cannot be read.
    """
    try:
        return cast(bytes, file_system(url).cat_file(url, start=0, end=byte_limit + 1))
    except InputError:
        raise
    except Exception as error:  # as above
        raise RefusedError(f"a file that cannot be opened ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    line = (str(error).strip().splitlines() or [""])[0]
    return printable(f"{type(error).__name__}: {line}"[:200])
