"""Callbacks by which long work says how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with how many files, images, steps or bytes are done, and how many there are."""
StageProgress = Callable[[str, int, int], None]
"""Called with the name of what is under way, and then as `Progress`."""
