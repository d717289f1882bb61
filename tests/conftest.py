"""What all tests share."""

from pathlib import Path

import pytest
from hypothesis import settings

# Busy machines are slow, and a test that fails must fail for everyone.
settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the repository."""
    return Path(__file__).parent.parent
