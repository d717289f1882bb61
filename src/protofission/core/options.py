"""Frozen dataclasses as options: list their dotted keys, and override one by `key=value`.

An override makes a copy. An unknown key is refused with the known ones.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import math
import textwrap
import types
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from protofission.core.errors import (
    InputError,
    UnknownKeyError,
    field_types,
    require,
    unknown,
    unknown_message,
)

Value = TypeVar("Value")

FIXED, NAMED = "fixed", "named"
"""Keys of a field's metadata. FIXED: it cannot be overridden; True, or the reason as a string.
NAMED: a function from a name to the field's value."""
LARGEST_FLOAT32 = 2.0**128 * (1 - 2.0**-24)
"""The largest float32, in which weights and losses are computed."""


def override(value: Value, assignment: str) -> Value:
    """A copy with one option changed by `key=value`, where a key is a dotted path.

    A key that a method with fission does not have is looked for in its base, so that
    `method.entropy_weight=2` means the same for `orca` and `orca+pf`.

    Examples:
        >>> from protofission import override, preset
        >>> override(preset("digits", "orca+pf"), "recipe.epochs=5").recipe.epochs
        5

    Raises:
        InputError: there is no such option, or the value is none for it.
    """
    key, separator, text = assignment.partition("=")
    require(
        bool(separator and key),
        f"{assignment!r} is not of the form key=value: for instance recipe.epochs=20.",
    )
    key = key.strip()
    try:
        changed: Value = _replace(value, key.split("."), text.strip(), key)
    except _NoSuchKeyError as miss:
        guesses = [known.replace("base.", "") for known in options(value)]
        raise UnknownKeyError(unknown_message("key", key, miss.siblings, guesses)) from None
    return changed


def override_all(value: Value, assignments: Iterable[str]) -> Value:
    """A copy with options changed one after another by `key=value`."""
    for assignment in assignments:
        value = override(value, assignment)
    return value


@dataclass(frozen=True)
class Option:
    """A value that can be overridden, with the docstring of its field."""

    value: Any
    meaning: str


def options(value: Any, prefix: str = "") -> dict[str, Option]:
    """All options of an experiment, or of another dataclass, by dotted key."""
    found: dict[str, Option] = {}
    kind: type = type(value)
    meanings = _field_docs(kind)
    for item in dataclasses.fields(value):
        inner = getattr(value, item.name)
        if dataclasses.is_dataclass(inner):
            found |= options(inner, f"{prefix}{item.name}.")
        else:
            found[prefix + item.name] = Option(inner, meanings.get(item.name, ""))
    return found


@functools.cache
def _field_docs(kind: type) -> dict[str, str]:
    """The docstrings of a dataclass's fields, inherited ones included."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError):
            continue  # no source: defined in a notebook, for instance
        for field_, doc in itertools.pairwise(getattr(body, "body", [])):
            match field_, doc:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[name] = " ".join(text.split())
    return docs


class _NoSuchKeyError(Exception):
    """A key path that does not exist, with the keys that exist where it ends."""

    def __init__(self, siblings: list[str]) -> None:
        super().__init__()
        self.siblings = siblings


def _replace(value: Any, path: list[str], text: str, key: str) -> Any:
    """A copy with the option at `path` set; `key` is the whole path, for messages."""
    name, *rest = path
    items = {item.name: item for item in dataclasses.fields(value)}
    if name not in items and "base" in items:
        return dataclasses.replace(value, base=_replace(value.base, path, text, key))
    if name not in items:
        prefix = key.removesuffix(".".join(path))
        raise _NoSuchKeyError([prefix + known for known in items])
    fixed = items[name].metadata.get(FIXED, not items[name].init)
    why = fixed if isinstance(fixed, str) else "it comes with what it is the name of"
    require(not fixed, f"{key} cannot be set: {why}.")
    inner = getattr(value, name)
    if not rest and NAMED in items[name].metadata:
        return dataclasses.replace(value, **{name: items[name].metadata[NAMED](text)})
    if dataclasses.is_dataclass(inner):
        require(
            bool(rest),
            f"{key!r} is a group of options: name one of them, such as "
            f"{key}.{dataclasses.fields(inner)[0].name}.",
        )
        return dataclasses.replace(value, **{name: _replace(inner, rest, text, key)})
    require(not rest, f"{key!r} goes too deep: {name!r} has no options of its own.")
    wanted = field_types(type(value))[name]
    return dataclasses.replace(value, **{name: parse_value(text, wanted, key)})


def parse_value(text: str, wanted: Any, key: str) -> Any:
    """Parse a text as a value of the wanted type; `key` is its name in messages."""
    origin, choices = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return _parse_union(text, choices, key)
    if origin is Literal:
        if text not in choices:
            raise unknown(f"value of {key}:", text, choices)
        return text
    if origin is tuple:
        return tuple(parse_value(part.strip(), choices[0], key) for part in text.split(","))
    if wanted is bool:
        if text.lower() not in ("true", "false"):
            raise InputError(f"{key} = {text!r} must be true or false.")
        return text.lower() == "true"
    if wanted in (int, float):
        kind = "a whole number" if wanted is int else "a finite number"
        try:
            number = wanted(text)
        except ValueError:
            raise InputError(f"{key} = {text!r} must be {kind}.") from None
        require(
            isinstance(number, int) or math.isfinite(number), f"{key} = {text!r} must be {kind}."
        )
        require(
            isinstance(number, int) or abs(number) <= LARGEST_FLOAT32,
            f"{key} = {text!r} must be from {-LARGEST_FLOAT32:g} to {LARGEST_FLOAT32:g}, "
            "as float32 has it.",
        )
        require(
            isinstance(number, float) or abs(number) < 2**63, f"{key} = {text[:20]} is too large."
        )
        return number
    return text


def _parse_union(text: str, kinds: tuple[Any, ...], key: str) -> Any:
    """A text as the first of these types that takes it: of int | float, 1 is whole, 0.5 is not."""
    if text.lower() == "none" and types.NoneType in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not types.NoneType)
    for kind in others:
        with suppress(InputError):
            return parse_value(text, kind, key)
    return parse_value(text, last, key)


def as_text(value: Any) -> str:
    """A value as the text from which `parse_value` gets it back."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
