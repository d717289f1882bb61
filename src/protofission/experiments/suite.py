"""A suite: a grid of runs, and the tables or curves that they are for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from protofission.core.errors import require
from protofission.training.command import Command
from protofission.training.experiment import Experiment
from protofission.training.run import folder_of
from protofission.training.run_folder import RunFolder

Published = Mapping[tuple[str, str], Mapping[str, float]]
"""Numbers of the paper, by row and panel, then by the keys of report.quantities.QUANTITIES."""


@dataclass(frozen=True)
class Case:
    """One cell of a grid: a method with its options on some data, to be run with several seeds."""

    row: str
    """Name of the row: a method, or one without a part of it."""
    panel: str
    """Name of the panel: a data set, or a split of one."""
    method: str
    preset: str
    options: tuple[str, ...] = ()
    """Options `key=value`, applied to the preset."""
    x: float | None = None
    """Its place on the axis, if the suite is one of curves."""

    def command(self, seed: int) -> Command:
        """The command that makes the run of a seed."""
        return Command(self.method, self.preset, self.options, seed)

    def experiment(self, seed: int) -> Experiment:
        """The experiment of a seed."""
        return self.command(seed).experiment()


@dataclass(frozen=True)
class Run:
    """A case with a seed, and the folder where it is or will be."""

    case: Case
    seed: int
    folder: RunFolder

    @property
    def command(self) -> str:
        """The line for a shell that makes it by itself."""
        return self.case.command(self.seed).line(self.folder.path)


@dataclass(frozen=True)
class Suite:
    """Cases, and the tables and figures of their numbers."""

    name: str
    title: str
    cases: tuple[Case, ...]
    quantities: tuple[str, ...]
    """Keys of report.quantities.QUANTITIES that the tables show; the first one is drawn."""
    pairs: tuple[tuple[str, str], ...] = ()
    """(row, row it is compared with): their differences are taken seed by seed."""
    published: Published = field(default_factory=dict)
    """The paper's numbers."""
    axis: str = ""
    """Title of the x axis, if the suite is one of curves."""
    note: str = ""
    """Note above the tables."""
    pictured: tuple[str, ...] = ()
    """Rows whose prototypes are shown by the images nearest to them."""

    def __post_init__(self) -> None:
        require(bool(self.cases), f"The suite {self.name} has no run: name a method and data.")
        for text in (self.title, *(part for case in self.cases for part in (case.row, case.panel))):
            require(
                text.isprintable() and bool(text),
                f"{text!r} is no name that can be shown: use printable characters, on one line.",
            )
        places = [(case.row, case.panel, case.x) for case in self.cases]
        require(
            len(set(places)) == len(places),
            f"The suite {self.name} has two cases of one row and panel: give each row a name.",
        )
        rows = {case.row for case in self.cases}
        for pair in self.pairs:
            for row in pair:
                require(row in rows, f"The suite {self.name} compares {row}, which is no row.")

    def runs(self, parent: Path, seeds: Iterable[int]) -> list[Run]:
        """All runs, seed by seed, so that compared runs end at about the same time."""
        return [
            Run(case, seed, folder_of(case.experiment(seed), parent))
            for seed in seeds
            for case in self.cases
        ]
