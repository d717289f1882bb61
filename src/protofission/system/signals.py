"""Signals that stop a command, put off while it must not be disturbed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM to the end of the block; processes started in it ignore Ctrl-C.

    Signals go to the main thread: in another one nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: received.append(number)) or signal.SIG_DFL
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    set_mask = getattr(signal, "pthread_sigmask", None)  # Windows lacks it
    mask = set_mask and set_mask(signal.SIG_BLOCK, [signal.SIGINT])  # a new process inherits it
    try:
        yield
    finally:
        if set_mask:
            set_mask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[-1])
