"""The verbs of a fitted model: fit, predict, show, drift, export."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from protofission.cli.arguments import (
    AllowDownload,
    Flag,
    Images,
    Model,
    NumberOrAuto,
    On,
    OptionalOut,
    OptionalQuality,
    OptionalText,
    OptionalWhole,
    Out,
    Set,
    Whole,
    command_line,
)
from protofission.cli.json_results import Json, gives_json
from protofission.core.errors import InputError, printable

if TYPE_CHECKING:
    from protofission.triage.bundle import Bundle

All = Annotated[bool, Parameter(name="--all", negative="")]
NoFeatures = Annotated[
    bool,
    Parameter(
        negative="",
        show_default=False,
        help="Do not keep features and the list of images, which the workbench needs, in the "
        "model.",
    ),
]
OptionalFormat = Annotated[Literal["csv", "jsonl", "parquet"] | None, Parameter(show_default=False)]


@gives_json("fit")
def fit(
    labeled: Path,
    unlabeled: Path,
    /,
    *,
    out: Out,
    keep: float = 0.95,
    discover: NumberOrAuto = 0,
    prototypes: NumberOrAuto = 5,
    encoder: OptionalText = None,
    quality: OptionalQuality = None,
    folds: Whole = 5,
    steps: Whole = 100,
    seed: Whole = 0,
    processes: OptionalWhole = None,
    on: On = "local",
    no_features: NoFeatures = False,
    set_: Set = (),
    json: Json = False,
) -> dict[str, Any]:
    """Fit a model to two folders; write it, a triage of the pool and a page.

    Checks the images, computes features once, trains models with and without the pool, keeps the
    better ones, and sets a threshold: for a thousand, a minute or two. Stopped, it goes on.

    For example:

        protofission fit labeled/ pool/ --out model
        protofission fit labels.csv pool/ --out model --keep 0.99 --discover auto
        protofission fit labeled/ pool/ --out model --on auto

    Parameters
    ----------
    labeled
        A folder with a subfolder for each class, or a CSV or Parquet list with labels.
    unlabeled
        The pool: a folder of images, or a list.
    out
        A new folder for the model.
    keep
        Share of known images to accept.
    discover
        Number of clusters to call novel, or auto; with 0, their images are called rejected.
    prototypes
        Prototypes and sub-classes of each class; with auto, sub-classes are counted.
    encoder
        As in `protofission embed`; a hub name is downloaded. By default the one of the quality.
    quality
        As in `protofission embed`: fast, good (the default) or best.
    folds
        Folds of the labels; with 1, a part of them is held out instead.
    steps
        Training steps of each model.
    seed
        Seed of all random numbers.
    processes
        Number of processes that compute features; by default one per processor.
    on
        Machines that train the folds: local, ray, auto, ray://HOST:PORT, slurm or slurm:PARTITION.
    set_
        option=value of the encoder, such as size=128; by default the images set the size.
    """
    from rich.console import Console

    from protofission.triage.fit import fit as fit_folders
    from protofission.triage.fit_options import FitOptions

    options = FitOptions(keep, discover, prototypes, folds, steps=steps, seed=seed)
    bundle = fit_folders(
        *(labeled, unlabeled, out, options),
        encoder=encoder,
        quality=quality,
        encoder_options=set_,
        processes=processes,
        on=on,
        keep_features=not no_features,
        console=Console(),
        command=command_line(),
    )
    return _fit_result(out, bundle)


def _fit_result(out: Path, bundle: Bundle) -> dict[str, Any]:
    from protofission.triage.fit_files import PAGE

    return {"model": out, "page": out / PAGE, **bundle_facts(bundle)}


@gives_json("predict")
def predict(
    model: Model,
    images: Images,
    /,
    *,
    out: OptionalOut = None,
    format: OptionalFormat = None,
    processes: OptionalWhole = None,
    on: On = "local",
    shard: OptionalWhole = None,
    allow_download: AllowDownload = False,
    force: Flag = False,
    json: Json = False,
) -> dict[str, Any]:
    """Predict images: class, probability, sub-class, ID score, decision.

    Takes any number of files. One that cannot be read is a row with an error. With --out, a
    prediction that was stopped or killed goes on where it was with the same command; one that is
    finished stays as it is.

    For example:

        protofission predict model new/ --out new.csv
        protofission predict model a.jpg b.png
        protofission predict model photos/ list.csv --out all.parquet --processes 4
        protofission predict model list.parquet --out rows/ --shard 65536 --on ray://head:10001

    Parameters
    ----------
    images
        Image files, folders, CSV or Parquet lists, or stores.
    out
        The file of rows; by default standard output.
    format
        Format of the rows; by default that of the file's suffix.
    processes
        Number of processes; by default one per processor.
    on
        Machines that predict: local, ray, auto, ray://HOST:PORT, slurm or slurm:PARTITION.
    shard
        Write a folder of shards, each with the rows of so many images, instead of a file.
    force
        Write over a file that is there; by default a finished one is left, any other refused.
    """
    from rich.console import Console

    from protofission.system.console import print_line, progress_bar
    from protofission.system.launch.launcher import find_launcher
    from protofission.system.processors import processors
    from protofission.triage.predict import predict as predict_images
    from protofission.triage.predict import predict_to
    from protofission.triage.prediction_shards import predict_in_shards

    console = Console(stderr=True)
    number = processors() if processes is None else processes
    rows: list[dict[str, Any]] | None = None
    with progress_bar(console, "predicting") as progress:
        shown: Any = {"progress": progress, "say": partial(print_line, console)}
        shown |= {"allow_download": allow_download, "force": force}
        if on != "local" or shard is not None:
            launcher, place = find_launcher(on, processes), out or _need_out()
            shown |= {"launcher": launcher, "shard": shard}
            summary = predict_in_shards(model, images, place, format, **shown)
        elif out is None:
            stream = io.BytesIO() if json else sys.stdout.buffer
            summary = predict_to(
                stream, model, images, "jsonl" if json else format,
                processes=number, progress=progress, allow_download=allow_download,
            )  # fmt: skip
            rows = read_json_lines(stream.getvalue()) if isinstance(stream, io.BytesIO) else None
        else:
            summary = predict_images(model, images, out, format, processes=number, **shown)
    print_line(console if out is None else Console(), summary.sentence())
    return {"out": out, **asdict(summary), "images": rows}


def read_json_lines(content: bytes) -> list[dict[str, Any]]:
    """Parse the lines that a prediction wrote."""
    from protofission.system.json_files import parse_json

    return [parse_json(line) for line in content.splitlines()]


def _need_out() -> Path:
    raise InputError("--on and --shard write files: name one with --out, or a folder of shards.")


@gives_json("show", quiet=True)
def show(model: Model, /, *, all_: All = False, json: Json = False) -> dict[str, Any]:
    """Print the card of a model on one screen: its classes, accuracy and training.

    For example:

        protofission show model
        protofission show model --all

    Parameters
    ----------
    all_
        Print the whole card, with every class.
    """
    from protofission.triage.bundle import load

    bundle = load(model)
    _print_wrapped(bundle.card_lines() if all_ else bundle.card_screen())
    return {"model": model, **bundle_facts(bundle)}


@gives_json("drift", quiet=True)
def drift(
    model: Model,
    images: Images,
    /,
    *,
    processes: OptionalWhole = None,
    allow_download: AllowDownload = False,
    all_: All = False,
    json: Json = False,
) -> dict[str, Any]:
    """Compare new images with those that a model was calibrated on, on one screen.

    For example:

        protofission drift model new/
        protofission drift model new/ --all

    Parameters
    ----------
    images
        Image files, folders, CSV or Parquet lists, or stores.
    processes
        Number of processes; by default one per processor.
    all_
        List every class, in the model's order; by default those that changed most.
    """
    from rich.console import Console

    from protofission.system.console import progress_bar
    from protofission.system.processors import processors
    from protofission.triage.drift import drift as measure_drift

    with progress_bar(Console(stderr=True), "looking at images") as progress:
        found = measure_drift(
            model,
            images,
            processes=processors() if processes is None else processes,
            progress=progress,
            allow_download=allow_download,
        )
    _print_wrapped(found.lines() if all_ else found.screen())
    return asdict(found)


@gives_json("export")
def export(
    model: Model,
    file: Path,
    /,
    *,
    input: Literal["images", "features"] = "images",
    allow_download: AllowDownload = False,
    json: Json = False,
) -> dict[str, Any]:
    """Write a model to an ONNX file that needs neither torch nor protofission.

    Preprocessing, calibration and threshold are inside; the number of images is free.

    For example:

        protofission export model model.onnx
        protofission export model head.onnx --input features

    Parameters
    ----------
    file
        A new .onnx file.
    input
        Input of the file: images, or the encoder's features.
    """
    from protofission.triage.bundle import load
    from protofission.triage.export import export as export_bundle

    export_bundle(load(model), file, input, allow_download=allow_download)
    print(f"The file: {printable(str(file))}")
    return {"file": file, "bytes": file.stat().st_size, "input": input}


def bundle_facts(bundle: Bundle) -> dict[str, Any]:
    """The facts of a model that --json prints."""
    return {
        "made_by": bundle.version,
        "fingerprint": bundle.fingerprint,
        "classes": bundle.class_names,
        "subclasses": dict(zip(bundle.class_names, bundle.subclass_names, strict=True)),
        "clusters": bundle.cluster_names,
        "encoder": {"source": bundle.encoder_spec.source, **bundle.encoder_facts},
        "threshold": float(bundle.calibrated_model.threshold),
        "temperature": float(bundle.calibrated_model.temperature),
        "card": bundle.card,
    }


def _print_wrapped(lines: Sequence[str]) -> None:
    """Print lines, wrapped to the width of the terminal."""
    from protofission.triage.one_screen import wrap_line

    for text in lines:
        print(wrap_line(text, shutil.get_terminal_size().columns))
