"""A run in words: a line an epoch, and warnings, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from protofission.training import diagnosis
from protofission.training.experiment import Experiment
from protofission.training.history import Epoch
from protofission.training.run import Moment
from protofission.training.tracking import EpochTracker


class RunLine(NamedTuple):
    """A line about a run."""

    text: str
    warning: bool = False


def tell_moments(
    moments: Iterable[Moment],
    experiment: Experiment,
    steps: int,
    tracker: EpochTracker | None = None,
) -> Iterator[tuple[int, list[RunLine]]]:
    """Yield the steps that are done, and what there is to say, after every step of a run.

    Args:
        steps: of the whole run.
        tracker: gets every epoch.
    """
    warned: set[str] = set()
    for number, moment in enumerate(moments):
        lines, done = list[RunLine](), moment.report.step + 1
        if number == 0 and done > 1:
            lines.append(RunLine(f"Going on after step {done - 1} of {steps}."))
        if moment.epoch is not None:
            if tracker is not None:
                tracker.add(moment.epoch)
            lines.append(RunLine(epoch_line(moment.epoch)))
            for finding in diagnosis.epoch_findings(moment.epoch, experiment, done / steps):
                if finding.kind not in warned:
                    warned.add(finding.kind)
                    lines.append(RunLine(finding.sentence, warning=True))
        yield done, lines
    if tracker is not None:
        tracker.finish()


def epoch_line(epoch: Epoch) -> str:
    """An epoch's numbers in a line of at most 80 characters."""
    parts = [f"epoch {epoch.epoch + 1}", f"loss {epoch.loss:.3g}"]
    if epoch.trusted is not None:
        parts.append(f"trusted {epoch.trusted:.0%}")
    if epoch.neighbours is not None:
        parts.append(f"neighbors {epoch.neighbours:.2%}")
    if epoch.summary is not None:
        shares = vars(epoch.summary.strict).items()
        parts.append(" ".join(f"{name} {100 * share:.1f}" for name, share in shares))
        parts.append(f"AUC {epoch.summary.auc:.3f}")
    return "  ".join(parts)
