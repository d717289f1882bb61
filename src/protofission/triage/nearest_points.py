"""Whether the nearest points of classes join the score, by strangers that labels stand in for.

Each label is scored by the model that did not learn from it: as it is, and as if its class were not
known, by what the model says of the other classes. The second are pseudo-strangers. Points join
where they tell these better from the first. In the space that is not whitened, points tell the
strangers of some sets much better, and those of others worse; pseudo-strangers tell which.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from protofission.core.metrics import auroc
from protofission.triage.fold_model import FoldModel, score_weights
from protofission.triage.fold_models import FoldData


@torch.no_grad()
def join_points(models: Sequence[FoldModel], data: FoldData, share: float) -> bool:
    """Let points join the scores of models where they help; say whether they do.

    Args:
        models: whose scores have the weights of `score_weights(share)`.
        share: of strangers in the pool.
    """
    if models[0].sizes.known < 2 or not models[0].sizes.points or not len(data.judged):
        return False
    known, strange = pseudo_strangers(models, data)
    growth = score_weights(share, points=True) / score_weights(share)
    before, after = (
        auroc(-(known @ weights).numpy(), -(strange @ weights).numpy())
        for weights in (torch.ones_like(growth), growth)
    )
    if after <= before:
        return False
    for model in models:
        model.score_scales.div_(growth.to(model.score_scales))
    return True


@torch.no_grad()
def pseudo_strangers(models: Sequence[FoldModel], data: FoldData) -> tuple[Tensor, Tensor]:
    """(n, Q) standard scores of the judged labels, and as if the class of each were not known."""
    judged = data.judged
    known = torch.zeros(len(judged), models[0].sizes.scores, dtype=torch.float64)
    strange = torch.zeros_like(known)
    for number, model in enumerate(models):
        own = data.folds[judged] == number
        if own.any():
            rows = torch.from_numpy(data.labeled[judged[own]])
            classes = torch.from_numpy(data.labels[judged[own]])
            known[torch.from_numpy(own)] = model.standard_scores(rows).double()
            strange[torch.from_numpy(own)] = model.standard_scores(rows, classes).double()
    return known, strange
