"""The options of a fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from protofission.core.checks import check_sizes
from protofission.core.errors import require
from protofission.core.rng import check_seed

PROTOTYPES = 5
"""Prototypes of a class where none are given."""
MOST_CLUSTERS = 1000
"""Most clusters of strangers."""
MOST_PROTOTYPES = 100
"""Most prototypes of a class."""
MOST_FOLDS = 50
"""Most folds of the labels."""


@dataclass(frozen=True)
class FitOptions:
    """The options of a fit.

    Examples:
        >>> from protofission import FitOptions
        >>> FitOptions(keep=0.9, discover="auto").folds
        5
    """

    keep: float = 0.95
    """Share of known images to accept."""
    discover: int | Literal["auto"] = 0
    """Number of clusters of strangers, which are then called novel; with 0 they are rejected, and
    clustered all the same, in as many clusters as are found."""
    prototypes: int | Literal["auto"] = PROTOTYPES
    """V, the prototypes of a class, and its most sub-classes; with auto these are counted."""
    folds: int = 5
    """Number of folds of the labels; with 1, a share is held out instead (split conformal)."""
    held_out: float = 0.3
    """With one fold, the share of the labels that is held out; more, up to half, if `keep` wants
    more."""
    steps: int = 100
    """Training steps of each model."""
    width: int = 64
    """Output features of the adapter."""
    seed: int = 0
    """Seed of all random numbers."""

    def __post_init__(self) -> None:
        require(0 < self.keep < 1, f"keep = {self.keep} must be between 0 and 1, such as 0.95.")
        require(
            0 < self.held_out < 1, f"held_out = {self.held_out} must be between 0 and 1, as 0.3."
        )
        require(
            self.discover == "auto" or 0 <= self.discover <= MOST_CLUSTERS,
            f"discover = {self.discover} must be a number of novel classes up to "
            f"{MOST_CLUSTERS}, or auto.",
        )
        require(
            self.prototypes == "auto" or 1 <= self.prototypes <= MOST_PROTOTYPES,
            f"prototypes = {self.prototypes} must be between 1 and {MOST_PROTOTYPES}, or auto.",
        )
        require(
            1 <= self.folds <= MOST_FOLDS,
            f"folds = {self.folds} must be between 1 and {MOST_FOLDS}.",
        )
        check_sizes(steps=self.steps, width=self.width)
        check_seed(self.seed)

    @property
    def slots(self) -> int:
        """V of the prototypes that are trained."""
        return PROTOTYPES if self.prototypes == "auto" else self.prototypes
