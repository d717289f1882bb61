"""Inputs of a prediction: image files, folders and lists of them, or the rows of a store."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from protofission.core.errors import InputError, printable, require
from protofission.data.readers.file_listing import entry_of, list_files
from protofission.data.readers.image_cache import Entry
from protofission.data.readers.image_formats import RefusedError
from protofission.data.readers.image_lists import is_list, read_list
from protofission.data.readers.remote_files import remote_url
from protofission.data.store.journal import JOURNAL
from protofission.data.store.manifest import view_file
from protofission.data.store.reader import Store
from protofission.data.store.shards import SHARDS

STORE_BLOCK = 4096
"""Rows of a store in a block."""


class InputFile(NamedTuple):
    """A file to predict, which may be no image."""

    path: str
    """The path in the output; bytes that are no UTF-8 are surrogates."""
    root: str
    """The folder that a path of a list is relative to."""
    reason: str
    """Reason why it cannot be read, if known already; else empty."""

    @property
    def place(self) -> Path:
        """The path to read it from."""
        return Path(self.path) if remote_url(self.path) else Path(self.root, self.path)


class StoreBlock(NamedTuple):
    """A block of consecutive rows of a store."""

    folder: Path
    part: str
    start: int
    paths: tuple[str, ...]


InputBlock = tuple[InputFile, ...] | StoreBlock
"""Images that are predicted together."""


class Span(NamedTuple):
    """A block by its source and its range of rows."""

    source: int
    start: int
    stop: int


@dataclass(frozen=True)
class StoreRows:
    """The rows of one part of a store."""

    folder: Path
    part: str
    paths: Sequence[str]
    encoder: str
    """Fingerprint of the encoder that made them."""


@dataclass(frozen=True)
class Inputs:
    """All inputs of a prediction, in the order of the sources."""

    sources: tuple[list[InputFile] | StoreRows, ...]
    fingerprint: str
    """Fingerprint of the names, sizes and times of all files, and of all stores."""

    def spans(self, images: int) -> list[Span]:
        """The blocks, of at most `images` files or STORE_BLOCK rows of a store."""
        found = []
        for number, source in enumerate(self.sources):
            rows, step = (
                (len(source.paths), STORE_BLOCK)
                if isinstance(source, StoreRows)
                else (len(source), images)
            )
            starts = range(0, rows, step)
            found += [Span(number, start, min(start + step, rows)) for start in starts]
        return found

    def block(self, span: Span) -> InputBlock:
        """The files or the rows of a block."""
        source, part = self.sources[span.source], slice(span.start, span.stop)
        if isinstance(source, StoreRows):
            return StoreBlock(source.folder, source.part, span.start, tuple(source.paths[part]))
        return tuple(source[part])


def inputs_of(sources: Sequence[Path]) -> Inputs:
    """List the inputs of sources; a folder's files are in the order of their paths' bytes.

    A file that cannot be opened is among them, with the reason.

    Raises:
        InputError: a source is not there, or holds nothing.
    """
    require(len(sources) > 0, "There is nothing to look at: name images, folders, lists or stores.")
    found: list[list[InputFile] | StoreRows] = []
    seal = hashlib.sha256()
    for source in sources:
        path = source.expanduser()
        if is_store(path):
            for rows, about in _rows(path):
                found.append(rows)
                seal.update(about)
            continue
        if not found or isinstance(found[-1], StoreRows):
            found.append([])
        files = found[-1]
        assert isinstance(files, list)
        before = len(files)
        for file, about in _files(path):
            files.append(file)
            seal.update(about)
        require(
            len(files) > before,
            f"{printable(str(source))} holds no files: name a folder with images.",
        )
    return Inputs(tuple(found), seal.hexdigest())


def is_store(path: Path) -> bool:
    """Whether a folder is a store, finished or not; one of its files may be missing."""
    if os.path.lexists(path / SHARDS):
        return True
    names = ("manifest.json", JOURNAL, view_file("train", "plain"))
    return sum(os.path.lexists(path / name) for name in names) >= 2


def _rows(folder: Path) -> Iterator[tuple[StoreRows, bytes]]:
    store = Store.open(folder)
    paths, prints = store.paths(), store.plan.fingerprints
    for part, about in store.plan.parts.items():
        names = paths.get(part) or [f"{part} {row}" for row in range(about.rows)]
        yield (
            StoreRows(folder, part, names, prints["encoder"]),
            _json_bytes(part, about.rows, prints),
        )


def _files(path: Path) -> Iterator[tuple[InputFile, bytes]]:
    if path.is_dir():
        listing = list_files(path)
        entries: dict[str, Entry | str] = {entry.path: entry for entry in listing.files}
        entries |= listing.left_out
        for name in sorted(entries, key=os.fsencode):
            yield _file(os.path.join(path, name) if name else str(path), "", entries[name])
    else:
        yield from file_inputs(*list_names(path))


def list_names(path: Path) -> tuple[str, list[str]]:
    """List the images of a folder or a list, or name a file; the folder that names are of first.

    Raises:
        InputError: nothing is there.
    """
    if path.is_dir():
        listing = list_files(path)
        names = {entry.path for entry in listing.files} | listing.left_out.keys()
        ordered = sorted(names, key=os.fsencode)
        return "", [os.path.join(path, name) if name else str(path) for name in ordered]
    if is_list(path) and remote_url(path) is None:
        return str(path.parent), read_list(path)[0]
    if os.path.lexists(path) or remote_url(path) is not None:
        return "", [remote_url(path) or str(path)]
    raise InputError(f"{printable(str(path))} is not there: name images, folders or lists.")


def file_inputs(root: str, names: Iterable[str]) -> Iterator[tuple[InputFile, bytes]]:
    """The files of names relative to a folder, each with what is known of its state."""
    for name in names:
        yield _file(name, root, _entry_or_reason(Path(root), name))


def _entry_or_reason(root: Path, name: str) -> Entry | str:
    try:
        return entry_of(root, name)
    except RefusedError as refusal:
        return str(refusal)


def _file(path: str, root: str, found: Entry | str) -> tuple[InputFile, bytes]:
    if isinstance(found, str):
        return InputFile(path, root, found), _json_bytes(path, root, found)
    return InputFile(path, root, ""), _json_bytes(path, root, found.size, found.mtime_ns)


def _json_bytes(*values: object) -> bytes:
    return json.dumps(values).encode()
