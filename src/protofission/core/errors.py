"""Bad input: one sentence that names the value and the remedy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin, get_type_hints


class InputError(ValueError):
    """A value that the caller can mend; the command line prints it and exits with 2."""


class UnknownKeyError(InputError):
    """An option that a value does not have; another value may."""


def require(condition: bool, sentence: str) -> None:
    """Raise `InputError(sentence)` unless the condition holds."""
    if not condition:
        raise InputError(sentence)


def check_positive(**values: float) -> None:
    """Refuse a value that is not above 0."""
    for name, value in values.items():
        require(value > 0, f"{name} = {value} must be above 0.")


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not one of `known`, with the nearest known one."""
    return InputError(not_known(kind, name, known, known))


def not_known(kind: str, name: str, known: Iterable[str], guesses: Iterable[str]) -> str:
    """The sentence for an unknown name: the nearest of `guesses`, and all of `known`."""
    names, near = sorted(known), get_close_matches(name, sorted(guesses), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"Unknown {kind} {name!r}.{hint} Known: {', '.join(names)}."


def printable(text: str) -> str:
    """Text that any terminal can show on one line: other characters are escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


_HINTS: dict[type, dict[str, Any]] = {}


def hints(kind: type) -> dict[str, Any]:
    """The types of a class's fields, read once: that takes longer than all else a check does."""
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]


def check_choices(value: Any) -> None:
    """Refuse a dataclass in which a field of a Literal type has none of its values."""
    for field in dataclasses.fields(value):
        wanted = hints(type(value))[field.name]
        if get_origin(wanted) is Literal:
            choices, chosen = get_args(wanted), getattr(value, field.name)
            if chosen not in choices:
                raise unknown(field.name, str(chosen), choices)
