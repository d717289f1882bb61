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
    return int(tokens[0].value)


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
    methods: Annotated[
        tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = (),
    preset: str = "digits",
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = (),
) -> None:
    """Train on scikit-learn's digits, 0-4 known and 5-9 strangers, and show what comes out.

    Pretrains a small backbone, trains ORCA and FixMatch-Sigmoid, each without and with prototype
    fission, prints one table and writes one page. About a minute on two cores; finished runs
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
    methods
        Which methods, by name; `protofission methods` lists them.
    preset
        The named experiment to start from: digits, or digits/literal for the paper's words.
    set_
        key=value changes an option of all methods that have it, METHOD:key=value of one.
    """
    from rich.console import Console

    from protofission.demo import USUAL, plan, run_demo

    jobs = plan(out / "runs", methods or USUAL, preset, set_, seeds)
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
    from protofission.experiment import options
    from protofission.methods import METHODS
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
