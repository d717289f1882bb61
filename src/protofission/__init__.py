"""Prototype Fission: closed sets for semi-supervised learning on open pools of images."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Spinning OpenMP threads starve others on few cores. Set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

if TYPE_CHECKING:
    from protofission.errors import InputError
    from protofission.experiment import Experiment
    from protofission.fission import FissionHead, fission_loss
    from protofission.methods import METHODS, WithFission
    from protofission.options import override
    from protofission.presets import PRESETS, preset
    from protofission.scores import SCORES

_HOMES = {
    "InputError": "errors",
    "Experiment": "experiment",
    "override": "options",
    "FissionHead": "fission",
    "fission_loss": "fission",
    "METHODS": "methods",
    "WithFission": "methods",
    "PRESETS": "presets",
    "preset": "presets",
    "SCORES": "scores",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `import protofission` alone must not pay for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'protofission' has no attribute {name!r}")
    return getattr(import_module(f"protofission.{_HOMES[name]}"), name)


__all__ = [
    "METHODS",
    "PRESETS",
    "SCORES",
    "Experiment",
    "FissionHead",
    "InputError",
    "WithFission",
    "__version__",
    "fission_loss",
    "override",
    "preset",
]
