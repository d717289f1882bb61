"""Find the external data of an .onnx file: the files that hold its tensors.

Only the few protobuf fields that lead to a tensor's location are read.
"""

from __future__ import annotations

from collections.abc import Iterator

MESSAGE_PARTS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {
        **{5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
        **{22: "sparse", 23: "sparse"},
    },
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
"""Messages of onnx.proto that can hold tensors: the kind of each part, by field number."""
DEEPEST_MESSAGE = 64
"""Levels of nested messages that are read."""


class MalformedError(Exception):
    """Bytes that are not an .onnx file."""


def data_files(content: bytes) -> list[str]:
    """The locations of all tensors outside the file, sorted."""
    try:
        return sorted(set(_locations(memoryview(content), "model", 0)))
    except (IndexError, UnicodeDecodeError):
        raise MalformedError from None


def _locations(message: memoryview, kind: str, depth: int) -> Iterator[str]:
    if depth > DEEPEST_MESSAGE:
        raise MalformedError
    for number, value in _fields(message):
        part = MESSAGE_PARTS[kind].get(number)
        if part == "entry":
            entry = {n: bytes(_message(v)).decode() for n, v in _fields(_message(value))}
            if entry.get(1) == "location":
                yield entry.get(2, "")
        elif part is not None:
            yield from _locations(_message(value), part, depth + 1)


def _message(value: memoryview | None) -> memoryview:
    if value is None:
        raise MalformedError
    return value


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | None]]:
    """The numbers and contents of a protobuf message's fields; None for a plain number."""
    place = 0
    while place < len(message):
        key, place = _number(message, place)
        match key & 7:
            case 0:
                _, place = _number(message, place)
                length = 0
            case 1:
                length = 8
            case 2:
                length, place = _number(message, place)
            case 5:
                length = 4
            case _:
                raise MalformedError
        if place + length > len(message):
            raise MalformedError
        yield key >> 3, message[place : place + length] if key & 7 == 2 else None
        place += length


def _number(message: memoryview, place: int) -> tuple[int, int]:
    """A varint (seven bits per byte), and the place after it."""
    value = shift = 0
    while shift < 64:
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    raise MalformedError
