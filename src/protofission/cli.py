"""`protofission VERB`: parse, call one library function, print.

Nothing here imports torch before a verb has been understood: help and refusals answer at once.
"""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter, Token

from protofission import __version__
from protofission.errors import InputError


def whole_number(_: type, tokens: Sequence[Token]) -> int:
    """An int, and nothing that is merely near one."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} must be a whole number.") from None


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
    seeds: Annotated[int, Parameter(converter=whole_number)] = 1,
    first_seed: Annotated[int, Parameter(converter=whole_number)] = 0,
    methods: Annotated[
        tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = (),
    preset: str = "digits",
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = (),
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

    from protofission.demo import USUAL, plan, run_demo

    jobs = plan(out / "runs", methods or USUAL, preset, set_, seeds, first_seed)
    command = shlex.join(["protofission", *sys.argv[1:]])
    run_demo(jobs, out / "report.html", command, Console())


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
    from protofission.methods import METHODS
    from protofission.options import options
    from protofission.presets import preset as experiment

    if name is None:
        width = max(map(len, METHODS))
        for known, method in METHODS.items():
            print(f"{known:<{width}}  {summary_of(method)}")
        return
    for key, option in options(experiment(preset, name)).items():
        print(f"{key} = {option.value}")
        if option.meaning:
            print(
                textwrap.fill(option.meaning, 78, initial_indent="    ", subsequent_indent="    ")
            )


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

    from protofission.data.fetch import fetch as fetched

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
    size: Annotated[int, Parameter(converter=whole_number)] = 64,
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
    from protofission.data.folders import load_folder
    from protofission.data.hygiene import overlaps, printable

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
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = (),
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
    from protofission.data.datasets import DataSpec
    from protofission.data.splits import SPLITS, Labeling, read_split, spec_of, verify, write_split
    from protofission.options import override

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


def summary_of(value: object) -> str:
    """The first line of a class's docstring, a method's base named where it has one."""
    line = (type(value).__doc__ or "").partition("\n")[0]
    base = getattr(value, "base", None)
    return f"{line} Base: {type(base).__name__}." if base else line


def main() -> None:
    """The command line. Bad input: one sentence on standard error, exit code 2."""
    try:
        app(exit_on_error=False, print_error=False)
    except (CycloptsError, InputError) as error:
        refuse(" ".join(str(error).split()))
    except BrokenPipeError:
        sys.stderr.close()  # the reader has seen enough; nothing is left to say
        sys.exit(1)
    except OSError as error:
        refuse(f"{error.filename or 'A file'}: {error.strerror or error}.")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        refuse("Out of memory: lower backbone.width, backbone.stages or the batch sizes.")
    except KeyboardInterrupt:
        print("protofission: stopped; the same command keeps finished runs.", file=sys.stderr)
        sys.exit(130)


def refuse(sentence: str) -> None:
    """Say what is wrong and leave with 2."""
    print(f"protofission: {sentence}", file=sys.stderr)
    sys.exit(2)
