"""What a store holds and what it was made of: the plan, the manifest that says so, the journal."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from protofission.errors import InputError
from protofission.records import ViewName

VERSION = 1
FEATURE_BYTES = 2
PATHS = "paths.json"
JOURNAL = "blocks.jsonl"
MEND = "give the command that made the store again, and only what is lost is made anew"

Features = NDArray[np.float16]
Counts = dict[ViewName, int]
"""Versions of each view."""


class Block(NamedTuple):
    """Some consecutive images of a part: what is computed, written and verified at once."""

    part: str
    start: int
    stop: int


@dataclass(frozen=True)
class Part:
    """The images of a data set that are for training, or for judging."""

    rows: int
    views: Counts


@dataclass(frozen=True)
class Plan:
    """What a store holds, and what it was made of."""

    data: dict[str, Any]
    """The name of the data set, the shape of an image, and a fingerprint."""
    encoder: dict[str, Any]
    """As `Encoder.describe` has it."""
    augmentation: dict[str, Any]
    """What made the views, the seed, and a fingerprint."""
    item: tuple[int, ...]
    """The shape of what stands for one view of one image."""
    parts: dict[str, Part]
    """train, and test where there are official test images."""
    block: int
    """Images of a block."""
    class_names: tuple[str, ...]
    coarse_names: tuple[str, ...] = ()

    def blocks(self) -> Iterator[Block]:
        """All of them, in order."""
        for name, part in self.parts.items():
            for start in range(0, part.rows, self.block):
                yield Block(name, start, min(start + self.block, part.rows))

    def number_of_blocks(self) -> int:
        """How many there are."""
        return sum(-(-part.rows // self.block) for part in self.parts.values())

    def has(self, block: Block) -> bool:
        """Whether a block is one of them."""
        rows = self.parts[block.part].rows if block.part in self.parts else 0
        starts = 0 <= block.start < rows and block.start % self.block == 0
        return starts and block.stop == min(block.start + self.block, rows)

    def shape(self, part: str, view: ViewName) -> tuple[int, ...]:
        """Of the array of a view."""
        return (self.parts[part].rows, self.parts[part].views[view], *self.item)

    @property
    def identity(self) -> str:
        """What two plans have in common that do not differ."""
        parts = {name: [part.rows, part.views] for name, part in self.parts.items()}
        return fingerprint(self.fingerprints, self.item, parts, self.block)

    @property
    def fingerprints(self) -> dict[str, str]:
        """Of the data, the encoder and the augmentation: a run is on one set of them."""
        made_of = {"data": self.data, "encoder": self.encoder, "augmentation": self.augmentation}
        return {name: str(value["fingerprint"]) for name, value in made_of.items()}

    def differences(self, other: Plan) -> list[str]:
        """In what two plans differ, in words; what images and encoder are called is no matter."""
        here, there = self.fingerprints, other.fingerprints
        words = {"data": "other images or labels", "encoder": "another encoder"}
        found = [words.get(name, "other views") for name in here if here[name] != there[name]]
        if not found and (self.item, self.parts, self.block) != (
            other.item,
            other.parts,
            other.block,
        ):
            found.append("other views")
        return found


def file_of(part: str, view: str) -> str:
    """The file of a view."""
    return f"{part}-{view}.npy"


def label_file(name: str) -> str:
    """The file of the labels of a part, or of its coarse ones."""
    return f"labels/{name}.npy"


def fingerprint(*parts: Any) -> str:
    """One digest of plain values and of digests."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def npy_header(kind: str, shape: tuple[int, ...]) -> bytes:
    """The beginning of an .npy file."""
    content = BytesIO()
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(content, header)
    return content.getvalue()


def size_of(shape: tuple[int, ...]) -> int:
    """The bytes of an array of features."""
    return FEATURE_BYTES * math.prod(shape)


Manifest = tuple[Plan, dict[str, list[str]] | None]
"""A plan, and the digests once it is carried out."""


class DamagedManifestError(InputError):
    """A manifest that is not as it was written."""


def read_plain(path: Path) -> bytes:
    """The content of a file; a pipe, which would be waited for, is an OSError as a folder is."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is no file")
    return path.read_bytes()


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, if it has one."""
    path = folder / "manifest.json"
    try:
        return parsed_manifest(json.loads(read_plain(path)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DamagedManifestError(f"{path} was edited or damaged: {MEND}.") from None


def parsed_manifest(content: dict[str, Any]) -> Manifest:
    """A manifest from its plain values; whatever is not as we write it is a ValueError."""
    seal = content.pop("seal")
    if seal != fingerprint(content):
        raise ValueError("seal")
    version = content["version"]
    if version != VERSION:
        raise InputError(
            f"The store is of version {version}, and this protofission reads {VERSION}: "
            "update it, or make the store again."
        )
    parts = {
        name: Part(_whole(part["rows"]), {v: _whole(n) for v, n in part["views"].items()})
        for name, part in content["parts"].items()
    }
    if not {"train"} <= set(parts) <= {"train", "test"}:
        raise ValueError("parts")
    if any(
        set(part.views) - set(get_args(ViewName)) or "plain" not in part.views
        for part in parts.values()
    ):
        raise ValueError("views")
    plan = Plan(
        data=dict(content["data"]),
        encoder=dict(content["encoder"]),
        augmentation=dict(content["augmentation"]),
        item=tuple(_whole(side) for side in content["item"]),
        parts=parts,
        block=max(1, _whole(content["block"])),
        class_names=tuple(str(name) for name in content["class_names"]),
        coarse_names=tuple(str(name) for name in content["coarse_names"]),
    )
    plan.fingerprints  # noqa: B018  (a KeyError where one is not there)
    found = content["digests"]
    if found is None:
        return plan, None
    digests = {str(name): [str(value) for value in values] for name, values in found.items()}
    for name, part in parts.items():
        for view in part.views:
            if len(digests[file_of(name, view)]) != -(-part.rows // plan.block):
                raise ValueError("digests")
    return plan, digests


def as_manifest(plan: Plan, digests: dict[str, list[str]] | None) -> str:
    """A manifest as text, sealed by a fingerprint of the rest of it."""
    content = {"version": VERSION, **asdict(plan), "digests": digests}
    content = json.loads(json.dumps(content))  # as it will be read
    return json.dumps({**content, "seal": fingerprint(content)}, indent=1)


class Entry(NamedTuple):
    """A line of the journal."""

    plan: str
    """Its identity."""
    block: Block
    digests: dict[ViewName, str]
    """Of each view."""

    def line(self) -> bytes:
        """As it is written."""
        content = {"plan": self.plan, **self.block._asdict(), "digests": self.digests}
        return json.dumps(content).encode() + b"\n"


def read_journal(folder: Path) -> list[Entry]:
    """The blocks that were written, as far as the journal can be read."""
    try:
        lines = read_plain(folder / JOURNAL).splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:  # the last line may be cut short
            entry = json.loads(line)
            block = Block(str(entry["part"]), int(entry["start"]), int(entry["stop"]))
            digests = {view: str(value) for view, value in entry["digests"].items()}
            found.append(Entry(str(entry["plan"]), block, digests))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return found


def finished_blocks(folder: Path, plan: Plan) -> dict[Block, dict[ViewName, str]]:
    """The blocks of a plan that were written, with the digest of each view."""
    return {
        entry.block: entry.digests
        for entry in read_journal(folder)
        if entry.plan == plan.identity
        and plan.has(entry.block)
        and entry.digests.keys() == plan.parts[entry.block.part].views.keys()
    }


def _whole(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**48:
        raise ValueError(f"{value!r} is no size")
    return value
