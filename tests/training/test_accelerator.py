"""What would run on an accelerator, on what stands in for one: docs/gpu.md lists it.

`device_checks.py` runs in a process of its own on the stand-in of `stand_in_device.py`.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from protofission.core.devices import send
from protofission.core.rng import step_rng
from protofission.methods import METHODS
from protofission.models.backbones import BACKBONES
from protofission.system.distributed import FabricProcesses

TESTS = Path(__file__).parent.parent
READS_A_COUNT = {"owmatch", "owmatch+pf"}
"""Methods that read one number of their memory at every step (docs/gpu.md)."""


def checked(*names: str) -> dict[str, Any]:
    """What device_checks.py says of some checks."""
    paths = os.pathsep.join((str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])))
    ended = subprocess.run(
        [sys.executable, str(TESTS / "device_checks.py"), *names],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return dict(json.loads(ended.stdout))


def test_a_run_on_a_store_on_a_device() -> None:
    found = checked("faults", "store")
    assert found["faults"]["refused"]["two devices"].endswith("two devices, board:0 and cpu")
    assert "generator" in found["faults"]["refused"]["a generator of the CPU"]
    assert found["faults"]["quiet"] == {}  # of `send`
    assert found["faults"]["noted"] == [
        "copies to the CPU",
        "indexes by a mask",
        "reads a value",
        "waits for a copy to the device",
    ]
    assert found["store"] == {"same": True, "waits": {}}


@pytest.mark.slow
def test_every_method_on_a_device_is_the_cpu_s_bit_for_bit_and_waits_for_nothing() -> None:
    """Training, a restored state and predictions; waits are those of a step."""
    found = checked("all methods")["all methods"]
    assert set(found) == set(METHODS)
    assert [name for name, one in found.items() if not one["same"]] == []
    assert {name for name, one in found.items() if one["waits"]} == READS_A_COUNT
    for name in READS_A_COUNT:
        assert list(found[name]["waits"].values()) == [1]


@pytest.mark.slow
def test_views_encoders_bundles_and_bad_losses_on_a_device() -> None:
    found = checked("views", "encoder", "heads", "loss")
    assert len(found["heads"]) > 5
    assert set(found["heads"].values()) == {True}
    assert len(found["views"]) == 16
    assert {json.dumps(one) for one in found["views"].values()} == {'{"far": 0.0, "waits": {}}'}
    assert found["encoder"] == {"same": True, "device": "board:0"}
    assert re.match(r"The loss is (nan|inf) at step [1-3]: lower ", found["loss"]["said"])


def test_copies_to_cuda_go_through_page_locked_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls are watched; the memory itself wants a GPU."""
    calls: list[Any] = []

    def to(values: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        calls.append((*args, options))
        return values

    monkeypatch.setattr(
        torch.Tensor, "pin_memory", lambda values: calls.append("pinned") or values.clone()
    )
    monkeypatch.setattr(torch.Tensor, "to", to)
    values, cuda, cpu = torch.ones(3), torch.device("cuda"), torch.device("cpu")
    send(values, cuda)
    assert calls == ["pinned", (cuda, {"non_blocking": True})]
    calls.clear()
    send(values, cpu)
    send(values, None)
    assert calls == [(cpu, {}), (None, {})]


def test_a_gather_of_four_processes_by_a_fake_group() -> None:
    """Shapes and gradients; what the others would send is not there."""
    torch.distributed.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    try:
        sent: list[torch.Tensor] = []
        fabric = SimpleNamespace(
            global_rank=1,
            world_size=4,
            device=torch.device("cpu"),
            all_reduce=lambda flat, reduce_op: sent.append(flat) or flat,
        )
        processes = FabricProcesses(fabric)  # type: ignore[arg-type]
        rows = torch.randn(3, 2, generator=step_rng(0, 0, "rows"), requires_grad=True)
        everywhere = processes.gather(rows)
        assert everywhere.shape == (12, 2)
        (everywhere * torch.arange(12.0)[:, None]).sum().backward()
        assert rows.grad is not None
        assert rows.grad.tolist() == [[4 * row] * 2 for row in (3.0, 4.0, 5.0)]
        net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        net(rows.detach()).sum().backward()
        processes.average(net)
        assert [len(flat) for flat in sent] == [6 + 3 + 3 + 3 + 3 + 3]  # one message for all
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_backbones_make_every_tensor_where_their_weights_are(name: str) -> None:
    """On the meta device, which has shapes and no numbers; test_heads.py has the heads."""
    with torch.device("meta"):
        body = BACKBONES[name].build(3, torch.Generator())
    assert {part.device.type for part in body.parameters()} == {"meta"}
    features = body(torch.empty(2, 3, 32, 32, device="meta"))
    assert features.device.type == "meta"
    assert features.shape == (2, body.num_features)


@pytest.mark.parametrize("name", ["compact", "resnet18"])
def test_convolutions_run_in_bf16_and_channels_last_and_weights_learn_in_float32(name: str) -> None:
    """Autocast of the CPU: its rules for convolutions and products are those of CUDA."""
    body = BACKBONES[name].build(3, step_rng(0, 0, "backbone"))
    body.to(memory_format=torch.channels_last)
    seen: set[tuple[torch.dtype, bool]] = set()

    def look(module: nn.Module, inputs: Any, maps: torch.Tensor) -> None:
        seen.add((maps.dtype, maps.is_contiguous(memory_format=torch.channels_last)))

    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(look)
    images = torch.rand(2, 3, 32, 32, generator=step_rng(0, 0, "images"))
    with torch.autocast("cpu", torch.bfloat16):
        features = body(images.contiguous(memory_format=torch.channels_last))
    features.float().square().sum().backward()
    assert seen == {(torch.bfloat16, True)}
    assert {p.grad.dtype for p in body.parameters() if p.grad is not None} == {torch.float32}
