"""`protofission serve` under load on loopback, against the bare encoder in the same run.

    python benchmarks/serve_load.py
    python benchmarks/serve_load.py --rounds 5 --seconds 15 --out results.md

Server, load generator and bare encoder are processes of their own and share the cores of this
machine: what clients take, the server lacks. In each round the bare encoder has its turn (as many
threads as the server has, pixels decoded beforehand; and once more from the bytes of the files),
then the server with 1, 8 and 64 clients, each of which sends one JPEG file of 224 px a request and
waits. Ratios are of turns of the same round; the median counts. On a machine that others use, a
process with more threads gets more of the cores: so processor time for an image is given too, of
the server alone and with its clients.

Then 10,000 requests with a small encoder, and the memory of the server; then SIGKILL under load,
and a start at the same port. Everything is bounded in number and time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

CLIENTS = (1, 8, 64)
PATIENCE = 60.0
"""Seconds that anything is waited for."""


# The load generator: raw sockets, so that clients take little of the cores.


def exchange(connection: socket.socket, request: bytes) -> int:
    """Send a request, read its answer whole, and return its status."""
    connection.sendall(request)
    found = b""
    while b"\r\n\r\n" not in found:
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionError("closed")
        found += piece
    head, _, body = found.partition(b"\r\n\r\n")
    length = int(re.findall(rb"content-length: (\d+)", head.lower())[0])
    while len(body) < length:
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionError("closed")
        body += piece
    status = int(head.split(b" ", 2)[1])
    if status == 200 and not json.loads(body)["predictions"][0]["decision"]:
        raise ValueError("a row without a decision")
    return status


def load(port: int, clients: int, seconds: float, most: int, folder: Path) -> dict[str, Any]:
    """Ask by some clients for some seconds, or for so many requests."""
    head = "POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/jpeg\r\n"
    requests = [
        f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
        for content in (file.read_bytes() for file in sorted(folder.iterdir()))
    ]
    times: list[float] = []
    errors: list[str] = []
    left, lock = most, threading.Lock()
    begun, cpu = time.perf_counter(), time.process_time()

    def ask_on(number: int) -> None:
        nonlocal left
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                turn = number
                while time.perf_counter() - begun < seconds:
                    with lock:
                        if left <= 0:
                            return
                        left -= 1
                    start = time.perf_counter()
                    status = exchange(connection, requests[turn % len(requests)])
                    if status != 200:
                        errors.append(f"status {status}")
                    times.append(time.perf_counter() - start)
                    turn += clients
        except (OSError, ValueError) as error:
            errors.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=ask_on, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed = time.perf_counter() - begun
    times.sort()
    return {
        "requests": len(times),
        "errors": errors,
        "rate": len(times) / passed,
        "cpu": (time.process_time() - cpu) / max(1, len(times)),
        "median": times[len(times) // 2] if times else None,
        "p99": times[int(0.99 * len(times))] if times else None,
    }


# The bare encoder.


def bare(model: Path, seconds: float, folder: Path, decoded: bool) -> dict[str, Any]:
    """Encode the same images in chunks on as many threads as the server has."""
    import numpy as np
    import torch

    from protofission.core.threads import take_one_core
    from protofission.data.image_sets import floats
    from protofission.data.readers.decode import decode
    from protofission.system.processors import processors
    from protofission.triage.prediction_blocks import Predictor

    predictor = Predictor(model, 1)
    encoder, contents = predictor.encoder, [f.read_bytes() for f in sorted(folder.iterdir())]
    pixels = [decode(content, predictor.decoding) for content in contents]
    counts = [0] * processors()

    def work(number: int, end: float) -> None:
        take_one_core()
        at = number
        while time.perf_counter() < end:
            places = [(at + i) % len(contents) for i in range(encoder.chunk)]
            some = [
                pixels[p] if decoded else decode(contents[p], predictor.decoding) for p in places
            ]
            encoder.features(floats(torch.from_numpy(np.stack(some))))
            counts[number] += len(places)
            at += encoder.chunk

    def run(seconds: float) -> tuple[float, float]:
        counts[:] = [0] * len(counts)
        begun, cpu = time.perf_counter(), time.process_time()
        threads = [
            threading.Thread(target=work, args=(number, begun + seconds))
            for number in range(len(counts))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        images = sum(counts)
        return images / (time.perf_counter() - begun), (time.process_time() - cpu) / images

    run(0.5)
    rate, cpu = run(seconds)
    return {"rate": rate, "cpu": cpu}


# Processes.


def part(name: str, *arguments: object) -> dict[str, Any]:
    """Run a part of this script in a process of its own."""
    command = [sys.executable, __file__, "--part", name, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    return dict(json.loads(done.stdout))


@contextmanager
def server(model: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "protofission", "serve", str(model), "--port", str(port)]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found, "The server did not start."
            yield process, int(found[1])
        finally:
            process.kill()


def cpu_of(process: subprocess.Popen[str]) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(process: subprocess.Popen[str]) -> float:
    """Resident megabytes of a process."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def make_images(folder: Path, number: int, side: int) -> Path:
    """JPEG files of smooth pictures with some noise."""
    import numpy as np
    from PIL import Image

    folder.mkdir()
    for at in range(number):
        random = np.random.default_rng(at)
        coarse = Image.fromarray(random.integers(0, 256, (6, 6, 3), np.uint8))
        smooth = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC)).astype(int)
        noisy = (smooth + random.integers(-12, 13, smooth.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{at:03}.jpg", quality=90)
    return folder


def make_model(folder: Path, work: Path, encoder: str, size: int) -> Path:
    """A model of a few pictures with a packaged encoder: what it says does not matter here."""
    for name, start in (("labeled/one", 0), ("labeled/two", 100), ("pool", 200)):
        target = work / f"for-{folder.name}" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        make_images(target, 12, 64 + start // 10)
    given = work / f"for-{folder.name}"
    command = [sys.executable, "-m", "protofission", "fit", given / "labeled", given / "pool"]
    command += ["--out", folder, "--encoder", encoder, "--set", f"size={size}", "--steps", "20"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=600)
    return folder


# The measurements.


def measure_rates(model: Path, images: Path, rounds: int, seconds: float) -> list[str]:
    found: dict[str, list[dict[str, Any]]] = {}
    errors: list[str] = []
    with server(model) as (process, port):
        part("load", port, 8, 3, 10**6, images)  # warm
        for number in range(rounds):
            for name, decoded in (("encoder", 1), ("decode + encoder", 0)):
                found.setdefault(name, []).append(part("bare", model, seconds, images, decoded))
            for clients in CLIENTS:
                before, sizes = cpu_of(process), batches(port)
                turn = part("load", port, clients, seconds, 10**6, images)
                turn["own"] = (cpu_of(process) - before) / max(1, turn["requests"])
                images_after, batches_after = batches(port)
                turn["batch"] = (images_after - sizes[0]) / max(1, batches_after - sizes[1])
                errors += turn["errors"]
                found.setdefault(f"{clients} clients", []).append(turn)
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    lines = [
        f"{rounds} rounds of {seconds:g} s a turn; {len(errors)} errors {sorted(set(errors))[:3]}.",
        "",
        "| turn | images/s | of the bare encoder | of decode + encoder | CPU ms an image | with "
        "clients | CPU of the bare encoder / with clients | images a batch | median ms | p99 ms |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, turns in found.items():
        rate = statistics.median(turn["rate"] for turn in turns)
        ratios = [
            statistics.median(
                turn["rate"] / one["rate"] for turn, one in zip(turns, found[base], strict=True)
            )
            for base in ("encoder", "decode + encoder")
        ]
        own = statistics.median(turn.get("own", turn["cpu"]) for turn in turns)
        whole = statistics.median(
            turn["own"] + turn["cpu"] if "own" in turn else turn["cpu"] for turn in turns
        )
        lone = statistics.median(
            one["cpu"] / (turn["own"] + turn["cpu"] if "own" in turn else turn["cpu"])
            for turn, one in zip(turns, found["encoder"], strict=True)
        )
        late = ["", "", ""]
        if "own" in turns[0]:
            batch, middle, last = (
                statistics.median(turn[key] for turn in turns) for key in ("batch", "median", "p99")
            )
            late = [f"{batch:.1f}", f"{1000 * middle:.0f}", f"{1000 * last:.0f}"]
        lines.append(
            f"| {name} | {rate:.1f} | {ratios[0]:.2f} | {ratios[1]:.2f} | {1000 * own:.1f} | "
            f"{1000 * whole:.1f} | {lone:.2f} | {' | '.join(late)} |"
        )
    return lines


def metric(port: int, name: str) -> float:
    from urllib.request import urlopen

    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    return float(re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)[0])


def batches(port: int) -> tuple[float, float]:
    """Images and batches that the server has encoded."""
    name = "protofission_batch_images"
    return metric(port, f"{name}_sum"), metric(port, f"{name}_count")


def measure_memory(model: Path, images: Path, requests: int) -> list[str]:
    """Resident memory after a warm-up, a fifth of the requests, and all of them."""
    with server(model) as (process, port):
        errors = part("load", port, 8, 600, 200, images)["errors"]
        sizes = [memory_of(process)]
        for number in (requests // 5, requests - requests // 5):
            turn = part("load", port, 8, 600, number, images)
            errors += turn["errors"]
            assert turn["requests"] == number, turn
            sizes.append(memory_of(process))
        rate = turn["rate"]
    words = ", ".join(f"{size:.1f} MB" for size in sizes)
    return [
        f"{requests:,} requests of 8 clients, small images and encoder ({rate:.0f} images/s): "
        f"{len(errors)} errors; memory after 200, {requests // 5:,} and {requests:,} requests: "
        f"{words}."
    ]


def measure_kill(model: Path, images: Path) -> list[str]:
    """SIGKILL under load: clients get an error, and the next start serves at the same port."""
    with server(model) as (process, port):
        found: dict[str, Any] = {}
        asking = threading.Thread(
            target=lambda: found.update(part("load", port, 8, 30, 10**6, images))
        )
        asking.start()
        while metric(port, "protofission_batch_images_sum") < 100:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        asking.join()
    begun = time.perf_counter()
    with server(model, port):
        started = time.perf_counter() - begun
        again = part("load", port, 8, 30, 100, images)
    kinds = sorted({error.partition(":")[0] for error in found["errors"]})
    return [
        f"Killed after {found['requests']} answers: {len(found['errors'])} of 8 clients got an "
        f"error ({', '.join(kinds)}). The next start took {started:.1f} s and gave "
        f"{again['requests']} answers, {len(again['errors'])} errors."
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, help="a fitted model; by default one is made")
    parser.add_argument("--images", type=Path, help="a folder of JPEG files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--requests", type=int, default=10_000, help="0: rates alone")
    parser.add_argument("--out", type=Path, help="a file for the lines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        images = options.images or make_images(work / "images", 64, 224)
        small = make_images(work / "small", 64, 32)
        model = options.model or make_model(work / "model", work, "efficientnet-lite2", 224)
        cores = len(os.sched_getaffinity(0))
        busy = [f"{cores} cores; load average {os.getloadavg()[0]:.1f} before the first round."]
        lines = [
            *busy,
            *measure_rates(model, images, options.rounds, options.seconds),
        ]
        if options.requests:
            tiny = make_model(work / "tiny", work, "efficientnet-lite0", 32)
            lines += ["", *measure_memory(tiny, small, options.requests)]
            lines += measure_kill(tiny, small)
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--part"]:
        name, *given = sys.argv[2:]
        if name == "load":
            answer = load(
                int(given[0]), int(given[1]), float(given[2]), int(given[3]), Path(given[4])
            )
        else:
            answer = bare(Path(given[0]), float(given[1]), Path(given[2]), given[3] == "1")
        print(json.dumps(answer))
    else:
        main()
