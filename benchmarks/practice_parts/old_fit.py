"""Fit an older version to arrays: run with its `src` in PYTHONPATH, as `practice.py --old` does.

    python old_fit.py ARRAYS.npz VERDICTS.npz

For the version that held out a part of the labels (`fit_model.fit_rows`), with the settings of its
`fit`: 300 steps. Its `fit` made weak and strong views of images; on arrays their place is taken by
noise, as in its estimator.
"""

import sys
import time

import numpy as np
import torch
from protofission.triage.model_choice import judge_rows

from protofission.data.augment.feature_views import FeatureViews
from protofission.triage.fit_model import FitOptions, fit_rows


def main(arrays: str, verdicts: str) -> None:
    torch.set_num_threads(1)
    with np.load(arrays) as given:
        labeled, pool, test = (torch.from_numpy(given[n]) for n in ("labeled", "pool", "test"))
        labels = given["labels"]
    start = time.process_time()
    views = FeatureViews.of(labeled, pool)
    found = fit_rows(views, labeled, labels, pool, labeled.shape[1], FitOptions())
    seconds = time.process_time() - start
    judged = judge_rows(found.calibrated_model, views, test)
    np.savez(
        verdicts,
        seconds=seconds,
        scores=judged.id_scores.numpy(),
        classes=judged.classes.numpy(),
        probs=judged.probs.numpy(),
        accepted=judged.decisions.numpy() == 0,
        pool_scores=found.pool.id_scores.numpy(),
        expected=found.guarantee.expected,
        at_least=found.guarantee.at_least,
        share=[found.strangers.share, found.strangers.low, found.strangers.high],
        control=found.choice.pool_hurts,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
