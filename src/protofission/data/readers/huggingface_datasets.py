"""Image data sets of Hugging Face's `datasets` library, read from a local folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from threading import Lock
from typing import Any

from protofission.core.errors import InputError, require, unknown
from protofission.core.progress import Progress
from protofission.data.image_sets import ImageSet
from protofission.data.label_names import number_labels
from protofission.data.readers.decode import Decoding, height_and_width
from protofission.data.readers.file_listing import content_of, entry_of, list_files
from protofission.data.readers.image_cache import Entry
from protofission.data.readers.image_folders import cache_for, decode_and_report
from protofission.data.readers.image_formats import RefusedError
from protofission.data.readers.image_problems import Report
from protofission.system.digests import sha256_hex
from protofission.system.optional_libraries import import_optional


def load_hub(
    folder: Path | str,
    size: int | tuple[int, int],
    channels: int = 3,
    cache: Path | str | None = None,
    *,
    split: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    unlabeled: bool = False,
    class_names: Sequence[str] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[ImageSet, Report]:
    """Read the images of a data set in the order of its rows, and report on those left out.

    Nothing is downloaded, and no code of the data set is run.

    Args:
        folder: written by `save_to_disk`, or with .parquet files as in a hub repository.
        size: (height, width), or one number for both; see `Decoding`.
        cache: the folder of decoded images; by default the usual cache folder.
        split: the part to read, if there are several.
        image_column: needed if several columns hold images.
        label_column: needed if there is not exactly one column of class labels.
        unlabeled: ignore the labels.
        class_names: the classes in order; by default those of the data set.
    """
    datasets = import_optional("datasets", "hub", "A Hugging Face data set")
    home = Path(folder).expanduser().absolute()
    height, width = height_and_width(size)
    decoding, store = Decoding(height, width, channels), cache_for(home, cache)
    listing = list_files(home)
    files = listing.files
    for path in listing.left_out:
        require(
            (home / path).is_dir(),
            f"{home / path} is not a file, and reading it may never end: remove it.",
        )
    rows = _open_split(datasets, home, files, split, store)
    column = _choose_column(rows, datasets.Image, image_column, "image", "image_column")
    require(
        isinstance(rows.features[column], datasets.Image),
        f"The column {column!r} holds no images: name another, as image_column=.",
    )
    images = rows.select_columns([column]).cast_column(column, datasets.Image(decode=False))
    labels: list[str | None] = [None] * len(images)
    known = class_names
    if not unlabeled:
        label = _choose_column(
            rows, datasets.ClassLabel, label_column, "class label", "label_column"
        )
        labels, own = _labels(rows, label)
        known = own if class_names is None else class_names
    places, names = number_labels(labels, known)
    one_at_a_time = Lock()

    def read(place: int) -> bytes:
        with one_at_a_time:
            image = images[place][column]
        if image is None:
            raise RefusedError("a row without an image")
        if image["bytes"] is not None:
            return bytes(image["bytes"])
        return content_of(home / entry_of(home, image["path"] or "").path, decoding.byte_limit)

    state = sha256_hex(json.dumps([astuple(file) for file in files]).encode())
    return decode_and_report(
        str(home) if split is None else f"{home} ({split})",
        [Entry(f"row {place}", 0, 0) for place in range(len(images))],
        places,
        names,
        read,
        decoding,
        store,
        left_out={},
        key=f"{home}\n{split}\n{column}\n{state}",
        workers=workers,
        progress=progress,
    )


def _open_split(
    datasets: Any, home: Path, files: Sequence[Entry], split: str | None, cache: Path
) -> Any:
    """Open a data set, and choose one of its splits."""
    names = {Path(file.path).name for file in files}
    try:
        if names & {"dataset_info.json", "dataset_dict.json"}:
            found = datasets.load_from_disk(str(home))
            parts = dict(found) if isinstance(found, dict) else {"": found}
            return parts[_choose_split(home, parts, split)]
        groups: dict[str, list[str]] = {}
        for file in files:
            if file.path.endswith(".parquet"):
                groups.setdefault(_split_of(file.path), []).append(str(home / file.path))
        require(
            len(groups) > 0,
            f"{home} holds neither what save_to_disk writes nor .parquet files: name another.",
        )
        paths = groups[_choose_split(home, groups, split)]
        return datasets.Dataset.from_parquet(paths, cache_dir=str(cache / "datasets"))
    except InputError:
        raise
    except Exception as error:  # the library raises errors of many kinds
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"{home} cannot be read as a data set ({type(error).__name__}: {reason}): "
            "save it again."
        ) from None


def _labels(rows: Any, column: str) -> tuple[list[str | None], Sequence[str] | None]:
    """The labels of all rows by name, and the class names if the data set has them."""
    values, feature = rows.select_columns([column])[:][column], rows.features[column]
    if hasattr(feature, "names"):
        names = list(feature.names)
        highest = max((v for v in values if v is not None), default=0)
        require(
            highest < len(names),
            f"The column {column!r} holds {highest}, but names {len(names)} classes: correct it.",
        )
        return [None if v is None or v < 0 else names[v] for v in values], names
    for value in values:
        require(
            value is None or (isinstance(value, str | int) and not isinstance(value, bool)),
            f"The column {column!r} holds {value!r}: name a column of names or whole numbers.",
        )
    return [None if value in (None, "", -1) else str(value) for value in values], None


def _split_of(path: str) -> str:
    """The split in the name of a hub's file: train of data/train-00000-of-00002.parquet."""
    return Path(path).name.removesuffix(".parquet").partition("-")[0]


def _choose_split(home: Path, parts: Mapping[str, Any], split: str | None) -> str:
    if split is None or list(parts) == [""]:
        require(
            len(parts) == 1,
            f"{home} has the splits {', '.join(sorted(parts))}: say which one, as split=.",
        )
        return next(iter(parts))
    if split not in parts:
        raise unknown("split", split, parts)
    return split


def _choose_column(rows: Any, kind: type, name: str | None, what: str, option: str) -> str:
    """The named column, or the only one of a kind of feature."""
    if name is not None:
        if name not in rows.features:
            raise unknown("column", name, rows.features)
        return name
    found = [key for key, feature in rows.features.items() if isinstance(feature, kind)]
    require(
        len(found) == 1,
        f"The data set has {len(found)} columns of {what}s among "
        f"{', '.join(rows.features)}: name one, as {option}=.",
    )
    return str(found[0])
