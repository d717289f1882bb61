"""Place of a model: a folder, a .zip file, or the hub."""

from __future__ import annotations

from pathlib import Path

from protofission.core.errors import InputError, printable
from protofission.data.readers.remote_files import remote_url
from protofission.system.paths import path_of


def find_model(source: Path | str) -> Path:
    """The path of a model on this machine; one of the hub is downloaded if it was not before.

    Args:
        source: a folder, a .zip file, or hf://OWNER/NAME or hf://OWNER/NAME@REVISION.

    Raises:
        InputError: the address is none of the hub's, or its model cannot be had.
    """
    url = remote_url(source)
    if url is None:
        return path_of(source)
    if not url.startswith("hf://"):
        raise InputError(
            f"{printable(url)} is no place for a model: give a folder, a .zip file or "
            "hf://OWNER/NAME."
        )
    from protofission.triage.hub import download_model

    return download_model(url)
