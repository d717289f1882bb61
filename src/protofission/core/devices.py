"""Copies to an accelerator that the CPU does not wait for."""

from __future__ import annotations

import torch
from torch import Tensor


def send(values: Tensor, device: torch.device | None) -> Tensor:
    """Copy values to a device; the CPU goes on at once.

    To CUDA the copy goes through page-locked memory: from any other, the driver first waits for
    all queued work. Values that are on the device already, or bound for the CPU, are not copied.
    """
    if device is None or device.type == "cpu" or values.device.type != "cpu":
        return values.to(device)
    if device.type == "cuda":
        values = values.pin_memory()
    return values.to(device, non_blocking=True)
