"""Early diagnosis of a run: warnings in words, with the remedy."""

from __future__ import annotations

from typing import Literal, NamedTuple

from protofission.methods.with_fission import base_of
from protofission.models.adapters import AdapterSpec
from protofission.training.experiment import Experiment
from protofission.training.history import Epoch

EARLY = 0.25
"""The share of training before which there are no warnings: every run begins without trust."""

LITTLE_TRUST = 0.01
"""Warn below this share of trusted images in the pool."""
ONE_PROTOTYPE = 1.2
"""Warn below this effective number of prototypes a class."""


def start_warnings(experiment: Experiment) -> list[str]:
    """Warnings about an experiment before its first step."""
    stages, backbone = experiment.recipe.trainable_stages, experiment.backbone
    if stages is None or stages == backbone.stages or isinstance(backbone, AdapterSpec):
        return []
    if backbone.weights is not None:
        return []
    return [
        f"{backbone.stages - stages} of {backbone.stages} stages are frozen "
        "and random: name pretrained weights by backbone.weights=..., or set "
        "recipe.trainable_stages=none."
    ]


class Finding(NamedTuple):
    """A warning about a run."""

    kind: Literal["trust", "collapse"]
    """Kind of warning; each is shown once, though the numbers in the sentence change."""
    sentence: str


def epoch_findings(epoch: Epoch, experiment: Experiment, progress: float) -> list[Finding]:
    """Warnings about a run after an epoch.

    Args:
        progress: the share of training that is done.
    """
    if progress < EARLY:
        return []
    found: list[Finding] = []
    if epoch.trusted is not None and epoch.trusted < LITTLE_TRUST and learns_by_trust(experiment):
        sentence = (
            f"Nothing in the pool is trusted ({epoch.trusted:.1%} of its images): lower "
            "method.threshold, train longer, or check that the pool has the labeled classes."
        )
        found.append(Finding("trust", sentence))
    summary = epoch.summary
    if summary is None:
        return found
    slots = experiment.head.slots
    if slots > 1 and summary.prototypes.effective < ONE_PROTOTYPE:
        divides = "diversity_weight" in vars(experiment.method)
        remedy = "raise method.diversity_weight" if divides else "lower head.prototypes"
        sentence = (
            f"The prototypes have collapsed: of {slots} a class, "
            f"{summary.prototypes.effective:.1f} are in use; {remedy}."
        )
        found.append(Finding("collapse", sentence))
    return found


def learns_by_trust(experiment: Experiment) -> bool:
    """Whether the method learns from an image of the pool only if it trusts it."""
    return "threshold" in vars(base_of(experiment.method))
