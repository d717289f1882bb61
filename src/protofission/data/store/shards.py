"""Stores in shards: several machines fill one each, and one reads them as one store.

shards.json        the plan of all shards; once they are finished, the rows and fingerprint of each
shards/000000/     a store like any other, of some of the images
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protofission.core.errors import InputError, printable, require
from protofission.core.records import ViewName
from protofission.data.image_sets import Labels
from protofission.data.splits.labeling import Labeling
from protofission.data.store.manifest import REPAIR, Features, Part, fingerprint
from protofission.data.store.mapped_arrays import FAULT, release
from protofission.data.store.reader import Store
from protofission.system.json_files import as_type, read_json
from protofission.system.whole_files import write_whole

SHARDS = "shards.json"
SHARDS_VERSION = 1
MOST_OPEN = 128
"""Shards of a view that are mapped at a time; each takes a file descriptor."""


@dataclass(frozen=True)
class ShardedPlan:
    """The plan of a store in shards: all that its bytes depend on, but for the pixels."""

    name: str
    """Name of the data set."""
    inputs: str
    """Fingerprint of the images as they are listed."""
    images: dict[str, int]
    """The number of listed images, by part."""
    shard: int
    """Training images of a shard."""
    encoder: dict[str, Any]
    views: str
    counts: dict[str, int]
    seed: int
    class_names: tuple[str, ...]
    coarse_names: tuple[str, ...] = ()

    @property
    def shards(self) -> int:
        """The number of shards."""
        return max(1, -(-self.images["train"] // self.shard))

    def bounds(self, number: int, block: int = 256) -> dict[str, tuple[int, int]]:
        """The range of images of a shard, by part: its share of each, by whole blocks."""
        found = {}
        for part, rows in self.images.items():
            step = self.shard if part == "train" else -(-rows // (self.shards * block)) * block
            found[part] = min(number * step, rows), min((number + 1) * step, rows)
        return found


@dataclass(frozen=True)
class FinishedShard:
    """A finished shard."""

    rows: dict[str, int]
    fingerprint: str
    """Fingerprint of its images."""


def shard_folder(folder: Path, number: int) -> Path:
    """The folder of a shard."""
    return folder / "shards" / f"{number:06}"


def write_shards(
    folder: Path, plan: ShardedPlan, finished: Sequence[FinishedShard] | None = None
) -> None:
    """Write the plan of a store in shards, and once they are finished, what each holds."""
    shards = None if finished is None else [asdict(shard) for shard in finished]
    content = {"version": SHARDS_VERSION, "plan": asdict(plan), "finished": shards}
    content = json.loads(json.dumps(content))
    sealed = {**content, "seal": fingerprint(content)}
    write_whole(folder / SHARDS, json.dumps(sealed, indent=1).encode())


def read_shards_file(folder: Path) -> tuple[ShardedPlan, list[FinishedShard] | None] | None:
    """Read the plan and the finished shards of a folder; None if it is no store in shards."""
    path = folder / SHARDS
    try:
        content = read_json(path, dict[str, Any], most=2**30)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (InputError, OSError) as error:
        raise InputError(f"{path} was edited or damaged ({error}): {REPAIR}.") from None
    seal = content.pop("seal", None)
    require(seal == fingerprint(content), f"{path} was edited or damaged: {REPAIR}.")
    plan = as_type(content.get("plan"), ShardedPlan, "plan")
    done = content.get("finished")
    if done is None:
        return plan, None
    found = as_type(done, tuple[FinishedShard, ...], "finished")
    require(len(found) == plan.shards, f"{path} was edited or damaged: {REPAIR}.")
    return plan, list(found)


@dataclass(frozen=True)
class ShardedStore(Store):
    """A finished store in shards, read as one; a shard is opened when something of it is read."""

    shards: tuple[Path, ...] = ()
    rows: tuple[dict[str, int], ...] = ()
    """Rows of each shard, by part."""

    @staticmethod
    def open_shards(folder: Path) -> ShardedStore | None:
        """Open the store in shards of a folder; None if it holds none.

        Raises:
            InputError: it is unfinished or damaged.
        """
        found = read_shards_file(folder)
        if found is None:
            return None
        plan, finished = found
        if finished is None:
            raise InputError(
                f"{printable(str(folder))} is an unfinished store of {plan.shards} shards: give "
                "the command that began it again, and it goes on."
            )
        paths = tuple(shard_folder(folder, number) for number in range(plan.shards))
        first = Store.open(paths[0]).plan
        rows = tuple(shard.rows for shard in finished)
        joined = replace(
            first,
            data={
                **first.data,
                "name": plan.name,
                "fingerprint": fingerprint([shard.fingerprint for shard in finished]),
            },
            augmentation=plain_augmentation(first.augmentation, plan),
            parts={
                part: Part(sum(own.get(part, 0) for own in rows), about.views)
                for part, about in first.parts.items()
            },
        )
        return ShardedStore(folder, joined, {}, paths, rows)

    def view_rows(self, part: str, view: ViewName, bound: int) -> ShardedRows:
        """The rows of a view, each shard's bytes compared with its digests."""
        for shard in self.shards:
            Store.open(shard).map_verified_view(part, view)
        return ShardedRows(self, part, view, bound)

    def map_view(self, part: str, view: ViewName) -> Features:
        """Copy the features of a view into memory: for small stores and tests."""
        arrays = [Store.open(shard).map_view(part, view) for shard in self.shards]
        return np.concatenate(arrays)

    def labeling(self) -> Labeling:
        """The labels of all images, to make a split of."""
        found = [Store.open(shard).labeling() for shard in self.shards]
        names, coarse = self.plan.class_names, self.plan.coarse_names

        def join(arrays: Sequence[Labels | None]) -> Labels | None:
            known = [array for array in arrays if array is not None]
            return np.concatenate(known) if known else None

        train = join([each.train for each in found])
        assert train is not None
        return Labeling(
            train,
            len(names),
            join([each.test for each in found]),
            names,
            join([each.coarse_train for each in found]),
            join([each.coarse_test for each in found]),
            coarse,
        )

    def paths(self) -> dict[str, list[str]]:
        """The files of the images, by part; empty if the images were not files."""
        joined: dict[str, list[str]] = {}
        for shard in self.shards:
            for part, own in Store.open(shard).paths().items():
                joined.setdefault(part, []).extend(own)
        return joined


def plain_augmentation(augmentation: dict[str, Any], plan: ShardedPlan) -> dict[str, Any]:
    """The augmentation of a shard without its place, which is that of a store in one piece."""
    kept = ("views", "options", "seed")
    made_by = {key: value for key, value in augmentation.items() if key in kept}
    return {**made_by, "fingerprint": fingerprint(made_by, plan.counts)}


class ShardedRows:
    """Reads rows of a view of a store in shards, and keeps a bounded part of it in memory."""

    def __init__(self, store: ShardedStore, part: str, view: ViewName, bound: int) -> None:
        """At most `bound` bytes of pages are held, unless all of the view is smaller."""
        self._store, self._part, self._view = store, part, view
        versions = store.plan.parts[part].views[view]
        self._ends = np.cumsum([own.get(part, 0) * versions for own in store.rows])
        self._mapped: OrderedDict[int, NDArray[Any]] = OrderedDict()
        item = 2 * int(np.prod(store.plan.item))
        whole = int(self._ends[-1]) * item <= bound
        self._at_once = None if whole else max(1, bound // (FAULT + item))

    def __getitem__(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of the rows of these numbers."""
        found = np.empty((len(places), *self._store.plan.item), np.float16)
        step = self._at_once or max(len(places), 1)
        for start in range(0, len(places), step):
            self._read(places[start : start + step], found[start : start + step])
        return found

    def _read(self, places: NDArray[np.int64], found: NDArray[Any]) -> None:
        shards = np.searchsorted(self._ends, places, side="right")
        order = np.argsort(shards, kind="stable")
        numbers, begins = np.unique(shards[order], return_index=True)
        for number, own in zip(numbers.tolist(), np.split(order, begins[1:]), strict=True):
            array = self._map(number)
            found[own] = array.take(places[own] - (self._ends[number] - len(array)), 0)
            if self._at_once is not None:
                release(array)

    def _map(self, number: int) -> NDArray[Any]:
        """(rows * versions, ...) of a shard, mapped."""
        if number not in self._mapped:
            array = Store.open(self._store.shards[number]).map_view(self._part, self._view)
            self._mapped[number] = array.reshape(-1, *array.shape[2:])
            if len(self._mapped) > MOST_OPEN:
                self._mapped.popitem(last=False)
        self._mapped.move_to_end(number)
        return self._mapped[number]
