"""Pretrained backbones as files: a run's backbone alone, small, with a card of how it was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from protofission.core.errors import InputError, require
from protofission.models.weight_files import packaged_weights, read_packed_card
from protofission.system.tensor_files import pack_tensors
from protofission.system.whole_files import write_whole
from protofission.training.run_folder import RunFolder


def write_backbone(run: RunFolder, out: Path) -> dict[str, Any]:
    """Write the backbone of a finished run to a safetensors file, and give its card.

    Convolutions are stored in half precision; batch-norm statistics and factors in full.
    """
    require(out.suffix == ".safetensors", f"{out} must end in .safetensors.")
    require(not out.exists(), f"{out} is there already: name another file.")
    require(run.finished, f"{run.path} is no finished run: finish it, or name another.")
    experiment, environment = run.plain("experiment"), run.plain("environment")
    require(
        "blocks" in experiment["backbone"],
        f"{run.path} is a run on stored features, which has no backbone of its own: name one on "
        "images.",
    )
    tensors = {
        name.removeprefix("backbone."): value.half() if value.ndim > 1 else value
        for name, value in run.weights().items()
        if name.startswith("backbone.")
    }
    saved = run.saved_state()
    if saved is None:
        raise InputError(f"{run.path} lacks its state.safetensors: name another run.")
    card = {
        "method": experiment["name"],
        "dataset": experiment["data"]["dataset"],
        "backbone": experiment["backbone"],
        "recipe": experiment["recipe"],
        "views": experiment["data"].get("views"),
        "seed": experiment["seed"],
        "steps": int(saved[0].get("step", 0)),
        "metrics": run.plain("metrics"),
        "protofission": environment["protofission"],
        "torch": environment["torch"],
    }
    write_whole(out, pack_tensors(tensors, card=json.dumps(card)))
    return card


def cards() -> dict[str, dict[str, Any]]:
    """The cards of the packaged weights, by name."""
    return {name: read_packed_card(file) for name, file in packaged_weights().items()}
