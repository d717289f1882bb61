"""`fit` beside what a competent user writes with scikit-learn, on the same features.

    python benchmarks/practice.py run OUT.jsonl SET ... [--draws 3] [--processes 2] [--old TREE]
    python benchmarks/practice.py report OUT.jsonl [--against OTHER.jsonl] [--json FILE]

A SET is NAME=FILE.npz with arrays `features` (N, D) and `labels` (N,), NAME=FOLDER with images in a
folder for each class, or a data set by name: digits, cifar10=FOLDER, fashion-mnist=FOLDER. Images
are embedded by --encoder and --size, or --quality, and their features kept in --cache.

A cell is a set, a draw, a number of labels of each class and a share of strangers. Half of the
classes, at most 20, are known; of every class 30 % of the images are for the test; the pool has at
most 2,700 images. Every line of OUT.jsonl is a method in a cell; what is there is not done again,
and a method that fails leaves its error.

Methods are our `fit` with its defaults; logistic regression (its C by cross-validation) with
largest probability, with energy, and with the cosine to the 5th nearest label; logistic regression
of labels against pool; relative Mahalanobis on unit vectors with the pool as background; K + M
(spherical k-means with K known and K free centers, then logistic regression); self-training. With
--old TREE also the `fit` of an older version on the same features, views of images replaced by
noise. Strangers are clustered with their true number: by `fit` in its own way, of what it rejects
at its own threshold; for the others by k-means on what they reject where 95 % are kept, a threshold
that is told them. Seconds are the processor's, on one thread, without clusters of baselines.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import multiprocessing
import sys
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
from practice_parts.baselines import BASELINES, Baselines
from practice_parts.cells import Cell, Floats, Ints, Scene, draw_scene
from practice_parts.features import Embedding, read_features, store_of
from practice_parts.fits import fit_old, fit_ours
from practice_parts.measures import cluster_by_k_means, measure
from practice_parts.report import OLD, OURS, report

from protofission.core.errors import InputError
from protofission.models.encoders.quality import QUALITIES

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """The finished lines of a file; a line that a kill has cut off is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def key_of(row: Row) -> tuple[Any, ...]:
    return (*(row[name] for name in Cell._fields), row["method"])


@lru_cache(maxsize=1)
def _set_of(path: Path) -> tuple[Floats, Ints]:
    return read_features(path)


def run_cell(cell: Cell, store: Path, methods: Sequence[str], old: Path | None) -> list[Row]:
    """Run some methods on a cell; a line for each."""
    torch.set_num_threads(1)
    rows = []
    scene: Scene | None = None
    baselines: Baselines | None = None
    for method in methods:
        row: Row = {**cell._asdict(), "method": method, "store": store.name}
        try:
            scene = scene or draw_scene(cell, *_set_of(store))
            row |= {"pool": len(scene.pool), "test": len(scene.test), "known": scene.known}
            if method == OURS:
                row |= fit_ours(scene)
            elif method == OLD and old is not None:
                row |= fit_old(scene, old)
            else:
                baselines = baselines or Baselines(scene)
                judged, seconds = BASELINES[method](baselines)
                row |= {**measure(scene, judged), **cluster_by_k_means(scene, judged)}
                row["seconds"] = seconds
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        rows.append(row)
    return rows


def cells_of(names: Sequence[str], arguments: argparse.Namespace) -> Iterator[Cell]:
    """All cells, first draws first."""
    for draw, share, labels, name in product(
        range(arguments.first_draw, arguments.first_draw + arguments.draws),
        arguments.shares,
        arguments.labels,
        names,
    ):
        yield Cell(name, draw, labels, share)


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing of all cells, and append it."""
    embedding = Embedding(
        arguments.encoder, arguments.quality, arguments.size, arguments.cache, arguments.most
    )
    stores = dict(store_of(argument, embedding) for argument in arguments.sets)
    out: Path = arguments.out
    done = {key_of(row) for row in read_rows(out) if "error" not in row or not arguments.retry}
    methods = arguments.methods or [OURS, *BASELINES, *([OLD] if arguments.old else [])]
    tasks = []
    for cell in cells_of(list(stores), arguments):
        if missing := [method for method in methods if (*cell, method) not in done]:
            tasks.append((cell, stores[cell.set], missing, arguments.old))
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a+") as file:
        if out.stat().st_size and not out.read_text().endswith("\n"):
            file.write("\n")
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(arguments.processes, mp_context=spawned) as pool:
            futures = [pool.submit(run_cell, *task) for task in tasks]
            for number, future in enumerate(as_completed(futures), 1):
                rows = future.result()
                file.write("".join(json.dumps(row) + "\n" for row in rows))
                file.flush()
                _say(number, len(tasks), rows)


def _say(number: int, total: int, rows: Sequence[Row]) -> None:
    cell = " ".join(str(rows[0][name]) for name in Cell._fields)
    found = [
        f"{row['method']} " + ("failed" if "error" in row else f"{row['auc']:.3f}") for row in rows
    ]
    print(f"{number}/{total} {cell}: {', '.join(found)}", flush=True)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run")
    running.add_argument("out", type=Path)
    running.add_argument("sets", nargs="+", metavar="SET")
    running.add_argument("--draws", type=int, default=3)
    running.add_argument("--first-draw", type=int, default=0)
    running.add_argument("--labels", type=int, nargs="+", default=[5, 20, 50])
    running.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.3, 0.5, 0.7, 0.9])
    running.add_argument("--methods", nargs="+", choices=[OURS, OLD, *BASELINES])
    running.add_argument("--old", type=Path, metavar="TREE")
    running.add_argument("--processes", type=int, default=1)
    running.add_argument("--retry", action="store_true", help="run again what failed")
    running.add_argument("--encoder")
    running.add_argument("--quality", choices=QUALITIES)
    running.add_argument("--size", type=int)
    running.add_argument("--cache", type=Path, default=Path("practice-features"))
    running.add_argument("--most", type=int, default=7000, help="images of a set to embed")
    reporting = verbs.add_parser("report")
    reporting.add_argument("out", type=Path)
    reporting.add_argument("--against", type=Path, help="older fits on other features")
    reporting.add_argument("--json", type=Path, help="tables for docs/results/tables.py")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.verb == "run":
        run(arguments)
        return
    rows = read_rows(arguments.out)
    against = read_rows(arguments.against) if arguments.against else None
    tables = report(rows, against)
    for title, table in tables.items():
        print(f"## {title}\n\n{table.markdown()}\n")
    if arguments.json:
        content = {"tables": {title: table.plain() for title, table in tables.items()}}
        text = json.dumps(content, ensure_ascii=False).replace("], [", "],\n[")
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
