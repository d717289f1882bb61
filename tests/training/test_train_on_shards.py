"""Training on a store in shards: two processes are one; two million rows fit a gigabyte each."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from protofission.data.store.from_arrays import store_features
from protofission.data.store.shards import FinishedShard, ShardedPlan, shard_folder, write_shards

CLASSES = 10
SMALL = ("recipe.labeled_batch=64", "recipe.unlabeled_batch=64", "backbone.width=16")


def sharded(folder: Path, shards: int, rows: int, width: int) -> Path:
    """A store of shards that are links to one."""
    draw = np.random.default_rng(0)
    labels = np.arange(rows) % CLASSES
    features = draw.standard_normal((rows, 1, width), np.float32).astype(np.float16)
    features += (3 * draw.standard_normal((CLASSES, 1, width))).astype(np.float16)[labels]
    names = tuple(f"class {number}" for number in range(CLASSES))
    views = {"plain": features, "weak": np.repeat(features, 2, 1)}
    first = store_features(shard_folder(folder, 0), views, labels, list(names), name="blobs")
    for number in range(1, shards):
        own = shard_folder(folder, number)
        shutil.copytree(shard_folder(folder, 0), own, copy_function=os.link)
    plan = ShardedPlan(
        "blobs",
        "none",
        {"train": rows * shards},
        rows,
        first.plan.encoder,
        "natural",
        {"plain": 1, "weak": 2},
        0,
        names,
    )
    done = FinishedShard({"train": rows}, first.plan.fingerprints["data"])
    write_shards(folder, plan, [done] * shards)
    return folder


def train(store: Path, out: Path, processes: int, *options: str) -> None:
    sets = [f"--set={option}" for option in (*SMALL, *options)]
    command = [sys.executable, "-m", "protofission", "train", "orca", "--store", str(store)]
    if processes > 1:  # --standalone has them meet at a free port
        torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command[1:2] = ["-m", *torchrun, "-m"]
    done = subprocess.run(
        [*command, *sets, "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_two_processes_on_shards_are_one(tmp_path: Path) -> None:
    store = sharded(tmp_path / "store", shards=4, rows=512, width=16)
    for processes in (1, 2):
        train(store, tmp_path / str(processes), processes, "recipe.epochs=1")
    one, two = (load_file(tmp_path / str(n) / "weights.safetensors") for n in (1, 2))
    for name, value in one.items():
        assert (two[name] - value).abs().max() <= 1e-5 * max(1.0, float(value.abs().max())), name


@pytest.mark.slow
def test_two_million_rows_within_a_gigabyte_a_process(tmp_path: Path) -> None:
    store = sharded(tmp_path / "store", shards=16, rows=125_000, width=128)
    assert 2_000_000 * 3 * 128 * 2 > 2**30  # all features are more
    train(store, tmp_path / "run", 2, "recipe.epochs=1", "recipe.steps_per_epoch=20")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # of the largest process, in kB
    assert peak < 2**20
