"""Two processes of half the batch are one with the whole, for all methods without inner steps."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from protofission.core.errors import InputError
from protofission.core.records import Layout, Share
from protofission.system.distributed import FabricProcesses, LostProcessError, launch_processes
from sharing import SHARED, outcome

SCRIPT = Path(__file__).parents[1] / "sharing.py"


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run_all(*commands: tuple[list[str], dict[str, str]]) -> None:
    """Run commands side by side; each must end well."""
    started = [
        subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command, variables in commands
    ]
    try:
        for process in started:
            said, _ = process.communicate(timeout=300)
            assert process.returncode == 0, said
    finally:
        for process in started:
            process.kill()
            process.communicate()


def by_its_own_launcher(out: Path, names: list[str]) -> None:
    command = [sys.executable, str(SCRIPT), str(out), "2", "1", *names]
    run_all((command, {"MASTER_PORT": free_port()}))


def by_torchrun(out: Path, names: list[str]) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    port = ["--master-addr", "127.0.0.1", "--master-port", free_port()]
    run_all(([*torchrun, *port, str(SCRIPT), str(out), "1", "1", *names], {}))


def as_two_nodes(out: Path, names: list[str]) -> None:
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    command = [sys.executable, str(SCRIPT), str(out), "1", "2", *names]
    run_all(*((command, {**where, "NODE_RANK": str(rank)}) for rank in range(2)))


FEW = ["fixmatch+pf", "orca", "simclr"]
"""However they were launched, they are two processes: a few methods show that they are."""


@pytest.mark.parametrize(
    ("launch", "names"),
    [
        pytest.param(by_its_own_launcher, SHARED, marks=pytest.mark.slow),
        (by_torchrun, FEW),
        pytest.param(as_two_nodes, FEW, marks=pytest.mark.slow),
    ],
    ids=["its own launcher", "torchrun", "two nodes"],
)
def test_two_halves_are_one_whole(  # type: ignore[no-untyped-def]
    launch, names: list[str], tmp_path: Path
) -> None:
    launch(tmp_path / "found.safetensors", names)
    together = load_file(tmp_path / "found.safetensors")
    wanted = {key: value for name in names for key, value in outcome(name).items()}
    assert together.keys() == wanted.keys()
    for key, value in wanted.items():
        if key.endswith("/confusion"):  # an image between two heads may fall to either side
            assert (together[key] - value).abs().sum() / 2 <= 0.002 * value.sum(), key
        else:
            rounding = 3e-5 * max(1.0, float(value.abs().max()))
            torch.testing.assert_close(together[key], value, atol=rounding, rtol=1e-5, msg=key)
    for name in names:
        assert any(together[key].abs().max() > 1e-3 for key in wanted if f"{name}/grad" in key)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize(("labeled_views", "unlabeled_views"), [(2, 2), (1, 2), (0, 2), (1, 0)])
def test_shares_put_in_a_row_are_found_again(
    size: int, labeled_views: int, unlabeled_views: int
) -> None:
    layout = Layout(
        4 if labeled_views else 0, 8 if unlabeled_views else 0, labeled_views, unlabeled_views
    )
    rows = torch.arange(layout.rows)
    shares = [
        torch.cat([rows[b][Share(rank, size).of(b.stop - b.start)] for b in layout.blocks()])
        for rank in range(size)
    ]
    assert torch.equal(torch.cat(shares)[layout.places(size)], rows)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"processes": 0}, "processes = 0"),
        ({"nodes": 0}, "nodes = 0"),
        ({"accelerator": "cpu", "precision": "bf16"}, "wants an accelerator"),
    ],
)
def test_what_cannot_be_launched_is_refused(arguments: dict[str, object], word: str) -> None:
    with pytest.raises(InputError, match=word):
        launch_processes(**arguments)  # type: ignore[arg-type]


# A process that is gone

MEETING = """
import os, signal, time
from protofission.system.distributed import FabricProcesses, LostProcessError, launch_processes

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
together = launch_processes(2, accelerator="cpu")
os.write(1, b"met\\n")  # at once: two processes write
{then}
"""
"""The others do not wait for the first process by a collective: nothing but its end ends them."""


def begun(folder: Path, then: str) -> subprocess.Popen[str]:
    """The first of two processes that meet; its output ends when both have ended."""
    script = folder / "meeting.py"
    script.write_text(MEETING.format(then=then))
    return subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def other_of(first: subprocess.Popen[str]) -> int:
    """The process that the first one has started, as soon as there is one."""
    while first.poll() is None:
        children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.01)
    raise AssertionError(first.communicate()[0])


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for children in /proc")
@pytest.mark.parametrize(
    ("by", "after"),
    [
        (signal.SIGKILL, 0.0),
        pytest.param(signal.SIGTERM, 1.5, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, None, marks=pytest.mark.slow),
        (signal.SIGINT, None),
    ],
    ids=lambda value: getattr(value, "name", f"{value} s" if value is not None else "once met"),
)
def test_no_process_outlives_the_first(by: signal.Signals, after: float | None, tmp_path: Path):
    """Seconds after the other process was started, or once the two have met."""
    first = begun(tmp_path, "time.sleep(600)")
    assert first.stdout is not None
    other = other_of(first)
    if after is None:
        assert first.stdout.readline() == "met\n"
        assert first.stdout.readline() == "met\n"
    else:
        time.sleep(after)
    assert first.poll() is None
    state = Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[0]
    assert state != "Z"  # it is there, and not merely its exit code
    first.send_signal(by)
    try:
        said, _ = first.communicate(timeout=600)  # the other one holds the pipe as long as it lives
    except subprocess.TimeoutExpired:
        os.kill(other, signal.SIGKILL)
        raise
    assert "Traceback" not in said or by == signal.SIGINT, said
    assert first.returncode in (-by, 130, 1)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for children in /proc")
def test_a_process_that_finds_another_gone_says_so_and_no_other_error_does(tmp_path: Path):
    """The other one is killed in the midst of its collectives."""
    then = """
from protofission.core.errors import InputError
try:
    while True:
        together.broadcast(None)
except InputError as error:
    print(error)
"""
    first = begun(tmp_path, then)
    assert first.stdout is not None
    other = other_of(first)
    assert [first.stdout.readline(), first.stdout.readline()] == ["met\n", "met\n"]
    os.kill(other, signal.SIGKILL)
    said, _ = first.communicate(timeout=600)
    assert said == "Another process of this run has ended: go on with --resume.\n"


class Failing:
    """A fabric whose every word to the others fails."""

    global_rank, world_size, device = 0, 2, torch.device("cpu")

    def __init__(self, error: Exception) -> None:
        self.error = error

    def launch(self) -> None:
        raise self.error

    barrier = launch


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("Connection to the moon is no tensor"), RuntimeError),
        (RuntimeError("[/x/gloo/transport/pair.cc:1] Connection closed"), LostProcessError),
        (torch.distributed.DistBackendError("NCCL: remote process exited"), LostProcessError),
    ],
)
def test_only_what_a_collective_says_of_its_peers_is_a_lost_process(error, kind):  # type: ignore[no-untyped-def]
    with pytest.raises((RuntimeError, InputError)) as raised:
        FabricProcesses(Failing(error)).wait()  # type: ignore[arg-type]
    assert raised.type is kind


def test_processes_that_cannot_meet_are_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    import lightning_fabric

    error = torch.distributed.DistNetworkError("Port 1 is in use.\nframe #0: x")
    monkeypatch.setattr(lightning_fabric, "Fabric", lambda **_: Failing(error))
    with pytest.raises(InputError, match=r"^The processes .*\(Port 1 is in use\).*MASTER_PORT"):
        launch_processes(2, accelerator="cpu")
    assert "PROTOFISSION_LAUNCHER" not in os.environ
