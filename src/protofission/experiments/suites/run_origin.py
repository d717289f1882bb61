"""From the files of a run back to its experiment, and to the command that makes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from protofission.core.errors import InputError
from protofission.core.options import as_text, override
from protofission.experiments.suite import Case
from protofission.models.bodies import BODIES
from protofission.training.experiment import Experiment, as_json
from protofission.training.presets import PRESETS, preset
from protofission.training.run import flat


def case_of(plain: dict[str, Any], row: str, panel: str) -> Case:
    """The case of an `experiment.json`: the nearest preset, and what it differs in.

    Raises:
        InputError: no preset leads there, as for a run of another version.
    """
    name = str(plain.get("name"))
    for preset_name in sorted(PRESETS, key=lambda known: _apart(preset(known, name), plain)):
        options = _options(preset(preset_name, name), plain)
        if options is not None:
            return Case(row, panel, name, preset_name, options)
    raise InputError(
        f"A run of {name} was made by options that this version does not have: run it again."
    )


def _apart(experiment: Experiment, plain: dict[str, Any]) -> int:
    """In how many options an experiment differs."""
    here = flat(_plain(experiment))
    return sum(here.get(key) != value for key, value in flat(plain).items())


def _options(experiment: Experiment, plain: dict[str, Any]) -> tuple[str, ...] | None:
    """The options that lead from an experiment to another one, if some do."""
    options = []
    try:
        for option in _wholes(experiment, plain):
            experiment = override(experiment, option)
            options.append(option)
        wanted, here = flat(plain), flat(_plain(experiment))
        changed = [key for key in wanted if here.get(key) != wanted[key] and key != "seed"]
        for key in sorted(changed, key=lambda key: wanted[key] is None):  # one way out of two stays
            option = f"{key}={as_text(wanted[key])}"
            experiment = override(experiment, option)
            options.append(option)
    except (InputError, KeyError, TypeError):
        return None
    return tuple(options) if {**_plain(experiment), "seed": plain["seed"]} == plain else None


def _wholes(experiment: Experiment, plain: dict[str, Any]) -> Iterator[str]:
    """Parts that are chosen by name before their options: the split, and the backbone."""
    if plain["data"]["split"]["name"] != experiment.data.split.name:
        yield f"data.split={plain['data']['split']['name']}"
    here = set(_plain(experiment)["backbone"])
    if here != set(plain["backbone"]):
        yield f"backbone={_nearest_body(plain['backbone'])}"


def _nearest_body(plain: dict[str, Any]) -> str:
    """The named backbone or adapter with the fewest options to change."""

    def apart(name: str) -> tuple[bool, int]:
        here = dict(json.loads(as_json(BODIES[name])))
        return set(here) != set(plain), sum(here.get(key) != plain[key] for key in plain)

    return min(BODIES, key=apart)


def _plain(experiment: Experiment) -> dict[str, Any]:
    return dict(json.loads(as_json(experiment)))
