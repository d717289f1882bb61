"""Types of progress callbacks."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with the number of files, images, steps or bytes done, and of all."""
StageProgress = Callable[[str, int, int], None]
"""Called with the name of the stage, and then as `Progress`."""
