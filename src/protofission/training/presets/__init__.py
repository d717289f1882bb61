"""Named experiments: tables of options, in the language of `--set`, for any method."""

from __future__ import annotations

from protofission.core.errors import require, unknown
from protofission.system.distributed import best_accelerator
from protofission.training.experiment import Experiment
from protofission.training.presets.digits import DIGITS_PRESETS
from protofission.training.presets.features import FEATURES_PRESETS
from protofission.training.presets.images import (
    CPU_PRESETS,
    FIXMATCH_PRESETS,
    PAPER_LITERAL_PRESETS,
    PAPER_PRESETS,
)
from protofission.training.presets.tables import Preset

PRESETS: dict[str, Preset] = {
    **DIGITS_PRESETS,
    **CPU_PRESETS,
    **FEATURES_PRESETS,
    **PAPER_PRESETS,
    **PAPER_LITERAL_PRESETS,
    **FIXMATCH_PRESETS,
}
"""Presets by name.

Examples:
    >>> from protofission import PRESETS
    >>> PRESETS["digits"].summary
    "scikit-learn's digits, 0-4 seen, 5-9 novel: the demo's recipe, seconds on a laptop."
"""


def preset(name: str, method: str) -> Experiment:
    """The experiment of a preset for a method, both by name.

    Examples:
        >>> from protofission import preset
        >>> preset("paper/cifar100", "orca+pf").recipe.epochs
        200

    Raises:
        InputError: there is no such preset, or no such method.
    """
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name].experiment(method)


def usual_preset(store: object | None) -> str:
    """The preset of a run for which none is named: on features if there is a store of them."""
    return "digits" if store is None else "features"


def summary(name: str) -> str:
    """One line on a preset."""
    return PRESETS[name].summary


def preset_for_cpu(name: str) -> str:
    """The preset to use in a preset's place where there is no accelerator; often itself."""
    family, _, rest = name.partition("/")
    if family not in ("paper", "fixmatch"):
        return name
    return f"cpu/{rest.partition('/')[0]}" if "cifar" in rest else "cpu/cifar100"


def check_accelerator(name: str, accelerator: str) -> None:
    """Refuse a preset that wants an accelerator where there is none, unless a CPU is asked for."""
    if accelerator == "auto":
        require(
            best_accelerator() != "cpu" or preset_for_cpu(name) == name,
            f"The preset {name} wants a GPU, and there is none here: use --preset "
            f"{preset_for_cpu(name)}, or --accelerator cpu if you have weeks.",
        )
