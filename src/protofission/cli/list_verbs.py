"""The verbs that list presets and methods."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Any

from protofission.cli.json_results import Json, gives_json
from protofission.cli.known_names import MethodName, PresetName

if TYPE_CHECKING:
    from protofission.methods import Method


@gives_json("presets", quiet=True)
def presets(*, json: Json = False) -> dict[str, Any]:
    """List the named experiments.

    For example:

        protofission presets
        protofission methods orca+pf --preset cpu/cifar10
    """
    from protofission.training.presets import PRESETS, preset_for_cpu, summary

    for name in PRESETS:
        print(name, "" if preset_for_cpu(name) == name else "(wants a GPU)")
        print(textwrap.indent(textwrap.fill(summary(name), 74), "    "))
    return {
        "presets": [
            {"name": name, "summary": summary(name), "wants_gpu": preset_for_cpu(name) != name}
            for name in PRESETS
        ]
    }


@gives_json("methods", quiet=True)
def methods(
    name: MethodName | None = None, /, *, preset: PresetName = "digits", json: Json = False
) -> dict[str, Any]:
    """List the methods, or all options of one with their values.

    For example:

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
    from protofission.methods import METHODS, title_of
    from protofission.training.presets import preset as experiment

    if name is None:
        width = max(len(title_of(known)) for known in METHODS)
        for known, method in METHODS.items():
            print(
                textwrap.fill(
                    f"{title_of(known):<{width}}  {method_summary(method)}",
                    shutil.get_terminal_size().columns,
                    subsequent_indent=" " * (width + 2),
                )
            )
        return {
            "methods": [
                {
                    "name": known,
                    "summary": method_summary(method),
                    "reading": method.traits.reading,
                }
                for known, method in METHODS.items()
            ]
        }
    found = options(experiment(preset, name))
    for key, option in found.items():
        print(f"{key} = {option.value}")
        if option.meaning:
            print(
                textwrap.fill(option.meaning, 78, initial_indent="    ", subsequent_indent="    ")
            )
    values = [
        {"key": key, "value": str(option.value), "meaning": option.meaning}
        for key, option in found.items()
    ]
    return {"method": name, "preset": preset, "options": values}


def method_summary(method: Method[Any]) -> str:
    """A method in a line: the first of its docstring, or the base that fission is added to."""
    from protofission.methods.with_fission import base_of

    base = base_of(method)
    if base is not method:
        return f"{type(base).__name__} with prototype fission: L_cst and L_div."
    return (type(method).__doc__ or "").partition("\n")[0]
