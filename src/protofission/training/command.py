"""The command that makes a run: a method, a preset, options as `--set` takes them, and a seed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from protofission.core.errors import InputError
from protofission.core.options import as_text, options, override
from protofission.models.model import BODIES, BodySpec
from protofission.system.json_files import as_type, parse_json
from protofission.training.experiment import Experiment
from protofission.training.presets import preset, usual_preset
from protofission.training.run_folder import RunFolder


@dataclass(frozen=True)
class Command:
    """The arguments of `protofission train` that make a run."""

    method: str
    preset: str
    options: tuple[str, ...] = ()
    """Options `key=value`, applied to the preset in this order."""
    seed: int = 0

    def experiment(self) -> Experiment:
        """The experiment that it runs."""
        experiment = preset(self.preset, self.method)
        for option in self.options:
            experiment = override(experiment, option)
        return replace(experiment, seed=self.seed)

    def line(self, out: Path | str) -> str:
        """The command as a line for a shell, with the folder of the run."""
        words = ["protofission", "train", self.method, "--preset", self.preset]
        sets = (part for option in self.options for part in ("--set", option))
        return shlex.join([*words, "--seed", str(self.seed), *sets, "--out", str(out)])


def command_of_run(folder: RunFolder) -> Command:
    """The command of a run folder: what command.json says, or else one that makes its experiment.

    A run that was made from Python, or by an earlier version, has no command.json. And what it says
    counts only if it still makes the folder's experiment, since presets may change.

    Raises:
        InputError: a file is damaged, or the experiment is not one of this version.
    """
    content = folder.read("experiment.json", bytes)
    try:
        experiment = Experiment.from_json(content)
    except InputError as error:
        raise InputError(f"{folder.path}: {error}") from None
    path = folder.path / "command.json"
    if path.exists():
        try:
            stated = folder.read(path.name, lambda text: as_type(parse_json(text), Command, ""))
        except InputError:
            raise InputError(
                f"{path} is damaged: delete that file; the run's options tell its command too."
            ) from None
        with suppress(InputError):  # it names a preset or an option that this version lacks
            if stated.experiment() == experiment:
                return stated
    command = command_for(experiment)
    if command is None:
        raise InputError(
            f"{folder.path}: no options lead from a preset to this run of {experiment.name}: leave "
            "it out."
        )
    return command


def command_for(experiment: Experiment, preset_name: str | None = None) -> Command | None:
    """A command that makes an experiment: a preset, and options for all that differs from it.

    Args:
        preset_name: `usual_preset` if none is given.

    Returns:
        None if no options make it, as where the method is not the one of its name.
    """
    name = preset_name or usual_preset(experiment.data.store)
    changes: list[str] = []
    try:
        found = replace(preset(name, experiment.name), seed=experiment.seed)
        for differences in (_names, _differences):
            for option in differences(found, experiment):
                found = override(found, option)
                changes.append(option)
    except InputError:
        return None
    command = Command(experiment.name, name, tuple(changes), experiment.seed)
    return command if found == experiment else None


def _names(start: Experiment, wanted: Experiment) -> Iterator[str]:
    """Options for the parts that are chosen by name: the split and the backbone."""
    if start.data.split.name != wanted.data.split.name:
        yield f"data.split={wanted.data.split.name}"
    if type(start.backbone) is not type(wanted.backbone):
        yield f"backbone={_nearest_body(wanted.backbone)}"


def _nearest_body(wanted: BodySpec) -> str:
    """The name of the backbone or adapter that needs the fewest options changed."""
    alike = [name for name, body in BODIES.items() if type(body) is type(wanted)]
    return min(alike, key=lambda name: len(list(_differences(BODIES[name], wanted))))


def _differences(start: Any, wanted: Any) -> Iterator[str]:
    """Options that turn one value into another of the same classes.

    Those that set None come last: of two options for one thing, as epochs and steps, one must
    always be set.
    """
    here, there = options(start), options(wanted)
    keys = [key for key in there if key in here and here[key].value != there[key].value]
    for key in sorted(keys, key=lambda key: there[key].value is None):
        yield f"{key}={as_text(there[key].value)}"
