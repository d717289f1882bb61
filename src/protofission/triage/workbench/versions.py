"""The versions of a model: each refit that was kept, and the model of the fit, as whole folders.

`MODEL/workbench/versions/0000` holds the files of the fit, `0001` those of the first refit that was
kept, and so on; the files of the version in use lie in the model's folder too. To switch, a note
with the version's number is written; then its files are copied, one by one; then the note goes. A
model with a note is read from the version that the note names: so, whenever a process is killed,
the model opens, as it was or as it will be, and `settle` finishes the work.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from protofission.core.errors import InputError, printable, require
from protofission.system.json_files import parse_json, read_json, to_json
from protofission.system.plain_files import read_plain
from protofission.system.whole_files import write_whole

VERSION_FILES = (
    "bundle.json",
    "model.safetensors",
    "calibration.npy",
    "labels.csv",
    "triage.csv",
    "triage.parquet",
    "triage.html",
    "refit.json",
)
"""All files of a model that a refit writes; features and the list of images stay."""
RECORD = "refit.json"
"""Labels that a refit learned from, and its report; the model of the fit has none."""
WORKBENCH, VERSIONS, CANDIDATE = "workbench", "versions", "candidate"
NOTE, CURRENT = "switching.json", "current.json"
WRITING = ".writing"
"""The end of the name of a folder that is not whole yet."""
MOST_NOTE_BYTES, MOST_RECORD_BYTES = 2**10, 2**30
LARGEST_VERSION = 10**6


@dataclass(frozen=True)
class RefitRecord:
    """Labels that a refit learned from, the names of its groups, and its report."""

    classes: tuple[int, ...]
    """Ids of the model's classes, in its order."""
    subclass_names: tuple[tuple[str, ...], ...]
    """Names of the sub-classes of each class."""
    cluster_names: tuple[str, ...]
    rows: tuple[int, ...]
    """Images that were labels."""
    labels: tuple[int, ...]
    """Their classes, as places in `classes`."""
    folds: tuple[int, ...]
    """The fold that each was held out in; NO_FOLD where it only trained."""
    parts: dict[str, int]
    """Numbers of sub-classes, by the id of a class, where a person changed them."""
    report: dict[str, Any]
    """Before and after, sentences, and what moved, in plain JSON values."""


def candidate_folder(model: Path) -> Path:
    """The folder of a refit that was not kept yet."""
    return model / WORKBENCH / CANDIDATE


def version_folder(model: Path, version: int) -> Path:
    """The folder of a version."""
    return model / WORKBENCH / VERSIONS / f"{version:04d}"


def current_version(model: Path) -> int:
    """The number of the version in use: 0 is that of the fit."""
    note = _read_note(model, NOTE)
    return note if note is not None else (_read_note(model, CURRENT) or 0)


def bundle_folder(model: Path) -> Path:
    """The folder that the bundle of a model is whole in: the model's own, unless it switches."""
    note = _read_note(model, NOTE)
    return model if note is None else version_folder(model, note)


def settle(model: Path) -> None:
    """Finish a switch that was killed, and delete versions that were not written to their end.

    Raises:
        InputError: the folder cannot be written.
    """
    if (note := _read_note(model, NOTE)) is not None:
        _copy_into(model, note)
    for left in (model / WORKBENCH / VERSIONS).glob(f"*{WRITING}"):
        shutil.rmtree(left, ignore_errors=True)


def store_candidate(model: Path, above: int = 0) -> int:
    """Make the refit that waits a version, and return its number; the model stays as it is.

    Args:
        above: versions that were, of which no number is used again.
    """
    candidate = candidate_folder(model)
    require(candidate.is_dir(), "There is no refit that waits: refit first.")
    _store_current(model)
    known = [int(path.name) for path in (model / WORKBENCH / VERSIONS).iterdir() if _named(path)]
    version = max(above, *known) + 1
    with _disk_errors(candidate):
        candidate.replace(version_folder(model, version))
    return version


def drop_candidate(model: Path) -> None:
    """Delete the refit that waits, if there is one."""
    candidate = candidate_folder(model)
    going = candidate.with_name(candidate.name + WRITING)
    shutil.rmtree(going, ignore_errors=True)
    if candidate.is_dir():
        candidate.replace(going)
    shutil.rmtree(going, ignore_errors=True)


def write_candidate(model: Path, write: Callable[[Path], None]) -> None:
    """Make a folder the refit that waits, once all of it is written.

    Args:
        write: writes the files into a new folder.
    """
    drop_candidate(model)
    candidate = candidate_folder(model)
    begun = candidate.with_name(candidate.name + WRITING)
    try:
        with _disk_errors(begun):
            begun.mkdir(parents=True)
            write(begun)
            begun.replace(candidate)
    except BaseException:
        shutil.rmtree(begun, ignore_errors=True)  # on a full disk the room is wanted
        raise


def switch(model: Path, version: int) -> None:
    """Make a version the model, byte for byte as it was kept.

    Raises:
        InputError: there is no such version, or it cannot be written.
    """
    if version == current_version(model) and _read_note(model, NOTE) is None:
        return
    require(
        version_folder(model, version).is_dir(),
        f"{printable(str(model))} has no version {version}: keep a refit first.",
    )
    _store_current(model)
    write_whole(model / WORKBENCH / VERSIONS / NOTE, _note(version))
    _copy_into(model, version)


def read_record(folder: Path) -> RefitRecord:
    """The record of the refit in a folder: of a version, of a candidate or of the model.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return read_json(folder / RECORD, RefitRecord, most=MOST_RECORD_BYTES)
    except (OSError, InputError) as wrong:
        raise InputError(
            f"{printable(str(folder / RECORD))} cannot be read ({str(wrong).rstrip('.')}): go back "
            "to another version, or fit again."
        ) from None


def write_record(folder: Path, record: RefitRecord) -> None:
    """Write the record of a refit into a folder."""
    write_whole(folder / RECORD, to_json(asdict(record)).encode())


def _store_current(model: Path) -> None:
    """Copy the model's files into the folder of its version, if they are not there yet."""
    settle(model)
    place = version_folder(model, current_version(model))
    if place.is_dir():
        return
    begun = place.with_name(place.name + WRITING)
    with _disk_errors(begun):
        begun.mkdir(parents=True)
        for name in VERSION_FILES:
            if (model / name).exists():
                write_whole(begun / name, read_plain(model / name))
        begun.replace(place)


def _copy_into(model: Path, version: int) -> None:
    """Copy the files of a version into the model's folder, then take the note away."""
    place = version_folder(model, version)
    with _disk_errors(model):
        for name in VERSION_FILES:
            if (place / name).exists():
                write_whole(model / name, read_plain(place / name))
            else:
                (model / name).unlink(missing_ok=True)
        write_whole(model / WORKBENCH / VERSIONS / CURRENT, _note(version))
        (model / WORKBENCH / VERSIONS / NOTE).unlink(missing_ok=True)


def _note(version: int) -> bytes:
    return to_json({"version": version}).encode()


def _read_note(model: Path, name: str) -> int | None:
    path = model / WORKBENCH / VERSIONS / name
    try:
        content = parse_json(read_plain(path, MOST_NOTE_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"{printable(str(path))} cannot be read: {error.strerror}.") from None
    version = content.get("version") if isinstance(content, dict) else None
    require(
        type(version) is int and 0 <= version <= LARGEST_VERSION,
        f"{printable(str(path))} was edited or is damaged: delete it, and go back to a version.",
    )
    return int(str(version))


def _named(path: Path) -> bool:
    return path.name.isdigit() and path.is_dir()


@contextmanager
def _disk_errors(place: Path) -> Iterator[None]:
    """Turn an OSError into a sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{printable(str(place))} cannot be written ({error.strerror or error}): make room."
        ) from None
