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
        InputError: it is not installed, or does not fit others; the sentence has the
            `pip install` for it.
    """
    try:
        with deferred_signals():  # an import that is interrupted may call itself a failed one
            return import_module(module)
    except Exception as error:  # torchvision of another torch raises RuntimeError
        name = module.partition(".")[0]
        if isinstance(error, ImportError) and find_spec(name) is None:
            raise _missing(module, extra, user) from None
        raise InputError(
            f"{user} needs {name}, which is here and cannot be imported "
            f"({type(error).__name__}: {error}): install versions and builds that belong together "
            f'(torchvision and torch from one index), or pip install "protofission[{extra}]".'
        ) from None


def check_optional(module: str, extra: str, user: str) -> None:
    """Refuse as `import_optional` does, without the import: for what is used much later."""
    if find_spec(module) is None:
        raise _missing(module, extra, user)


def _missing(module: str, extra: str, user: str) -> InputError:
    name = module.partition(".")[0]
    return InputError(f'{user} needs {name}: pip install "protofission[{extra}]".')
