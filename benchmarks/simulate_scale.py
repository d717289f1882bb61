"""A simulation of a large prediction: stragglers, failures and restarts, by the size of a shard.

    python benchmarks/simulate_scale.py --images 1000000000 --workers 1000 --rate 25

Workers take shards one after another. The speed of each is drawn around the mean, some are slow all
the time; a worker is lost at random and another takes its place after a while. What a lost worker
had finished of its shard is kept up to the last block, as our journals keep it; `whole` shows what
it would be without journals. The launcher is restarted now and then, and every worker with it: half
a block, or half a shard, of each is lost on average. The seed makes it repeatable.
"""

from __future__ import annotations

import argparse
import heapq

import numpy as np

BLOCK = 256


def simulate(
    images: int,
    workers: int,
    rate: float,
    shard: int,
    *,
    kept: bool,
    failures: float,
    restart: float,
    overhead: float,
    slow: float,
    launcher: float,
    seed: int,
) -> tuple[float, float, int]:
    """Hours until the end, the share of images computed twice, and the number of losses.

    Args:
        rate: images a second of a worker.
        kept: whether a lost worker's blocks are kept.
        failures: losses of a worker an hour.
        restart: seconds until a lost worker is replaced.
        overhead: seconds that a shard takes besides its images.
        slow: share of workers at a quarter of the speed.
        launcher: hours between two restarts of the launcher, at which every worker stops.
    """
    random = np.random.default_rng(seed)
    speed = rate * random.lognormal(0.0, 0.15, workers)
    speed[random.random(workers) < slow] /= 4
    left = -(-images // shard)
    again, losses, repeated = list[int](), 0, 0.0
    free = [(float(at), worker) for worker, at in enumerate(random.uniform(0, restart, workers))]
    heapq.heapify(free)
    end = 0.0
    while left or again:
        clock, worker = heapq.heappop(free)
        if again:
            size = again.pop()
        else:
            size, left = shard, left - 1
        seconds = overhead + size / speed[worker]
        lost_at = random.exponential(3600 / failures) if failures else np.inf
        if lost_at < seconds:
            losses += 1
            done = max(0.0, lost_at - overhead) * speed[worker]
            saved = int(done // BLOCK) * BLOCK if kept else 0
            repeated += done - saved
            again.append(max(size - saved, 1))
            heapq.heappush(free, (clock + lost_at + restart, worker))
            end = max(end, clock + lost_at)
        else:
            heapq.heappush(free, (clock + seconds, worker))
            end = max(end, clock + seconds)
    restarts = int(end / 3600 / launcher) if launcher else 0
    lost = BLOCK / 2 if kept else shard / 2
    hours = end / 3600 + restarts * (restart + lost / rate) / 3600
    return hours, (repeated + restarts * workers * lost) / images, losses


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--images", type=int, default=10**9)
    options.add_argument("--workers", type=int, default=1000)
    options.add_argument("--rate", type=float, default=25.0)
    options.add_argument("--failures", type=float, default=0.02, help="of a worker, an hour")
    options.add_argument("--restart", type=float, default=120.0)
    options.add_argument("--overhead", type=float, default=2.0)
    options.add_argument("--slow", type=float, default=0.01)
    options.add_argument("--launcher", type=float, default=6.0, help="hours between restarts")
    options.add_argument("--seeds", type=int, default=3)
    given = options.parse_args()
    ideal = given.images / given.workers / given.rate / 3600
    print(f"{given.images:,} images, {given.workers:,} workers of {given.rate:g} images/s: "
          f"{ideal:.2f} hours if nothing happened.")  # fmt: skip
    print("| images a shard | shards | hours | of the ideal | computed twice | whole shards lost: "
          "hours | computed twice | workers lost |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for shard in (1024, 4096, 16_384, 65_536, 262_144, 1_048_576):
        rows = {}
        for kept in (True, False):
            rows[kept] = np.mean(
                [
                    simulate(
                        given.images, given.workers, given.rate, shard, kept=kept,
                        failures=given.failures, restart=given.restart, overhead=given.overhead,
                        slow=given.slow, launcher=given.launcher, seed=seed,
                    )
                    for seed in range(given.seeds)
                ],
                axis=0,
            )  # fmt: skip
        (hours, twice, lost), (whole, whole_twice, _) = rows[True], rows[False]
        print(
            f"| {shard:,} | {-(-given.images // shard):,} | {hours:.2f} | {hours / ideal:.3f} | "
            f"{100 * twice:.3f} % | {whole:.2f} | {100 * whole_twice:.2f} % | {lost:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
