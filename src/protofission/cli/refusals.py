"""Refusals in one sentence on standard error, with exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from protofission.core.errors import InputError


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse an empty argument: as a path it would be the current folder."""
    for number, text in enumerate(arguments, 1):
        name, separator, value = text.partition("=")
        if not text or (name.startswith("-") and separator and not value):
            what = f"{name} is" if text else f"Argument {number} is"
            raise InputError(f"{what} empty: give a value; the current folder is '.'.")


def escape_unprintable() -> None:
    """Print characters that a terminal's encoding lacks, or bytes that are no text, as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # it may be closed, or another's
            stream.reconfigure(errors="backslashreplace")


def lacks_memory(error: Exception) -> bool:
    """Whether Python, an accelerator or torch's allocator on a CPU has no memory left."""
    accelerators = type(error).__name__ == "OutOfMemoryError"  # torch's, which may not be imported
    return isinstance(error, MemoryError) or accelerators or "DefaultCPUAllocator" in str(error)


LONGEST_REFUSAL = 2_000
"""Most characters of a refusal; a longer one loses its middle, not its remedy."""


def refuse(sentence: str) -> None:
    """Print what is wrong on standard error, and leave with exit code 2."""
    half = LONGEST_REFUSAL // 2
    print_error(
        sentence
        if len(sentence) <= LONGEST_REFUSAL
        else f"{sentence[:half]} ... {sentence[-half:]}"
    )
    sys.exit(2)


def print_error(sentence: str) -> None:
    """Print a sentence on standard error; of the processes on a machine, the first does."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"protofission: {sentence}", file=sys.stderr)
