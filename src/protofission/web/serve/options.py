"""The limits of a prediction server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from protofission.core.errors import InputError, printable, require
from protofission.data.readers.decode import Decoding
from protofission.system.plain_files import read_plain

MEGA = 10**6
SHORTEST_TOKEN = 16
"""Fewest characters of a token; shorter ones can be guessed."""


@dataclass(frozen=True)
class ServeOptions:
    """Bounds of requests, of what waits, and of what is computed at once."""

    body_bytes: int = 32 * MEGA
    """Most bytes of a request's body."""
    images: int = 64
    """Most images of a request."""
    pixels: int = 50 * MEGA
    """Most pixels of an image, before it is resized."""
    queue: int = 256
    """Most images that wait; a request for more is refused with 429."""
    held_bytes: int = 256 * MEGA
    """Most bytes of all bodies that are being answered."""
    seconds: float = 30.0
    """Most seconds of a request, and most in which its body arrives."""
    batch: int | None = None
    """Most images that are encoded together; by default 16, or more if the encoder takes
    more at once."""
    threads: int | None = None
    """Threads that decode and encode; by default one a processor."""

    def __post_init__(self) -> None:
        for name, most in (("images", 10_000), ("queue", 100_000), ("body_bytes", 10**9)):
            value = getattr(self, name)
            require(1 <= value <= most, f"{name} = {value}: give 1 to {most:,}.")
        largest = Decoding.pixel_limit
        require(1 <= self.pixels <= largest, f"pixels = {self.pixels}: give 1 to {largest:,}.")
        require(0 < self.seconds <= 3600, f"seconds = {self.seconds:g}: give up to 3600.")
        require(
            self.images <= self.queue,
            f"A request may have {self.images} images and {self.queue} may wait: allow as many to "
            "wait.",
        )
        for name in ("batch", "threads"):
            value = getattr(self, name)
            require(value is None or 1 <= value <= 1024, f"{name} = {value}: give 1 to 1024.")
        require(self.held_bytes >= self.body_bytes, "held_bytes must be at least body_bytes.")


def read_token(file: Path | None, variable: str | None) -> str | None:
    """The token that requests need: from a file, else from the value of a variable, else none.

    Raises:
        InputError: there is one, and it cannot be used.
    """
    if file is not None:
        shown = printable(str(file))
        try:
            text = read_plain(file, 4096).decode("ascii").strip()
        except OSError as error:
            raise InputError(f"The token file {shown} cannot be read: {error.strerror}.") from None
        except UnicodeError:
            text = ""
        where = f"The token in {shown}"
    elif variable is None:
        return None
    else:
        text, where = variable.strip(), "The token in the environment"
    require(
        len(text) >= SHORTEST_TOKEN and text.isascii() and text.isprintable() and " " not in text,
        f"{where} is not {SHORTEST_TOKEN} or more printable ASCII characters on one line: make one "
        "by openssl rand -hex 32.",
    )
    return text
