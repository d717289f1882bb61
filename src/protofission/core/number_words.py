"""Write shares and counts as text."""

from __future__ import annotations


def percent(share: float, digits: int = 1) -> str:
    """Write a share as a percentage: 0.125 is "12.5 %"."""
    return f"{round(100 * share, digits):.10g} %"


def images(number: int, kind: str = "") -> str:
    """Write a number of images: 1200 new ones are "1,200 new images"."""
    return f"{number:,}{' ' * bool(kind)}{kind} image{'s' * (number != 1)}"
