"""Compute each row of a batch so that its result does not depend on the other rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from protofission.core.threaded_products import without_rounding
from protofission.core.threads import one_thread
from protofission.triage.calibrated_model import JUDGED_AT_ONCE


@contextmanager
def row_by_row() -> Iterator[None]:
    """Compute so that no bit of a row's results depends on the rows beside it.

    Sums are exact, and all else is computed on one thread: the share of another would end at some
    other place, where a processor may round differently.
    """
    with one_thread(), without_rounding(), torch.no_grad():
        yield


def compute_rows(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Apply a function to many rows, JUDGED_AT_ONCE at a time."""
    with row_by_row():
        return torch.cat([function(some) for some in torch.split(rows, JUDGED_AT_ONCE)])
