"""The base class of encoders, their fingerprint, and checks of their features."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, Protocol, Self, cast

import torch
from torch import Tensor, nn

from protofission.core.errors import printable, require
from protofission.models.encoders.preprocessing import Preprocessing

CPU_CHUNK, ACCELERATOR_CHUNK = 16, 256
"""Images that an encoder takes at once; on a CPU small chunks that stay in its cache are faster."""


class EncoderSpec(Protocol):
    """The options of an encoder: small and picklable, so that worker processes can load it."""

    def __init__(self, source: str) -> None: ...

    @property
    def source(self) -> str:
        """The file, folder, hub name or packaged name that it comes from."""

    def load(self, device: torch.device | None = None) -> Encoder:
        """Load the encoder with its weights onto a device, from files on this machine alone."""


class Encoder(nn.Module, ABC):
    """A frozen network from images to features, always in evaluation mode."""

    kind: str
    """Its key in ENCODERS."""
    mean: Tensor
    deviation: Tensor

    def __init__(
        self, source: str, preprocessing: Preprocessing, num_features: int, chunk: int
    ) -> None:
        super().__init__()
        self.source = source
        self.preprocessing = preprocessing
        self.size = preprocessing.size
        self.decode = preprocessing.resized
        self.channels = preprocessing.channels
        self.num_features = num_features
        self.chunk = chunk
        self.fingerprint = ""
        for name in ("mean", "deviation"):
            values = torch.tensor(getattr(preprocessing, name)).view(-1, 1, 1)
            self.register_buffer(name, values, persistent=False)

    def freeze_on(self, device: torch.device | None) -> Self:
        """Freeze the encoder and move it to a device, the CPU if None."""
        self.eval().requires_grad_(False)
        if device is not None and device.type != "cpu":
            self.chunk = ACCELERATOR_CHUNK
        return self.to(device or torch.device("cpu"))

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode, whatever the mode."""
        return super().train(False)

    def prepare(self, images: Tensor) -> Tensor:
        """Resize, crop and standardize (n, 1 or 3, h, w) floats in [0, 1] for the network."""
        require(
            images.ndim == 4 and images.shape[1] in (1, 3) and images.is_floating_point(),
            f"Images of the shape {tuple(images.shape)} and type {images.dtype} cannot be encoded: "
            "give (n, 1 or 3, height, width) floats in [0, 1].",
        )
        return self.preprocessing(images.float(), self.mean, self.deviation)

    @abstractmethod
    def forward(self, prepared: Tensor) -> Tensor:
        """The network itself: (n, channels, size, size) to (n, D) float32."""

    def run(self, prepared: Tensor) -> Tensor:
        """The network by the fastest means at hand; what `features` uses."""
        return cast(Tensor, self(prepared))

    def features(self, images: Tensor) -> Tensor:
        """(n, D) features of (n, 1 or 3, h, w) floats in [0, 1], without gradients, in chunks."""
        device = self.mean.device
        found = torch.empty(len(images), self.num_features, device=device)
        with torch.no_grad():
            for start in range(0, len(images), self.chunk):
                part = slice(start, start + self.chunk)
                found[part] = self.run(self.prepare(images[part].to(device)))
        return found

    def describe(self) -> dict[str, Any]:
        """Kind, source, sizes, preprocessing and fingerprint, in plain JSON values."""
        return {
            "kind": self.kind,
            "source": PurePath(self.source).name,
            "size": self.size,
            "num_features": self.num_features,
            "preprocessing": self.preprocessing.describe(),
            "fingerprint": self.fingerprint,
        }


def encoder_fingerprint(
    tensors: Iterable[tuple[str, Tensor]], preprocessing: Preprocessing, **others: Any
) -> str:
    """The SHA-256 of named tensors, of the preprocessing, and of other plain JSON values."""
    plain = {"preprocessing": preprocessing.describe(), **others}
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for name, value in tensors:
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)}\n".encode())
        flat = value.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def probe_images(preprocessing: Preprocessing, rows: int = 2) -> Tensor:
    """(rows, channels, size, size) noise to try a network with, the same at every call."""
    side = preprocessing.size
    noise = torch.Generator().manual_seed(0)
    return torch.randn(rows, preprocessing.channels, side, side, generator=noise)


def count_features(source: str, found: Tensor, again: Tensor, rows: int) -> int:
    """D of a network's outputs for `rows` images, given twice.

    Raises:
        InputError: if they are not (rows, D), not finite, or not the same both times.
    """
    shown = printable(source)
    require(
        found.ndim == 2 and len(found) == rows and found.shape[1] > 0,
        f"{shown} gives {tuple(found.shape)} for {rows} images, which are no features: choose "
        "another output=.",
    )
    require(
        bool(found.isfinite().all()),
        f"{shown} gives NaN or infinite features: take another copy of it.",
    )
    require(
        bool(torch.allclose(found, again, rtol=1e-4, atol=1e-4)),
        f"{shown} gives other features each time, as models that mask at random do: take another.",
    )
    return found.shape[1]


def reason_of(error: Exception) -> str:
    """The first line of a library's error, short enough for a sentence."""
    line = (str(error).strip().splitlines() or [""])[0]
    return printable(f"{type(error).__name__}: {line}"[:200])
