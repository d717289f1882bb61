"""One strict reader for JSON: bounded, finite, typed, and each key once."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from protofission.core.errors import InputError
from protofission.system.json_files import DEEPEST_JSON, as_type, fill_fields, parse_json, read_json


@dataclass(frozen=True)
class Inner:
    share: float
    count: int


@dataclass(frozen=True)
class Outer:
    name: str | None
    pairs: tuple[tuple[str, float], ...]
    inner: dict[str, Inner]


GOOD = b'{"name": null, "pairs": [["a", 1], ["b", 0.5]], "inner": {"x": {"share": 1, "count": 2}}}'


def test_a_file_is_read_as_what_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(GOOD)
    found = read_json(path, Outer)
    assert found == Outer(None, (("a", 1.0), ("b", 0.5)), {"x": Inner(1.0, 2)})
    with pytest.raises(OSError, match="bytes, and 80 are the most"):
        read_json(path, Outer, most=80)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none", Outer)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"null", b"3", "name must be a text, not 3"),
        (b"null", b"NaN", "it is no JSON: NaN is no number"),
        (b"null", b'"x", "name": "y"', "it is no JSON: a key stands twice"),
        (b"0.5", b"1e400", "it is no JSON: 1e400 is no number"),
        (b"0.5", b'"x"', r"pairs\[1\]\[1\] must be a finite number, not 'x'"),
        (b"0.5", b"1" * 5000, "it is no JSON"),
        (b"0.5", b"1" * 400, r"pairs\[1\]\[1\] must be a finite number"),
        (b'"b", 0.5', b'"b"', r"pairs\[1\] must be a list of 2, not \['b'\]"),
        (b"2}", b"true}", "inner.x.count must be a whole number, not True"),
        (b', "count": 2', b"", "inner.x.count is missing"),
        (b"2}", b'2, "more": 1}', "inner.x.more is not known"),
        (b"null", b"[" * 100_000, "it is no JSON: it is nested too deep"),
        (
            b"null",
            b"[" * DEEPEST_JSON + b"]" * DEEPEST_JSON,
            "it is no JSON: it is nested too deep",
        ),
        (b"{", b"", "it is no JSON"),
        (b"null", b"\xff", "it is no JSON"),
    ],
)
def test_what_does_not_fit_is_named(old: bytes, new: bytes, words: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError, match=f"^{words}") as caught:
        as_type(parse_json(GOOD.replace(old, new, 1)), Outer, "")
    assert len(str(caught.value)) < 200


def test_null_is_nan_only_where_it_is_said_to_be() -> None:
    value: dict[str, Any] = {"share": None, "count": 2}
    assert math.isnan(as_type(value, Inner, "", nan=True).share)
    with pytest.raises(InputError, match="share must be a finite number, not None"):
        as_type(value, Inner, "")
    with pytest.raises(InputError, match="count must be a whole number, not None"):
        as_type({"share": 1.0, "count": None}, Inner, "", nan=True)


@dataclass(frozen=True)
class Kind:
    name: str = field(default="kind", init=False)
    length: int | float = 0.0
    inner: Inner = Inner(0.5, 3)


def test_an_example_is_filled_with_what_an_object_has() -> None:
    example = Kind(length=2)
    assert fill_fields(example, {}, "") == example
    assert fill_fields(example, {"name": "kind", "inner": {"count": 4}}, "") == Kind(
        2, Inner(0.5, 4)
    )
    for length in (1, 1.0, 0.5):  # whole or not, as it was written
        assert repr(fill_fields(example, {"length": length}, "").length) == repr(length)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], r"it must be an object, not \[\]"),
        ({"more": 1}, "more is not known"),
        ({"inner": {"more": 1}}, "inner.more is not known"),
        ({"inner": None}, "inner must be an object, not None"),
        ({"inner": {"count": 0.5}}, "inner.count must be a whole number, not 0.5"),
        ({"length": "1"}, "length must be a finite number, not '1'"),
        ({"length": None}, "length must be a finite number, not None"),
        ({"length": True}, "length must be a finite number, not True"),
        ({"name": "other"}, "name must be 'kind', not 'other'"),
    ],
)
def test_what_does_not_fit_an_example_is_named(value: Any, words: str) -> None:
    with pytest.raises(InputError, match=f"^{words}"):
        fill_fields(Kind(), value, "")
