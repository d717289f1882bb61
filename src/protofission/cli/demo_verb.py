"""The verb demo."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from protofission import __version__
from protofission.cli.arguments import Names, Out, Set, Whole, command_line, command_text, program
from protofission.cli.json_results import Json, gives_json
from protofission.cli.known_names import PresetName

if TYPE_CHECKING:
    from rich.console import Console

    from protofission.data.datasets import Data
    from protofission.experiments.demo import DemoRun

# As a part of the docstring, the name would be taken for a section.
DemoMethods = Annotated[
    Names, Parameter(help="Methods by name; `protofission methods` lists them. By default four.")
]


@gives_json("demo")
def demo(
    *,
    out: Out = Path("demo"),
    seeds: Whole = 1,
    first_seed: Whole = 0,
    methods: DemoMethods = (),
    preset: PresetName = "digits",
    set_: Set = (),
    json: Json = False,
) -> dict[str, Any]:
    """Train on scikit-learn's digits, 0-4 known and 5-9 strangers, and show the results.

    Pretrains a small backbone, trains ORCA and FixMatch-Sigmoid, each without and with prototype
    fission, prints one table and writes one page; then fits a model on the same images in folders,
    to predict with. A minute or two on two cores; what is finished is kept, so that an interrupted
    demo goes on where it was.

    For example:

        protofission demo
        protofission demo --seeds 5 --out five-seeds
        protofission demo --methods orca orca+pf --set head.prototypes=3
        protofission demo --preset digits/literal --set method.entropy_weight=2

    Parameters
    ----------
    out
        The folder for the page, the runs, the images and the model.
    seeds
        Number of seeds; with more than one, the table shows mean and spread.
    first_seed
        The first seed; the others follow it.
    preset
        The named experiment to start from: digits, or digits/literal for the paper to the letter.
    set_
        key=value sets an option of all methods that have it, METHOD:key=value of one.
    """
    from rich.console import Console

    from protofission.experiments.demo import DEFAULT_METHODS, plan_demo, run_demo

    console = Console()
    jobs = plan_demo(out / "runs", methods or DEFAULT_METHODS, preset, set_, seeds, first_seed)
    data = run_demo(jobs, out / "report.html", command_line(), console)
    fit_demo_model(jobs, data, out, console)
    runs = [
        {
            "method": job.experiment.name,
            "seed": job.experiment.seed,
            "run": job.folder.path,
            "metrics": job.folder.plain("metrics"),
        }
        for job in jobs
    ]
    return {"page": out / "report.html", "model": out / "model", "runs": runs}


def fit_demo_model(jobs: Sequence[DemoRun], data: Data, out: Path, console: Console) -> None:
    """Fit a model on the demo's images in folders, by its own backbone; print what to do next.

    A model that is there already is kept.
    """
    from protofission.experiments.demo import weights_of
    from protofission.experiments.demo_images import write_demo_images
    from protofission.system.console import print_line
    from protofission.triage.fit import fit
    from protofission.triage.fit_files import PAGE

    images, model = out / "images", out / "model"
    labeled, pool, encoder = images / "labeled", images / "pool", weights_of(jobs)
    if model.exists():
        print_line(console, f"The model: {model} (kept)")
    else:
        spec = replace(jobs[-1].experiment.data, pool_has_labeled=False)
        write_demo_images(data, images, f"{spec}, version {__version__}")
        words = ["fit", labeled, pool, "--encoder", encoder, "--out", model]
        with console.status("fitting a model to the same images in folders"):
            command = shlex.join(["protofission", *map(str, words)])
            card = fit(labeled, pool, model, encoder=encoder, command=command).card
        print_line(console, f"The model: {model}, made by\n{command_text([*program(), *words])}")
        sentences = [card["training"]["choice"], card["calibration"]["guarantee"]]
        for sentence in (*sentences, card["pool"]["strangers"]):
            console.print(sentence, markup=False, highlight=False)
    print_line(console, f"Its page: {model / PAGE}")
    words = [*program(), "predict", model, images / "new", "--out", out / "new.csv"]
    print_line(console, f"To sort other images by it:\n{command_text(words)}")
