"""The verb labels."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from protofission.cli.arguments import Flag, OptionalPath, Out
from protofission.cli.json_results import Json, gives_json
from protofission.core.errors import printable

ExportName = Literal["folders", "list", "csv", "parquet", "coco", "hugging-face", "label-studio"]
OptionalExport = Annotated[ExportName | None, Parameter(show_default=False)]


@gives_json("labels")
def labels(
    model: Path,
    /,
    *,
    out: Out,
    format: OptionalExport = None,
    what: Literal["labeled", "accepted", "all"] = "labeled",
    paths: Literal["relative", "absolute"] = "relative",
    labeled: OptionalPath = None,
    pool: OptionalPath = None,
    skip_missing: Flag = False,
    json: Json = False,
) -> dict[str, Any]:
    """Export the labels of a model's images, as they stand in its workbench.

    Your images are never moved or changed: folders hold copies. The export is there whole or not
    at all. Images that are missing are listed on standard output.

    For example:

        protofission labels model --out labels.csv
        protofission labels model --out sorted/ --format folders --what accepted
        protofission labels model --out labels.csv --format list
        protofission labels model --out coco.json --what all --paths absolute

    Parameters
    ----------
    model
        The folder of a model, as `protofission fit` writes it.
    out
        A new file, or for folders, hugging-face and label-studio a new folder.
    format
        folders (a copy of each image in a folder of its class), list (a CSV that `protofission
        fit` reads), csv, parquet, coco, hugging-face or label-studio; by default that of the
        suffix: .csv, .parquet, .json is coco, and none is folders.
    what
        labeled: images that you labeled; accepted: also those that the model accepts, with its
        class; all: every image, with its decision.
    paths
        Paths in the export: relative to the folders of the images (in a list to the list), or
        absolute.
    labeled
        Folder of the labeled images, if it was moved.
    pool
        Folder of the pool, if it was moved.
    skip_missing
        Leave images out whose files are missing; by default they end the export.
    """
    from rich.console import Console

    from protofission.system.console import progress_bar
    from protofission.triage.workbench.exports import (
        EXPORTS,
        MissingImagesError,
        export_images,
        format_of_name,
    )
    from protofission.triage.workbench.exports.labeled_images import labeled_images
    from protofission.triage.workbench.workbench import Workbench

    console, name = Console(stderr=True), format or format_of_name(out)
    with Workbench.open(model, labeled, pool, read_only=True) as workbench:
        state, material = workbench.now
        images = labeled_images(material, state, what)
    try:
        with progress_bar(console, "exporting") as progress:
            done = export_images(
                *(images, out, name), paths=paths, skip_missing=skip_missing, progress=progress
            )
    except MissingImagesError as error:
        for file in error.missing:
            print(printable(file))
        raise
    for file in done.left_out if EXPORTS[name].reads else ():
        print(printable(file))
    print(done.sentence())
    return {"format": name, **asdict(done)}
