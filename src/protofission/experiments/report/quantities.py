"""The quantities of a run that tables and figures show, and how their numbers are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan

from protofission.experiments.report.statistics import Sample
from protofission.training.run_metrics import RunMetrics

NO_NUMBER = "–"  # noqa: RUF001 - the dash of a table, not a minus


@dataclass(frozen=True)
class Column:
    """A quantity of a run: its title, value, unit and digits."""

    title: str
    protocol: str
    """The protocol that it depends on, or nothing."""
    value: Callable[[RunMetrics], float]
    digits: int
    scale: float = 1.0

    @property
    def full_title(self) -> str:
        """The title with its protocol."""
        return " ".join(filter(None, (self.title, self.protocol)))

    def text(self, value: float) -> str:
        """A value as text, in the unit that is shown."""
        return number_text(self.scale * value, self.digits)

    def scaled_value(self, summary: RunMetrics) -> float:
        """The value of a run, in the unit that is shown."""
        return self.scale * self.value(summary)


RUN_COLUMNS: dict[str, Column] = {
    "seen": Column("seen", "", lambda s: s.strict.seen, 1, 100),
    "novel_orca": Column("novel", "orca", lambda s: s.orca.novel, 1, 100),
    "novel_strict": Column("novel", "strict", lambda s: s.strict.novel, 1, 100),
    "all_orca": Column("all", "orca", lambda s: s.orca.all, 1, 100),
    "all_strict": Column("all", "strict", lambda s: s.strict.all, 1, 100),
    "auc": Column("AUC", "", lambda s: s.auc, 3),
    "effective": Column("effective V", "", lambda s: s.prototypes.effective, 2),
}

QUANTITIES: dict[str, Column] = RUN_COLUMNS | {
    "aupr": Column("AUPR", "", lambda s: s.aupr, 3),
    "fpr95": Column("FPR95", "", lambda s: s.fpr95, 3),
    "nmi": Column("NMI", "", lambda s: s.nmi, 3),
    "dead": Column("dead slots", "", lambda s: s.prototypes.dead, 1),
    "slot_cosine": Column("cosine of slots", "", lambda s: s.prototypes.slot_cosine, 2),
    "sub_nmi": Column("sub-class NMI", "", lambda s: s.subclasses.nmi, 3),
    "nmi_gain": Column("NMI beyond k-means", "", lambda s: s.subclasses.nmi - s.subclusters.nmi, 3),
    "sub_accuracy": Column("sub-class accuracy", "", lambda s: s.subclasses.accuracy, 1, 100),
    "cluster_nmi": Column("k-means NMI", "", lambda s: s.subclusters.nmi, 3),
    "cluster_accuracy": Column("k-means accuracy", "", lambda s: s.subclusters.accuracy, 1, 100),
}
"""All quantities by their keys: RUN_COLUMNS, and those that some suites show."""

GLOSSARY: dict[str, str] = {
    "seen": "The share of known-class images that get their class, in percent.",
    "novel": "The share of stranger images whose cluster is the one matched with their class, "
    "in percent.",
    "all": "The same over all images, known and strangers, in percent.",
    "orca": "Protocol of ORCA's code: classes and heads are matched freely, so strangers may "
    "count as right on the head of a known class.",
    "strict": "Protocol of the paper's words: the head of a known class stands for that class "
    "alone, so a stranger on it is an error, as is a known image in a novel cluster.",
    "AUC": "The chance that a stranger looks more foreign than a known image: 0.5 is a guess, "
    "1 is perfect.",
    "effective V": "How many prototypes of a class are in real use, on average: from 1 (one does "
    "all the work) to V, the number it has.",
}


def cell_text(column: Column, sample: Sample, spread: str = " ± ") -> str:
    """A sample of a quantity as text: 83.7, or 83.7 ± 2.1 over seeds."""
    return spread_text(sample.times(column.scale), column.digits, spread)


def spread_text(sample: Sample, digits: int, spread: str = " ± ") -> str:
    """A sample as text in its own unit: the mean, and its standard deviation if there is one."""
    mean = number_text(sample.mean, digits)
    return mean if isnan(sample.sd) else mean + spread + number_text(sample.sd, digits)


def number_text(value: float, digits: int, sign: str = "") -> str:
    """A number as text, or a dash for NaN; with the sign "+", a plus before positive ones."""
    return NO_NUMBER if isnan(value) else f"{value:{sign}z.{digits}f}"
