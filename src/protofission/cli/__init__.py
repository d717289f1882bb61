"""`protofission VERB`: parse, call one library function, print.

Nothing here imports torch before a verb has been understood: help and refusals answer at once.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter, Token

from protofission import __version__
from protofission.core.errors import InputError, printable, unknown


def whole_number(_: type, tokens: Sequence[Token]) -> int:
    """An int, and nothing that is merely near one."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} must be a whole number.") from None


Set = Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)]
Whole = Annotated[int, Parameter(converter=whole_number)]
Flag = Annotated[bool, Parameter(negative="")]

app = App(
    name="protofission",
    help="Semi-supervised learning on pools that hold strangers, by Prototype Fission.",
    help_epilogue="Start with: protofission demo",
    version=__version__,
    suppress_keyboard_interrupt=False,
)


@app.command
def demo(
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("demo"),
    seeds: Whole = 1,
    first_seed: Whole = 0,
    methods: Annotated[
        tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = (),
    preset: str = "digits",
    set_: Set = (),
) -> None:
    """Train on scikit-learn's digits, 0-4 known and 5-9 strangers, and show what comes out.

    Pretrains a small backbone, trains ORCA and FixMatch-Sigmoid, each without and with prototype
    fission, prints one table and writes one page. A minute or two on two cores; finished runs
    are kept, so that an interrupted demo goes on where it was.

    Examples:

        protofission demo
        protofission demo --seeds 5 --out five-seeds
        protofission demo --methods orca orca+pf --set head.prototypes=3
        protofission demo --preset digits/literal --set method.entropy_weight=2

    Parameters
    ----------
    out
        The folder for the page and the runs.
    seeds
        How many seeds; with more than one, the table shows mean and spread.
    first_seed
        The first of them.
    methods
        Which methods, by name; `protofission methods` lists them.
    preset
        The named experiment to start from: digits, or digits/literal for the paper's words.
    set_
        key=value changes an option of all methods that have it, METHOD:key=value of one.
    """
    from rich.console import Console

    from protofission.experiments.demo import USUAL, plan, run_demo

    jobs = plan(out / "runs", methods or USUAL, preset, set_, seeds, first_seed)
    command = shlex.join(["protofission", *sys.argv[1:]])
    run_demo(jobs, out / "report.html", command, Console())


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Running:
    """How a run is carried out, whatever is trained."""

    out: Annotated[Path, Parameter(name=["--out", "-o"])]
    """The folder of the run, a new one."""
    seed: Whole = 0
    """Of all that is random in training."""
    set_: Set = ()
    """key=value changes an option; `protofission methods NAME --preset P` lists them."""
    resume: Flag = False
    """Go on with the unfinished run in the folder."""
    processes: Whole = 1
    """How many on this machine; with accelerators, one a device."""
    nodes: Whole = 1
    """How many machines; NODE_RANK, MASTER_ADDR and MASTER_PORT tell each its place."""
    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; the best there is, if not said."""
    save_every: float = 60.0
    """The least seconds from one saved state to the next."""
    track: Flag = False
    """Write curves for TensorBoard into the folder."""


@app.command
def embed(
    data: str,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    encoder: str = "efficientnet-lite0",
    plain: Whole = 1,
    weak: Whole = 3,
    strong: Whole = 2,
    simclr: Whole = 0,
    views: Annotated[str | None, Parameter(show_default=False)] = None,
    folder: Annotated[Path | None, Parameter(show_default=False)] = None,
    seed: Whole = 0,
    processes: Annotated[Whole | None, Parameter(show_default=False)] = None,
    accelerator: Literal["auto", "cpu", "cuda"] = "auto",
    set_: Set = (),
) -> None:
    """Compute the features of images and of their augmented views, once, into a store.

    Any method then trains on the store in minutes. An embedding that was stopped or killed goes on
    where it was with the same command; its bytes do not depend on the number of processes.

    Examples:

        protofission embed cifar10 --out stores/cifar10
        protofission embed photos/ --out stores/photos --set size=224
        protofission embed cifar10 --encoder simclr-cifar10 --out stores/own
        protofission embed photos/ --encoder ~/models/clip-vit-base --out stores/clip
        protofission train orca+pf --store stores/cifar10 --out runs/pf

    Parameters
    ----------
    data
        A data set by name, a folder with class subfolders or of images alone, or a CSV or Parquet
        list.
    out
        The folder of the store.
    encoder
        efficientnet-lite0 (packaged); packaged weights, a checkpoint or a run of ours; a folder for
        transformers, or a name on the hub, from where it is then downloaded; an ONNX file.
        KIND:SOURCE says which, if it is not plain.
    plain
        The image as it is; it is always there once.
    weak
        Versions of the weak view: ORCA wants 2 that differ.
    strong
        Versions of the strong view.
    simclr
        Versions of SimCLR's view: SimCLR wants 2.
    views
        The augmentation by name, if not the data set's usual one.
    folder
        Where the files of a named data set are, if not in $PROTOFISSION_DATA or the cache folder.
    seed
        Of the random views.
    processes
        How many compute; as many as there are processors, if not said.
    accelerator
        Where to compute; the best there is, if not said.
    set_
        option=value of the encoder, such as size=128.
    """
    from rich.console import Console

    from protofission.core.options import override
    from protofission.core.rng import check_seed
    from protofission.data.datasets import VIEWS
    from protofission.data.readers.image_cache import processors
    from protofission.data.store.writer import check_destination
    from protofission.models.encoders import encoder_named, fetch
    from protofission.system.distributed import device_named
    from protofission.training.console import progress_bar, show_embedding
    from protofission.training.embed import ViewCounts, check_apart, images_of

    check_seed(seed)
    check_destination(out)
    check_apart(data, out)
    counts = ViewCounts(plain, weak, strong, simclr)
    if views is not None and views not in VIEWS:
        raise unknown("views", views, VIEWS)
    spec = encoder_named(encoder)
    for assignment in set_:
        spec = override(spec, assignment)
    device = device_named(accelerator)
    if processes is None:
        processes = processors() if device.type == "cpu" else 1
    fetch(spec)
    loaded = spec.load(device)
    with progress_bar(Console(), f"reading {printable(data)}", "files") as progress:
        images = images_of(data, loaded.decode, None if folder is None else str(folder), progress)
    show_embedding(
        images,
        spec,
        out,
        counts,
        Console(),
        views=views,
        seed=seed,
        processes=processes,
        encoder=loaded,
    )


def number_or_auto(_: type, tokens: Sequence[Token]) -> int | str:
    """A whole number, or auto."""
    text = tokens[0].value
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise ValueError(f"{text!r} must be a whole number, or auto.") from None


NumberOrAuto = Annotated[int | Literal["auto"], Parameter(converter=number_or_auto)]


@app.command
def fit(
    labeled: Path,
    unlabeled: Path,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    keep: float = 0.95,
    discover: NumberOrAuto = 0,
    prototypes: NumberOrAuto = 5,
    encoder: str = "efficientnet-lite0",
    steps: Whole = 300,
    seed: Whole = 0,
    processes: Annotated[Whole | None, Parameter(show_default=False)] = None,
    set_: Set = (),
) -> None:
    """Two folders in: a model, a triage of the pool and a page to look at out.

    Checks the images, computes their features once, holds some labels out, trains a control on the
    labels alone and a model on labels and pool, keeps the better one, and sets a threshold that
    keeps a stated share of known images. A thousand images take a couple of minutes on two cores.
    Stopped or killed, the same command goes on with the images that are not embedded yet.

    Examples:

        protofission fit labeled/ pool/ --out model
        protofission fit labeled/ pool/ --out model --discover auto
        protofission fit labels.csv pool/ --out model --keep 0.99 --prototypes 3
        protofission predict model new/ --out new.csv

    Parameters
    ----------
    labeled
        A folder with a subfolder for each class, or a CSV or Parquet list with labels.
    unlabeled
        The pool: a folder of images, or a list.
    out
        The folder of the model, a new one.
    keep
        The share of known images that is to be accepted.
    discover
        How many novel classes to tell apart, or auto; with 0, strangers are rejected.
    prototypes
        Prototypes, and so at most sub-classes, of a class, or auto.
    encoder
        As `protofission embed` takes it; one that is named by its name on the hub is downloaded.
    steps
        Of the training of each of the two models.
    seed
        Of all that is random.
    processes
        How many compute features; as many as there are processors, if not said.
    set_
        option=value of the encoder, such as size=128.
    """
    from rich.console import Console

    from protofission.triage.fit import fit as fit_folders
    from protofission.triage.fit_model import FitOptions

    options = FitOptions(
        keep=keep, discover=discover, prototypes=prototypes, steps=steps, seed=seed
    )
    fit_folders(
        labeled,
        unlabeled,
        out,
        options,
        encoder=encoder,
        encoder_options=set_,
        processes=processes,
        console=Console(),
        command=shlex.join(["protofission", *sys.argv[1:]]),
    )


@app.command
def predict(
    model: Path,
    images: Annotated[tuple[Path, ...], Parameter(negative="")],
    /,
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], show_default=False)] = None,
    format: Annotated[
        Literal["csv", "jsonl", "parquet"] | None, Parameter(show_default=False)
    ] = None,
    processes: Annotated[Whole | None, Parameter(show_default=False)] = None,
    allow_download: Flag = False,
) -> None:
    """Say of images what they are: class, probability, sub-class, ID score, decision.

    Takes any number of files. One that cannot be read is a row with an error. With --out, a
    prediction that was stopped or killed goes on where it was with the same command.

    Examples:

        protofission predict model new/ --out new.csv
        protofission predict model a.jpg b.png
        protofission predict model photos/ list.csv --out all.parquet --processes 4

    Parameters
    ----------
    model
        The folder of a model, as `protofission fit` writes it.
    images
        Image files, folders, CSV or Parquet lists, or stores.
    out
        The file of rows; standard output, if not said.
    format
        If not as the suffix of the file says.
    processes
        How many compute; as many as there are processors, if not said.
    allow_download
        Get the model's encoder from the hub, if it is not on this machine. Nothing is downloaded
        otherwise.
    """
    from rich.console import Console

    from protofission.data.readers.image_cache import processors
    from protofission.training.console import line, progress_bar
    from protofission.triage.predict import predict as predict_images
    from protofission.triage.predict import predict_to

    console = Console(stderr=True)
    number = processors() if processes is None else processes
    with progress_bar(console, "predicting") as progress:
        if out is None:
            summary = predict_to(
                sys.stdout.buffer,
                model,
                images,
                format,
                processes=number,
                progress=progress,
                allow_download=allow_download,
            )
        else:
            summary = predict_images(
                model,
                images,
                out,
                format,
                processes=number,
                progress=progress,
                say=lambda sentence: line(console, sentence),
                allow_download=allow_download,
            )
    line(console, summary.sentence())


@app.command
def show(model: Path, /) -> None:
    """Print the card of a model: what it knows, how it was made, how good it is.

    Examples:

        protofission show model

    Parameters
    ----------
    model
        The folder of a model, as `protofission fit` writes it.
    """
    from protofission.triage.bundle import load

    for text in load(model).card_lines():
        print(wrapped(text))


@app.command
def drift(
    model: Path,
    images: Annotated[tuple[Path, ...], Parameter(negative="")],
    /,
    *,
    processes: Annotated[Whole | None, Parameter(show_default=False)] = None,
    allow_download: Flag = False,
) -> None:
    """Compare new images with those that a model was calibrated on.

    Examples:

        protofission drift model new/

    Parameters
    ----------
    model
        The folder of a model, as `protofission fit` writes it.
    images
        Image files, folders, CSV or Parquet lists, or stores.
    processes
        How many compute; as many as there are processors, if not said.
    allow_download
        Get the model's encoder from the hub, if it is not on this machine. Nothing is downloaded
        otherwise.
    """
    from rich.console import Console

    from protofission.data.readers.image_cache import processors
    from protofission.training.console import progress_bar
    from protofission.triage.drift import drift as drift_of

    with progress_bar(Console(stderr=True), "looking at images") as progress:
        found = drift_of(
            model,
            images,
            processes=processors() if processes is None else processes,
            progress=progress,
            allow_download=allow_download,
        )
    for text in found.lines():
        print(wrapped(text))


@app.command
def export(
    model: Path,
    file: Path,
    /,
    *,
    input: Literal["images", "features"] = "images",
    allow_download: Flag = False,
) -> None:
    """Write a model to an ONNX file that needs neither torch nor us.

    Preprocessing, calibration and threshold are inside; the number of images is free.

    Examples:

        protofission export model model.onnx
        protofission export model head.onnx --input features

    Parameters
    ----------
    model
        The folder of a model, as `protofission fit` writes it.
    file
        The .onnx file, a new one.
    input
        What the file takes: images, or the encoder's features.
    allow_download
        Get the model's encoder from the hub, if it is not on this machine. Nothing is downloaded
        otherwise.
    """
    from protofission.triage.bundle import load
    from protofission.triage.export import export as export_bundle

    export_bundle(load(model), file, input, allow_download=allow_download)
    print(f"The file: {printable(str(file))}")


@app.command
def train(
    method: str,
    /,
    *,
    preset: Annotated[str | None, Parameter(show_default=False)] = None,
    store: Annotated[Path | None, Parameter(show_default=False)] = None,
    running: Running,
) -> None:
    """Train a method, judge it, and leave all of it in one folder.

    A run that was stopped or killed goes on with --resume, and ends in the same bits as one that
    was not. Several processes share each batch and give the loss and gradients of one.

    Examples:

        protofission pretrain --preset digits --out runs/simclr
        protofission train orca+pf --out runs/pf --set backbone.weights=runs/simclr
        protofission train orca+pf --preset cpu/cifar10 --out runs/cifar --track
        protofission train orca+pf --preset cpu/cifar10 --out runs/cifar --track --resume
        protofission train orca+pf --store stores/cifar10 --out runs/features
        protofission train orca+pf --preset paper/cifar10 --out runs/paper --processes 4
        torchrun --nproc-per-node 2 -m protofission train orca --out runs/two

    Parameters
    ----------
    method
        By name; `protofission methods` lists them.
    preset
        The named experiment to start from; `protofission presets` lists them. If not said, digits,
        or features with a store.
    store
        A folder of features, as `protofission embed` makes it.
    """
    from protofission.training.presets import usual_preset

    named = preset or usual_preset(store)
    data = () if store is None else (f"data.store={store}",)
    carry_out(method, named, replace(running, set_=(*data, *running.set_)))


@app.command
def pretrain(*, preset: str = "cpu/cifar10", running: Running) -> None:
    """Pretrain a backbone by SimCLR, without labels; they only measure how it goes.

    The folder is then the start of other runs: --set backbone.weights=FOLDER. The accuracy of the
    nearest labeled neighbours is shown every few epochs (judging.every).

    Examples:

        protofission pretrain --preset cpu/cifar10 --out runs/simclr
        protofission pretrain --preset cpu/cifar10 --out runs/simclr --resume
        protofission pretrain --preset digits --out runs/digits --set recipe.epochs=50
        protofission train orca+pf --out runs/own --set backbone.weights=runs/digits

    Parameters
    ----------
    preset
        The named experiment to start from; `protofission presets` lists them.
    """
    carry_out("simclr", preset, running)


def carry_out(method: str, preset: str, running: Running) -> None:
    """What `train` and `pretrain` share: refuse what can be refused, start processes, train."""
    from rich.console import Console

    from protofission.system.distributed import launched
    from protofission.training import diagnosis
    from protofission.training.command import Command
    from protofission.training.console import Tracker, show_loading, show_run, warn
    from protofission.training.presets import check_accelerator
    from protofission.training.run import check_folder
    from protofission.training.run_folder import RunFolder

    command = Command(method, preset, running.set_, running.seed)
    experiment = command.experiment()
    experiment.check(max(1, running.processes * running.nodes))
    check_accelerator(preset, running.accelerator)
    folder, console = RunFolder(running.out), Console()
    check_folder(folder, experiment, resume=running.resume)
    tracker = Tracker(folder) if running.track else None
    if running.processes * running.nodes > 1 or "LOCAL_RANK" in os.environ:
        # One that waits for the others' gradients would not hear of the signal.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    processes = launched(
        running.processes, running.nodes, running.accelerator, experiment.recipe.precision
    )
    data = show_loading(experiment, processes, console)
    if processes.first:
        for warning in diagnosis.at_the_start(experiment):
            warn(console, warning)
    show_run(
        experiment,
        data,
        folder,
        console,
        resume=running.resume,
        processes=processes,
        save_every=running.save_every,
        tracker=tracker,
        command=command,
    )


@app.command
def weights(
    source: str | None = None,
    /,
    *,
    backbone: str = "compact",
    channels: Whole = 3,
    set_: Set = (),
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], show_default=False)] = None,
) -> None:
    """List the packaged weights, see how a checkpoint fits a backbone, or pack a run's backbone.

    Examples:

        protofission weights
        protofission weights resnet18.pth --backbone resnet18 --set stem=imagenet
        protofission weights runs/simclr --out simclr.safetensors

    Parameters
    ----------
    source
        Packaged weights by name, a checkpoint file, or the folder of a finished run.
    backbone
        The backbone that they are compared with, by name.
    channels
        Of the images: 3 for colours, 1 for grey.
    set_
        option=value of the backbone.
    out
        Write the backbone of the run `source` to this file.
    """
    from protofission.core.options import override
    from protofission.core.rng import step_rng
    from protofission.models.backbones import backbone_named
    from protofission.models.checkpoints import compare
    from protofission.training.packed_backbone import cards, write_backbone
    from protofission.training.run_folder import RunFolder

    if source is None:
        for name, card in cards().items():
            print(
                f"{name}: {card['method']} on {card['dataset']}, {card['steps']} steps, "
                f"neighbours' accuracy {card['metrics']['neighbours']:.1%}"
            )
    elif out is not None:
        write_backbone(RunFolder(Path(source)), out)
        print(f"Written to {out}, {out.stat().st_size / 1e6:.1f} MB.")
    else:
        spec = backbone_named(backbone)
        for assignment in set_:
            spec = override(spec, assignment)
        fit = compare(spec.build(channels, step_rng(0, 0, "backbone")), source)
        print("\n".join(fit.lines()))
        print(f"It {'fits' if fit.whole else 'does not fit'} {backbone}.")


@app.command
def presets() -> None:
    """List the named experiments.

    Examples:

        protofission presets
        protofission methods orca+pf --preset cpu/cifar10
    """
    from protofission.training.presets import PRESETS, fits_a_cpu, summary

    for name in PRESETS:
        print(name, "" if fits_a_cpu(name) == name else "(wants a GPU)")
        print(textwrap.indent(textwrap.fill(summary(name), 74), "    "))


@app.command
def methods(name: str | None = None, /, *, preset: str = "digits") -> None:
    """List the methods, or all options of one with their values.

    Examples:

        protofission methods
        protofission methods orca+pf

    Parameters
    ----------
    name
        The method whose options to show.
    preset
        The named experiment that the values are taken from.
    """
    from protofission.core.options import options
    from protofission.methods import METHODS
    from protofission.training.presets import preset as experiment

    if name is None:
        width = max(map(len, METHODS))
        for known, method in METHODS.items():
            print(
                textwrap.fill(
                    f"{known:<{width}}  {summary_of(method)}",
                    shutil.get_terminal_size().columns,
                    subsequent_indent=" " * (width + 2),
                )
            )
        return
    for key, option in options(experiment(preset, name)).items():
        print(f"{key} = {option.value}")
        if option.meaning:
            print(
                textwrap.fill(option.meaning, 78, initial_indent="    ", subsequent_indent="    ")
            )


@app.command
def suite(
    name: str,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("suites"),
    tier: Annotated[Literal["features", "images"] | None, Parameter(show_default=False)] = None,
    dataset: Annotated[
        tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = (),
    stores: Path = Path("stores"),
    seeds: Annotated[Whole | None, Parameter(show_default=False)] = None,
    first_seed: Whole = 0,
    only: Annotated[
        tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = (),
    workers: Annotated[Whole | None, Parameter(show_default=False)] = None,
    budget: float = 1.0,
    dry_run: Flag = False,
    set_: Set = (),
) -> None:
    """Run a grid of experiments side by side, and put its tables and figures on one page.

    table1, ablation, mismatch, subclasses and readings are the paper's tables, its figures and its
    open choices; a YAML file names a suite of your own. What is finished is kept, whichever suite
    ran it; a suite that was stopped or killed goes on with the same command.

    Examples:

        protofission suite table1 --seeds 5
        protofission suite ablation --dataset cifar10 --budget 0.5
        protofission suite mismatch --dry-run
        protofission suite table1 --seeds 5 --only orca orca+pf
        protofission suite own.yaml --workers 1

    Parameters
    ----------
    name
        table1, ablation, mismatch, subclasses, readings, or a YAML file.
    out
        The folder: runs/ for the runs of all suites, and a folder for the report of each.
    tier
        Features of a frozen encoder, or images with a pretrained backbone; as the YAML file says,
        or features, if not said.
    dataset
        Which data, by name, or by the folder of a store; cifar10 and cifar100 if not said.
    stores
        The folder of the stores of the named data sets; what is missing is made.
    seeds
        How many; 3 if not said.
    first_seed
        The first of them.
    only
        The rows to run; the report shows the others as far as they are finished.
    workers
        Runs side by side; as many as there are processors, if not said.
    budget
        The share of the epochs of the full suite, for a smaller version that is marked as such.
    dry_run
        Say what would run, and about how long.
    set_
        key=value changes an option of all cases that have it.
    """
    from rich.console import Console

    from protofission.data.readers.image_cache import processors
    from protofission.experiments.report.suite_report import write_report
    from protofission.experiments.suites import Setting, suite_named
    from protofission.experiments.suites.console import (
        check_seeds,
        chosen,
        show_plan,
        show_stores,
        show_work,
    )
    from protofission.experiments.suites.pictures import pictures
    from protofission.experiments.suites.runner import check_stores, check_workers
    from protofission.experiments.suites.yaml_suite import Own
    from protofission.training.console import line

    number = processors() if workers is None else workers
    check_workers(number)
    own = Own.read(Path(name)) if name.endswith((".yaml", ".yml")) else None
    where = tier or (Setting.tier if own is None else own.tier)
    given = Setting(where, dataset or Setting.datasets, stores, budget, set_)
    console = Console()
    setting = given if own is None else own.setting(given, named=bool(dataset))
    planned = suite_named(name, setting) if own is None else own.suite(setting)
    setting.check(planned)
    planned = replace(planned, note=f"{setting.words} {planned.note}".strip())
    asked = seeds if seeds is not None or own is None else own.seeds
    runs = planned.runs(out / "runs", check_seeds(3 if asked is None else asked, first_seed))
    some = chosen(planned, runs, only)
    if dry_run:
        show_plan(some, number, console)
        return
    show_stores(setting, console)
    check_stores(runs)
    failures = show_work(some, number, console)
    command = shlex.join(["protofission", *sys.argv[1:]])
    place = out / (planned.name if where == "features" else f"{planned.name}-{where}")
    written = write_report(
        place, planned, runs, command, setting.marks(planned), pictures(planned, runs)
    )
    line(console, f"Written: {written[-1]}, and {len(written) - 1} tables and figures beside it.")
    if failures:
        raise InputError(f"{len(failures)} of {len(some)} runs failed. The first: {failures[0]}")


@app.command
def report(
    *runs: Path,
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("report"),
) -> None:
    """Put runs that were made one by one into tables and figures, as a suite does.

    Examples:

        protofission report runs/
        protofission report runs/orca-0 runs/orca-1 runs/pf-0 runs/pf-1 --out comparison

    Parameters
    ----------
    runs
        Folders of runs, or folders that hold some.
    out
        The folder of the page, the tables and the figures.
    """
    from protofission.experiments.report.suite_report import write_report
    from protofission.experiments.suites.from_runs import gathered, run_folders

    suite, found = gathered(run_folders(runs or (Path("runs"),)))
    command = shlex.join(["protofission", *sys.argv[1:]])
    written = write_report(out, suite, found, command)
    print(f"Written: {written[-1]}, and {len(written) - 1} tables and figures beside it.")


data = App(name="data", help="Download data sets, and look at folders of images.")
app.command(data)


@data.command
def fetch(
    name: str, /, *, folder: Annotated[Path | None, Parameter(show_default=False)] = None
) -> None:
    """Download a data set and verify it; goes on where it was interrupted.

    Examples:

        protofission data fetch cifar10
        protofission data fetch cifar100 --folder ~/data

    Parameters
    ----------
    name
        cifar10, cifar100, mnist or fashion-mnist.
    folder
        Where to put it; $PROTOFISSION_DATA or the cache folder where not given.
    """
    from rich.progress import DownloadColumn, Progress, TaskID

    from protofission.data.readers.fetch import fetch as fetched

    with Progress(*Progress.get_default_columns(), DownloadColumn()) as bars:
        tasks: dict[str, TaskID] = {}

        def show(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file)
            bars.update(tasks[file], completed=done, total=total or None)

        place, downloaded = fetched(name, folder, show)
    print(f"{name} {'is now' if downloaded else 'was already'} in {place}, verified.")


@data.command
def check(
    folder: Path,
    pool: Annotated[Path | None, Parameter(show_default=False)] = None,
    /,
    *,
    size: Whole = 64,
) -> None:
    """Read a folder or list of images, and say what was found: bad files, duplicates, overlaps.

    Examples:

        protofission data check labeled/
        protofission data check labeled/ pool/

    Parameters
    ----------
    folder
        Class subfolders, a flat folder, or a CSV or Parquet list of paths and labels.
    pool
        A second one, of unlabeled images; files that are in both are named.
    size
        The side to which images are scaled, in pixels.
    """
    from protofission.data.readers.image_folders import load_folder
    from protofission.data.readers.image_problems import overlaps

    images, report = load_folder(folder, size)
    print("\n".join(report.lines()))
    if pool is not None:
        others, report = load_folder(pool, size, unlabeled=True)
        print("\n".join(report.lines()))
        for overlap in overlaps(images, others):
            here, there = images.paths[overlap.first], others.paths[overlap.second]
            print(f"{printable(here)} is in the pool too: {printable(there)}")


@app.command
def split(
    name: str,
    /,
    *,
    dataset: str = "digits",
    folder: Annotated[Path | None, Parameter(show_default=False)] = None,
    set_: Set = (),
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], show_default=False)] = None,
) -> None:
    """Show a named split of a data set, write it to a file, or verify such a file.

    Examples:

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
        Where its files are, if not in $PROTOFISSION_DATA or the cache folder.
    set_
        option=value of the split, also seed=1.
    out
        The file to write.
    """
    from protofission.core.options import override
    from protofission.data.datasets import DataSpec
    from protofission.data.splits import SPLITS, Labeling, read_split, spec_of, verify, write_split

    labels = Labeling.of(DataSpec(dataset, None if folder is None else str(folder)).read())
    if name not in SPLITS and Path(name).suffix:
        found = read_split(Path(name))
        verify(found, labels)
        print(f"{name} is the split {found.name} of {dataset}, verified.")
    else:
        spec = spec_of(name)
        for assignment in set_:
            spec = override(spec, assignment)
        found = spec.split(labels)
    for key, value in found.manifest().items():
        print(f"{key}: {value}")
    if out is not None:
        write_split(found, out)
        print(f"Written to {out}.")


def wrapped(text: str) -> str:
    """A line as lines that fit the terminal, indented after the first."""
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def summary_of(value: object) -> str:
    """The first line of a class's docstring; of a method with fission, what it is based on."""
    base = getattr(value, "base", None)
    if base is not None:
        return f"{type(base).__name__} with prototype fission: L_cst and L_div."
    return (type(value).__doc__ or "").partition("\n")[0]


class Terminated(KeyboardInterrupt):
    """SIGTERM came, which ends a command as Ctrl-C does."""


def terminate(*_: object) -> None:
    """What SIGTERM does to a command: processes that work for it end, files are closed."""
    raise Terminated


def main() -> None:
    """The command line. Bad input: one sentence on standard error, exit code 2."""
    escape_what_cannot_be_shown()
    signal.signal(signal.SIGTERM, terminate)
    try:
        check_arguments(sys.argv[1:])
        app(sys.argv[1:], exit_on_error=False, print_error=False)
    except (CycloptsError, InputError) as error:
        refuse(" ".join(str(error).split()))
    except BrokenPipeError:
        sys.stderr.close()  # the reader has seen enough; nothing is left to say
        sys.exit(1)
    except OSError as error:
        refuse(f"{error.filename or 'A file'}: {error.strerror or error}.")
    except (MemoryError, RuntimeError) as error:
        if lacks_memory(error):
            refuse("Out of memory: lower backbone.width, backbone.blocks or the batch sizes.")
        if str(error) == "Could not determine home directory.":  # pathlib's words
            refuse("A path begins with ~ and a name that is no user's here: write it out.")
        raise
    except KeyboardInterrupt as stop:
        say("stopped; the same command goes on, train and pretrain with --resume.")
        sys.exit(128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse an empty argument: as a path it would be the current folder."""
    for number, text in enumerate(arguments, 1):
        name, separator, value = text.partition("=")
        if not text or (name.startswith("-") and separator and not value):
            what = f"{name} is" if text else f"Argument {number} is"
            raise InputError(f"{what} empty: give a value; the current folder is '.'.")


def escape_what_cannot_be_shown() -> None:
    """Print characters that a terminal's encoding lacks, or bytes that are no text, as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # it may be closed, or another's
            stream.reconfigure(errors="backslashreplace")


def lacks_memory(error: Exception) -> bool:
    """Whether Python, an accelerator or torch's allocator on a CPU has no memory left."""
    accelerators = type(error).__name__ == "OutOfMemoryError"  # torch's, which may not be imported
    return isinstance(error, MemoryError) or accelerators or "DefaultCPUAllocator" in str(error)


LONGEST = 2_000
"""Characters of a refusal; of a longer one, the value and the remedy stay, and the middle goes."""


def refuse(sentence: str) -> None:
    """Say what is wrong, and leave with 2."""
    half = LONGEST // 2
    say(sentence if len(sentence) <= LONGEST else f"{sentence[:half]} ... {sentence[-half:]}")
    sys.exit(2)


def say(sentence: str) -> None:
    """A sentence on standard error, once on a machine."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"protofission: {sentence}", file=sys.stderr)
