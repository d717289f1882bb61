"""Label next beside simpler choices: a simulated person answers with the true labels.

    python benchmarks/label_next.py run OUT.jsonl NAME=FILE.npz ... [--draws 5] [--folds 5]
    python benchmarks/label_next.py report OUT.jsonl

A FILE.npz has arrays `features` (N, D) and `labels` (N,). Half of the classes, at most 20, are
known, with --labels each; the pool has --pool images, half of them strangers; of every class 30 %
of the images are for the test (`practice_parts.cells`). A model is fitted, a strategy chooses
images of the pool, the person names their classes or says "none of these", and the model is fitted
again as the workbench does: known answers train and never calibrate, the others stay in the pool
and models are told that they are strangers. So with 50, 100 and 200 answers, 50 at a time and at
last 100; every strategy sees its own model.

Strategies are ours (`triage.workbench.next_labels`); random; least certain (smallest largest
probability); margin (smallest difference of the two largest); and k-centre (farthest first from
all labels and answers, by cosines of standardized features). Measured on the test images: accuracy
of those of known classes, and AUC of ID scores, known against strangers.

Every line of OUT.jsonl is a budget of a strategy in a draw; what is there is not done again.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from practice_parts.cells import Cell, Floats, Ints, Scene, draw_scene
from practice_parts.features import read_features
from practice_parts.measures import Judged, measure

from protofission.core.unit_maps import reduce_rows, unit_rows
from protofission.triage.calibrated_model import ACCEPT, Verdicts, judge
from protofission.triage.fit_model import FitResult, fit_features
from protofission.triage.fit_options import FitOptions
from protofission.triage.workbench.actions import NONE, UNLABELED
from protofission.triage.workbench.calibration_labels import GivenLabels, labels_of_refit
from protofission.triage.workbench.next_labels import (
    Prospects,
    choose_next,
    class_margins,
    nearest_cosines,
)

BUDGETS = (50, 100, 200)
SHARE = 0.5
"""Share of strangers in the pool."""
Row = dict[str, Any]


def smaller_pool(scene: Scene, most: int) -> Scene:
    """The scene with so many images in its pool, known ones and strangers in equal parts."""
    is_known = scene.pool_truth < scene.known
    parts = [np.flatnonzero(is_known)[: most // 2], np.flatnonzero(~is_known)[: most // 2]]
    rows = np.sort(np.concatenate(parts))
    return scene._replace(pool=scene.pool[rows], pool_truth=scene.pool_truth[rows])


@dataclass(frozen=True, eq=False)
class Answered:
    """A scene with some answers, and the model that was fitted to them."""

    scene: Scene
    label_of: Ints
    """(L + U,): the class, NONE or UNLABELED."""
    fitted: FitResult

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """(L + U, D)."""
        return np.concatenate([self.scene.labeled, self.scene.pool]).astype(np.float32)

    @property
    def open_rows(self) -> Ints:
        return np.flatnonzero(self.label_of == UNLABELED)

    @cached_property
    def verdicts(self) -> Verdicts:
        """Verdicts on all images."""
        return judge(self.fitted.calibrated_model, [torch.from_numpy(self.features)])

    def prospects(self, groups: Ints) -> Prospects:
        found, model = self.verdicts, self.fitted.calibrated_model
        with torch.no_grad():
            units = model.clusters.units(torch.from_numpy(self.features)).numpy()
        return Prospects(
            units,
            found.probs.numpy(),
            found.id_scores.numpy(),
            float(model.threshold),
            found.clusters.numpy(),
            self.label_of != UNLABELED,
            groups,
        )


def fit_answers(scene: Scene, label_of: Ints, options: FitOptions) -> Answered:
    """Fit to labels and answers as the workbench's refit does."""
    names = {number: str(number) for number in range(scene.known)}
    given = GivenLabels(label_of, len(scene.labels), (), names)
    labels = labels_of_refit(given, np.zeros(len(label_of), bool))
    rows = np.concatenate([scene.labeled, scene.pool]).astype(np.float32)
    fitted = fit_features(
        rows[labels.rows],
        labels.labels,
        lambda numbers: rows[labels.pool[numbers]],
        len(labels.pool),
        options,
        calibrates=labels.calibrates,
        strangers=labels.strangers,
    )
    return Answered(scene, label_of, fitted)


Chooser = Callable[[Answered, int, np.random.Generator], Ints]


def at_random(now: Answered, number: int, random: np.random.Generator) -> Ints:
    return random.permutation(now.open_rows)[:number]


def least_certain(now: Answered, number: int, random: np.random.Generator) -> Ints:
    best = now.verdicts.probs.numpy().max(1)[now.open_rows]
    return now.open_rows[np.argsort(best, kind="stable")[:number]]


def smallest_margin(now: Answered, number: int, random: np.random.Generator) -> Ints:
    margins = class_margins(now.verdicts.probs.numpy())[0][now.open_rows]
    return now.open_rows[np.argsort(margins, kind="stable")[:number]]


def k_center(now: Answered, number: int, random: np.random.Generator) -> Ints:
    space = reduce_rows(now.features)
    units = unit_rows((now.features - space.mean) * space.scale).astype(np.float32)
    rows = now.open_rows
    nearest = nearest_cosines(units[rows], units[now.label_of != UNLABELED])
    chosen: list[int] = []
    for _ in range(min(number, len(rows))):
        place = int(nearest.argmin())
        chosen.append(place)
        nearest = np.maximum(nearest, units[rows] @ units[rows[place]])
        nearest[place] = np.inf
    return rows[chosen]


STRATEGIES: dict[str, Chooser] = {
    "ours": lambda now, number, random: np.zeros(0, np.int64),
    "random": at_random,
    "least certain": least_certain,
    "margin": smallest_margin,
    "k-centre": k_center,
}


def measure_now(now: Answered) -> Row:
    """Accuracy, AUC and what is kept and rejected at the threshold, on the test images."""
    scene = now.scene
    found = judge(now.fitted.calibrated_model, [torch.from_numpy(scene.test.astype(np.float32))])
    judged = Judged(
        found.id_scores.double().numpy(), found.classes.numpy(), None, np.zeros(len(scene.pool))
    )
    accepted = found.decisions.numpy() == ACCEPT
    return {
        **measure(scene, judged),
        "kept": float(accepted[scene.is_known].mean()),
        "rejected": float(1 - accepted[~scene.is_known].mean()),
    }


def run_episode(start: Answered, strategy: str, draw: int, options: FitOptions) -> Iterator[Row]:
    """The lines of a strategy in a draw, budget after budget."""
    scene, now = start.scene, start
    truth = np.concatenate([scene.labels, scene.pool_truth])
    answers = np.where(truth < scene.known, truth, NONE)
    groups, asked = start.fitted.duplicates, 0
    yield {"budget": 0, "known answers": 0, **measure_now(now)}
    for budget in BUDGETS:
        begun, row = time.process_time(), {"budget": budget}
        if strategy == "ours":
            batch = choose_next(now.prospects(groups), budget - asked)
            rows = np.array([image.row for image in batch], np.int64)
            right = [image.suggestion == answers[image.row] for image in batch]
            row["suggestions right"] = float(np.mean(right))
        else:
            random = np.random.default_rng([draw, budget])
            rows = STRATEGIES[strategy](now, budget - asked, random)
        row["seconds to choose"] = time.process_time() - begun
        label_of = now.label_of.copy()
        assert (label_of[rows] == UNLABELED).all()
        assert len(set(rows.tolist())) == len(rows)
        label_of[rows] = answers[rows]
        asked += len(rows)
        now = fit_answers(scene, label_of, options)
        known = int((label_of[len(scene.labels) :] >= 0).sum())
        row |= {"asked": asked, "known answers": known, **measure_now(now)}
        yield row | {"seconds": time.process_time() - begun}


def read_lines(path: Path) -> list[Row]:
    """The finished lines of a file; a line that a kill has cut off is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


KEY = ("set", "draw", "labels", "pool", "folds", "strategy", "budget")


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing, first draws first, and append it."""
    torch.set_num_threads(1)
    out: Path = arguments.out
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {tuple(row[name] for name in KEY) for row in read_lines(out)}
    sets = dict(argument.split("=", 1) for argument in arguments.sets)
    if out.exists() and not out.read_text().endswith("\n"):
        with out.open("a") as file:
            file.write("\n")
    for draw in range(arguments.first_draw, arguments.first_draw + arguments.draws):
        for name, path in sets.items():
            _run_draw(arguments, name, Path(path), draw, done)


def _run_draw(
    arguments: argparse.Namespace, name: str, path: Path, draw: int, done: set[tuple[Any, ...]]
) -> None:
    cell = Cell(name, draw, arguments.labels, SHARE)
    options = FitOptions(folds=arguments.folds, seed=draw)
    sizes = {"labels": arguments.labels, "pool": arguments.pool, "folds": arguments.folds}
    start: Answered | None = None
    for strategy in arguments.strategies:
        row: Row = {"set": name, "draw": draw, **sizes, "strategy": strategy}
        left = [b for b in (0, *BUDGETS) if (*row.values(), b) not in done]
        if not left:
            continue
        if start is None:
            scene = smaller_pool(draw_scene(cell, *read_features(path)), arguments.pool)
            label_of = np.full(len(scene.labels) + len(scene.pool), UNLABELED)
            label_of[: len(scene.labels)] = scene.labels
            start = fit_answers(scene, label_of, options)
        for found in run_episode(start, strategy, draw, options):
            if found["budget"] not in left:
                continue
            with arguments.out.open("a") as file:
                file.write(json.dumps(row | found) + "\n")
            figures = f"accuracy {found['accuracy']:.3f}, AUC {found['auc']:.3f}"
            print(f"{name} {draw} {strategy} {found['budget']}: {figures}", flush=True)


def report(path: Path) -> str:
    """Tables of accuracy and AUC, over all sets and by set, from draws that are complete."""
    found = {tuple(row[name] for name in KEY): row for row in read_lines(path)}
    folds = sorted({key[4] for key in found})
    parts = [_tables({k: row for k, row in found.items() if k[4] == f}, f) for f in folds]
    return "\n".join(parts)


def _tables(found: dict[tuple[Any, ...], Row], folds: int) -> str:
    strategies = [name for name in STRATEGIES if any(key[5] == name for key in found)]
    cells = sorted({key[:5] for key in found})
    budgets = (0, *BUDGETS)
    whole = [c for c in cells if all((*c, s, b) in found for s in strategies for b in budgets)]
    if not whole:
        return f"## {folds} folds: no draw is complete yet\n"
    sets = sorted({cell[0] for cell in whole})
    lines = [f"## {folds} folds: {len(whole)} draws of {', '.join(sets)}", ""]
    for title, measured in (("Accuracy on known classes", "accuracy"), ("AUC", "auc")):
        lines += [f"### {title}, %", ""]
        for place in ("all sets", *sets):
            own = [cell for cell in whole if place in ("all sets", cell[0])]
            values = np.array(
                [[[found[*c, s, b][measured] for b in budgets] for s in strategies] for c in own]
            )
            lines += [*_table(place, strategies, 100 * values), ""]
    known = np.array(
        [[found[*c, s, b]["known answers"] for s in strategies] for c in whole for b in BUDGETS]
    )
    known = known.reshape(len(whole), len(BUDGETS), len(strategies)).mean(0)
    lines += ["Answers that name a known class, of 50, 100, 200: "]
    lines += [
        f"- {s}: {', '.join(f'{x:.0f}' for x in known[:, i])}" for i, s in enumerate(strategies)
    ]
    right = [row["suggestions right"] for row in found.values() if "suggestions right" in row]
    return "\n".join([*lines, "", f"Suggestions that are right: {100 * np.mean(right):.0f} %.", ""])


def _table(place: str, strategies: Sequence[str], values: Floats) -> list[str]:
    """Means of (draws, strategies, budgets); beside others, ours less theirs with its error."""
    head = " | ".join(f"{budget} labels" for budget in (0, *BUDGETS))
    lines = [f"| {place} (n = {len(values)}) | {head} |", "|---" * (len(BUDGETS) + 2) + "|"]
    ours = strategies.index("ours")
    for number, name in enumerate(strategies):
        cells = []
        for budget in range(len(BUDGETS) + 1):
            own = values[:, number, budget]
            text = f"{own.mean():.1f} ± {_deviation(own):.1f}"
            if number != ours and budget:
                ahead = values[:, ours, budget] - values[:, number, budget]
                error = _deviation(ahead) / len(ahead) ** 0.5
                text += f" (ours {ahead.mean():+.1f} ± {error:.1f})"
            cells.append(text)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _deviation(values: Floats) -> float:
    """The standard deviation; of one value it is not a number."""
    return float(values.std(ddof=1)) if len(values) > 1 else float("nan")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run")
    running.add_argument("out", type=Path)
    running.add_argument("sets", nargs="+", metavar="NAME=FILE.npz")
    running.add_argument("--draws", type=int, default=5)
    running.add_argument("--first-draw", type=int, default=0)
    running.add_argument("--labels", type=int, default=5, help="labels of each class")
    running.add_argument("--pool", type=int, default=700, help="images of the pool")
    running.add_argument("--folds", type=int, default=5, help="folds of each fit")
    running.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=[*STRATEGIES])
    reporting = verbs.add_parser("report")
    reporting.add_argument("out", type=Path)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.verb == "run":
        run(arguments)
    else:
        print(report(arguments.out))


if __name__ == "__main__":
    main()
