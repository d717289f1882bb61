"""What may happen to a file: flipped bits, cut or lengthened, gone, or no file any more."""

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

from chaos.stage import remove

Damage = Callable[[Path, random.Random], str]
"""Does it to a file, and says what it did."""


def flip_bit(path: Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    if not content:
        return lengthen(path, rng)
    place, bit = rng.randrange(len(content)), rng.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {place} of {len(content)} flipped"


def overwrite(path: Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    if not content:
        return lengthen(path, rng)
    place, size = rng.randrange(len(content)), rng.choice((1, 2, 16, 512))
    content[place : place + size] = rng.randbytes(len(content[place : place + size]))
    path.write_bytes(content)
    return f"{size} bytes from byte {place} overwritten"


def cut(path: Path, rng: random.Random) -> str:
    content = path.read_bytes()
    size = rng.randrange(len(content)) if content else 0
    path.write_bytes(content[:size])
    return f"cut to {size} of {len(content)} bytes"


def lengthen(path: Path, rng: random.Random) -> str:
    more = rng.choice((b"\0", b"\n", b" ", b"}", rng.randbytes(rng.randint(1, 5000))))
    with path.open("ab") as file:
        file.write(more)
    return f"{len(more)} bytes longer"


def empty(path: Path, rng: random.Random) -> str:
    path.write_bytes(b"")
    return "emptied"


def delete(path: Path, rng: random.Random) -> str:
    path.unlink()
    return "deleted"


def random_bytes(path: Path, rng: random.Random) -> str:
    size = rng.choice((1, 7, 100, 10_000))
    path.write_bytes(rng.randbytes(size))
    return f"replaced by {size} random bytes"


def folder(path: Path, rng: random.Random) -> str:
    remove(path)
    path.mkdir()
    if rng.random() < 0.5:
        (path / "x").write_text("x")
    return "replaced by a folder"


def fifo(path: Path, rng: random.Random) -> str:
    remove(path)
    os.mkfifo(path)
    return "replaced by a FIFO"


def unix_socket(path: Path, rng: random.Random) -> str:
    remove(path)
    here = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as made:  # by a short path: a socket's name has 107 bytes
        made.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)
    return "replaced by a socket"


def link_loop(path: Path, rng: random.Random) -> str:
    remove(path)
    path.symlink_to(path.name)
    return "replaced by a link to itself"


def dangling(path: Path, rng: random.Random) -> str:
    remove(path)
    path.symlink_to("nowhere")
    return "replaced by a link to nothing"


def endless(path: Path, rng: random.Random) -> str:
    remove(path)
    path.symlink_to("/dev/zero")
    return "replaced by a link to /dev/zero"


def forbid(path: Path, rng: random.Random) -> str:
    path.chmod(0)
    return "made unreadable"


CONTENT: list[Damage] = [flip_bit, flip_bit, flip_bit, overwrite, cut, lengthen, empty, delete]
CONTENT += [random_bytes]
SORT: list[Damage] = [folder, fifo, unix_socket, link_loop, dangling, endless]
if os.geteuid():
    SORT.append(forbid)
