"""The folder that all lives run in, what is laid into it, and what is found in it afterwards.

It has the same path in every trial, and files keep their times, for both may be in what is written.
"""

import fnmatch
import hashlib
import json
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import protofission
from chaos.lives import LIFE, Ending, Life, Start, undisturbed

Snapshot = dict[str, str]
"""The digest of each file by its path."""
Saved = Callable[[Path], int]
"""How much work a folder has on the disk that the next life can go on from; 0 for none."""


class BrokenStageError(Exception):
    """What the campaign itself needs could not be made."""


@dataclass(frozen=True)
class Material:
    """Something that commands read, made once by a command of its own."""

    make: "Callable[[Stage], None]"
    """Called in a folder where `needs` are laid."""
    keeps: tuple[str, ...]
    """The paths that are the material."""
    needs: tuple[str, ...] = ()


class Stage:
    """A scratch folder with `work`, where lives run, and `materials`."""

    def __init__(self, root: Path, materials: dict[str, Material]) -> None:
        self.root, self.work = root, root / "work"
        self._made, self._materials = root / "materials", materials
        for name in ("materials", "home", "plots"):
            (root / name).mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """Of a life: nothing is written outside the scratch folder."""
        packages = [str(Path(protofission.__file__).parents[1]), str(LIFE.parents[1])]
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": os.pathsep.join(packages),
            "HOME": str(self.root / "home"),
            "XDG_CACHE_HOME": str(self.work / "cache"),
            "TMPDIR": str(self.work / "cache" / "tmp"),
            "MPLCONFIGDIR": str(self.root / "plots"),
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            "COLUMNS": "80",
            "LANG": "C.UTF-8",
        }

    def start(self, arguments: Sequence[str], *, alone: bool = False) -> Start:
        """A life of the command line; alone, in an interpreter of its own."""
        return Start(arguments, self.work, self.environment, program=LIFE if alone else None)

    def run(self, *arguments: str, alone: bool = False) -> Ending:
        """A life that must end well, for the campaign needs what it makes."""
        ending = undisturbed(self.start(arguments, alone=alone))
        if ending.code != 0:
            raise BrokenStageError(f"protofission {' '.join(arguments)}:\n{ending.err}")
        return ending

    def cut(self, *arguments: str, saved: Saved, at: int, alone: bool = False) -> None:
        """A life that is killed as soon as so much work is saved."""
        ending = Life(self.start(arguments, alone=alone)).watch(
            lambda: saved(self.work) >= at, lambda life: os.killpg(life.pid, 9)
        )
        if not ending.acted or ending.code != -9:
            raise BrokenStageError(f"protofission {' '.join(arguments)} ended before it was cut")

    def lay(self, names: Iterable[str]) -> set[str]:
        """An empty folder with these materials in it; the paths of their files."""
        for name in (names := tuple(names)):
            self._make(name)
        self.clear()
        for name in names:
            copy(self._made / name, self.work)
        return set(snapshot(self.work))

    def restore(self, name: str, path: str) -> bool:
        """Put a file of a material back as it was; whether the material has it."""
        source, place = self._made / name / path, self.work / path
        if not os.path.lexists(source):
            return False
        remove(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        copy(source, place)
        return True

    def clear(self) -> None:
        """An empty folder."""
        if self.work.is_dir():
            for path in self.work.iterdir():  # it may be a disk of its own
                remove(path)
        (self.work / "cache" / "tmp").mkdir(parents=True, exist_ok=True)

    def _make(self, name: str) -> None:
        place = self._made / name
        if place.exists():
            return
        material = self._materials[name]
        print(f"  making {name}", file=sys.stderr, flush=True)
        self.lay(material.needs)
        material.make(self)
        aside = self._made / f".{name}"
        remove(aside)
        for path in material.keeps:
            (aside / path).parent.mkdir(parents=True, exist_ok=True)
            copy(self.work / path, aside / path)
        aside.rename(place)


def copy(source: Path, place: Path) -> None:
    """A file or folder with its times."""
    if source.is_dir():
        shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy2(source, place, follow_symlinks=False)


def remove(path: Path) -> None:
    """Whatever is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def snapshot(folder: Path) -> Snapshot:
    """All files but locks and the cache, by their paths."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.startswith("cache") or path.name == ".lock" or path.is_dir():
            continue
        plain = path.is_file() and not path.is_symlink()
        files[name] = hashlib.sha256(path.read_bytes()).hexdigest() if plain else "no plain file"
    return files


def files_named(folder: Path, pattern: str) -> Iterator[Path]:
    """The files with such a name, in a folder that a life may be changing meanwhile."""
    for place, _, names in os.walk(folder):
        for name in fnmatch.filter(names, pattern):
            yield Path(place, name)


def steps(work: Path) -> int:
    """The steps of all saved states of runs."""
    return sum(_step(path) for path in files_named(work, "state.safetensors"))


def _step(path: Path) -> int:
    """The step of a saved state, as its file says it."""
    try:
        content = path.read_bytes()
        size = struct.unpack("<Q", content[:8])[0]
        begin, end = json.loads(content[8 : 8 + size])["step"]["data_offsets"]
        return int.from_bytes(content[8 + size + begin : 8 + size + end], "little")
    except (OSError, ValueError, KeyError, struct.error):
        return 0


def lines(pattern: str, head: int = 0) -> Saved:
    """The lines of a journal, without its head."""

    def count(work: Path) -> int:
        total = 0
        for path in files_named(work, pattern):
            try:
                total += max(0, path.read_bytes().count(b"\n") - head)
            except OSError:
                continue
        return total

    return count
