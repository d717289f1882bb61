"""Optional libraries: imported on use, and named with their extra where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from protofission.core.errors import InputError
from protofission.system.signals import deferred_signals


def import_optional(module: str, extra: str, user: str) -> Any:
    """Import a module of an extra.

    Args:
        user: what needs it, as a sentence begins with it.

    Raises:
        InputError: it is not installed; the sentence has the `pip install` for it.
    """
    try:
        with deferred_signals():  # an import that is interrupted may call itself a failed one
            return import_module(module)
    except ImportError:
        raise InputError(
            f'{user} needs {module.partition(".")[0]}: pip install "protofission[{extra}]".'
        ) from None
