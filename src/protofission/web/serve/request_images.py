"""The images in the body of a request: one as it is, or many in a form or in JSON.

Bodies are a stranger's: whatever they hold, the result is images or an `AnswerError`.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from python_multipart.exceptions import ParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from protofission.core.errors import InputError
from protofission.system.json_files import as_type, parse_json
from protofission.web.sentences import AnswerError

LONGEST_NAME = 1000
"""Most characters of an image's name."""
MOST_PART_HEADERS = 16
"""Most headers of a part of a form."""
MOST_HEADER_BYTES = 8192
"""Most bytes of a header of a part."""
RAW = "application/octet-stream"
PARSED = ("application/json", "multipart/form-data")
"""Types of bodies that hold several images, and take time to read."""
JSON_EXAMPLE = '{"images": [{"name": "a.jpg", "content": "base64 of the file"}]}'

# A stranger's broken form is told to the stranger, and fills no log.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)


class RequestImage(NamedTuple):
    """An image of a request, as it came."""

    name: str
    content: bytes
    error: str = ""
    """The reason why there is no content."""


def media_type(header: bytes) -> str:
    """The type in a `Content-Type` header, in small letters; without one, raw bytes."""
    found = header.decode("latin-1").partition(";")[0].strip().lower()
    return found or RAW


def check_media_type(kind: str) -> None:
    """Refuse a body of a type that holds no images, with 415."""
    if kind not in (RAW, *PARSED) and not kind.startswith("image/"):
        raise AnswerError(
            415,
            "This Content-Type holds no images: send image/jpeg or another image type, "
            "application/octet-stream, multipart/form-data or application/json.",
        )


def images_of(content: bytes, header: bytes, most: int, name: str = "image") -> list[RequestImage]:
    """The images of a body, in its order.

    Args:
        header: the `Content-Type`.
        most: number of images.
        name: of a single image.

    Raises:
        AnswerError: 400 for what cannot be read, 413 for too many images, 415 for another type.
    """
    kind = media_type(header)
    check_media_type(kind)
    if not content:
        raise AnswerError(400, "The body is empty: send an image.")
    if kind == "application/json":
        return _json_images(content, most)
    if kind == "multipart/form-data":
        return _form_images(content, header, most)
    return [RequestImage(_checked_name(name), content)]


def _json_images(content: bytes, most: int) -> list[RequestImage]:
    try:
        value = parse_json(content)
        entries = as_type(value, dict[str, Any], "the body").get("images")
        if set(cast(dict[str, Any], value)) != {"images"} or not isinstance(entries, list):
            raise InputError(f"it must be {JSON_EXAMPLE}.")
        _check_number(len(entries), most)
        return [_json_image(entry, number) for number, entry in enumerate(entries)]
    except InputError as error:
        raise AnswerError(400, f"The body cannot be used: {error}") from None


def _json_image(entry: Any, number: int) -> RequestImage:
    place, name = f"images[{number}]", f"image {number + 1}"
    if isinstance(entry, dict):
        fields = as_type(entry, dict[str, str], place)
        if not {"content"} <= set(fields) <= {"content", "name"}:
            raise InputError(f"{place} must have a content, may have a name, and nothing else.")
        entry, name = fields["content"], fields.get("name", name)
    text, name = as_type(entry, str, place), _checked_name(name)
    try:
        return RequestImage(name, base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return RequestImage(name, b"", "content that is no base64")


def _form_images(content: bytes, header: bytes, most: int) -> list[RequestImage]:
    boundary = parse_options_header(header)[1].get(b"boundary", b"")
    if not 1 <= len(boundary) <= 200:
        raise AnswerError(400, "The Content-Type of the form names no boundary.")
    form = _Form(most)
    try:
        parser = MultipartParser(boundary, cast(Any, form.callbacks()))
        parser.write(content)
        parser.finalize()
    except (ParseError, ValueError):
        raise AnswerError(400, "The body is no multipart form, or is cut short.") from None
    if not form.ended:
        raise AnswerError(400, "The body is no multipart form, or is cut short.")
    _check_number(len(form.images), most)
    return form.images


class _Form:
    """Collects the parts of a form; every part is an image."""

    def __init__(self, most: int) -> None:
        self.most, self.images, self.ended = most, list[RequestImage](), False
        self._name, self._value, self._headers = b"", b"", 0
        self._disposition, self._pieces = b"", list[bytes]()

    def callbacks(self) -> dict[str, Callable[..., None]]:
        return {
            "on_part_begin": self._begin,
            "on_header_begin": self._begin_header,
            "on_header_field": self._add_name,
            "on_header_value": self._add_value,
            "on_header_end": self._end_header,
            "on_part_data": lambda data, start, end: self._pieces.append(data[start:end]),
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        _check_number(len(self.images) + 1, self.most)
        self._headers, self._disposition, self._pieces = 0, b"", []

    def _begin_header(self) -> None:
        self._name, self._value = b"", b""
        self._headers += 1
        if self._headers > MOST_PART_HEADERS:
            raise AnswerError(400, "A part of the form has too many headers.")

    def _add_name(self, data: bytes, start: int, end: int) -> None:
        self._name = self._extended(self._name, data[start:end])

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value = self._extended(self._value, data[start:end])

    def _extended(self, held: bytes, more: bytes) -> bytes:
        if len(held) + len(more) > MOST_HEADER_BYTES:
            raise AnswerError(400, "A part of the form has a header that is too long.")
        return held + more

    def _end_header(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value

    def _end(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = options.get(b"filename") or options.get(b"name") or b"image"
        content = b"".join(self._pieces)
        self.images.append(RequestImage(_checked_name(name.decode("utf-8", "replace")), content))

    def _finish(self) -> None:
        self.ended = True


def _check_number(number: int, most: int) -> None:
    if not number:
        raise AnswerError(400, "The request has no image.")
    if number > most:
        raise AnswerError(
            413, f"The request has more than {most:,} images, the most that this server takes."
        )


def _checked_name(name: str) -> str:
    if len(name) > LONGEST_NAME:
        raise AnswerError(400, f"The name of an image has more than {LONGEST_NAME:,} characters.")
    return name
