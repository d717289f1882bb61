"""The setting of a suite: features or images, data sets, and the length of training."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from protofission.core.errors import UnknownKeyError, check_choices, require, unknown
from protofission.core.options import override
from protofission.data.datasets import DATASETS
from protofission.experiments.suite import Case, Suite
from protofission.system.distributed import best_accelerator
from protofission.training.experiment import as_json
from protofission.training.presets import PRESETS

Tier = Literal["features", "images"]


@dataclass(frozen=True)
class Setting:
    """Settings that all cases of a suite share."""

    tier: Tier = "features"
    """Features of a frozen encoder, or images with a pretrained backbone."""
    datasets: tuple[str, ...] = ("cifar10", "cifar100")
    """Data sets by name; for features, also folders of stores."""
    stores: Path = Path("stores")
    """The folder of the stores, each of which is called by its data set."""
    budget: float = 1.0
    """The share of the epochs of a full run."""
    options: tuple[str, ...] = ()
    """Options `key=value` for every case that has the key."""

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
        """The preset of the tier for a data set: without an accelerator its CPU preset."""
        if self.tier == "features":
            return f"features/{dataset}" if f"features/{dataset}" in PRESETS else "features"
        if dataset in PRESETS:
            return dataset
        return f"{'cpu' if best_accelerator() == 'cpu' else 'paper'}/{dataset}"

    def store(self, dataset: str) -> Path:
        """The folder of the store of a data set."""
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
        """A case of this setting: its own options, then the user's that it has, then the budget."""
        if self.tier == "features":
            options = (f"data.store={self.store(dataset)}", *options)
        case = Case(row, panel or Path(dataset).name, method, self.preset(dataset), options, x)
        experiment = case.experiment(0)
        for option in self.options:
            try:
                experiment = override(experiment, option)
            except UnknownKeyError:
                continue
            options = (*options, option)
        if self.budget < 1:
            recipe = experiment.recipe
            key, length = ("steps", recipe.steps) if recipe.steps else ("epochs", recipe.epochs)
            options = (*options, f"recipe.{key}={math.ceil(self.budget * (length or 1))}")
        return replace(case, options=options)

    def check(self, suite: Suite) -> None:
        """Refuse a case that cannot be, an option that no case has, or two cases that are one."""
        there: dict[str, Case] = {}
        for case in suite.cases:
            experiment = case.experiment(0)
            experiment.check()
            twin = there.setdefault(as_json(experiment), case)
            require(
                twin is case,
                f"{_title(twin)} and {_title(case)} are one experiment"
                + (f" with {', '.join(self.options)}: leave that out." if self.options else "."),
            )
        for option in self.options:
            if not any(option in case.options for case in suite.cases):
                override(suite.cases[0].experiment(0), option)  # raises the reason

    def marks(self, suite: Suite) -> list[str]:
        """Sentences on the differences from the full suite: budget and options."""
        found = []
        if self.budget < 1:
            found.append(
                f"A smaller version: a budget of {self.budget:g} of the epochs of the full suite."
            )
        for option in self.options:
            without = dict.fromkeys(c.row for c in suite.cases if option not in c.options)
            but = f" but {', '.join(without)}, which lack it" if without else ""
            found.append(f"Changed for all{but}: {option}.")
        return found

    @property
    def sentence(self) -> str:
        """The tier as a sentence."""
        if self.tier == "features":
            return "On features of a frozen encoder: an adapter and the head learn."
        return "On images: the last stage of a pretrained backbone and the head learn."


def _title(case: Case) -> str:
    return f"{case.row} on {case.panel}" + ("" if case.x is None else f" at {case.x:g}")
