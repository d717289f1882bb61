"""Worker processes: they leave Ctrl-C to their parent, and end when it does.

Each loads its libraries itself, for some seconds. A process that waits for work may load them
ahead (`load_ahead`): then workers are copies of one that has them, and begin at once.

A signal that comes while workers are started or ended is deferred until that is done: of a pool in
between nobody knows which processes there are.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import current_process, get_all_start_methods, get_context, parent_process
from multiprocessing.context import BaseContext
from typing import Any

import torch

from protofission.core.errors import InputError, require
from protofission.system.signals import deferred_signals

LOOK_EVERY = 0.5
"""Seconds between two checks that the parent is alive."""
_ahead = False


def load_ahead(modules: Sequence[str]) -> None:
    """Load modules in a process of which later workers are copies; it returns at once.

    That process computes nothing, so that no thread or lock is copied. It ends with this one.
    """
    global _ahead
    if "forkserver" in get_all_start_methods():
        from multiprocessing.forkserver import ensure_running

        get_context("forkserver").set_forkserver_preload(list(modules))
        with process_start_errors("and give the same command again"):
            ensure_running()
        _ahead = True


def is_loaded_ahead() -> bool:
    """Whether workers of this process begin at once."""
    return _ahead


def worker_context() -> BaseContext:
    """The way in which workers of this process begin."""
    return get_context("forkserver" if _ahead else "spawn")


def check_processes(processes: int) -> None:
    """Refuse a number of processes that is out of range.

    A worker that imports a script without `if __name__ == "__main__":` comes here too: it exits,
    and does not start workers of its own.
    """
    require(1 <= processes <= 1024, f"processes = {processes} must be between 1 and 1024.")
    if getattr(current_process(), "_inheriting", False):
        raise SystemExit(1)


@contextmanager
def worker_pool(
    processes: int, initializer: Callable[..., None], initargs: tuple[Any, ...], remedy: str
) -> Iterator[Callable[..., Future[Any]]]:
    """Give a function that submits work to new processes, each begun by `initializer(*initargs)`.

    At the end all of them are terminated, and nobody waits for what is still under way.

    Args:
        remedy: what a user may do where no process can be started.
    """
    with process_start_errors(remedy):
        pool = ProcessPoolExecutor(processes, worker_context(), initializer, initargs)

    def submit(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        with process_start_errors(remedy), deferred_signals():
            return pool.submit(function, *arguments)

    try:
        yield submit
    finally:
        with deferred_signals():
            for worker in list((pool._processes or {}).values()):
                worker.terminate()
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def process_start_errors(remedy: str) -> Iterator[None]:
    """Turn an OSError on making locks or processes into an InputError that names memory."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"Other processes cannot be started ({error.strerror or error}): make room in memory "
            f"and in /dev/shm, where their locks are, {remedy}."
        ) from None


def initialize_worker(threads: int) -> None:
    """Set a worker's number of threads, leave Ctrl-C to its parent, and end when that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
    set_threads(threads)


def set_threads(threads: int) -> None:
    """Set the number of threads of this process, once and for all."""
    torch.set_num_threads(threads)


def exit_with(parent: int) -> None:
    """Exit soon after the parent process has ended; at once if it has already.

    Otherwise this process would wait for ever for work, or for others to meet it.

    Args:
        parent: a process id.
    """

    def watch() -> None:
        while os.getppid() == parent:  # an orphan is given another parent
            time.sleep(LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
