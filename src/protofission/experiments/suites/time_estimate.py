"""An estimate of the time that runs take, from a few timed steps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from protofission.core.threads import one_thread
from protofission.experiments.suite import Run
from protofission.experiments.suites.workers import load_run_data
from protofission.training.loop import train
from protofission.training.schedules import number_of_steps, steps_per_epoch
from protofission.training.state import start

TIMED_STEPS = 6


@dataclass(frozen=True)
class Pace:
    """Seconds that the parts of a run take on one thread."""

    step: float
    pass_: float
    """Seconds of a pass over the whole pool, or the test set."""

    def seconds(self, run: Run) -> float:
        """The time of a run like the one that was timed, with its own number of steps."""
        experiment = run.case.experiment(run.seed)
        data, recipe = load_run_data(experiment).training, experiment.recipe
        total = number_of_steps(recipe, data)
        epochs = total / steps_per_epoch(recipe, data)
        return total * self.step + (epochs + epochs / experiment.judging.every) * self.pass_


def measure_pace(run: Run) -> Pace:
    """Time a few steps of a run; nothing is written."""
    with one_thread(strictly=True):
        experiment = run.case.experiment(run.seed)
        data = load_run_data(experiment)
        state = start(experiment, data.training, data.augmentations)
        clocks = [time.perf_counter()]
        for report in train(state, experiment, data.training, data.augmentations):
            clocks.append(time.perf_counter())
            if report.step == TIMED_STEPS:
                break
    first, *others = (after - before for before, after in pairwise(clocks))
    step = median(others) if others else first
    return Pace(step, max(first - step, 0.0))
