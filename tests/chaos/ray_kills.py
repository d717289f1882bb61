"""Kills workers, nodes and launchers of a Ray cluster at random; run as a script.

    python tests/chaos/ray_kills.py --kills 30 --seed 1 --out ray-kills-out

The cluster has a head without processors and two nodes of one processor each, all on this machine,
with token authentication. embed, predict, suite and train run on it by the real command line. A
kill is made, and counted, only while a task of ours is running on what is killed; if a command
ends, the same command is given again. At the end its bytes must be those of a run without Ray.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ |= {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "OMP_NUM_THREADS": "1",
}

KINDS = ("worker", "node", "launcher")
TASK = "ray::_carry_out"
"""The title of a process of Ray while it carries out a piece of ours."""
SUITE = """
title: Two rows
methods: [orca, orca+pf]
data: [{store}]
seeds: 2
options: [recipe.epochs=12, recipe.labeled_batch=64, recipe.unlabeled_batch=64, backbone.width=32]
"""
TRAIN = ("backbone.width=8", "recipe.epochs=12", "recipe.labeled_batch=64")
LONGEST = 1800.0
"""Seconds after which a command that has not ended counts as one that hangs."""


def parents() -> dict[int, tuple[int, str]]:
    """The parent and the command line of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(entry.name)] = parent, (entry / "cmdline").read_text()
            except OSError:  # it has ended
                continue
    return found


class Machines:
    """A Ray cluster of two nodes on this machine."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        self.nodes = [self.cluster.add_node(num_cpus=1) for _ in range(2)]
        os.environ["RAY_ADDRESS"] = self.cluster.address

    def busy(self, node: object) -> list[int]:
        """The processes of a node that carry out a piece right now."""
        raylets = {process.process.pid for process in node.all_processes["raylet"]}
        return [
            pid
            for pid, (parent, line) in parents().items()
            if parent in raylets and line.startswith(TASK)
        ]

    def replace(self, node: object) -> None:
        """Kill a node, and start another."""
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes.remove(node)
        self.nodes.append(self.cluster.add_node(num_cpus=1))

    def end(self) -> None:
        self.cluster.shutdown()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "protofission", *arguments]


class Campaign:
    """One command that is killed again and again, until it ends."""

    def __init__(self, machines: Machines, out: Path, chance: random.Random) -> None:
        self.machines, self.out, self.folder, self.chance = machines, out, out.parent, chance
        self.kills: Counter[str] = Counter()
        self.lives = 0

    def run(self, arguments: list[str], kills: int) -> None:
        """Give a command until it succeeds, with up to so many kills."""
        left, begun = kills, time.monotonic()
        while True:
            self.lives += 1
            process = subprocess.Popen(
                command(*arguments), cwd=self.folder, stdout=subprocess.DEVNULL,
                stderr=(self.folder / "errors").open("a"),
            )  # fmt: skip
            pause = time.monotonic() + self.chance.uniform(0.5, 4)
            while process.poll() is None:
                assert time.monotonic() - begun < LONGEST, "it hangs"
                time.sleep(0.05)
                if left and time.monotonic() > pause and self._kill(process):
                    left -= 1
                    pause = time.monotonic() + self.chance.uniform(1, 8)
            if process.returncode == 0 or (self.out / "finished").exists():
                return
            assert process.returncode in (2, -signal.SIGKILL), process.returncode

    def _kill(self, process: subprocess.Popen[bytes]) -> bool:
        """Kill something that works; False if nothing does."""
        busy = {node: self.machines.busy(node) for node in self.machines.nodes}
        at_work = [node for node, pids in busy.items() if pids]
        if not at_work:
            return False
        kind, node = self.chance.choice(KINDS), self.chance.choice(at_work)
        if kind == "worker":
            pid = busy[node][0]
            os.kill(pid, signal.SIGSTOP)  # so that it cannot end between the look and the kill
            hit = pid in self.machines.busy(node)
            os.kill(pid, signal.SIGKILL)
            if not hit:
                return False
        elif kind == "node":
            self.machines.replace(node)
        else:
            process.send_signal(signal.SIGSTOP)
            hit = any(map(self.machines.busy, self.machines.nodes)) and process.poll() is None
            process.kill()
            process.wait()
            if not hit:
                return False
        self.kills[kind] += 1
        return True


def content(folder: Path) -> dict[str, bytes]:
    """The files below a folder, without locks, and without what tells times or machines."""
    apart = ("environment.json", "history.json", "start.json", "state.safetensors")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (".lock", *apart)
    }


def subjects(folder: Path) -> dict[str, list[str]]:
    """The commands by name, without their folder; writes what they read."""
    from bundles import bundle_at
    from pictures import picture

    bundle_at(folder / "model")
    for number in range(1500):
        picture(folder / "photos" / f"{number:04}.png", number, side=32)
    encoder = ["--encoder", "simclr-cifar10", "--weak", "2", "--strong", "0", "--shard", "256"]
    embed = ["embed", "digits", *encoder]
    predict = ["predict", "model", "photos", "--shard", "150", "--format", "csv"]
    sets = [f"--set={option}" for option in TRAIN]
    train = ["train", "orca+pf", *sets, "--processes", "2", "--save-every", "0", "--resume"]
    (folder / "own.yaml").write_text(SUITE.format(store=folder / "local-embed"))
    suite = ["suite", "own.yaml"]
    return {"embed": embed, "predict": predict, "suite": suite, "train": train}


def main() -> None:
    """Run the campaign, and print a table."""
    options = argparse.ArgumentParser()
    options.add_argument("--kills", type=int, default=30)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--out", type=Path, default=Path("ray-kills-out"))
    options.add_argument("--subjects", nargs="*", default=["embed", "predict", "suite", "train"])
    given = options.parse_args()
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    folder = given.out.absolute()
    commands, table = subjects(folder), []
    for name, arguments in commands.items():
        done = subprocess.run(
            command(*arguments, "--out", f"local-{name}"), cwd=folder, capture_output=True
        )
        assert done.returncode == 0, done.stderr
    machines = Machines()
    try:
        for name in given.subjects:
            wanted, kills, rounds = -(-given.kills // len(given.subjects)), Counter(), 0
            lives = 0
            while kills.total() < wanted:
                rounds += 1
                out = folder / f"ray-{name}-{rounds}"
                chance = random.Random(f"{given.seed} {name} {rounds}")
                campaign = Campaign(machines, out, chance)
                campaign.run([*commands[name], "--out", out.name, "--on", "auto"], wanted)
                kills += campaign.kills
                lives += campaign.lives
                under = "runs" if name == "suite" else "."
                here, there = content(folder / f"local-{name}" / under), content(out / under)
                assert here.keys() == there.keys(), here.keys() ^ there.keys()
                differ = [path for path in here if here[path] != there[path]]
                assert not differ, differ
            table.append({"command": name, "rounds": rounds, "lives": lives, **kills})
            print(json.dumps(table[-1]), flush=True)
    finally:
        machines.end()
    total = sum(row.get(kind, 0) for row in table for kind in KINDS)
    said = (folder / "errors").read_text()
    assert "Traceback" not in said, said
    print(f"{total} kills, each of work in progress; all bytes are those of the local runs.")


if __name__ == "__main__":
    main()
