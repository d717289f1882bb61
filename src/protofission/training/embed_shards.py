"""Images through a frozen encoder into a store in shards, by workers on one machine or several.

Who embeds a shard reads its images and writes its store. The first process lists the images; of a
Parquet list it knows the number of rows and the classes only.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from protofission.core.errors import InputError, printable, require
from protofission.core.progress import Progress
from protofission.core.rng import check_seed
from protofission.data.datasets import DATASETS
from protofission.data.image_sets import ImageSet, ImageSets
from protofission.data.label_names import number_labels, sort_class_names
from protofission.data.readers.decode import Decoding
from protofission.data.readers.file_listing import content_of
from protofission.data.readers.image_cache import Entry
from protofission.data.readers.image_folders import (
    ListedImages,
    decode_and_report,
    list_images,
    listed_entries,
)
from protofission.data.readers.image_lists import NO_LABELS
from protofission.data.readers.official_datasets import cache_home
from protofission.data.readers.parquet_lists import (
    count_rows,
    has_column,
    is_parquet,
    read_list_rows,
)
from protofission.data.store.manifest import fingerprint
from protofission.data.store.reader import Store
from protofission.data.store.shards import (
    SHARDS,
    FinishedShard,
    ShardedPlan,
    read_shards_file,
    shard_folder,
    write_shards,
)
from protofission.models.encoders import Encoder, EncoderSpec
from protofission.system.json_files import read_json
from protofission.system.launch.counted_pieces import run_counted
from protofission.system.launch.launcher import Launcher, Tell, Work
from protofission.system.launch.local_launcher import LocalLauncher
from protofission.system.locks import LOCK_FILE, folder_lock
from protofission.system.partial_files import is_partial
from protofission.system.whole_files import write_text
from protofission.training.embed import MOST_IMAGES, Images, ViewCounts, embed, images_of

SHARD = 4096
"""Images of a shard, if nothing else is asked for."""
INPUTS = "inputs.json"
"""File of a finished shard: the fingerprint of the files that it was made of."""
LABELS_AT_ONCE = 65_536
"""Rows of a list whose labels are read at once."""
_NO_VIEWS = {"weak": 0, "strong": 0, "simclr": 0}


@dataclass(frozen=True)
class _Source:
    """Images that are listed and not yet read."""

    name: str
    listed: ListedImages | None
    """None for a named data set, or a Parquet list, whose rows are read by the workers."""
    images: dict[str, int]
    class_names: tuple[str, ...]
    inputs: str
    views: str
    coarse_names: tuple[str, ...] = ()


class EmbedPiece(NamedTuple):
    """A shard to embed."""

    folder: Path
    bounds: dict[str, tuple[int, int]]
    listed: ListedImages | None
    """Its files, unless the worker finds them by their numbers."""


@dataclass(frozen=True)
class _Begun:
    """A worker: the encoder, and what all shards share."""

    spec: EncoderSpec
    encoder: Encoder
    source: str
    data_folder: str | None
    plan: ShardedPlan
    images: Images | None
    """All images, if they are a data set by name."""


def embed_in_shards(
    source: str,
    spec: EncoderSpec,
    folder: Path,
    counts: ViewCounts | None = None,
    *,
    launcher: Launcher,
    shard: int | None = None,
    views: str | None = None,
    data_folder: str | None = None,
    seed: int = 0,
    encoder: Encoder | None = None,
    device: torch.device | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Store:
    """Embed images into a store in shards, each by one of a launcher's workers.

    The features are those of `embed`, byte for byte, if all images can be read. After a kill the
    same call goes on with what is missing; a shard that was begun keeps its finished blocks.

    Args:
        source: a data set by name, a folder or a list; every machine finds it.
        folder: the store's; every machine sees it.
        shard: images of a shard, a multiple of 256; by default that of the store, or SHARD.
        data_folder: where the files of a named data set are, if not at the usual places.
        encoder: the loaded one, if there is one.
        device: of the workers, by default the CPU.
        say: called with a sentence for each shard that fails.
    """
    check_seed(seed)
    folder, counts = folder.expanduser(), counts or ViewCounts()
    begun = read_shards_file(folder) if folder.is_dir() else None
    wanted = shard or (begun[0].shard if begun else SHARD)
    require(
        wanted >= MOST_IMAGES and wanted % MOST_IMAGES == 0,
        f"shard = {wanted} must be a multiple of {MOST_IMAGES} images.",
    )
    loaded = encoder or spec.load()
    found = _list_source(source, data_folder)
    plan = ShardedPlan(
        found.name,
        found.inputs,
        found.images,
        wanted,
        loaded.describe(),
        views or found.views,
        {str(name): count for name, count in counts.counts().items()},
        seed,
        found.class_names,
        found.coarse_names,
    )
    _check_folder(folder, plan, begun[0] if begun else None)
    arguments = spec, device, loaded.describe(), source, data_folder, plan
    work = Work(_begin, arguments, _embed_piece)
    with folder_lock(folder):
        pieces = _pieces(folder, plan, found, new=begun is None)
        total, finished = sum(plan.images.values()), dict[int, FinishedShard]()
        count: Callable[[Any], int] = lambda told: sum(told.rows.values())  # noqa: E731
        for number, told in run_counted(launcher, work, pieces, count, total, progress, say):
            finished[number] = told
        write_shards(folder, plan, [finished[number] for number in range(plan.shards)])
    return Store.open(folder)


def _pieces(folder: Path, plan: ShardedPlan, found: _Source, *, new: bool) -> Iterator[EmbedPiece]:
    """The shards of a plan; a new one is written once somebody wants the first."""
    if new:
        write_shards(folder, plan)
    for number in range(plan.shards):
        bounds, listed = plan.bounds(number, MOST_IMAGES), found.listed
        if listed is not None:
            own = slice(*bounds["train"])
            listed = replace(
                listed, entries=listed.entries[own], labels=listed.labels[own], left_out={}
            )
        yield EmbedPiece(shard_folder(folder, number).absolute(), bounds, listed)


def _list_source(source: str, data_folder: str | None) -> _Source:
    if source in DATASETS:
        return _list_dataset(source, data_folder)
    path = Path(source).expanduser().absolute()
    require(path.exists(), f"{printable(source)} is not there: name a data set, folder or list.")
    if is_parquet(path):
        rows, status = count_rows(path), os.stat(path)
        require(rows > 0, f"{path} lists no image: add rows with a path.")
        about = fingerprint(str(path), rows, status.st_size, status.st_mtime_ns)
        names_of = _class_names(path, rows)
        return _Source(path.stem, None, {"train": rows}, names_of, about, "natural")
    listed = list_images(path)
    require(bool(listed.entries), f"{path} holds no images: add some.")
    _, classes = number_labels(listed.labels, listed.class_names)
    listed = replace(listed, class_names=classes)
    paths = [(entry.path, entry.size, entry.mtime_ns) for entry in listed.entries]
    about = fingerprint(str(path), paths, list(listed.labels))
    size = {"train": len(paths)}
    return _Source(path.name, listed, size, classes, about, "natural")


def _list_dataset(source: str, data_folder: str | None) -> _Source:
    """Count and name the images of a data set in another process, so that this one holds none."""
    work = Work(images_of, (source, 0, data_folder), _describe_images)
    (news,) = (news for news in LocalLauncher(1).run(work, [source]) if news.ended)
    require(not news.failure, news.failure)
    found: _Source = news.told
    return found


def _describe_images(images: Images, source: str, _: Tell) -> _Source:
    parts = {part: len(own.labels) for part, own in images.parts.items()}
    train = images.sets.train
    about = fingerprint(source, parts, [train.labels.tolist()])
    return _Source(source, None, parts, train.class_names, about, images.views, train.coarse_names)


def _class_names(path: Path, rows: int) -> tuple[str, ...]:
    """The classes of a Parquet list, in order; few labels are in memory at a time."""
    names: set[str] = set()
    if has_column(path, "label"):
        for start in range(0, rows, LABELS_AT_ONCE):
            some = read_list_rows(path, start, start + LABELS_AT_ONCE, "label")
            names |= {label for label in some if label is not None and label not in NO_LABELS}
    return sort_class_names(names)


def _check_folder(folder: Path, plan: ShardedPlan, begun: ShardedPlan | None) -> None:
    """Refuse a folder of anything but shards of this plan."""
    if begun is not None:
        differ = [name for name, own in asdict(plan).items() if own != asdict(begun)[name]]
        require(
            not differ,
            f"{folder} holds a store in shards with other {', '.join(differ)}: name another "
            "folder, or delete it.",
        )
        return
    here = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    foreign = [n for n in here if n not in (LOCK_FILE, SHARDS) and not is_partial(Path(n))]
    require(
        not foreign,
        f"{folder} holds other files, such as {printable(foreign[0]) if foreign else ''}: name a "
        "new folder for the store.",
    )


def _begin(
    spec: EncoderSpec,
    device: torch.device | None,
    known: dict[str, Any],
    source: str,
    data_folder: str | None,
    plan: ShardedPlan,
) -> _Begun:
    encoder = spec.load(device)
    require(
        encoder.describe() == known,
        f"The encoder {printable(spec.source)} is another one on this machine: give every machine "
        "the same packages and files.",
    )
    images = images_of(source, 0, data_folder) if source in DATASETS else None
    return _Begun(spec, encoder, source, data_folder, plan, images)


def _embed_piece(begun: _Begun, piece: EmbedPiece, tell: Tell) -> FinishedShard:
    listed = _listed(begun, piece)
    inputs = fingerprint(
        begun.plan.inputs,
        piece.bounds,
        [] if listed is None else [(e.path, e.size, e.mtime_ns) for e in listed.entries],
    )
    finished = _finished(piece.folder, inputs)
    if finished is not None:
        return finished
    images, scratch = _read(begun, piece, listed)
    embed(
        images,
        begun.spec,
        piece.folder,
        ViewCounts(**{**_NO_VIEWS, **begun.plan.counts}),
        views=begun.plan.views,
        seed=begun.plan.seed,
        encoder=begun.encoder,
        progress=lambda done, _: tell(done),
        wait=True,
    )
    write_text(piece.folder / INPUTS, f'{{"inputs": "{inputs}"}}')
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)
    finished = _finished(piece.folder, inputs)
    assert finished is not None
    return finished


def _finished(folder: Path, inputs: str) -> FinishedShard | None:
    """The rows and fingerprint of a finished shard; None if it is not finished, or damaged."""
    try:
        if read_json(folder / INPUTS, dict[str, str]) != {"inputs": inputs}:
            return None
        store = Store.open(folder)
        for part, about in store.plan.parts.items():
            for view in about.views:
                store.map_verified_view(part, view)
        store.labeling()
        store.paths()
    except (InputError, OSError):
        return None
    rows = {part: about.rows for part, about in store.plan.parts.items()}
    return FinishedShard(rows, store.plan.fingerprints["data"])


def _listed(begun: _Begun, piece: EmbedPiece) -> ListedImages | None:
    """The files of a shard; of a Parquet list, its rows are read now."""
    if begun.images is not None or piece.listed is not None:
        return piece.listed
    path = Path(begun.source).expanduser().absolute()
    start, stop = piece.bounds["train"]
    names = [name or "" for name in read_list_rows(path, start, stop, "path")]
    labels: list[str | None] = [None] * len(names)
    if begun.plan.class_names:
        read = read_list_rows(path, start, stop, "label")
        labels = [None if label in NO_LABELS else label for label in read]
    left_out: dict[str, str] = {}
    entries, kept = listed_entries(path.parent, names, labels, left_out)
    return ListedImages(path.parent, entries, kept, begun.plan.class_names, left_out)


def _read(
    begun: _Begun, piece: EmbedPiece, listed: ListedImages | None
) -> tuple[Images, Path | None]:
    """The images of a shard, and the folder of decoded ones that is deleted at its end."""
    plan, starts = begun.plan, {part: low for part, (low, _) in piece.bounds.items()}
    if begun.images is not None:
        sets = begun.images.sets
        train = _cut(sets.train, *piece.bounds["train"])
        test = None if sets.test is None else _cut(sets.test, *piece.bounds["test"])
        return Images(plan.name, ImageSets(train, test), plan.views, starts=starts), None
    assert listed is not None
    decoding = Decoding(begun.encoder.decode, begun.encoder.decode)
    scratch = cache_home() / "shards" / fingerprint(str(piece.folder))[:16]
    entries: list[Entry] = list(listed.entries)
    images, report = decode_and_report(
        str(piece.folder),
        entries,
        number_labels(listed.labels, plan.class_names)[0],
        plan.class_names,
        lambda place: content_of(listed.place(place), decoding.byte_limit),
        decoding,
        scratch,
        left_out=dict(listed.left_out),
        workers=1,
    )
    return Images(plan.name, ImageSets(images), plan.views, report, starts=starts), scratch


def _cut(images: ImageSet, start: int, stop: int) -> ImageSet:
    coarse = images.coarse_labels
    return ImageSet(
        np.asarray(images.pixels[start:stop]),
        images.labels[start:stop],
        images.class_names,
        None if coarse is None else coarse[start:stop],
        images.coarse_names,
    )
