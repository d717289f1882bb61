"""JSON of untrusted files as values of stated types; what does not fit is named by its place.

All JSON files of users, and those of ours that a user can edit, are read here.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from protofission.core.errors import InputError, field_types, printable, require
from protofission.system.plain_files import read_plain

Value = TypeVar("Value")

WORDS = {str: "a text", int: "a whole number", float: "a finite number", bool: "true or false"}
LONGEST = 60
"""Characters of a value that a refusal shows."""
DEEPEST = 32
"""Lists and objects inside each other."""
MOST_BYTES = 2**26
"""Of a JSON file, where nothing else is said."""


def read_json(path: Path | str, wanted: type[Value], *, most: int = MOST_BYTES) -> Value:
    """Read a JSON file as a value of a type.

    Raises:
        OSError: it cannot be read, is no plain file, or is larger than `most` bytes.
        InputError: it is no JSON, or does not fit; the caller says of what.
    """
    return typed(parsed_json(read_plain(path, most)), wanted, "")


def parsed_json(content: bytes | str) -> Any:
    """Parse JSON without NaN, infinities, keys that stand twice and deep nesting.

    Raises:
        InputError: "it is no JSON: ...", for the caller to say of what.
    """
    try:
        value = json.loads(
            content, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_once
        )
        _check_depth(value)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"it is no JSON: {printable(why)[:LONGEST]}.") from None
    return value


def typed(value: Any, wanted: type[Value], place: str, *, nan: bool = False) -> Value:
    """Check that a JSON value is one of a type, and give it as that.

    Types are scalars, Literals, T | None, int | float, tuple[T, ...], tuples of stated length,
    dict[str, T] and dataclasses. A dataclass is read from an object that has all of its fields and
    no others.

    Args:
        place: what the value is called in a refusal.
        nan: read null as NaN where a number is wanted, as `to_json` writes it.
    """
    return cast(Value, _typed(value, wanted, place, nan))


def _typed(value: Any, wanted: Any, place: str, nan: bool) -> Any:
    origin, parts = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and types.NoneType in parts:
            return None
        kinds = [part for part in parts if part is not types.NoneType]
        own = next((kind for kind in kinds if type(value) is kind), kinds[-1])
        return _typed(value, own, place, nan)
    if origin is Literal:
        _fits(isinstance(value, str) and value in parts, f"one of {', '.join(parts)}", value, place)
        return value
    if origin is tuple:
        _fits(isinstance(value, list), "a list", value, place)
        if parts[-1] is Ellipsis:
            parts = parts[:1] * len(value)
        _fits(len(value) == len(parts), f"a list of {len(parts)}", value, place)
        return tuple(_typed(v, parts[i], f"{place}[{i}]", nan) for i, v in enumerate(value))
    if origin is dict or dataclasses.is_dataclass(wanted):
        _fits(isinstance(value, dict), "an object", value, place)
        if origin is dict:
            return {k: _typed(v, parts[1], _inside(place, k), nan) for k, v in value.items()}
        return _filled(value, wanted, place, nan)
    return _scalar(value, wanted, place, nan)


def _filled(value: dict[str, Any], wanted: Any, place: str, nan: bool) -> Any:
    kinds = field_types(wanted)
    names = [field.name for field in dataclasses.fields(wanted)]
    for name in names:
        require(name in value, f"{_inside(place, name)} is missing.")
    for name in value:
        require(name in names, f"{_inside(place, name)} is not known.")
    return wanted(**{n: _typed(value[n], kinds[n], _inside(place, n), nan) for n in names})


def fill(example: Value, value: Any, place: str) -> Value:
    """Copy a dataclass value with the fields that a JSON object has; the others stay.

    Fields that hold dataclasses are filled in the same way, from objects. A field that cannot be
    set, as one that names its class, must be the example's.

    Raises:
        InputError: a field that the example does not have, or a value that is not of its type.
    """
    _fits(isinstance(value, dict), "an object", value, place)
    kind: Any = type(example)
    known = {field.name: field for field in dataclasses.fields(kind)}
    changes = {}
    for name, inner in value.items():
        where = _inside(place, name)
        require(name in known, f"{where} is not known.")
        own = getattr(example, name)
        if dataclasses.is_dataclass(own):
            changes[name] = fill(own, inner, where)
        elif known[name].init:
            changes[name] = _typed(inner, field_types(kind)[name], where, nan=False)
        else:
            _fits(inner == own, repr(own), inner, where)
    return cast(Value, dataclasses.replace(cast(Any, example), **changes))


def _scalar(value: Any, wanted: Any, place: str, nan: bool) -> Any:
    if nan and wanted is float and value is None:
        return math.nan
    number = wanted is float and type(value) is int and abs(value) < 2**53
    _fits(type(value) is wanted or number, WORDS[wanted], value, place)
    if wanted is int:
        _fits(abs(value) < 2**63, "a whole number of 64 bits", value, place)
    if wanted is float:
        value = float(value)
        _fits(math.isfinite(value), WORDS[wanted], value, place)
    return value


def _fits(condition: bool, wanted: str, value: Any, place: str) -> None:
    if not condition:  # what is shown of a long list is made only then
        shown = printable(repr(value))[:LONGEST]
        raise InputError(f"{place or 'it'} must be {wanted}, not {shown}.")


def _inside(place: str, name: str) -> str:
    shown = printable(name)[:LONGEST]
    return f"{place}.{shown}" if place else shown


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        _no_number(text)
    return number


def _check_depth(value: Any) -> None:
    """Refuse nesting over which a recursion would stumble."""
    level, depth = [value], 0
    while level := [v for v in level if isinstance(v, dict | list)]:
        depth += 1
        if depth > DEEPEST:
            raise RecursionError
        level = [i for v in level for i in (v.values() if isinstance(v, dict) else v)]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def to_json(value: Any) -> str:
    """JSON that every reader takes: a number that is not there is null, never NaN."""
    return json.dumps(_without_nan(value), indent=1, allow_nan=False)


def _without_nan(value: Any) -> Any:
    match value:
        case dict():
            return {key: _without_nan(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_without_nan(inner) for inner in value]
        case float() if math.isnan(value):
            return None
        case _:
            return value
