"""Cut lines of text to one screen, with a last line that says how many are left out."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

SCREEN_COLUMNS = 80
SCREEN_LINES = 22
"""Lines of a small terminal, less one for the command and one for the next."""
MOST_LETTERS = 30
"""Letters of a name."""


def wrap_line(text: str, columns: int) -> str:
    """Wrap a line to some columns, indented after the first."""
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.fill(
        text, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def fit_screen(head: Sequence[str], parts: Sequence[str], more: str) -> list[str]:
    """Keep the head and as many parts as one screen holds, the first ones.

    Args:
        more: the last line if parts are left out, with {} for their number.
    """
    left = SCREEN_LINES - sum(map(_height, head))
    if sum(map(_height, parts)) <= left:
        return [*head, *parts]
    kept: list[str] = []
    for part in parts:
        left -= _height(part)
        if left < _height(more):
            break
        kept.append(part)
    return [*head, *kept, more.format(f"{len(parts) - len(kept):,}")]


def shorten(name: str) -> str:
    """Cut a long name."""
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"


def _height(text: str) -> int:
    lines = wrap_line(text, SCREEN_COLUMNS).split("\n")
    return sum(-(-len(line) // SCREEN_COLUMNS) or 1 for line in lines)
