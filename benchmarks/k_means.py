"""The floor that methods have to rise above: k-means on features that nobody has trained.

    python benchmarks/k_means.py                          the pixels of the digits, 0-4 seen
    python benchmarks/k_means.py --store stores/cifar10   the features of a store, ORCA's split

Spherical k-means on standardised features, labeled images among the others, with as many clusters
as classes, matched to the seen classes through the labels: `novel.clustered`, as the methods that
cluster are judged.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean, stdev

import torch
from torch import Tensor

from protofission.core.metrics import accuracy, auroc, contingency
from protofission.data.datasets import DataSpec
from protofission.data.splits.registry import find_split
from protofission.training.novel_classes import cluster_into_classes


def judged(data: DataSpec, seed: int) -> list[float]:
    """Seen, novel and all in percent, by the strict protocol, and the AUC."""
    loaded = data.load()
    training, test, plain = loaded.training, loaded.test, loaded.augmentations.plain
    known = training.labels
    rows = [plain(part).flatten(1).double() for part in (training.labeled, test.inputs)]
    spread, middle = torch.std_mean(torch.cat(rows), 0)
    labeled, others = (_standard(part, middle, spread) for part in rows)
    sizes = training.num_seen, training.num_classes
    found = cluster_into_classes(labeled, known, others, *sizes, seed, anchored=False)
    counts = contingency(test.labels, found.heads.numpy(), sizes[1], sizes[1])
    shares, inside = accuracy(counts, sizes[0], "strict"), test.labels < sizes[0]
    scores = found.scores.numpy()
    percents = [100 * share for share in (shares.seen, shares.novel, shares.all)]
    return [*percents, auroc(scores[inside], scores[~inside])]


def _standard(rows: Tensor, middle: Tensor, spread: Tensor) -> Tensor:
    return (rows - middle) / torch.where(spread > 0, spread, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    data = DataSpec()
    if given.store is not None:
        data = DataSpec(None, store=str(given.store), split=find_split("orca"))
    found = [judged(data, seed) for seed in range(given.seeds)]
    for name, values in zip(("seen", "novel", "all", "AUC"), zip(*found, strict=True), strict=True):
        print(f"{name:6} {fmean(values):6.3f} +- {stdev(values):.3f}, n = {len(values)}")


if __name__ == "__main__":
    main()
