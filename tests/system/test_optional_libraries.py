"""Libraries that are missing, or here and broken."""

from pathlib import Path

import pytest

from protofission.core.errors import InputError
from protofission.system.optional_libraries import import_optional


def test_a_library_that_is_missing_is_named_with_its_extra() -> None:
    with pytest.raises(InputError, match=r'needs no_such_zoo: pip install "protofission\[zoo\]"'):
        import_optional("no_such_zoo.models", "zoo", "An encoder")


@pytest.mark.parametrize("line", ["raise RuntimeError('no nms')", "import no_such_part"])
def test_a_library_that_is_broken_is_named_with_the_reason(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_zoo.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"cannot be imported \(.*(no nms|no_such_part)"):
        import_optional("broken_zoo", "zoo", "An encoder")
