"""Processes that work for a first one: stopped at any moment, they all end, with one sentence."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protofission.system.worker_processes import deferred_signals

BEGUN = """
import protofission.training.embed
from protofission.cli import main
protofission.training.embed.SHORT = -1.0  # other processes, however little work it is
if __name__ == "__main__":
    main()
"""
SENTENCE = "protofission: stopped; the same command goes on, train and pretrain with --resume.\n"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="processes are looked for in /proc"
)


def children(parent: int) -> dict[int, str]:
    """The processes that a process started, and their command lines."""
    found = {}
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        for child in task.read_text().split():
            found[int(child)] = Path(f"/proc/{child}/cmdline").read_text()
    return found


def workers(parent: int) -> list[int]:
    try:
        return [child for child, line in children(parent).items() if "spawn_main" in line]
    except OSError:  # one has ended meanwhile
        return []


def until(holds: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 300
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture
def embedding(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "begun.py").write_text(BEGUN)
    views = ["--weak", "10", "--strong", "0", "--processes", "2", "--out", str(tmp_path / "store")]
    process = subprocess.Popen(
        [sys.executable, "begun.py", "embed", "digits", "--encoder", "simclr-cifar10", *views],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    yield process
    process.kill()
    process.wait()


def blocks(folder: Path) -> int:
    journal = folder / "store" / "blocks.jsonl"
    return len(journal.read_bytes().splitlines()) if journal.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGTERM, "at work"),
        (signal.SIGINT, "one starts"),
        (signal.SIGTERM, "both start"),
    ],
)
def test_a_signal_to_the_first_process_ends_all_of_them(
    embedding: subprocess.Popen[str], tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    wanted = {"one starts": 1, "both start": 2, "at work": 2}[moment]
    until(lambda: len(workers(embedding.pid)) >= wanted, embedding)
    if moment == "at work":  # the first block is of the first process, the second of a worker
        until(lambda: blocks(tmp_path) >= 2, embedding)
    ran = list(children(embedding.pid))
    assert len(ran) > wanted  # the workers, and Python's resource tracker
    embedding.send_signal(number)
    _, said = embedding.communicate(timeout=60)
    assert said == SENTENCE
    assert embedding.returncode == 128 + number
    end = time.monotonic() + 60  # the tracker ends once it sees that the others have
    while any(Path(f"/proc/{child}").exists() for child in ran):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert 1 <= blocks(tmp_path) < 8


AHEAD = """
import os, sys, time
from pathlib import Path
from protofission.system.launch.in_order import run_in_order
from protofission.system.launch.launcher import Work
from protofission.system.worker_processes import load_ahead

def make():
    return Path(sys.argv[1])

def piece(folder, number, tell):
    if number > 3:
        (folder / f"{os.getpid()}.pid").touch()
        time.sleep(600)
    return number**2, "colorsys" in sys.modules

if __name__ == "__main__":
    load_ahead(("colorsys", "protofission.system.launch.local_launcher"))
    for pieces in ([1, 2, 3], [0, 4, 5]):
        here = lambda number: (number**2, "colorsys" in sys.modules)
        work = Work(make, (), piece)
        print(list(run_in_order(pieces, here, work, lambda n: n, 2, short=-1)), flush=True)
"""


def test_workers_are_copies_of_a_process_that_loaded_ahead_and_end_with_the_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "ahead.py").write_text(AHEAD)
    command = [sys.executable, str(tmp_path / "ahead.py"), str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "[(1, False), (4, True), (9, True)]\n"
    until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, process)
    process.kill()  # in the middle of their work
    process.communicate()
    end = time.monotonic() + 60
    while any(Path(f"/proc/{file.stem}").exists() for file in tmp_path.glob("*.pid")):
        assert time.monotonic() < end
        time.sleep(0.01)


FULL = """
mount -t tmpfs -o size=4k tmpfs /dev/shm || exit 77
head -c 100000 /dev/zero > /dev/shm/full 2>/dev/null
test "$(stat -f -c %f /dev/shm)" = 0 || exit 78
exec "$@"
"""


@pytest.mark.slow
def test_a_full_dev_shm_is_named_and_not_the_disk_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "begun.py").write_text(BEGUN)
    views = ["--weak", "0", "--strong", "0", "--out", str(tmp_path / "store"), "--processes"]
    embed = [sys.executable, "begun.py", "embed", "digits", "--encoder", "simclr-cifar10", *views]
    command = ["unshare", "-m", "sh", "-c", FULL, "sh", *embed]

    def ended(processes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, processes], cwd=tmp_path, capture_output=True, text=True)

    try:
        done = ended("2")
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if "unshare" in done.stderr or done.returncode == 77:
        pytest.skip("it takes the right to mount")
    assert done.returncode == 2, done.stderr
    said = done.stderr.splitlines()[-1]  # after joblib's own warning
    assert said.startswith("protofission: Other processes cannot be started (No space left")
    assert said.endswith("in /dev/shm, where their locks are, or give --processes 1.")
    assert ended("1").returncode == 0  # as the sentence says


def test_a_signal_is_put_off_and_not_lost() -> None:
    done = []

    def stopped() -> None:
        with deferred_signals():
            signal.raise_signal(signal.SIGINT)
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
