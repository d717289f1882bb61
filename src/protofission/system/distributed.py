"""Training in one process or many, on one machine or several.

Every process runs the backbone on its share of a batch. Then the features are gathered with their
gradients, and each process computes the head and the loss of the whole batch: so no loss has to
know of processes, whether it looks at pairs, class means, entropies or all other images.

All processes hold the same loss, so each knows the gradient of every gathered row. It sends its
own rows' gradient, times the number of processes, into its backbone; then the gradients of the
parameters are averaged. Head: the mean of equal gradients. Backbone: the sum of all shares. Both
are those of the whole batch. Batch norm alone sees a difference: each process normalizes by its
share, and the running statistics are averaged after every step.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from protofission.core.errors import InputError, require
from protofission.core.records import WHOLE, Share
from protofission.system.worker_processes import exit_with

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Value = TypeVar("Value")

Precision = Literal["32", "bf16"]

_PLACE_VARIABLES = ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that tell a machine its place among several."""
_LAUNCHER = "PROTOFISSION_LAUNCHER"
"""Environment variable with the id of the process that launched this one, if it was ours."""


class LostProcessError(InputError):
    """Another process of a run has ended."""


class Processes:
    """One process on a CPU: nothing to gather, nothing to average."""

    share: Share = WHOLE
    device = torch.device("cpu")

    @property
    def first(self) -> bool:
        """Whether this process is the one that shows and writes."""
        return self.share.rank == 0

    def autocast(self) -> AbstractContextManager[object]:
        """Context in which the forward pass may run in a lower precision."""
        return nullcontext()

    def gather(self, rows: Tensor) -> Tensor:
        """Gather the rows of all processes in the order of ranks, with their gradients."""
        return rows

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of a loss that all processes have computed alike."""
        loss.backward()  # type: ignore[no-untyped-call]

    def average(self, *modules: nn.Module) -> None:
        """Average gradients and batch-norm statistics over processes."""

    def setup(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Wrap the optimizer as the precision needs it."""
        return optimizer

    def broadcast(self, value: Value) -> Value:
        """Give the first process's value to all."""
        return value

    def wait(self) -> None:
        """Wait until all processes are here."""


ALONE = Processes()


@contextmanager
def _lost_process_errors() -> Iterator[None]:
    """Turn the error of a message to a process that has ended into an InputError."""
    try:
        yield
    except RuntimeError as error:
        # NCCL and the store have a type of error for it, gloo has none but names its file.
        if isinstance(error, torch.distributed.DistError) or "gloo/transport/" in str(error):
            raise LostProcessError(
                "Another process of this run has ended: go on with --resume."
            ) from error
        raise


class _Gather(torch.autograd.Function):
    """All-gather of rows; backward scales the gradient of the own rows by the process count."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, together: FabricProcesses) -> Tensor:
        ctx.share, ctx.rows = together.share, len(rows)
        everywhere = rows.new_empty(len(rows) * together.share.size, *rows.shape[1:])
        parts = list(everywhere.chunk(together.share.size))
        with _lost_process_errors():
            torch.distributed.all_gather(parts, rows.contiguous())
        return everywhere

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        size = ctx.share.size
        return gradients[0][ctx.share.of(ctx.rows * size)] * size, None


class FabricProcesses(Processes):
    """One or more processes, on devices and in precisions of lightning-fabric."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.share = Share(fabric.global_rank, fabric.world_size)
        self.device = fabric.device

    def autocast(self) -> AbstractContextManager[object]:
        """Context in which the forward pass may run in a lower precision."""
        return self.fabric.autocast()

    def gather(self, rows: Tensor) -> Tensor:
        """Gather the rows of all processes in the order of ranks, with their gradients."""
        if self.share.size == 1:
            return rows
        return cast(Tensor, _Gather.apply(rows, self))  # type: ignore[no-untyped-call]

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of a loss that all processes have computed alike."""
        self.fabric.backward(loss)

    @torch.no_grad()
    def average(self, *modules: nn.Module) -> None:
        """Average gradients and batch-norm statistics over processes, in one message."""
        if self.share.size == 1:
            return
        every = nn.ModuleList(modules)
        values = [p.grad for p in every.parameters() if p.grad is not None]
        for norm in every.modules():
            if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d) and norm.training:
                values += [norm.get_buffer("running_mean"), norm.get_buffer("running_var")]
        flat = torch.cat([value.flatten().float() for value in values])
        with _lost_process_errors():
            flat = cast(Tensor, self.fabric.all_reduce(flat, reduce_op="mean"))
        parts = torch.split(flat, [value.numel() for value in values])
        for value, part in zip(values, parts, strict=True):
            value.copy_(part.view_as(value))

    def setup(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Wrap the optimizer as the precision needs it."""
        return cast(torch.optim.Optimizer, self.fabric.setup_optimizers(optimizer))

    def broadcast(self, value: Value) -> Value:
        """Give the first process's value to all."""
        with _lost_process_errors():
            return self.fabric.broadcast(value)

    def wait(self) -> None:
        """Wait until all processes are here."""
        with _lost_process_errors():
            self.fabric.barrier()


def launch_processes(
    processes: int = 1, nodes: int = 1, accelerator: str = "auto", precision: Precision = "32"
) -> Processes:
    """Start the processes of a run, unless torchrun has started them.

    Args:
        processes: number on this machine; with accelerators, one for each device.
        nodes: number of machines; each is told its rank and the first one's address by the
            variables NODE_RANK, MASTER_ADDR and MASTER_PORT.
        accelerator: "cpu", "cuda", or "auto" for cuda where there is one.
        precision: of the forward pass; the weights stay float32.
    """
    require(processes >= 1, f"processes = {processes} must be at least 1.")
    require(nodes >= 1, f"nodes = {nodes} must be at least 1.")
    if accelerator == "auto":
        accelerator = best_accelerator()
    require(
        accelerator == "cpu" or torch.cuda.device_count() >= processes,
        f"There is no cuda here for {processes} processes, one a device: use --accelerator cpu.",
    )
    require(
        precision == "32" or accelerator != "cpu",
        f"precision = {precision} wants an accelerator; on a CPU it is slower: use 32.",
    )
    missing = [name for name in _PLACE_VARIABLES if name not in os.environ]
    if "LOCAL_WORLD_SIZE" in os.environ:  # torchrun has started them, and knows best
        processes = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // processes
    elif nodes > 1:
        require(not missing, f"nodes = {nodes} wants {', '.join(missing)} set on each machine.")
    alone = processes == nodes == 1
    if alone and accelerator == "cpu":
        return ALONE
    from lightning_fabric import Fabric

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # no banners
    fabric = Fabric(
        accelerator=accelerator,
        devices=processes,
        num_nodes=nodes,
        strategy="auto" if alone else "ddp",
        precision="32-true" if precision == "32" else "bf16-mixed",
    )
    _launch(fabric)
    return FabricProcesses(fabric)


def _launch(fabric: Fabric) -> None:
    """Start the other processes and connect to them; they end when this process does.

    Processes of torchrun have no launcher of ours: torchrun ends them.
    """
    launcher = os.environ.pop(_LAUNCHER, None)
    if launcher is not None:
        exit_with(int(launcher))
    else:
        os.environ[_LAUNCHER] = str(os.getpid())
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # one that ends is told of by us
    try:
        fabric.launch()
    except torch.distributed.DistError as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(
            f"The processes of this run cannot meet ({reason}): start all of them, with the same "
            "MASTER_ADDR and a MASTER_PORT that is free."
        ) from error
    finally:
        os.environ.pop(_LAUNCHER, None)


def find_device(accelerator: str) -> torch.device:
    """Find the device of one process: "cpu", "cuda", or "auto" for cuda where there is one."""
    if accelerator == "auto":
        accelerator = best_accelerator()
    require(
        accelerator == "cpu" or torch.cuda.is_available(),
        "There is no cuda here: use --accelerator cpu.",
    )
    return torch.device(accelerator)


def other_device(accelerator: str) -> torch.device:
    """The device of a process of another machine: "cpu", also for "auto", or "cuda"."""
    return torch.device("cpu" if accelerator == "auto" else accelerator)


def best_accelerator() -> str:
    """cuda where there is one, else cpu."""
    return "cuda" if torch.cuda.is_available() else "cpu"
