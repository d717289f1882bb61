"""The processors that this process may use."""

from __future__ import annotations

import os


def processors() -> int:
    """Count the processors that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1
