"""Where a suite is run: on features or on images, on which data sets, and for how long."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from protofission.data.datasets import DATASETS
from protofission.errors import UnknownKeyError, check_choices, require, unknown
from protofission.options import override
from protofission.presets import PRESETS, preset
from protofission.processes import best_accelerator
from protofission.suite import Case, Suite

Tier = Literal["features", "images"]


@dataclass(frozen=True)
class Setting:
    """What all cases of a suite share."""

    tier: Tier = "features"
    """Features of a frozen encoder, or images with a pretrained backbone."""
    datasets: tuple[str, ...] = ("cifar10", "cifar100")
    """By name; for features, also folders of stores."""
    stores: Path = Path("stores")
    """The folder of the stores, each of which is called by its data set."""
    budget: float = 1.0
    """The share of the epochs of a full run."""
    options: tuple[str, ...] = ()
    """`key=value` for every case that has the key."""

    def __post_init__(self) -> None:
        check_choices(self)
        require(0 < self.budget <= 1, f"budget = {self.budget} must be above 0, at most 1.")
        require(bool(self.datasets), "No data set is named: name one, such as cifar10.")
        for dataset in self.datasets:
            self._check(dataset)

    def _check(self, dataset: str) -> None:
        """Refuse a data set that the tier has no images or features of."""
        if dataset in DATASETS:
            if self.preset(dataset) not in PRESETS:
                raise unknown(f"preset for {dataset}:", self.preset(dataset), PRESETS)
        elif self.tier == "images" or not Path(dataset).is_dir():
            raise unknown("data set or store", dataset, DATASETS)

    def preset(self, dataset: str) -> str:
        """The preset of the tier for a data set: without an accelerator one that a CPU bears."""
        if self.tier == "features":
            return f"features/{dataset}" if f"features/{dataset}" in PRESETS else "features"
        if dataset in PRESETS:
            return dataset
        return f"{'cpu' if best_accelerator() == 'cpu' else 'paper'}/{dataset}"

    def store(self, dataset: str) -> Path:
        """Where the features of a data set are."""
        return self.stores / dataset if dataset in DATASETS else Path(dataset)

    def case(
        self,
        row: str,
        method: str,
        dataset: str,
        *options: str,
        panel: str | None = None,
        x: float | None = None,
    ) -> Case:
        """A case of this setting: its options come after the preset's, the user's after those."""
        store = (f"data.store={self.store(dataset)}",) if self.tier == "features" else ()
        cut = (f"recipe.epochs={self.epochs(method, dataset, options)}",) if self.budget < 1 else ()
        wanted = tuple(o for o in self.options if self._fits(o, method, dataset))
        return Case(
            row,
            panel or Path(dataset).name,
            method,
            self.preset(dataset),
            (*store, *options, *cut, *wanted),
            x,
        )

    def epochs(self, method: str, dataset: str, options: tuple[str, ...]) -> int:
        """The epochs of a run that the budget leaves."""
        experiment = preset(self.preset(dataset), method)
        for option in options:
            experiment = override(experiment, option)
        return math.ceil(self.budget * (experiment.recipe.epochs or 1))

    def _fits(self, option: str, method: str, dataset: str) -> bool:
        try:
            override(preset(self.preset(dataset), method), option)
        except UnknownKeyError:
            return False
        return True

    def check(self, suite: Suite) -> None:
        """Refuse a suite with a case that cannot be, or with an option that no case has."""
        for case in suite.cases:
            case.experiment(0).check()
        for option in self.options:
            if not any(option in case.options for case in suite.cases):
                override(suite.cases[0].experiment(0), option)  # says why

    @property
    def marks(self) -> list[str]:
        """What sets the results apart from those of the full suite, in sentences."""
        found = []
        if self.budget < 1:
            found.append(
                f"A smaller version: a budget of {self.budget:g} of the epochs of the full suite."
            )
        if self.options:
            found.append(f"Changed for all: {', '.join(self.options)}.")
        return found
