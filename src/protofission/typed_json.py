"""JSON of untrusted files as values of stated types; what does not fit is named by its place."""

from __future__ import annotations

import dataclasses
import json
import math
import types
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from protofission.errors import InputError, hints, printable, require

Value = TypeVar("Value")

WORDS = {str: "a text", int: "a whole number", float: "a finite number", bool: "true or false"}
LONGEST = 60
"""Characters of a value that a refusal shows."""


def parsed_json(content: bytes) -> Any:
    """What JSON says, without NaN, infinities, and keys that stand twice."""
    try:
        return json.loads(content, parse_constant=_no_number, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"it is no JSON: {printable(why)[:LONGEST]}.") from None


def typed(value: Any, wanted: type[Value], place: str) -> Value:
    """A JSON value as one of a type: a scalar, Literal, tuple[T, ...], dict[str, T] or dataclass.

    A dataclass is read from an object that has all of its fields and no others.
    """
    return cast(Value, _typed(value, wanted, place))


def _typed(value: Any, wanted: Any, place: str) -> Any:
    origin, parts = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return value
    if origin in (Union, types.UnionType):
        some = next(part for part in parts if part is not types.NoneType)
        return None if value is None else _typed(value, some, place)
    if origin is Literal:
        _fits(isinstance(value, str) and value in parts, f"one of {', '.join(parts)}", value, place)
        return value
    if origin is tuple:
        _fits(isinstance(value, list), "a list", value, place)
        return tuple(_typed(part, parts[0], f"{place}[{i}]") for i, part in enumerate(value))
    if origin is dict or dataclasses.is_dataclass(wanted):
        _fits(isinstance(value, dict), "an object", value, place)
        if origin is dict:
            return {key: _typed(part, parts[1], _inside(place, key)) for key, part in value.items()}
        return _filled(value, wanted, place)
    return _scalar(value, wanted, place)


def _filled(value: dict[str, Any], wanted: Any, place: str) -> Any:
    kinds = hints(wanted)
    names = [field.name for field in dataclasses.fields(wanted)]
    for name in names:
        require(name in value, f"{_inside(place, name)} is missing.")
    for name in value:
        require(name in names, f"{_inside(place, name)} is not known.")
    return wanted(**{n: _typed(value[n], kinds[n], _inside(place, n)) for n in names})


def _scalar(value: Any, wanted: Any, place: str) -> Any:
    number = wanted is float and type(value) is int and abs(value) < 2**53
    _fits(type(value) is wanted or number, WORDS[wanted], value, place)
    if wanted is float:
        value = float(value)
        _fits(math.isfinite(value), WORDS[wanted], value, place)
    return value


def _fits(condition: bool, wanted: str, value: Any, place: str) -> None:
    require(condition, f"{place or 'it'} must be {wanted}, not {printable(repr(value))[:LONGEST]}.")


def _inside(place: str, name: str) -> str:
    shown = printable(name)[:LONGEST]
    return f"{place}.{shown}" if place else shown


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found
