"""Numbers of a run for MLflow."""

from __future__ import annotations

import math
import time
from typing import Any

from protofission.core.errors import InputError
from protofission.system.json_files import as_type, parse_json, to_json
from protofission.system.optional_libraries import import_optional
from protofission.training.history import Epoch
from protofission.training.run import flatten
from protofission.training.run_folder import RunFolder
from protofission.training.tensorboard import curve_values

EXPERIMENT = "protofission"
"""The name of the experiment in MLflow that runs belong to."""
NOTE = "mlflow.json"
"""File of a run's folder that names its run in MLflow."""
MOST_PARAMETERS = 100
"""Parameters in one message; MLflow takes no more."""


class MlflowTracker:
    """Writes the curves and options of a run to MLflow: where MLFLOW_TRACKING_URI says, else where
    MLflow itself would.

    A run that is resumed goes on in its run of MLflow, and epochs that are there are not doubled.
    """

    def __init__(self, folder: RunFolder) -> None:
        tracking = import_optional("mlflow.tracking", "track", "--track mlflow")
        self._entities = import_optional("mlflow.entities", "track", "--track mlflow")
        self._folder, self._run = folder, ""
        try:
            self._client: Any = tracking.MlflowClient()
            self._client.get_experiment_by_name(EXPERIMENT)  # refused before a step, if at all
        except Exception as error:  # MLflow raises what its parts raise
            raise _refusal(error) from None

    def add(self, epoch: Epoch) -> None:
        """Write an epoch; the first call makes the run in MLflow, or finds it."""
        try:
            if not self._run:
                self._run = self._find_run() or self._make_run()
            known = {metric.step for metric in self._client.get_metric_history(self._run, "loss")}
            if epoch.epoch not in known:
                self._client.log_batch(self._run, metrics=self._metrics(epoch))
        except InputError:
            raise
        except Exception as error:
            raise _refusal(error) from None

    def finish(self) -> None:
        """Call the run finished."""
        try:
            if self._run:
                self._client.set_terminated(self._run)
        except Exception as error:
            raise _refusal(error) from None

    def _metrics(self, epoch: Epoch) -> list[Any]:
        now, metric = round(time.time() * 1000), self._entities.Metric
        values = curve_values(epoch).items()
        return [
            metric(name, value, now, epoch.epoch) for name, value in values if math.isfinite(value)
        ]

    def _find_run(self) -> str | None:
        """The run of an earlier life of this folder, if it is still there."""
        if not self._folder.has(NOTE):
            return None
        found = self._folder.read(
            NOTE, lambda content: as_type(parse_json(content), dict[str, str], "")
        )
        try:
            return str(self._client.get_run(found["run"]).info.run_id)
        except Exception:  # it was deleted, or is of another server
            return None

    def _make_run(self) -> str:
        there = self._client.get_experiment_by_name(EXPERIMENT)
        number = (
            self._client.create_experiment(EXPERIMENT) if there is None else there.experiment_id
        )
        made = self._client.create_run(number, run_name=self._folder.path.name)
        run = str(made.info.run_id)
        self._folder.write(NOTE, to_json({"run": run}))
        param = self._entities.Param
        params = [
            param(key, str(value)[:500])
            for key, value in flatten(self._folder.plain("experiment")).items()
        ]
        for start in range(0, len(params), MOST_PARAMETERS):
            self._client.log_batch(run, params=params[start : start + MOST_PARAMETERS])
        return run


def _refusal(error: Exception) -> InputError:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return InputError(
        f"MLflow cannot be written to ({line.rstrip('.')}): set MLFLOW_TRACKING_URI, such as "
        "sqlite:///mlflow.db, or leave out --track."
    )
