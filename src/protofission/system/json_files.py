"""Read JSON of untrusted files as values of given types; a refusal names the place.

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
LONGEST_VALUE = 60
"""Most characters of a value in a refusal."""
LONGEST_REASON = 200
"""Most characters of what is wrong with a JSON text."""
DEEPEST_JSON = 32
"""Most levels of lists and objects inside each other."""
MOST_JSON_BYTES = 2**26
"""Most bytes of a JSON file, by default."""


def read_json(path: Path | str, wanted: type[Value], *, most: int = MOST_JSON_BYTES) -> Value:
    """Read a JSON file as a value of a type.

    Raises:
        OSError: it cannot be read, is no plain file, or is larger than `most` bytes.
        InputError: it is no JSON, or does not fit; the caller says of what.
    """
    return as_type(parse_json(read_plain(path, most)), wanted, "")


def parse_json(content: bytes | str) -> Any:
    """Parse JSON without NaN, infinities, keys that stand twice and deep nesting.

    Raises:
        InputError: "it is no JSON: ...", for the caller to say of what.
    """
    try:
        value = json.loads(
            content,
            parse_constant=_refuse_constant,
            parse_float=_parse_finite,
            object_pairs_hook=_refuse_repeated_keys,
        )
        _check_depth(value)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"it is no JSON: {_cut(printable(why), LONGEST_REASON)}.") from None
    return value


def as_type(value: Any, wanted: type[Value], place: str, *, nan: bool = False) -> Value:
    """Check that a JSON value fits a type, and return it as a value of that type.

    Types are scalars, Literals, T | None, int | float, tuple[T, ...], tuples of fixed length,
    dict[str, T] and dataclasses. A dataclass is read from an object that has all of its fields and
    no others.

    Args:
        place: name of the value in a refusal.
        nan: read null as NaN where a number is wanted, as `to_json` writes it.
    """
    return cast(Value, _as_type(value, wanted, place, nan))


def _as_type(value: Any, wanted: Any, place: str, nan: bool) -> Any:
    origin, parts = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and types.NoneType in parts:
            return None
        kinds = [part for part in parts if part is not types.NoneType]
        own = next((kind for kind in kinds if type(value) is kind), kinds[-1])
        return _as_type(value, own, place, nan)
    if origin is Literal:
        _check_fit(
            isinstance(value, str) and value in parts, f"one of {', '.join(parts)}", value, place
        )
        return value
    if origin is tuple:
        _check_fit(isinstance(value, list), "a list", value, place)
        if parts[-1] is Ellipsis:
            parts = parts[:1] * len(value)
        _check_fit(len(value) == len(parts), f"a list of {len(parts)}", value, place)
        return tuple(_as_type(v, parts[i], f"{place}[{i}]", nan) for i, v in enumerate(value))
    if origin is dict or dataclasses.is_dataclass(wanted):
        _check_fit(isinstance(value, dict), "an object", value, place)
        if origin is dict:
            return {k: _as_type(v, parts[1], _join_place(place, k), nan) for k, v in value.items()}
        return _read_fields(value, wanted, place, nan)
    return _scalar(value, wanted, place, nan)


def _read_fields(value: dict[str, Any], wanted: Any, place: str, nan: bool) -> Any:
    kinds = field_types(wanted)
    names = [field.name for field in dataclasses.fields(wanted)]
    for name in names:
        require(name in value, f"{_join_place(place, name)} is missing.")
    for name in value:
        require(name in names, f"{_join_place(place, name)} is not known.")
    return wanted(**{n: _as_type(value[n], kinds[n], _join_place(place, n), nan) for n in names})


def fill_fields(example: Value, value: Any, place: str) -> Value:
    """Copy a dataclass value with the fields that a JSON object has; the others stay.

    Fields that hold dataclasses are filled in the same way, from objects. A field that cannot be
    set, as one that names its class, must be the example's.

    Raises:
        InputError: a field that the example does not have, or a value that is not of its type.
    """
    _check_fit(isinstance(value, dict), "an object", value, place)
    kind: Any = type(example)
    known = {field.name: field for field in dataclasses.fields(kind)}
    changes = {}
    for name, inner in value.items():
        where = _join_place(place, name)
        require(name in known, f"{where} is not known.")
        own = getattr(example, name)
        if dataclasses.is_dataclass(own):
            changes[name] = fill_fields(own, inner, where)
        elif known[name].init:
            changes[name] = _as_type(inner, field_types(kind)[name], where, nan=False)
        else:
            _check_fit(inner == own, repr(own), inner, where)
    return cast(Value, dataclasses.replace(cast(Any, example), **changes))


def _scalar(value: Any, wanted: Any, place: str, nan: bool) -> Any:
    if nan and wanted is float and value is None:
        return math.nan
    number = wanted is float and type(value) is int and abs(value) < 2**53
    _check_fit(type(value) is wanted or number, WORDS[wanted], value, place)
    if wanted is int:
        _check_fit(abs(value) < 2**63, "a whole number of 64 bits", value, place)
    if wanted is float:
        value = float(value)
        _check_fit(math.isfinite(value), WORDS[wanted], value, place)
    return value


def _check_fit(condition: bool, wanted: str, value: Any, place: str) -> None:
    if not condition:  # the repr of a long list takes time
        shown = _cut(printable(repr(value)))
        raise InputError(f"{place or 'it'} must be {wanted}, not {shown}.")


def _cut(shown: str, most: int = LONGEST_VALUE) -> str:
    return shown if len(shown) <= most else f"{shown[:most]}..."


def _join_place(place: str, name: str) -> str:
    shown = _cut(printable(name))
    return f"{place}.{shown}" if place else shown


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _parse_finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        _refuse_constant(text)
    return number


def _check_depth(value: Any) -> None:
    """Refuse values that are nested too deep for a recursion."""
    level, depth = [value], 0
    while level := [v for v in level if isinstance(v, dict | list)]:
        depth += 1
        if depth > DEEPEST_JSON:
            raise RecursionError
        level = [i for v in level for i in (v.values() if isinstance(v, dict) else v)]


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def to_json(value: Any) -> str:
    """Write strict JSON, which every reader takes: NaN becomes null."""
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
