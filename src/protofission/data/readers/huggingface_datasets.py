"""Image data sets of Hugging Face's `datasets` library, from a local folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from threading import Lock
from typing import Any

from protofission.core.errors import InputError, require, unknown
from protofission.data.image_sets import ImageSet
from protofission.data.label_names import number_labels
from protofission.data.readers.decode import Decoding, RefusedError, size_of
from protofission.data.readers.file_listing import content_of, entry_of, listed
from protofission.data.readers.image_cache import Entry, Progress
from protofission.data.readers.image_folders import cache_for, gathered
from protofission.data.readers.image_problems import Report
from protofission.system.optional_libraries import needed


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
    """The images of a data set in the order of its rows, and a report on what was left out.

    Nothing is downloaded, and no code of the data set is run.

    Args:
        folder: what `save_to_disk` wrote, or one with .parquet files, as a hub repository has them.
        size: (height, width), or one number for both; see `Decoding`.
        cache: the folder of decoded images; if none is given, the usual cache folder.
        split: which part, where there are several.
        image_column: where there are several of images.
        label_column: the labels, if they are not the only column of class labels.
        unlabeled: take all images for a pool.
        class_names: the classes in their order; those of the data set if none are given.
    """
    datasets = needed("datasets", "hf", "A Hugging Face data set")
    home = Path(folder).expanduser().absolute()
    height, width = size_of(size)
    decoding, store = Decoding(height, width, channels), cache_for(home, cache)
    listing = listed(home)
    files = listing.files
    for path in listing.left_out:
        require(
            (home / path).is_dir(), f"{home / path} is no file, and would be waited for: remove it."
        )
    rows = _opened(datasets, home, files, split, store)
    column = _column(rows, datasets.Image, image_column, "image", "image_column")
    require(
        isinstance(rows.features[column], datasets.Image),
        f"The column {column!r} holds no images: name another, as image_column=.",
    )
    images = rows.select_columns([column]).cast_column(column, datasets.Image(decode=False))
    labels: list[str | None] = [None] * len(images)
    known = class_names
    if not unlabeled:
        label = _column(rows, datasets.ClassLabel, label_column, "class label", "label_column")
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

    state = hashlib.sha256(json.dumps([astuple(file) for file in files]).encode()).hexdigest()
    return gathered(
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


def _opened(
    datasets: Any, home: Path, files: Sequence[Entry], split: str | None, cache: Path
) -> Any:
    """The rows of a split."""
    names = {Path(file.path).name for file in files}
    try:
        if names & {"dataset_info.json", "dataset_dict.json"}:
            found = datasets.load_from_disk(str(home))
            parts = dict(found) if isinstance(found, dict) else {"": found}
            return parts[_chosen(home, parts, split)]
        groups: dict[str, list[str]] = {}
        for file in files:
            if file.path.endswith(".parquet"):
                groups.setdefault(_split_of(file.path), []).append(str(home / file.path))
        require(
            len(groups) > 0,
            f"{home} holds neither what save_to_disk writes nor .parquet files: name another.",
        )
        paths = groups[_chosen(home, groups, split)]
        return datasets.Dataset.from_parquet(paths, cache_dir=str(cache / "datasets"))
    except InputError:
        raise
    except Exception as error:  # the library raises what its parts raise
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"{home} is no data set that can be read ({type(error).__name__}: {reason}): "
            "save it again."
        ) from None


def _labels(rows: Any, column: str) -> tuple[list[str | None], Sequence[str] | None]:
    """The labels of all rows by name, and the classes where the data set knows them."""
    values, feature = rows.select_columns([column])[:][column], rows.features[column]
    if hasattr(feature, "names"):
        names = list(feature.names)
        highest = max((v for v in values if v is not None), default=0)
        require(
            highest < len(names),
            f"The column {column!r} holds {highest}, but names {len(names)} classes: mend it.",
        )
        return [None if v is None or v < 0 else names[v] for v in values], names
    for value in values:
        require(
            value is None or (isinstance(value, str | int) and not isinstance(value, bool)),
            f"The column {column!r} holds {value!r}: name a column of names or whole numbers.",
        )
    return [None if value in (None, "", -1) else str(value) for value in values], None


def _split_of(path: str) -> str:
    """train of data/train-00000-of-00002.parquet, as the hub names its files."""
    return Path(path).name.removesuffix(".parquet").partition("-")[0]


def _chosen(home: Path, parts: Mapping[str, Any], split: str | None) -> str:
    if split is None or list(parts) == [""]:
        require(
            len(parts) == 1,
            f"{home} has the splits {', '.join(sorted(parts))}: say which one, as split=.",
        )
        return next(iter(parts))
    if split not in parts:
        raise unknown("split", split, parts)
    return split


def _column(rows: Any, kind: type, name: str | None, what: str, option: str) -> str:
    """The named column, or the only one of a kind."""
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
