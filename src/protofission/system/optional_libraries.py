"""Optional libraries: imported on use, and named with their extra where they are missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
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
        raise _missing(module, extra, user) from None


def check_optional(module: str, extra: str, user: str) -> None:
    """Refuse as `import_optional` does, without the import: for what is used much later."""
    if find_spec(module) is None:
        raise _missing(module, extra, user)


def _missing(module: str, extra: str, user: str) -> InputError:
    name = module.partition(".")[0]
    return InputError(f'{user} needs {name}: pip install "protofission[{extra}]".')
