"""Run folders that were made one by one, put together as a suite."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protofission.core.errors import InputError, require
from protofission.experiments.suite import Case, Run, Suite
from protofission.experiments.suites.paper import ACCURACIES
from protofission.methods import title_of
from protofission.system.digests import sha256_hex
from protofission.training.command import command_of_run
from protofission.training.run import flatten
from protofission.training.run_folder import RunFolder


def run_folders(paths: Iterable[Path]) -> list[RunFolder]:
    """Find the run folders among these folders and those within them."""
    found: list[RunFolder] = []
    for path in paths:
        own = [RunFolder(path)] if RunFolder(path).has("experiment.json") else []
        within = sorted(file.parent for file in path.glob("*/experiment.json"))
        runs = own or [RunFolder(folder) for folder in within]
        if not runs:
            raise InputError(f"{path} is no run, nor a folder of runs: name one.")
        found += runs
    return found


def suite_of_runs(folders: Sequence[RunFolder]) -> tuple[Suite, list[Run]]:
    """Put runs together as a suite: a row for each way to run a method, a panel for each split."""
    all_runs = [_FoundRun(folder, folder.plain("experiment")) for folder in folders]
    judged = [run for run in all_runs if run.plain["name"] != "simclr"]
    require(bool(judged), "None of these runs classifies: name runs of other methods than simclr.")
    rows, panels = _rows(judged), _panels(judged)
    cases: dict[tuple[str, str], Case] = {}
    runs: dict[tuple[str, str, int], Run] = {}
    for found, row, panel in zip(judged, rows, panels, strict=True):
        command = command_of_run(found.folder)
        case = Case(row, panel, command.method, command.preset, command.options)
        cases.setdefault((row, panel), case)
        place = (row, panel, found.plain["seed"])
        if place in runs:
            raise InputError(
                f"{found.folder.path} and {runs[place].folder.path} hold the same run: name one "
                "of them."
            )
        runs[place] = Run(case, place[2], found.folder)
    named = list(dict.fromkeys(rows))
    pairs = tuple(
        (row, base) for row in named if (base := row.replace("+pf", "", 1)) != row and base in named
    )
    suite = Suite("report", "Runs", tuple(cases.values()), ACCURACIES, pairs=pairs)
    return suite, list(runs.values())


@dataclass(frozen=True)
class _FoundRun:
    folder: RunFolder
    plain: dict[str, Any]

    def options(self, data: bool) -> dict[str, Any]:
        """Options of the data and the fingerprints of its features, or options of all else."""
        wanted = {
            key: value for key, value in flatten(self.plain).items() if key not in _NO_OPTIONS
        }
        found = {key: value for key, value in wanted.items() if key.startswith("data.") == data}
        if data and self.folder.has("store.json"):
            found |= {f"store.{k}": str(v)[:8] for k, v in self.folder.plain("store").items()}
        if found.get("backbone.weights") is not None:
            found["backbone.weights"] = self._origin(str(found["backbone.weights"]))
        return found

    def _origin(self, weights: str) -> str:
        """Method and digest of the run that trained weights, but for its seed; else their path."""
        for path in (Path(weights), self.folder.path.parent / Path(weights).name):
            run = RunFolder(path)
            if run.has("experiment.json"):
                plain = {**run.plain("experiment"), "seed": None}
                text = json.dumps(plain, sort_keys=True)
                return f"{plain['name']}-{sha256_hex(text.encode())[:8]}"
        return weights


_NO_OPTIONS = ("name", "seed", "data.store", "data.folder")
"""Keys that do not distinguish rows or panels; stores are compared by their fingerprints."""


def _rows(runs: Sequence[_FoundRun]) -> list[str]:
    """Name the row of each run: its method, and options that other runs of it do not share."""
    names = [title_of(run.plain["name"]) for run in runs]
    return _distinguish(names, [run.options(data=False) for run in runs])


def _panels(runs: Sequence[_FoundRun]) -> list[str]:
    """Name the panel of each run: data and split, and options that others do not share."""
    names = []
    for run in runs:
        data = run.plain["data"]
        dataset = data["dataset"] or Path(data["store"] or "").name
        names.append(f"{dataset}, {data['split']['name']}")
    return _distinguish(names, [run.options(data=True) for run in runs])


def _distinguish(names: Sequence[str], options: Sequence[dict[str, Any]]) -> list[str]:
    """Add to equal names the options in which they differ."""
    seen: dict[str, dict[str, set[str]]] = {}
    for name, own in zip(names, options, strict=True):
        for key, value in own.items():
            seen.setdefault(name, {}).setdefault(key, set()).add(json.dumps(value))
    return [
        ", ".join([name, *(f"{k}={v}" for k, v in own.items() if len(seen[name][k]) > 1)])
        for name, own in zip(names, options, strict=True)
    ]
