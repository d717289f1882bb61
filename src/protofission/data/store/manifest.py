"""What a store holds and what it was made of: the plan, the manifest that says so, the journal."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from protofission.core.errors import InputError, printable, require
from protofission.core.records import ViewName
from protofission.system.json_files import parsed_json, read_json, typed
from protofission.system.plain_files import read_plain

VERSION = 1
FEATURE_BYTES = 2
PATHS = "paths.json"
JOURNAL = "blocks.jsonl"
MEND = "give the command that made the store again, and only what is lost is made anew"

MOST_BYTES = 2**30
"""Of a manifest, or of a journal."""
MOST = 2**60
"""Bytes of a view."""

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

    def check(self) -> None:
        """Refuse what no store of ours holds."""
        _check_shape(self.item, "item")
        names = set(self.parts)
        require({"train"} <= names <= {"train", "test"}, "parts are train and test.")
        for name, part in self.parts.items():
            require("plain" in part.views, f"parts.{name}.views.plain is missing.")
            require(part.rows >= 0, f"parts.{name}.rows = {part.rows} is below 0.")
            for view, versions in part.views.items():
                size = size_of((max(part.rows, 1), versions, *self.item))
                require(
                    view in get_args(ViewName) and versions >= 1 and size < MOST,
                    f"parts.{name}.views.{printable(view)} = {versions} is no view of a store.",
                )
        require(self.block >= 1, f"block = {self.block} is below 1.")
        for about in ("data", "encoder", "augmentation"):
            typed(getattr(self, about).get("fingerprint"), str, f"{about}.fingerprint")
        typed(self.data.get("name"), str, "data.name")
        shape = typed(self.data.get("shape"), tuple[int, ...], "data.shape")
        _check_shape(shape, "data.shape")

    def files(self) -> dict[str, int]:
        """The files that a finished store has at least, and of how many blocks each is."""
        found = {}
        for name, part in self.parts.items():
            found[label_file(name)] = 1
            for view in part.views:
                found[file_of(name, view)] = -(-part.rows // self.block)
        return found

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


def _check_shape(sides: tuple[int, ...], place: str) -> None:
    """Refuse what is neither the shape of features nor that of an image or of maps."""
    require(
        len(sides) in (1, 3) and all(1 <= side < 2**31 for side in sides),
        f"{place} = {printable(str(list(sides)))[:60]} is no shape.",
    )


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
    """The beginning of an .npy file; it has room for any count, so that it can be rewritten."""
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


class OtherVersionError(InputError):
    """A manifest of another version of protofission."""


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, if it has one."""
    path = folder / "manifest.json"
    try:
        return parsed_manifest(read_json(path, dict[str, Any], most=MOST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OtherVersionError:
        raise
    except OSError as error:
        why = f" ({error.strerror or error})"
    except InputError as error:
        why = f" ({str(error).removesuffix('.')})"
    raise DamagedManifestError(f"{path} was edited or damaged{why}: {MEND}.")


def parsed_manifest(content: dict[str, Any]) -> Manifest:
    """A manifest from JSON; whatever is not as we write it is an InputError."""
    seal = content.pop("seal", None)
    require(seal == fingerprint(content), "its seal does not fit.")
    version, digests = content.pop("version", None), content.pop("digests", None)
    if version != VERSION:
        raise OtherVersionError(
            f"The store is of version {printable(str(version))[:20]}, and this protofission reads "
            f"{VERSION}: update it, or make the store again."
        )
    plan = typed(content, Plan, "")
    plan.check()
    if digests is None:
        return plan, None
    found = typed(digests, dict[str, tuple[str, ...]], "digests")
    for name, blocks in plan.files().items():
        require(len(found.get(name, ())) == blocks, f"digests.{name} must be {blocks} digests.")
    for name, values in found.items():
        sound = all(re.fullmatch("[0-9a-f]{32}", value) for value in values)
        require(sound, f"digests.{printable(name)} holds other things.")
    return plan, {name: list(values) for name, values in found.items()}


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


@dataclass(frozen=True)
class _Line:
    """An entry in JSON."""

    plan: str
    part: str
    start: int
    stop: int
    digests: dict[str, str]


def read_journal(folder: Path) -> list[Entry]:
    """The blocks that were written, as far as the journal can be read."""
    try:
        lines = read_plain(folder / JOURNAL, MOST_BYTES).splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:  # the last line may be cut short
            entry = typed(parsed_json(line), _Line, "")
        except InputError:
            continue
        block = Block(entry.part, entry.start, entry.stop)
        found.append(Entry(entry.plan, block, cast(dict[ViewName, str], entry.digests)))
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
