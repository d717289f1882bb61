"""A browser for all tests of the workbench's pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from served_workbenches import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started
