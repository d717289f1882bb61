"""Backbones: images in, (N, D) features out, stage by stage so that early stages can be frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from protofission.errors import require
from protofission.fission import check_sizes

MOST_FEATURES = 8192


@dataclass(frozen=True)
class BackboneSpec:
    """A compact residual network."""

    width: int = 16
    """Channels of the first stage; each further stage doubles them and halves the image."""
    stages: int = 3
    """Residual blocks, one a stage."""

    def __post_init__(self) -> None:
        check_sizes(width=self.width, stages=self.stages)
        require(
            self.width * 2 ** min(self.stages - 1, 20) <= MOST_FEATURES,
            f"width = {self.width} doubled over {self.stages} stages gives more than "
            f"{MOST_FEATURES} features: lower one of them.",
        )

    def build(self, channels: int, generator: torch.Generator) -> Backbone:
        """The backbone for images of so many channels, with its random start."""
        with torch.random.fork_rng(devices=[]):  # torch's own start moves the global generator
            return Backbone(self, channels, generator)


class Block(nn.Module):
    """Two 3 x 3 convolutions with batch norm, and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        # The mean over a stride, then a 1 x 1 convolution without one. A strided one throws pixels
        # away, and on CPUs its backward corrupts memory for narrow channels-last maps.
        self.shortcut = nn.Sequential(
            nn.AvgPool2d(stride, ceil_mode=True),
            nn.Conv2d(inputs, outputs, 1, bias=False),
        )

    def forward(self, maps: Tensor) -> Tensor:
        """(N, inputs, h, w) to (N, outputs, h / stride, w / stride)."""
        hidden = self.norm1(self.conv1(maps)).relu()
        return torch.relu(self.norm2(self.conv2(hidden)) + self.shortcut(maps))


class Backbone(nn.Module):
    """One block a stage, then the mean over the image, standardised.

    Means of rectified maps all point one way; without their common part, cosines tell them apart.
    """

    def __init__(self, spec: BackboneSpec, channels: int, generator: torch.Generator) -> None:
        super().__init__()
        widths = [spec.width * 2**stage for stage in range(spec.stages)]
        self.stages = nn.ModuleList(
            Block(channels if stage == 0 else widths[stage - 1], width, 1 if stage == 0 else 2)
            for stage, width in enumerate(widths)
        )
        self.num_features = widths[-1]
        self.standardise = nn.BatchNorm1d(widths[-1], affine=False)
        self._frozen = 0
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, generator=generator)

    def learn_last(self, stages: int | None) -> None:
        """Freeze all but the last stages, their batch-norm statistics included."""
        self._frozen = 0 if stages is None else len(self.stages) - stages
        for number, stage in enumerate(self.stages):
            stage.requires_grad_(number >= self._frozen)

    def train(self, mode: bool = True) -> Backbone:
        """As usual, but frozen stages stay in evaluation mode."""
        super().train(mode)
        self.stages[: self._frozen].eval()
        if self._frozen == len(self.stages):
            self.standardise.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """(N, channels, h, w) in [0, 1] to (N, D)."""
        maps = images
        with torch.no_grad():
            for stage in self.stages[: self._frozen]:
                maps = stage(maps)
        for stage in self.stages[self._frozen :]:
            maps = stage(maps)
        return cast(Tensor, self.standardise(maps.mean((2, 3))))
