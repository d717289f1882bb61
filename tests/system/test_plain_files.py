"""Pipes, sockets, devices and folders are no files, and nothing waits for them."""

import os
import re
import socket
from collections import Counter
from pathlib import Path

import pytest

from protofission.system.plain_files import APPENDED, open_plain, read_plain

LOCK = os.O_RDWR | os.O_CREAT | os.O_APPEND


def odd_things(folder: Path) -> dict[str, Path]:
    os.mkfifo(folder / "fifo")
    (folder / "inside").mkdir()
    (folder / "link").symlink_to(folder / "fifo")
    here = os.getcwd()
    os.chdir(folder)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
    os.chdir(here)
    return {
        "a pipe": folder / "fifo",
        "a pipe,": folder / "link",
        "a socket": folder / "socket",
        "a folder": folder / "inside",
        "a device": Path("/dev/zero"),
    }


def test_what_is_no_plain_file_is_named_and_not_waited_for(tmp_path: Path) -> None:
    for what, path in odd_things(tmp_path).items():
        for flags in (os.O_RDONLY, os.O_WRONLY, LOCK):
            with pytest.raises(OSError, match=f"it is {what}"):
                open_plain(path, flags)
        with pytest.raises(OSError, match="not a plain file"):
            read_plain(path)


def test_a_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_plain(path) == read_plain(path, 5) == b"12345"
    with pytest.raises(OSError, match="it has 5 bytes, and 4 are the most"):
        read_plain(path, 4)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_plain(str(link)) == b"12345"
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path / "missing")
    with pytest.raises(OSError, match="null"):
        read_plain("a\0b")


def test_a_lock_file_keeps_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with open_plain(path, LOCK) as file:
        file.write(b"a")
    with open_plain(path, LOCK) as file:
        file.write(b"b")
    assert path.read_bytes() == b"ab"


OPENED = (
    r"\.read_(bytes|text)\(|json\.loads?\(|\b(np|torch)\.load\("
    r"|(?<!Store)(?<!Material)(?<!Workbench)\.open\(|(?<![\w.])open\("
)
OURS = {
    "json_files.py": 1,  # the one reader
    **dict.fromkeys(("tensor_files.py", "bundle_files.py", "manifest.py"), 1),  # made just now
    "run.py": 3,  # made just now
    **{"whole_files.py": 1, "prediction_table.py": 1},  # with a name of ours
    **{
        "weight_files.py": 2,
        "run_folder.py": 1,
        "decode.py": 1,
        "idx.py": 1,
        "image_sizes.py": 1,
    },  # what was opened
    "fetch.py": 2,
    "memory_limits.py": 2,  # of the kernel
    "plain_files.py": 1,
    "actions.py": 1,  # compared with the text that is written
    **{
        "new_outputs.py": 1,
        "csv_table.py": 1,
        "class_list.py": 1,
        "class_folders.py": 1,
        "label_studio.py": 1,
    },  # new files of an export
    **{"hugging_face.py": 3, "coco.py": 2, "pictures.py": 1},  # these, and images that were read
    **{"remote_files.py": 1, "shards.py": 1},  # of an object store; compared with what is written
    "slurm_launcher.py": 4,  # the queue of a command of ours
    "background_refit.py": 1,  # lines of a process of ours
    "label.py": 1,  # a browser
    "bundle_zip.py": 1,  # an entry of a file that was opened
}
"""Places that open a file or read JSON by other means than ours, and why they may."""


def test_files_of_users_are_opened_in_one_place(project: Path) -> None:
    found = Counter(
        path.name
        for path in (project / "src").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(OPENED, line) and "def open(" not in line
    )
    assert found == OURS


def test_a_lock_is_not_made_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "lock"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="it is a link, not a plain file"):
        open_plain(link, APPENDED)
    assert not (tmp_path / "elsewhere").exists()
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(OSError, match="it is a link"):
        open_plain(link)
