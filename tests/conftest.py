"""What all tests share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the repository."""
    return Path(__file__).parent.parent
