"""Read folders and lists of image files of any size as one image set, with a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from protofission.core.errors import InputError, printable, require
from protofission.core.progress import Progress
from protofission.data.image_sets import NO_LABEL, ImageSet, Labels
from protofission.data.label_names import check_distinct, number_labels, sort_class_names
from protofission.data.readers.decode import Decoding, height_and_width
from protofission.data.readers.file_listing import content_of, entry_of, list_files
from protofission.data.readers.image_cache import ELSEWHERE, Decoded, Entry, load_decoded
from protofission.data.readers.image_formats import FORMAT_NAMES, RefusedError
from protofission.data.readers.image_lists import is_list, read_list
from protofission.data.readers.image_problems import Report, duplicates_of
from protofission.data.readers.official_datasets import cache_home
from protofission.data.readers.remote_files import remote_url


def load_folder(
    folder: Path | str,
    size: int | tuple[int, int],
    channels: int = 3,
    cache: Path | str | None = None,
    *,
    unlabeled: bool = False,
    class_names: Sequence[str] | None = None,
    path_column: str = "path",
    label_column: str = "label",
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[ImageSet, Report]:
    """Read the images of a folder or a list, and report on files left out and duplicates.

    - A folder with subfolders: each subfolder is a class, with all images below it.
    - A folder of files alone: a pool, in which no image has a label.
    - A .csv or .parquet list: a column of paths, relative to the list, and one of labels.

    A folder's images are sorted by the bytes of their paths, a list's are in the order of the list,
    classes in that of `sort_class_names`. For sizes, colors and limits see `Decoding`.

    Args:
        size: (height, width), or one number for both.
        cache: the folder of decoded images; by default the usual cache folder.
        unlabeled: read all images as a pool, whatever subfolders or labels there are.
        class_names: the classes in order, so that several sets agree.
        workers: threads that decode; the result is the same for any number.
    """
    where = Path(folder).expanduser().absolute()
    height, width = height_and_width(size)
    decoding = Decoding(height, width, channels)
    listed = list_images(
        where,
        unlabeled=unlabeled,
        class_names=class_names,
        path_column=path_column,
        label_column=label_column,
    )
    places, classes = number_labels(listed.labels, listed.class_names)
    store = cache_for(where, cache)
    return decode_and_report(
        str(where),
        listed.entries,
        places,
        classes,
        lambda place: content_of(listed.place(place), decoding.byte_limit),
        decoding,
        store,
        left_out=listed.left_out,
        hidden=listed.hidden,
        workers=workers,
        progress=progress,
    )


@dataclass(frozen=True)
class ListedImages:
    """Image files with their labels, before they are read."""

    root: Path
    """The folder that paths are relative to."""
    entries: Sequence[Entry]
    labels: Sequence[str | None]
    class_names: tuple[str, ...] | None
    """The classes in order; None where the labels tell them."""
    left_out: dict[str, str]
    hidden: int = 0

    def place(self, number: int) -> Path:
        """The path to read an image from."""
        path = self.entries[number].path
        return Path(path) if remote_url(path) else self.root / path


def list_images(
    where: Path,
    *,
    unlabeled: bool = False,
    class_names: Sequence[str] | None = None,
    path_column: str = "path",
    label_column: str = "label",
) -> ListedImages:
    """List the images of a folder or a list; the arguments are those of `load_folder`."""
    if is_list(where) and not where.is_dir():
        left_out: dict[str, str] = {}
        paths, names = read_list(where, path_column, label_column)
        entries, labels = listed_entries(where.parent, paths, names, left_out)
        classes = check_distinct(class_names) if class_names is not None else None
        found = ListedImages(where.parent, entries, labels, classes, left_out)
    else:
        found = _list_folder(where, unlabeled, class_names)
    return replace(found, labels=[None] * len(found.entries)) if unlabeled else found


def _list_folder(where: Path, unlabeled: bool, class_names: Sequence[str] | None) -> ListedImages:
    listing = list_files(where)
    left_out, entries = listing.left_out, listing.files
    labels = [_class_of(entry) for entry in entries]
    classes = (
        sort_class_names(listing.folders) if class_names is None else check_distinct(class_names)
    )
    if not any(labels) or unlabeled:
        classes = check_distinct(class_names or ())
    else:
        for entry, label in zip(entries, labels, strict=True):
            if label is None:
                left_out[entry.path] = "beside the class folders, and so of no class"
        entries = [e for e in entries if e.path not in left_out]
        labels = [label for label in labels if label is not None]
    return ListedImages(where, entries, labels, classes, left_out, listing.hidden)


def decode_and_report(
    source: str,
    entries: Sequence[Entry],
    labels: Labels,
    class_names: tuple[str, ...],
    read: Callable[[int], bytes],
    decoding: Decoding,
    cache: Path,
    *,
    left_out: dict[str, str],
    hidden: int = 0,
    key: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[ImageSet, Report]:
    """Decode entries that have labels, and report on them.

    Args:
        key: the identity of the source for the cache; by default the source's name.
    """
    if not entries:
        raise _nothing_found_error(source, left_out)
    found = load_decoded(
        key or source, entries, read, decoding, cache, workers=workers, progress=progress
    )
    kept = [place for place, outcome in enumerate(found.outcomes) if outcome.reason is None]
    refused = {
        entry.path: outcome.reason
        for entry, outcome in zip(entries, found.outcomes, strict=True)
        if outcome.reason is not None
    }
    left_out = dict(sorted({**left_out, **refused}.items()))
    if not kept:
        raise _nothing_found_error(source, left_out)
    images = ImageSet(
        found.pixels,
        labels[kept],
        class_names,
        paths=tuple(entries[k].path for k in kept),
        digests=tuple(found.outcomes[k].pixel_digest for k in kept),
    )
    return images, _report(source, images, found, kept, left_out, hidden)


def _nothing_found_error(source: str, left_out: dict[str, str]) -> InputError:
    first = next((f" ({printable(p) or '.'}: {printable(r)})" for p, r in left_out.items()), "")
    return InputError(
        f"{printable(source)} holds no image that can be read{first}: give {FORMAT_NAMES} files."
    )


def cache_for(source: Path, cache: Path | str | None) -> Path:
    """The folder of decoded images; refused if it lies among the images."""
    store = Path(cache).expanduser() if cache is not None else cache_home() / "images"
    inside = source.is_dir() and store.resolve().is_relative_to(source.resolve())
    require(not inside, f"The cache folder {store} lies in the folder of images: {ELSEWHERE}.")
    return store


def _report(
    source: str,
    images: ImageSet,
    found: Decoded,
    kept: Sequence[int],
    left_out: dict[str, str],
    hidden: int,
) -> Report:
    outcomes = [found.outcomes[place] for place in kept]
    present = set(np.unique(images.labels).tolist())
    has_labels = present != {NO_LABEL}
    return Report(
        source=source,
        read=len(kept),
        left_out=left_out,
        duplicates=duplicates_of(
            images.paths,
            images.labels.tolist(),
            [outcome.file_digest for outcome in outcomes],
            images.digests,
        ),
        empty_classes=tuple(
            name for c, name in enumerate(images.class_names) if has_labels and c not in present
        ),
        hidden=hidden,
        from_cache=found.from_cache,
    )


def listed_entries(
    root: Path, paths: Sequence[str], names: Sequence[str | None], left_out: dict[str, str]
) -> tuple[list[Entry], list[str | None]]:
    """The files of a list that are there, with their labels; reasons of the others by path."""
    entries: list[Entry] = []
    labels: list[str | None] = []
    for path, name in zip(paths, names, strict=True):
        try:
            entries.append(entry_of(root, path))
            labels.append(name)
        except RefusedError as refusal:
            left_out[path] = str(refusal)
    return entries, labels


def _class_of(entry: Entry) -> str | None:
    top, _, rest = entry.path.partition("/")
    return top if rest else None
