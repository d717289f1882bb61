"""Signals that come where they would be misunderstood are put off, not lost."""

import signal
import sys
from pathlib import Path

import pytest

from protofission.core.errors import InputError
from protofission.system.optional_libraries import import_optional

INTERRUPTED = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass
except KeyboardInterrupt:
    raise ImportError("initialization failed") from None
"""


def test_a_stop_while_a_library_is_imported_is_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    (tmp_path / "stopped_while_imported.py").write_text(INTERRUPTED)
    with pytest.raises(KeyboardInterrupt):
        import_optional("stopped_while_imported", "extra", "A test")
    assert "stopped_while_imported" in sys.modules


def test_a_library_that_is_missing_is_named_with_its_extra() -> None:
    with pytest.raises(InputError, match=r'A test needs no_such: pip install "protofission\[x\]"'):
        import_optional("no_such.module", "x", "A test")
