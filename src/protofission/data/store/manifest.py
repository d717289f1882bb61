"""The plan of a store, and the manifest: the file that says what a store holds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from protofission.core.errors import InputError, printable, require
from protofission.core.records import ViewName
from protofission.system.digests import sha256_hex
from protofission.system.json_files import as_type, read_json

STORE_VERSION = 1
FEATURE_BYTES = 2
PATHS = "paths.json"
REPAIR = "give the command that made the store again, and only what is lost is computed again"

MOST_STORE_MANIFEST_BYTES = 2**30
"""The size limit of a manifest."""
MOST_VIEW_BYTES = 2**60
"""The size limit of the features of a view."""

Features = NDArray[np.float16]
VersionCounts = dict[ViewName, int]
"""The number of versions of each view."""


class Block(NamedTuple):
    """Consecutive images of a part, which are computed, written and verified together."""

    part: str
    start: int
    stop: int


@dataclass(frozen=True)
class Part:
    """The training images of a data set, or its test images."""

    rows: int
    views: VersionCounts


@dataclass(frozen=True)
class StorePlan:
    """The contents of a store, and the data, encoder and augmentation it is made of."""

    data: dict[str, Any]
    """The name of the data set, the shape of an image, and the fingerprint of all images."""
    encoder: dict[str, Any]
    """The result of `Encoder.describe`."""
    augmentation: dict[str, Any]
    """The name and options of the views, the seed, and a fingerprint."""
    item: tuple[int, ...]
    """The shape of the features of one view of one image."""
    parts: dict[str, Part]
    """"train", and "test" if there are official test images."""
    block: int
    """The number of images of a block."""
    class_names: tuple[str, ...]
    coarse_names: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse a plan that this program would not write."""
        _check_shape(self.item, "item")
        names = set(self.parts)
        require({"train"} <= names <= {"train", "test"}, "parts are train and test.")
        for name, part in self.parts.items():
            require("plain" in part.views, f"parts.{name}.views.plain is missing.")
            require(part.rows >= 0, f"parts.{name}.rows = {part.rows} is below 0.")
            for view, versions in part.views.items():
                size = feature_bytes((max(part.rows, 1), versions, *self.item))
                require(
                    view in get_args(ViewName) and versions >= 1 and size < MOST_VIEW_BYTES,
                    f"parts.{name}.views.{printable(view)} = {versions} is not a view of a store.",
                )
        require(self.block >= 1, f"block = {self.block} is below 1.")
        for about in ("data", "encoder", "augmentation"):
            as_type(getattr(self, about).get("fingerprint"), str, f"{about}.fingerprint")
        as_type(self.data.get("name"), str, "data.name")
        shape = as_type(self.data.get("shape"), tuple[int, ...], "data.shape")
        _check_shape(shape, "data.shape")

    def files(self) -> dict[str, int]:
        """The number of blocks of each file of labels and features of a finished store."""
        found = {}
        for name, part in self.parts.items():
            found[label_file(name)] = 1
            for view in part.views:
                found[view_file(name, view)] = -(-part.rows // self.block)
        return found

    def blocks(self) -> Iterator[Block]:
        """All blocks, in order."""
        for name, part in self.parts.items():
            for start in range(0, part.rows, self.block):
                yield Block(name, start, min(start + self.block, part.rows))

    def number_of_blocks(self) -> int:
        """The number of all blocks."""
        return sum(-(-part.rows // self.block) for part in self.parts.values())

    def has(self, block: Block) -> bool:
        """Whether a block is one of this plan."""
        rows = self.parts[block.part].rows if block.part in self.parts else 0
        starts = 0 <= block.start < rows and block.start % self.block == 0
        return starts and block.stop == min(block.start + self.block, rows)

    def shape(self, part: str, view: ViewName) -> tuple[int, ...]:
        """The shape of the features of a view, (images, versions, ...)."""
        return (self.parts[part].rows, self.parts[part].views[view], *self.item)

    @property
    def identity(self) -> str:
        """A digest of all that features depend on; equal for plans without `differences`."""
        parts = {name: [part.rows, part.views] for name, part in self.parts.items()}
        engine = [] if self.engine == "torch" else [self.engine]  # as before there were others
        return fingerprint(self.fingerprints, self.item, parts, self.block, *engine)

    @property
    def engine(self) -> str:
        """The library that computes the features; bits of one are not those of another."""
        return str(self.encoder.get("engine", "torch"))

    @property
    def fingerprints(self) -> dict[str, str]:
        """The fingerprints of data, encoder and augmentation; a run keeps to one set of them."""
        made_of = {"data": self.data, "encoder": self.encoder, "augmentation": self.augmentation}
        return {name: str(value["fingerprint"]) for name, value in made_of.items()}

    def differences(self, other: StorePlan) -> list[str]:
        """The differences of two plans, in words; names of data and encoder are not compared."""
        here, there = self.fingerprints, other.fingerprints
        words = {"data": "other images or labels", "encoder": "another encoder"}
        found = [words.get(name, "other views") for name in here if here[name] != there[name]]
        if not found and (self.item, self.parts, self.block) != (
            other.item,
            other.parts,
            other.block,
        ):
            found.append("other views")
        if not found and self.engine != other.engine:
            shown = printable(other.engine)[:20]
            found.append(f"features by {shown}, to go on with which takes --set engine={shown}")
        return found


def _check_shape(sides: tuple[int, ...], place: str) -> None:
    """Refuse a shape other than that of a feature vector, an image or feature maps."""
    require(
        len(sides) in (1, 3) and all(1 <= side < 2**31 for side in sides),
        f"{place} = {printable(str(list(sides)))[:60]} is not a shape.",
    )


def view_file(part: str, view: str) -> str:
    """The file of the features of a view."""
    return f"{part}-{view}.npy"


def label_file(name: str) -> str:
    """The file of the labels of a part; "-coarse" after its name for the coarse ones."""
    return f"labels/{name}.npy"


def fingerprint(*parts: Any) -> str:
    """The SHA-256 of JSON values."""
    return sha256_hex(json.dumps(parts, sort_keys=True).encode())


def npy_header(kind: str, shape: tuple[int, ...]) -> bytes:
    """The header of an .npy file; its length is the same for any count, so it can be rewritten."""
    content = BytesIO()
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(content, header)
    return content.getvalue()


def feature_bytes(shape: tuple[int, ...]) -> int:
    """The size of an array of features in bytes."""
    return FEATURE_BYTES * math.prod(shape)


StoreManifest = tuple[StorePlan, dict[str, list[str]] | None]
"""A plan, and the digests of its files once the store is finished."""


class DamagedManifestError(InputError):
    """The manifest was edited or damaged."""


class OtherVersionError(InputError):
    """The manifest has another version than this program reads."""


def read_store_manifest(folder: Path) -> StoreManifest | None:
    """Read the manifest of a folder; None if it has none.

    Raises:
        DamagedManifestError: it was edited or damaged.
        OtherVersionError: it has another version.
    """
    path = folder / "manifest.json"
    try:
        return parse_manifest(read_json(path, dict[str, Any], most=MOST_STORE_MANIFEST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OtherVersionError:
        raise
    except OSError as error:
        why = f" ({error.strerror or error})"
    except InputError as error:
        why = f" ({str(error).removesuffix('.')})"
    raise DamagedManifestError(f"{path} was edited or damaged{why}: {REPAIR}.")


def parse_manifest(content: dict[str, Any]) -> StoreManifest:
    """Check a manifest that was read from JSON.

    Raises:
        InputError: it is not as `manifest_text` writes it.
    """
    seal = content.pop("seal", None)
    require(seal == fingerprint(content), "its seal does not fit.")
    version, digests = content.pop("version", None), content.pop("digests", None)
    if version != STORE_VERSION:
        raise OtherVersionError(
            f"The store is of version {printable(str(version))[:20]}, and this protofission reads "
            f"{STORE_VERSION}: update it, or make the store again."
        )
    plan = as_type(content, StorePlan, "")
    plan.check()
    if digests is None:
        return plan, None
    found = as_type(digests, dict[str, tuple[str, ...]], "digests")
    for name, blocks in plan.files().items():
        require(len(found.get(name, ())) == blocks, f"digests.{name} must be {blocks} digests.")
    for name, values in found.items():
        sound = all(re.fullmatch("[0-9a-f]{32}", value) for value in values)
        require(sound, f"digests.{printable(name)} holds other things.")
    return plan, {name: list(values) for name, values in found.items()}


def manifest_text(plan: StorePlan, digests: dict[str, list[str]] | None) -> str:
    """The text of a manifest, with a seal: the fingerprint of its other entries."""
    content = {"version": STORE_VERSION, **asdict(plan), "digests": digests}
    content = json.loads(json.dumps(content))  # the values as they will be read
    return json.dumps({**content, "seal": fingerprint(content)}, indent=1)
