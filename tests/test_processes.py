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
    for process in started:
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said


@pytest.fixture(scope="module")
def alone() -> dict[str, Tensor]:
    return {key: value for name in SHARED for key, value in outcome(name).items()}


def by_its_own_launcher(out: Path) -> None:
    run_all(([sys.executable, str(SCRIPT), str(out), "2", "1"], {"MASTER_PORT": free_port()}))


def by_torchrun(out: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    port = ["--master-addr", "127.0.0.1", "--master-port", free_port()]
    run_all(([*torchrun, *port, str(SCRIPT), str(out), "1", "1"], {}))


def as_two_nodes(out: Path) -> None:
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    command = [sys.executable, str(SCRIPT), str(out), "1", "2"]
    run_all(*((command, {**where, "NODE_RANK": str(rank)}) for rank in range(2)))


@pytest.mark.parametrize("launch", [by_its_own_launcher, by_torchrun, as_two_nodes])
def test_two_halves_are_one_whole(launch, alone: dict[str, Tensor], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    launch(tmp_path / "found.safetensors")
    together = load_file(tmp_path / "found.safetensors")
    assert together.keys() == alone.keys()
    for key, value in alone.items():
        torch.testing.assert_close(together[key], value, atol=1e-5, rtol=1e-5, msg=key)
    for name in SHARED:
        assert any(together[key].abs().max() > 1e-3 for key in alone if f"{name}/grad" in key)


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
