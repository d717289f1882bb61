"""Prototype Fission: closed sets for semi-supervised learning on open pools of images."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Spinning OpenMP threads starve others on few cores. Set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Libraries that report how they are used, onnxruntime from 1.29 on, are told not to. It has to be
# said before they are imported; set the variable to override.
for _variable in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_variable, "1")

__version__ = "0.2.0"

if TYPE_CHECKING:
    from protofission.core.distance_scores import DISTANCE_SCORES
    from protofission.core.errors import InputError
    from protofission.core.options import override
    from protofission.core.scores import SCORES
    from protofission.fission import FissionHead, fission_loss
    from protofission.methods import METHODS, WithFission
    from protofission.training.experiment import Experiment
    from protofission.training.presets import PRESETS, preset
    from protofission.triage.bundle import Bundle, load
    from protofission.triage.estimator import PrototypeFissionClassifier
    from protofission.triage.fit import fit
    from protofission.triage.fit_options import FitOptions
    from protofission.triage.predict import predict
    from protofission.triage.prediction_table import Row

_HOMES = {
    "Bundle": "triage.bundle",
    "load": "triage.bundle",
    "FitOptions": "triage.fit_options",
    "fit": "triage.fit",
    "predict": "triage.predict",
    "InputError": "core.errors",
    "PrototypeFissionClassifier": "triage.estimator",
    "Experiment": "training.experiment",
    "override": "core.options",
    "FissionHead": "fission",
    "fission_loss": "fission",
    "METHODS": "methods",
    "WithFission": "methods",
    "PRESETS": "training.presets",
    "preset": "training.presets",
    "Row": "triage.prediction_table",
    "SCORES": "core.scores",
    "DISTANCE_SCORES": "core.distance_scores",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `import protofission` alone must not pay for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'protofission' has no attribute {name!r}")
    return getattr(import_module(f"protofission.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The names of the module with the public ones, so that shells complete those too."""
    return sorted({*globals(), *__all__})


__all__ = [
    "DISTANCE_SCORES",
    "METHODS",
    "PRESETS",
    "SCORES",
    "Bundle",
    "Experiment",
    "FissionHead",
    "FitOptions",
    "InputError",
    "PrototypeFissionClassifier",
    "Row",
    "WithFission",
    "__version__",
    "fission_loss",
    "fit",
    "load",
    "override",
    "predict",
    "preset",
]
