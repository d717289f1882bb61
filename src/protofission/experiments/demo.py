"""The demo: pretrain a backbone, train methods with and without fission, one table, one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from protofission.core.errors import UnknownKeyError, require, unknown
from protofission.core.options import override
from protofission.core.rng import seed_range
from protofission.data.datasets import Data, DataSpec
from protofission.experiments.report.results import Result, oracles
from protofission.experiments.report.run_page import write_page
from protofission.experiments.report.run_tables import disagreements, method_rows, terminal_table
from protofission.methods import title_of
from protofission.models.backbones import BackboneSpec
from protofission.system.console import print_line, progress_bars
from protofission.training.command import command_for
from protofission.training.experiment import Experiment
from protofission.training.presets import preset, preset_for_cpu
from protofission.training.run import folder_of, perform
from protofission.training.run_folder import RunFolder
from protofission.training.schedules import number_of_steps

DEFAULT_METHODS = ("orca", "orca+pf", "fixmatch-sigmoid", "fixmatch-sigmoid+pf")


@dataclass(frozen=True)
class DemoRun:
    """One run of the demo."""

    experiment: Experiment
    folder: RunFolder
    preset: str
    """The preset that the experiment comes from, by name."""


def plan_demo(
    runs: Path,
    methods: Sequence[str] = DEFAULT_METHODS,
    preset_name: str = "digits",
    assignments: Sequence[str] = (),
    seeds: int = 1,
    first_seed: int = 0,
) -> list[DemoRun]:
    """The runs of a demo in their order: a SimCLR backbone before the methods that start from it.

    Args:
        runs: the folder of all run folders.
        assignments: `key=value` for every method that has the key, `METHOD:key=value` for one.
        seeds: how many, from `first_seed` on.
    """
    wanted = seed_range(seeds, first_seed)
    require(bool(methods), "No method is named: name one, or leave the option out.")
    require(
        "simclr" not in methods,
        "simclr is trained anyway, as the start: name methods that classify.",
    )
    simclr = preset(preset_name, "simclr")
    require(
        preset_for_cpu(preset_name) == preset_name,
        f"The preset {preset_name} is too large for a demo: use protofission train.",
    )
    named = {name: preset(preset_name, name) for name in dict.fromkeys(methods)}
    named["simclr"] = simclr
    for assignment in assignments:
        named = _assign(named, assignment)
    for experiment in named.values():
        experiment.check()
        require(
            experiment.data.store is None and not experiment.recipe.trunk_cache,
            "The demo shows images and trains on them: leave data.store and recipe.trunk_cache "
            "out, or use protofission train.",
        )
    simclr = named.pop("simclr")
    splits = {replace(experiment.data, pool_has_labeled=False) for experiment in named.values()}
    require(
        len(splits) == 1,
        "Methods on different data cannot share a table: set data.* for all methods alike.",
    )
    jobs: dict[RunFolder, DemoRun] = {}
    for seed in wanted:
        for experiment in named.values():
            seeded = replace(experiment, seed=seed)
            backbone = experiment.backbone
            if isinstance(backbone, BackboneSpec) and backbone.weights is None:
                images = replace(experiment.data, pool_has_labeled=True)
                start = replace(simclr, backbone=backbone, data=images, seed=seed)
                start.check()
                pretrained = folder_of(start, runs)
                jobs.setdefault(pretrained, DemoRun(start, pretrained, preset_name))
                weights = str(pretrained.path)
                seeded = replace(seeded, backbone=replace(backbone, weights=weights))
            folder = folder_of(seeded, runs)
            jobs[folder] = DemoRun(seeded, folder, preset_name)
    return list(jobs.values())


def _assign(experiments: dict[str, Experiment], assignment: str) -> dict[str, Experiment]:
    """Apply an assignment to the experiments that have its key, or to the one that it names."""
    method, colon, key = assignment.partition("=")[0].rpartition(":")
    if colon:
        if method not in experiments:
            raise unknown(f"method in --set {assignment}:", method, experiments)
        require(
            method != "simclr" or key.partition(".")[0] not in ("backbone", "data"),
            f"{key} of simclr is that of the methods that start from it: set it for them.",
        )
        own = assignment.removeprefix(f"{method}:")
        return {**experiments, method: override(experiments[method], own)}
    changed, refusals = dict(experiments), []
    for name in experiments:
        if name == "simclr":
            continue
        try:
            changed[name] = override(experiments[name], assignment)
        except UnknownKeyError as refusal:
            refusals.append(refusal)
    if len(refusals) == len(experiments) - 1:
        raise refusals[0]
    return changed


def run_demo(jobs: Sequence[DemoRun], page: Path, command: str, console: Console) -> Data:
    """Run what is not finished yet, print the table, write the page.

    Returns:
        The data of the methods.
    """
    wanted = dict.fromkeys(job.experiment.data for job in jobs)
    loaded = {data: data.load() for data in wanted}
    _perform_all(jobs, loaded, console)
    results = [
        Result(title_of(job.experiment.name), job.experiment.seed, job.folder)
        for job in jobs
        if job.experiment.method.traits.predicts
    ]
    table = method_rows(results)
    console.print(terminal_table(table))
    for sentence in [*disagreements(table), *oracles(results)]:
        console.print(sentence, markup=False)
    data = loaded[jobs[-1].experiment.data]
    write_page(page, results, data, command)
    print_line(console, f"The page: {page}")
    return data


def weights_of(jobs: Sequence[DemoRun]) -> str:
    """The pretrained weights that the first method starts from: a run of the demo, if not set."""
    first = next(job.experiment for job in jobs if job.experiment.method.traits.predicts)
    assert isinstance(first.backbone, BackboneSpec)
    assert first.backbone.weights is not None
    return first.backbone.weights


def _perform_all(jobs: Sequence[DemoRun], loaded: dict[DataSpec, Data], console: Console) -> None:
    """Run the jobs one after another under a bar each."""
    with progress_bars(console) as progress:
        for job in jobs:
            experiment, data = job.experiment, loaded[job.experiment.data]
            title = f"{experiment.name}, seed {experiment.seed}"
            steps = number_of_steps(experiment.recipe, data.training)
            if job.folder.finished:
                progress.add_task(f"{title} (kept)", total=steps, completed=steps)
                continue
            task = progress.add_task(title, total=steps)
            command = command_for(experiment, job.preset)
            for moment in perform(experiment, data, job.folder, resume=True, command=command):
                progress.update(task, completed=moment.report.step + 1)
