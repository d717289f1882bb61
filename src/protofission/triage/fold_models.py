"""Train the models of all folds, side by side where it takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import torch

from protofission.core.array_types import Ints
from protofission.core.errors import require
from protofission.core.progress import Progress
from protofission.core.rng import step_rng
from protofission.core.threads import one_library_thread, one_thread
from protofission.system.launch.in_order import run_in_order
from protofission.system.launch.launcher import Launcher, Tell, Work
from protofission.triage.calibrated_model import JUDGED_AT_ONCE
from protofission.triage.fold_model import FoldModel
from protofission.triage.fold_training import FoldTraining, Rows, set_share, train_fold
from protofission.triage.folds import NO_FOLD, Mask
from protofission.triage.pool_guard import FoldVerdicts


@dataclass(frozen=True)
class FoldData:
    """Labels and pool, and what each model does not learn from."""

    labeled: Rows
    """(L, D)."""
    labels: Ints
    """(L,)."""
    folds: Ints
    """(L,): model k does not learn from the labels of fold k."""
    pool: Rows
    """(U, D)."""
    parts: Ints
    """(U,): model k does not learn from part k of the pool."""
    calibrates: Mask | None = None
    """(L,): the labels that judge models, if they have a fold; by default all."""
    strangers: Rows | None = None
    """(n, D): images that are known to be of no class."""
    stranger_folds: Ints | None = None
    """(n,): model k does not learn from the strangers of fold k; by default every model does."""

    @property
    def models(self) -> int:
        """K."""
        return max(int(self.folds.max(initial=NO_FOLD)) + 1, 1)

    @property
    def judges(self) -> Mask:
        """(L,): mask of the labels that judge the model which did not learn from them."""
        held: Mask = self.folds != NO_FOLD
        return held if self.calibrates is None else held & self.calibrates

    @property
    def judged(self) -> Ints:
        """(n,): indices of these labels."""
        return np.flatnonzero(self.judges)


def pool_parts(size: int, models: int, seed: int) -> Ints:
    """(size,): the part of each image of the pool, of about equal sizes, drawn at random.

    So that images of the pool are to a model what labels of its fold are, and scores of both can be
    compared, a model does not learn from its own part. With one model, or where the pool is small,
    all images are in NO_FOLD, and every model learns from all.
    """
    if models == 1 or size < 4 * models:
        return np.full(size, NO_FOLD)
    random = np.random.default_rng(step_rng(seed, 0, "parts of the pool").initial_seed())
    return random.permutation(size) % models


@dataclass(frozen=True)
class _Task:
    model: int
    with_pool: bool


def train_models(
    data: FoldData,
    settings: FoldTraining,
    *,
    with_pool: bool,
    processes: int = 1,
    launcher: Launcher | None = None,
    progress: Progress = lambda done, total: None,
) -> list[FoldModel]:
    """Train the K models, on labels and pool or as controls on labels alone.

    Each is trained on one thread and from a seed of its own, so that the result does not depend on
    the number of processes, nor on the machine's.

    Args:
        launcher: trains them elsewhere; by default this machine's processes do, if it takes long.
    """
    tasks = [_Task(number, with_pool) for number in range(data.models)]
    work = Work(_pair, (data, settings), _train_piece)
    found: dict[int, FoldModel] = {}
    progress(0, len(tasks))
    if launcher is None:
        here: Callable[[_Task], FoldModel] = lambda task: _train(data, settings, task)  # noqa: E731
        results: Iterable[tuple[int, FoldModel]] = enumerate(
            run_in_order(tasks, here, work, lambda task: task, processes)
        )
    else:
        results = _train_elsewhere(launcher, work, tasks)
    for number, model in results:
        found[number] = model
        progress(len(found), len(tasks))
    return [found[number] for number in range(len(tasks))]


def _train_elsewhere(
    launcher: Launcher, work: Work, tasks: list[_Task]
) -> Iterator[tuple[int, FoldModel]]:
    with closing(launcher.run(work, tasks)) as told:
        for news in told:
            require(not news.failure, f"The model of fold {news.place + 1} failed: {news.failure}")
            if news.ended:
                yield news.place, news.told


def _pair(data: FoldData, settings: FoldTraining) -> tuple[FoldData, FoldTraining]:
    return data, settings


def _train_piece(given: tuple[FoldData, FoldTraining], task: _Task, _: Tell) -> FoldModel:
    return _train(*given, task)


def set_shares(
    models: list[FoldModel], data: FoldData, settings: FoldTraining, share: float
) -> None:
    """Give models that learned from the pool a better estimate of its share of strangers."""
    with one_thread(strictly=True):
        for number, model in enumerate(models):
            learned, rows = data.folds != number, data.pool[data.parts != number]
            seed = _seed_of(settings, number)
            set_share(model, data.labeled[learned], data.labels[learned], rows, share, seed)


def _seed_of(settings: FoldTraining, model: int) -> int:
    return (settings.seed + model) % 2**63


def _train(data: FoldData, settings: FoldTraining, task: _Task) -> FoldModel:
    learned = data.folds != task.model
    settings = replace(settings, seed=_seed_of(settings, task.model))
    pool = data.pool[data.parts != task.model] if task.with_pool else None
    with one_thread(strictly=True), one_library_thread():
        return train_fold(
            settings,
            data.labeled[learned],
            data.labels[learned],
            pool,
            strangers=_strangers_of(data, task.model),
        )


def _strangers_of(data: FoldData, model: int) -> Rows | None:
    if data.strangers is None or data.stranger_folds is None:
        return data.strangers
    found: Rows = data.strangers[data.stranger_folds != model]
    return found


@torch.no_grad()
def held_out_outputs(models: list[FoldModel], data: FoldData) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, S) logits and (n,) scores of the judged labels, each by the model of its fold."""
    judged = data.judged
    rows = torch.from_numpy(data.labeled[judged])
    logits = torch.zeros(len(judged), models[0].sizes.known)
    scores = torch.zeros(len(judged))
    for number, model in enumerate(models):
        own = torch.from_numpy(data.folds[judged] == number)
        if own.any():
            logits[own], scores[own] = model(rows[own])
    return logits, scores


@torch.no_grad()
def pool_scores(models: list[FoldModel], rows: Rows) -> torch.Tensor:
    """(U, K): scores of the pool by every model."""
    chunks = torch.split(torch.from_numpy(rows), JUDGED_AT_ONCE)
    return torch.cat([torch.stack([model(some).scores for model in models], 1) for some in chunks])


def fold_verdicts(models: list[FoldModel], data: FoldData, by_model: torch.Tensor) -> FoldVerdicts:
    """Verdicts of the models on labels and pool images that they did not learn from.

    Args:
        by_model: (U, K), the `pool_scores` of the pool.
    """
    logits, scores = held_out_outputs(models, data)
    judged, numbers = data.judged, np.arange(len(data.pool))
    parts = data.parts
    if (parts == NO_FOLD).all():  # all models learned from all
        parts = np.repeat(np.arange(len(models)), len(numbers))
        numbers = np.tile(numbers, len(models))
    return FoldVerdicts(
        right=logits.argmax(1).numpy() == data.labels[judged],
        scores=scores.numpy().astype(float),
        folds=data.folds[judged],
        pool=by_model.numpy()[numbers, parts].astype(float),
        parts=parts,
        images=numbers,
    )
