"""The verbs of data sets: data fetch, data check, split."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from protofission.cli.arguments import OptionalOut, OptionalPath, Set, Whole
from protofission.cli.json_results import Json, gives_json
from protofission.cli.known_names import DataSetName, OfficialDataSetName
from protofission.core.errors import printable


@gives_json("data fetch")
def fetch(
    name: OfficialDataSetName, /, *, folder: OptionalPath = None, json: Json = False
) -> dict[str, Any]:
    """Download a data set and verify it; goes on where it was interrupted.

    For example:

        protofission data fetch cifar10
        protofission data fetch cifar100 --folder ~/data

    Parameters
    ----------
    name
        cifar10, cifar100, mnist or fashion-mnist.
    folder
        The folder of data sets; by default $PROTOFISSION_DATA or the cache folder.
    """
    from rich.progress import DownloadColumn, Progress, TaskID

    from protofission.data.readers.fetch import fetch as fetch_files

    with Progress(*Progress.get_default_columns(), DownloadColumn()) as bars:
        tasks: dict[str, TaskID] = {}

        def show(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file)
            bars.update(tasks[file], completed=done, total=total or None)

        place, downloaded = fetch_files(name, folder, show)
    print(f"{name} {'is now' if downloaded else 'was already'} in {place}, verified.")
    return {"name": name, "folder": place, "downloaded": downloaded}


@gives_json("data check", quiet=True)
def check(
    folder: Path,
    pool: OptionalPath = None,
    /,
    *,
    size: Whole = 64,
    json: Json = False,
) -> dict[str, Any]:
    """Read a folder or list of images; report bad files, duplicates and overlaps.

    For example:

        protofission data check labeled/
        protofission data check labeled/ pool/

    Parameters
    ----------
    folder
        Class subfolders, a flat folder, or a CSV or Parquet list of paths and labels.
    pool
        A second folder or list, of unlabeled images; images that are in both are reported.
    size
        The side to which images are scaled, in pixels.
    """
    from protofission.data.readers.image_folders import load_folder
    from protofission.data.readers.image_problems import overlaps

    images, report = load_folder(folder, size)
    print("\n".join(report.lines()))
    found: dict[str, Any] = {"folder": asdict(report), "pool": None, "in_both": []}
    if pool is not None:
        others, report = load_folder(pool, size, unlabeled=True)
        print("\n".join(report.lines()))
        found["pool"] = asdict(report)
        for overlap in overlaps(images, others):
            here, there = images.paths[overlap.first], others.paths[overlap.second]
            print(f"{printable(here)} is in the pool too: {printable(there)}")
            found["in_both"].append([here, there])
    return found


@gives_json("split", quiet=True)
def split(
    name: str,
    /,
    *,
    dataset: DataSetName = "digits",
    folder: OptionalPath = None,
    set_: Set = (),
    out: OptionalOut = None,
    json: Json = False,
) -> dict[str, Any]:
    """Show a named split of a data set, write it to a file, or verify such a file.

    For example:

        protofission split orca
        protofission split ds3l --dataset cifar10 --set ratio=0.5 --out ds3l.json
        protofission split ds3l.json --dataset cifar10

    Parameters
    ----------
    name
        A split by name, or the path of a split file to verify.
    dataset
        The data set by name.
    folder
        The folder of its files; by default in $PROTOFISSION_DATA or the cache folder.
    set_
        option=value of the split, such as seed=1.
    out
        The file to write.
    """
    from protofission.core.options import override_all
    from protofission.data.datasets import DataSpec
    from protofission.data.splits.labeling import Labeling
    from protofission.data.splits.registry import SPLITS, find_split, verify
    from protofission.data.splits.split_files import read_split, write_split

    labels = Labeling.of(DataSpec(dataset, None if folder is None else str(folder)).read())
    if name not in SPLITS and Path(name).suffix:
        found = read_split(Path(name))
        verify(found, labels)
        print(f"{name} is the split {found.name} of {dataset}, verified.")
    else:
        found = override_all(find_split(name), set_).split(labels)
    for key, value in found.manifest().items():
        print(f"{key}: {value}")
    if out is not None:
        write_split(found, out)
        print(f"Written to {out}.")
    return {**found.manifest(), "out": out}
