"""Libraries that only some things need: imported on use, and named with their extra if missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from protofission.core.errors import InputError


def needed(module: str, extra: str, what: str) -> Any:
    """A module of an extra; `what` needs it."""
    try:
        return import_module(module)
    except ImportError:
        raise InputError(
            f'{what} needs {module.partition(".")[0]}: pip install "protofission[{extra}]".'
        ) from None
