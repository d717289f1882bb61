"""Checks of sizes, labels and features: each raises `InputError` on what cannot be right."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from protofission.core.errors import require

LARGEST_COUNT = 10**9
"""The largest count of anything."""
WIDEST = 2**14
"""The widest layer of a method's own nets: between two of these there are 268 million weights."""


def check_sizes(most: int = LARGEST_COUNT, **sizes: int) -> None:
    """Refuse a C, V, D or other size that is below 1 or above `most`."""
    for name, size in sizes.items():
        require(size >= 1, f"{name} = {size} must be at least 1.")
        require(size <= most, f"{name} = {size} must be at most {most:,}.")


def check_labels(labels: Tensor, rows: int, num_classes: int) -> None:
    """Refuse labels that are not one per row, or not in [-1, C); -1 is NO_CLASS."""
    require(
        labels.shape == (rows,) and rows > 0,
        f"Labels have the shape {tuple(labels.shape)}, but ({rows},) is wanted, and not empty.",
    )
    low, high = int(labels.min()), int(labels.max())
    require(
        low >= -1 and high < num_classes,
        f"Labels run from {low} to {high}, but classes from 0 to {num_classes - 1} (-1: none).",
    )


def check_features(features: Tensor, num_features: int) -> None:
    """Refuse features that are not (N, D), or, on a CPU, that hold a NaN or an infinity.

    On an accelerator the values are not looked at: that would wait for all queued work at every
    forward, and the loss of each step and the scores of each evaluation are checked anyway.
    """
    require(
        features.ndim == 2 and features.shape[1] == num_features,
        f"Features have the shape {tuple(features.shape)}, but the head wants (N, {num_features}).",
    )
    if features.device.type == "cpu" and not torch.compiler.is_compiling():
        total = features.detach().sum().item()  # one pass, in which no NaN or infinity can hide
        if math.isfinite(total):
            return
        bad = len(features) - int(features.isfinite().all(-1).sum())
        require(
            bad == 0,
            f"{bad} of {len(features)} feature vectors hold NaN or infinity: "
            "clean the input, or lower the learning rate if they came up in training.",
        )
