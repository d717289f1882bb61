"""Classes merged on purpose: fission against k-means sub-classes, and against the true fine ones.

    python benchmarks/merged_classes.py stores/objects --seen 20 --labels 50 --test 40 --seeds 10 --json merged.json

The first `--seen` classes of a store are known, `--labels` of each labeled, and K neighbors in the
list share a label; the other classes are strangers. Only labels are learned from, by a linear map
of the features and prototypes compared by cosine. Rows differ in the labels and prototypes: one a
class, fission's five, the five k-means clusters of each class as labels, and the fine classes as
labels. An image's class has the largest sum of its sub-classes' probabilities, which is the ID
score too. What the JSON file holds is not computed again.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import normalize

from protofission.core.kmeans import SPHERE, cluster_rows
from protofission.core.metrics import auroc
from protofission.core.options import override
from protofission.core.records import NO_CLASS
from protofission.core.rng import step_rng
from protofission.data.datasets import Data
from protofission.data.image_sets import TrainingData
from protofission.data.store.reader import Store
from protofission.experiments.report.run_figures import MARKERS
from protofission.experiments.report.statistics import Sample, paired_differences
from protofission.pages.drawing import OKABE_ITO, write_drawing
from protofission.training.experiment import Experiment
from protofission.training.loop import train
from protofission.training.outputs import outputs
from protofission.training.presets import preset
from protofission.training.state import start

SUBCLASSES = 5
FISSION = ("head.prototypes=5", "head.init=data", "method.diversity_weight=0.3")
ROWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "one prototype a class": ("supervised", ("head.kind=cosine", "head.init=data")),
    "fission": ("supervised+pf", FISSION),
    "fission, L_cst 0.1": ("supervised+pf", (*FISSION, "method.consistency_weight=0.1")),
    "fission, L_cst 0": ("supervised+pf", (*FISSION, "method.consistency_weight=0")),
    "k-means sub-classes": ("supervised", ("head.kind=cosine", "head.init=data")),
    "true sub-classes": ("supervised", ("head.kind=cosine", "head.init=data")),
}
QUANTITIES = ("AUC", "accuracy")
Values = dict[str, dict[str, dict[str, Sequence[float]]]]
"""AUC and accuracy by the number that is merged, row and seed."""


def experiment(row: str, seed: int, given: argparse.Namespace, merged: int) -> Experiment:
    name, own = ROWS[row]
    found = preset("features", name)
    for option in (
        f"data.store={given.store}",
        "data.split=coarse",
        f"data.split.merge={merged}",
        f"data.split.num_seen={given.seen // merged}",
        f"data.split.labels_per_class={given.labels * merged}",
        f"data.split.test_per_class={given.test * merged if given.test else 'none'}",
        "backbone.width=256",
        f"recipe.steps={given.steps}",
        *own,
    ):
        found = override(found, option)
    return replace(found, seed=seed)


def sub_classes(row: str, data: Data, fine: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """(L,) labels to learn, and (S',) the class that each of them belongs to."""
    known, rows = data.training.labels, data.training.labeled
    if row == "true sub-classes":
        names, labels = fine[rows].unique(return_inverse=True)
        owner = torch.zeros(len(names), dtype=torch.long).scatter_(0, labels, known)
        return labels, owner
    if row != "k-means sub-classes":
        return known, torch.arange(data.training.num_seen)
    features = data.augmentations.plain(rows).double()
    units = normalize((features - features.mean(0)) / features.std(0).clamp_min(1e-6), dim=1)
    labels, generator = torch.empty_like(known), step_rng(seed, 0, "sub-classes")
    for label in range(data.training.num_seen):
        own = (known == label).nonzero()[:, 0]
        free = torch.full((len(own),), NO_CLASS)
        found = cluster_rows(units[own], free, units[:0], SUBCLASSES, generator, SPHERE).members
        labels[own] = label * SUBCLASSES + found
    names, labels = labels.unique(return_inverse=True)
    return labels, names // SUBCLASSES


def judged(row: str, seed: int, given: argparse.Namespace, merged: int) -> tuple[float, float]:
    """AUC, and the accuracy in percent on images of known classes."""
    wanted = experiment(row, seed, given, merged)
    data = wanted.data.load()
    fine = torch.from_numpy(Store.open(given.store).labeling().train)
    labels, owner = sub_classes(row, data, fine, seed)
    novel = data.training.num_classes - data.training.num_seen
    training: TrainingData = replace(
        data.training, labels=labels, num_seen=len(owner), num_classes=len(owner) + novel
    )
    state = start(wanted, training, data.augmentations)
    for _ in train(state, wanted, training, data.augmentations):
        pass
    shares = []
    for output in outputs(state.model, data.test.inputs, data.augmentations.plain):
        probabilities = output.logits[:, : len(owner)].softmax(-1)
        classes = probabilities.new_zeros(len(probabilities), data.training.num_seen)
        shares.append(classes.index_add_(1, owner, probabilities))
    sure, named = torch.cat(shares).max(1)
    inside = data.test.labels < data.training.num_seen
    right = named.numpy()[inside] == data.test.labels[inside]
    scores = -sure.numpy()
    return auroc(scores[inside], scores[~inside]), 100 * float(np.mean(right))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--seen", type=int, default=50, help="fine classes that are known")
    parser.add_argument("--labels", type=int, default=100, help="of each fine class")
    parser.add_argument("--test", type=int, help="images held out; default: the official test set")
    parser.add_argument("--merged", type=int, nargs="+", default=(1, 2, 5, 10))
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--json", type=Path, default=Path("merged_classes.json"))
    parser.add_argument("--figure", type=Path, help="a drawing, without the ending of its file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    content = json.loads(given.json.read_text()) if given.json.exists() else {"values": {}}
    known, seeds = content["values"], range(given.first_seed, given.first_seed + given.seeds)
    for seed in seeds:
        for merged in given.merged:
            for row in ROWS:
                own = known.setdefault(str(merged), {}).setdefault(row, {})
                if str(seed) not in own:
                    own[str(seed)] = judged(row, seed, given, merged)
                    given.json.write_text(json.dumps(content, indent=1) + "\n")
    content["tables"] = {name: table(known, place) for place, name in enumerate(QUANTITIES)}
    given.json.write_text(json.dumps(content, indent=1) + "\n")
    if given.figure:
        draw(known, given.figure)
    for name, found in content["tables"].items():
        print(f"\n{name}: | {' | '.join(found['heads'])} |")
        for cells in found["rows"]:
            print(f"| {' | '.join(cells)} |")


def draw(known: Values, path: Path) -> None:
    """The AUC along the number that is merged, a line for each row, as path.png and path.svg."""
    numbers = sorted(known, key=int)

    def lines(figure: Figure) -> None:
        axes = figure.add_subplot()
        for place, row in enumerate(ROWS):
            samples = [
                Sample(tuple(values[0] for values in known[number].get(row, {}).values()))
                for number in numbers
            ]
            means, half = ([getattr(s, of) for s in samples] for of in ("mean", "interval"))
            style = {"marker": MARKERS[place % len(MARKERS)], "markersize": 5, "capsize": 2}
            axes.errorbar([*map(int, numbers)], means, half, color=OKABE_ITO[place], **style)
            axes.plot([], [], color=OKABE_ITO[place], marker=style["marker"], label=row)
        axes.set(xlabel="fine classes under one label", ylabel="AUC", xticks=[*map(int, numbers)])
        figure.legend(loc="outside lower center", ncols=2)

    write_drawing(path, lines, (6.2, 4.2))


def table(known: Values, place: int) -> dict[str, Any]:
    """A table of texts as docs/results/tables.py takes it; differences are from the first row."""
    numbers = sorted(known, key=int)
    return {
        "heads": ["", *(f"{number} merged" for number in numbers)],
        "rows": [[row, *(_cell(known[number], row, place) for number in numbers)] for row in ROWS],
    }


def _cell(rows: Mapping[str, Mapping[str, Sequence[float]]], row: str, place: int) -> str:
    """Mean and spread, and the 95 % interval of the difference from the first row."""
    first, digits = next(iter(ROWS)), (3, 1)[place]
    own, base = (
        {int(seed): values[place] for seed, values in rows.get(name, {}).items()}
        for name in (row, first)
    )
    if not own:
        return "not run"
    mean = f"{fmean(own.values()):.{digits}f}"
    if len(own) == 1:
        return f"{mean} (n = 1)"
    text = f"{mean} ± {stdev(own.values()):.{digits}f} (n = {len(own)})"
    if row == first or len(own.keys() & base.keys()) < 2:
        return text
    low, high = paired_differences(own, base).ends
    shown = f"[{low:+.{digits}f}, {high:+.{digits}f}]"
    return f"{text} **{shown}**" if low > 0 or high < 0 else f"{text} {shown}"


if __name__ == "__main__":
    main()
