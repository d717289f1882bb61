"""Processes that work for a first one: they leave Ctrl-C to it, and end when it does."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing import parent_process

import torch


def begin_worker(threads: int) -> None:
    """What every worker does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process is told, and ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
