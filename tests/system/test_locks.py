"""One lock between processes: whoever comes second is refused or waits, and never holds a ghost."""

import os
import re
import shutil
import threading
from pathlib import Path

import pytest

from protofission.core.errors import InputError
from protofission.system.locks import LOCK_FILE, folder_lock, open_locked
from protofission.system.partial_files import is_partial, partial_path
from protofission.system.whole_files import whole_file


def test_who_comes_second_is_refused_and_then_let_in(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with open_locked(path), pytest.raises(BlockingIOError):
        open_locked(path)
    open_locked(path).close()


def test_who_waits_gets_the_lock_on_the_file_that_has_the_name_now(tmp_path: Path) -> None:
    """The first holder deletes its file, folder and all, while another waits for it."""
    path = tmp_path / "work" / "lock"
    first, got = open_locked(path), threading.Event()

    def wait() -> None:
        with open_locked(path, wait=True) as file:
            assert os.path.samestat(os.fstat(file.fileno()), path.stat())
            with pytest.raises(BlockingIOError):
                open_locked(path)
            got.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not got.wait(0.2)
    shutil.rmtree(path.parent)
    first.close()
    waiting.join(60)
    assert got.is_set()


def test_a_file_that_is_not_there_is_not_made_unasked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_locked(tmp_path / "none", os.O_RDWR)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_for_one_process_and_freed_of_what_killed_ones_left(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    left = partial_path(folder / "model.bin")
    left.write_bytes(b"half")
    (folder / ".mine").write_bytes(b"")
    with folder_lock(folder):
        assert {path.name for path in folder.iterdir()} == {LOCK_FILE, ".mine"}
        words = re.escape(f"Another process is at work in {folder}: wait for it")
        with pytest.raises(InputError, match=words), folder_lock(folder):
            pass
    with folder_lock(folder):
        pass


def test_an_error_inside_is_not_taken_for_one_of_the_lock(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError, match="inside"), folder_lock(tmp_path):
        raise BlockingIOError("inside")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="cannot be written"), folder_lock(tmp_path / "file" / "x"):
        pass


def test_a_file_that_is_being_written_is_kept_and_one_that_was_goes(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    killed = partial_path(path)
    killed.write_bytes(b"half")
    other = partial_path(tmp_path / "b.json")
    other.write_bytes(b"half")
    with whole_file(path) as slow:
        assert not killed.exists()
        slow.write_bytes(b"slow")
        with whole_file(path) as fast:
            fast.write_bytes(b"fast")
        assert (path.read_bytes(), slow.read_bytes()) == (b"fast", b"slow")
    assert path.read_bytes() == b"slow"
    assert [found for found in tmp_path.iterdir() if is_partial(found)] == [other]


def test_locks_are_taken_in_one_module(project: Path) -> None:
    users = [p.name for p in (project / "src").rglob("*.py") if "fcntl" in p.read_text()]
    assert users == ["posix.py"]
