"""Errors for bad input: one sentence that names the value and the remedy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin, get_type_hints


class InputError(ValueError):
    """A value that the caller can correct; the command line prints it and exits with code 2.

    Examples:
        >>> from protofission import FissionHead, InputError
        >>> try:
        ...     FissionHead(num_features=128, num_classes=0)
        ... except InputError as error:
        ...     print(error)
        num_classes = 0 must be at least 1.
    """


class UnknownKeyError(InputError):
    """An option key that this value does not have, though another kind of value may."""


def require(condition: bool, sentence: str) -> None:
    """Raise `InputError(sentence)` unless the condition holds."""
    if not condition:
        raise InputError(sentence)


def check_positive(**values: float) -> None:
    """Refuse any value that is not above 0."""
    for name, value in values.items():
        require(value > 0, f"{name} = {value} must be above 0.")


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not one of `known`; it suggests the closest one."""
    return InputError(unknown_message(kind, name, known, known))


def unknown_message(kind: str, name: str, known: Iterable[str], guesses: Iterable[str]) -> str:
    """The message for an unknown name: suggest the closest of `guesses`, list all of `known`."""
    names, near = sorted(known), get_close_matches(name, sorted(guesses), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"Unknown {kind} {quoted(name)}.{hint} Known: {', '.join(names)}."


def printable(text: str) -> str:
    """Text for one line of any terminal: characters that cannot be printed are escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def quoted(text: str, most: int = 60) -> str:
    """Text of a user in quotes, for one line: escaped once, and cut where it is long."""
    shown = printable(text)
    return f"'{shown}'" if len(shown) <= most else f"'{shown[:most]}...'"


_FIELD_TYPES: dict[type, dict[str, Any]] = {}


def field_types(kind: type) -> dict[str, Any]:
    """The types of a class's fields by name, cached: resolving them is the slow part of a check."""
    if kind not in _FIELD_TYPES:
        _FIELD_TYPES[kind] = get_type_hints(kind)
    return _FIELD_TYPES[kind]


def check_choices(value: Any) -> None:
    """Refuse a dataclass if a field of a Literal type has a value that the type does not list."""
    for field in dataclasses.fields(value):
        wanted = field_types(type(value))[field.name]
        if get_origin(wanted) is Literal:
            choices, chosen = get_args(wanted), getattr(value, field.name)
            if chosen not in choices:
                raise unknown(field.name, str(chosen), choices)
