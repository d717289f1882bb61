"""Predict images in shards, which several machines write at once, and one reads as one.

    plan.json          the model, the images, the size of a shard
    000000.parquet …   the rows of a shard, each with its own journal and record while it is made
    finished.json      the counts of all rows, once all shards are written

Who predicts a shard writes it; the first process lists the images and counts rows. Of a Parquet
list it knows the number of rows only, and each worker reads the row groups of its shard.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from protofission.core.errors import InputError, printable, require
from protofission.core.progress import Progress
from protofission.data.readers.parquet_lists import count_rows, is_parquet, read_list_rows
from protofission.data.readers.remote_files import remote_url
from protofission.data.store.manifest import fingerprint
from protofission.system.digests import file_digest
from protofission.system.json_files import read_json
from protofission.system.launch.counted_pieces import run_counted
from protofission.system.launch.launcher import Launcher, Tell, Work
from protofission.system.locks import LOCK_FILE, folder_lock
from protofission.system.paths import path_of, paths_of
from protofission.system.whole_files import write_whole
from protofission.triage.bundle import Bundle
from protofission.triage.calibrated_model import DECISIONS
from protofission.triage.model_source import find_model
from protofission.triage.predict import (
    PredictionSummary,
    check_apart,
    finished_before,
    write_prediction,
)
from protofission.triage.prediction_blocks import PredictionJob, Predictor
from protofission.triage.prediction_inputs import Inputs, file_inputs, is_store, list_names
from protofission.triage.prediction_journal import FinishedRecord
from protofission.triage.prediction_table import Format, format_of, read_rows, write_rows

SHARD = 4096
"""Images of a shard, if they are joined into a file at the end."""
MOST_SHARD = 10_000_000
PLAN, FINISHED = "plan.json", "finished.json"
PLAN_VERSION = 1


@dataclass(frozen=True)
class ShardPlan:
    """All that the rows of a folder of shards depend on."""

    version: int
    model: str
    """Fingerprint of the model."""
    images: str
    """Fingerprint of the lists, or of the names of files."""
    rows: int
    shard: int
    form: str

    @property
    def shards(self) -> int:
        """The number of shards."""
        return -(-self.rows // self.shard)


@dataclass(frozen=True)
class ShardsRecord:
    """The record of finished shards."""

    rows: int
    errors: int
    decisions: dict[str, int]

    @staticmethod
    def read(folder: Path) -> ShardsRecord | None:
        """Read the record of a folder; None if there is none."""
        try:
            return read_json(folder / FINISHED, ShardsRecord)
        except (InputError, OSError):
            return None


class NameSlice(NamedTuple):
    """Names of files, relative to a folder."""

    root: str
    names: tuple[str, ...]


class ListSlice(NamedTuple):
    """Rows of a Parquet list."""

    path: str
    start: int
    stop: int


class ShardPiece(NamedTuple):
    """A shard to predict."""

    out: Path
    form: Format
    slices: tuple[NameSlice | ListSlice, ...]


@dataclass(frozen=True)
class _Source:
    """Images in order: the names of files, or the rows of a Parquet list."""

    root: str
    names: Sequence[str]
    rows: int
    about: tuple[Any, ...]

    def slice(self, start: int, stop: int) -> NameSlice | ListSlice:
        if self.names:
            return NameSlice(self.root, tuple(self.names[start:stop]))
        return ListSlice(self.root, start, stop)


def _source(path: Path) -> _Source:
    require(
        not is_store(path),
        f"{printable(str(path))} is a store: predict it without --on and --shard, or give the "
        "images.",
    )
    if is_parquet(path):
        rows = count_rows(path)
        require(rows > 0, f"{printable(str(path))} lists no image: add rows with a path.")
        url = remote_url(path)
        status = None if url else os.stat(path)
        about = () if status is None else (status.st_size, status.st_mtime_ns)
        return _Source(url or str(path), (), rows, (str(path), rows, *about))
    root, names = list_names(path)
    require(bool(names), f"{printable(str(path))} holds no files: name a folder with images.")
    return _Source(root, names, len(names), (root, fingerprint(*names)))


def _slices(sources: Sequence[_Source], start: int, stop: int) -> tuple[NameSlice | ListSlice, ...]:
    """The images of a range of rows over all sources."""
    found, begin = [], 0
    for source in sources:
        low, high = max(start - begin, 0), min(stop - begin, source.rows)
        if low < high:
            found.append(source.slice(low, high))
        begin += source.rows
    return tuple(found)


def predict_in_shards(
    model: Path | str,
    images: Path | str | Iterable[Path | str],
    out: Path | str,
    form: str | None = None,
    *,
    launcher: Launcher,
    shard: int | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
    allow_download: bool = False,
    force: bool = False,
) -> PredictionSummary:
    """Predict images by a launcher's workers, each shard written by who predicts it.

    After a stop or a kill, the same call goes on with what is missing or damaged.

    Args:
        model: the folder of a model; every machine sees it.
        images: as in `predict`, but no stores.
        out: with `shard`, a folder of shards; else a file, into which they are joined at the end.
        form: csv, jsonl or parquet; by default that of the suffix of a file, or parquet.
        shard: images of a shard.
        progress: called with the number of images done, and of all.
        say: called with a sentence for each shard that fails.
        allow_download: workers get the encoder from the hub, where it is not on their machine.
        force: write over what is there.
    """
    model, out = find_model(model), path_of(out)
    sources = paths_of(images)
    require(
        shard is None or 1 <= shard <= MOST_SHARD,
        f"shard = {shard} must be between 1 and {MOST_SHARD:,} images.",
    )
    bundle = Bundle.load(model)
    if shard is None:
        wanted, folder = format_of(out, form), out.with_name(f".{out.name}.shards")
        check_apart(out, sources)
    else:
        wanted, folder = format_of(out, form or "parquet"), out
        require(not out.is_file(), f"{printable(str(out))} is a file: name a folder for shards.")
    listed = [_source(path) for path in sources]
    plan = ShardPlan(
        PLAN_VERSION,
        bundle.fingerprint,
        fingerprint(*(source.about for source in listed)),
        sum(source.rows for source in listed),
        shard or SHARD,
        wanted if shard else "jsonl",
    )
    key = fingerprint(asdict(plan))
    if shard is None and os.path.lexists(out) and not force and not _is_of(folder, plan):
        return finished_before(out, key, wanted, say)
    _check_folder(folder, plan, force)
    with folder_lock(folder):
        if ShardsRecord.read(folder) is not None and say is not None:
            say(
                f"{printable(str(out))} is finished: its shards are compared with their digests. "
                "Give --force to predict again."
            )
        work = Work(_begin, (model, bundle.fingerprint, allow_download), _predict_piece)
        pieces = _pieces(folder, plan, listed)
        done = _perform(launcher, work, pieces, plan.rows, progress, say)
        write_whole(folder / FINISHED, json.dumps(asdict(done)).encode())
        if shard is None:
            write_rows(out, read_shards(folder), wanted)
            FinishedRecord(key, wanted, file_digest(out), *asdict(done).values()).write(out)
    if shard is None:
        shutil.rmtree(folder, ignore_errors=True)
    return PredictionSummary(done.rows, done.errors, done.decisions)


def _pieces(folder: Path, plan: ShardPlan, listed: Sequence[_Source]) -> Iterator[ShardPiece]:
    """The shards of a plan, which is written once somebody wants the first."""
    write_whole(folder / PLAN, json.dumps(asdict(plan)).encode())
    form = format_of(Path(f"x.{plan.form}"), None)
    for number in range(plan.shards):
        slices = _slices(listed, number * plan.shard, (number + 1) * plan.shard)
        yield ShardPiece(_shard_file(folder, number, form), form, slices)


def _perform(
    launcher: Launcher,
    work: Work,
    pieces: Iterable[ShardPiece],
    rows: int,
    progress: Progress | None,
    say: Callable[[str], None] | None,
) -> ShardsRecord:
    """Predict shards, and add up their counts."""
    counts: Counter[str] = Counter()
    count: Callable[[Any], int] = lambda told: int(told.rows)  # noqa: E731
    for _, told in run_counted(launcher, work, pieces, count, rows, progress, say):
        counts.update(told.decisions)
        counts["rows"] += told.rows
        counts["errors"] += told.errors
    decisions = {name: counts[name] for name in DECISIONS}
    return ShardsRecord(counts["rows"], counts["errors"], decisions)


def _begin(model: Path, known: str, allow_download: bool) -> Predictor:
    predictor = Predictor(model, 1, allow_download)
    require(
        predictor.bundle.fingerprint == known,
        f"{printable(str(model))} is another model on this machine, or was changed: give every "
        "machine the same.",
    )
    return predictor


def _predict_piece(predictor: Predictor, piece: ShardPiece, tell: Tell) -> ShardsRecord:
    files, seal = [], []
    for own in piece.slices:
        if isinstance(own, ListSlice):
            names = read_list_rows(Path(own.path), own.start, own.stop, "path")
            root, found = str(Path(own.path).parent), [name or "" for name in names]
        else:
            root, found = own.root, list(own.names)
        for file, about in file_inputs(root, found):
            files.append(file)
            seal.append(about.decode())
    job = PredictionJob(predictor, Inputs((files,), fingerprint(*seal)), 1)
    done = write_prediction(
        job,
        piece.out,
        piece.form,
        progress=lambda count, _: tell(count),
        force=FinishedRecord.read(piece.out) is None,  # a damaged one is made again
        wait=True,
    )
    return ShardsRecord(done.rows, done.errors, done.decisions)


def read_shards(folder: Path) -> Iterator[Any]:
    """The rows of all shards of a folder, in order."""
    plan = read_json(folder / PLAN, ShardPlan)
    for number in range(plan.shards):
        yield from read_rows(_shard_file(folder, number, plan.form))


def _shard_file(folder: Path, number: int, form: str) -> Path:
    return folder / f"{number:06}.{form}"


def _is_of(folder: Path, plan: ShardPlan) -> bool:
    """Whether a folder of shards was begun by this plan."""
    try:
        return read_json(folder / PLAN, ShardPlan) == plan
    except (InputError, OSError):
        return False


def _check_folder(folder: Path, plan: ShardPlan, force: bool) -> None:
    """Refuse a folder of other things; unfinished rows of another job are dropped by `force`."""
    if not folder.is_dir() or _is_of(folder, plan):
        if force and ShardsRecord.read(folder) is not None:
            shutil.rmtree(folder)
        return
    ours = os.path.lexists(folder / PLAN)
    empty = all(path.name == LOCK_FILE for path in folder.iterdir())
    hidden = folder.name.startswith(".") and folder.name.endswith(".shards")
    others = "rows of another model, other images or another size of shards"
    remedy = "name another folder, or write over it with --force"
    require(
        empty or (ours and (force or hidden)),
        f"{printable(str(folder))} holds {others}: {remedy}."
        if ours
        else f"{printable(str(folder))} holds other files: name a new folder for the shards.",
    )
    if not empty:
        shutil.rmtree(folder)
