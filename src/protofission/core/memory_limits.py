"""Free memory, and the check that a model fits into it before it is built."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from protofission.core.errors import require

LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
"""Files in which Linux keeps the memory limit of a container, if there is one."""


class Extent(NamedTuple):
    """Counts of numbers (weights, activations) in a part of a model."""

    weights: int
    row: int
    """Activations of its largest layer, per row of a batch."""
    out: int
    """Outputs per row of a batch."""


def require_memory(needed: int, what: str) -> None:
    """Refuse `what` if it takes more bytes than are free."""
    free = free_memory()
    require(
        needed <= free,
        f"{what} would take about {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are "
        "free: lower one of these numbers.",
    )


def free_memory() -> int:
    """Bytes that this process can still take, by the machine and by its container."""
    found = [_spare()]
    for limit in map(Path, LIMITS):
        with suppress(OSError, ValueError):  # none, or "max"
            found.append(int(limit.read_text()))
    return min(found)


def _spare() -> int:
    """Bytes that the machine has free; all of its memory where only that is known."""
    with suppress(OSError):
        told = Path("/proc/meminfo").read_text()
        found = re.findall(r"^(?:MemAvailable|SwapFree): +(\d+) kB$", told, re.MULTILINE)
        if found:
            return 1024 * sum(map(int, found))
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
