"""Two processes of half the batch are one with the whole, for all methods without inner steps."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from protofission.errors import InputError
from protofission.processes import launched
from protofission.records import Layout, Share
from sharing import SHARED, outcome

SCRIPT = Path(__file__).with_name("sharing.py")


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


@pytest.fixture(scope="module")
def alone() -> dict[str, Tensor]:
    return {key: value for name in SHARED for key, value in outcome(name).items()}


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
    [(by_its_own_launcher, SHARED), (by_torchrun, FEW), (as_two_nodes, FEW)],
    ids=["its own launcher", "torchrun", "two nodes"],
)
def test_two_halves_are_one_whole(  # type: ignore[no-untyped-def]
    launch, names: list[str], alone: dict[str, Tensor], tmp_path: Path
) -> None:
    launch(tmp_path / "found.safetensors", names)
    together = load_file(tmp_path / "found.safetensors")
    wanted = {key: value for key, value in alone.items() if key.partition("/")[0] in names}
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
        launched(**arguments)  # type: ignore[arg-type]
