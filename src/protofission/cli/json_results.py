"""Results of verbs as one JSON object on standard output, with --json."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from functools import wraps
from io import StringIO
from pathlib import PurePath
from typing import IO, Annotated, Any, ParamSpec

from cyclopts import Parameter

from protofission import __version__

Parameters = ParamSpec("Parameters")

Json = Annotated[
    bool,
    Parameter(
        name="--json",
        negative="",
        show_default=False,
        help="Print the result as one JSON object on standard output, and nothing else there.",
    ),
]


def gives_json(
    name: str, *, quiet: bool = False
) -> Callable[[Callable[Parameters, Mapping[str, Any] | None]], Callable[Parameters, None]]:
    """Make a verb print what it returns as JSON if it is called with `json=True`.

    What else it prints then goes to standard error. Of the processes on a machine, the first
    prints the result.

    Args:
        name: of the verb, in the object.
        quiet: drop what it prints, which is the result in words, instead.
    """

    def decorate(
        verb: Callable[Parameters, Mapping[str, Any] | None],
    ) -> Callable[Parameters, None]:
        @wraps(verb)
        def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
            if not kwargs.get("json"):
                verb(*args, **kwargs)
                return
            with _only_results(sys.stderr if not quiet else StringIO()):
                result = verb(*args, **kwargs)
            if os.environ.get("LOCAL_RANK", "0") == "0":
                print(result_text(name, result or {}))

        return run

    return decorate


def result_text(verb: str, result: Mapping[str, Any]) -> str:
    """The JSON object of a verb's result: verb, version and result."""
    content = {"verb": verb, "protofission": __version__, "result": plain_value(result)}
    return json.dumps(content, indent=1, allow_nan=False)


def plain_value(value: Any) -> Any:
    """A value of JSON: numbers that are not finite become null, paths become texts."""
    match value:
        case Mapping():
            return {str(key): plain_value(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain_value(inner) for inner in value]
        case float():
            return value if math.isfinite(value) else None
        case PurePath():
            return str(value)
        case _:
            return value


@contextmanager
def _only_results(instead: IO[str]) -> Iterator[None]:
    """Send what is printed in the block elsewhere, other processes' words to standard error."""
    with suppress(AttributeError, OSError, ValueError):  # it may be closed
        sys.stdout.flush()
    kept = None
    with suppress(OSError):
        kept = os.dup(1)
        os.dup2(2, 1)
    try:
        with redirect_stdout(instead):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)
