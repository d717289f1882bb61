"""Bad input: one sentence that names the value and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """A value that the caller can mend; the command line prints it and exits with 2."""


class UnknownKeyError(InputError):
    """An option that a value does not have; another value may."""


def require(condition: bool, sentence: str) -> None:
    """Raise `InputError(sentence)` unless the condition holds."""
    if not condition:
        raise InputError(sentence)


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not one of `known`, with the nearest known one."""
    return InputError(not_known(kind, name, known, known))


def not_known(kind: str, name: str, known: Iterable[str], guesses: Iterable[str]) -> str:
    """The sentence for an unknown name: the nearest of `guesses`, and all of `known`."""
    names, near = sorted(known), get_close_matches(name, sorted(guesses), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"Unknown {kind} {name!r}.{hint} Known: {', '.join(names)}."
