"""Backbones: images in, (N, D) features out, stage by stage so that early stages can be frozen.

One residual network with three kinds of blocks covers ResNet-18 and ResNet-50, Wide-ResNet-28-2 and
compact nets for CPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from torch import Tensor, nn

from protofission.core.checks import check_sizes
from protofission.core.errors import check_choices, require, unknown
from protofission.core.memory_limits import Extent
from protofission.models.residual_blocks import BLOCKS, BlockKind, Shortcut, Stem, build_stem

MOST_FEATURES = 8192
MOST_BLOCKS = 1000
MOST_CHANNELS = 1024

Pixels = Literal["unit", "cifar10", "cifar100", "imagenet"]
Statistics = Literal["frozen", "orca"]

PIXELS: dict[Pixels, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "unit": ((0.0,), (1.0,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""Mean and standard deviation of each channel, for pixels in [0, 1]."""


@dataclass(frozen=True)
class BackboneSpec:
    """The options of a residual network."""

    block: BlockKind = "basic"
    """Two 3 x 3 convolutions; 1 x 1, 3 x 3, 1 x 1 with four times the width; or Wide-ResNet's."""
    width: int = 16
    """Channels of the first stage; each further stage doubles them and halves the image."""
    blocks: tuple[int, ...] = (1, 1, 1)
    """The depth: the number of residual blocks in each stage."""
    stem: Stem = "none"
    """First layer: none, 3 x 3, 3 x 3 with stride 2, or 7 x 7 with stride 2 and a max pool."""
    shortcut: Shortcut = "mean"
    """Downsampling of a shortcut: the mean over 2 x 2 pixels, or every other pixel followed by
    batch norm, as in torchvision."""
    standardise: bool = True
    """Whether features are standardized. Means of rectified maps all point one way; without their
    common part, cosines tell them apart."""
    pixels: Pixels = "unit"
    """Data set whose mean and deviation standardize the pixels; "unit" leaves them in [0, 1]."""
    weights: str | None = None
    """Initial weights: the name of packaged ones, a checkpoint file or a finished run."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_sizes(width=self.width, stages=len(self.blocks))
        check_sizes(**{f"blocks of stage {i + 1}": n for i, n in enumerate(self.blocks)})
        require(
            sum(self.blocks) <= MOST_BLOCKS,
            f"blocks = {sum(self.blocks)} in all are more than {MOST_BLOCKS}: lower them.",
        )
        require(
            self.width * 2 ** min(self.stages - 1, 20) * self._expansion <= MOST_FEATURES,
            f"width = {self.width} doubled over {self.stages} stages gives more than "
            f"{MOST_FEATURES} features: lower one of them.",
        )

    @property
    def stages(self) -> int:
        """The number of stages."""
        return len(self.blocks)

    @property
    def _expansion(self) -> int:
        return 4 if self.block == "bottleneck" else 1

    @property
    def widths(self) -> tuple[int, ...]:
        """The inner channels of each stage's blocks."""
        return tuple(self.width * 2**stage for stage in range(self.stages))

    @property
    def num_features(self) -> int:
        """D."""
        return self.widths[-1] * self._expansion

    def extent(self, shape: tuple[int, ...]) -> Extent:
        """Estimate weights, activations and outputs from its blocks, for images of that shape."""
        squares = 17 if self.block == "bottleneck" else 18
        weights = sum(
            squares * number * width**2
            for number, width in zip(self.blocks, self.widths, strict=True)
        )
        shrunk = {"none": 1, "cifar": 1, "half": 2, "imagenet": 4}[self.stem]
        sides = [max(1, side // shrunk) for side in shape[1:]]
        return Extent(weights, self.width * self._expansion * math.prod(sides), self.num_features)

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs that are not images."""
        require(
            len(shape) == 3,
            f"The store holds vectors of {shape[0]} features, and this backbone wants images: set "
            "backbone=adapter-linear, or leave the store out.",
        )

    def build(self, channels: int, generator: torch.Generator) -> Backbone:
        """Build the backbone for images of so many channels, with random weights."""
        require(
            1 <= channels <= MOST_CHANNELS,
            f"channels = {channels}: give 3 for colors, 1 for gray, or at most {MOST_CHANNELS}.",
        )
        with torch.random.fork_rng(devices=[]):  # torch's own initialization uses the global one
            return Backbone(self, channels, generator)


_RESNET = BackboneSpec("basic", 64, (2, 2, 2, 2), "cifar", "stride", standardise=False)

BACKBONES: dict[str, BackboneSpec] = {
    "digits": BackboneSpec(),
    "compact": BackboneSpec("basic", 32, (1, 1, 1, 1), "half"),
    "resnet18": _RESNET,
    "resnet50": replace(_RESNET, block="bottleneck", blocks=(3, 4, 6, 3)),
    "wrn-28-2": replace(_RESNET, block="preactivated", width=32, blocks=(4, 4, 4)),
}
"""Backbones by name, with the stem for small images; `backbone.stem=imagenet` has ImageNet's."""


def find_backbone(name: str) -> BackboneSpec:
    """The specification of a backbone, by name."""
    if name not in BACKBONES:
        raise unknown("backbone", name, BACKBONES)
    return BACKBONES[name]


class Backbone(nn.Module):
    """A stem, stages of residual blocks, the mean over the image, and standardization."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, spec: BackboneSpec, channels: int, generator: torch.Generator) -> None:
        super().__init__()
        require(
            len(PIXELS[spec.pixels][0]) in (1, channels),
            f"pixels = {spec.pixels} is for color images, and these have {channels} channels: "
            "set backbone.pixels=unit.",
        )
        block, preactivated = BLOCKS[spec.block], spec.block == "preactivated"
        first = 16 if preactivated else spec.width
        self.stem = build_stem(spec.stem, channels, first, norm=not preactivated)
        inputs = channels if spec.stem == "none" else first
        self.stages = nn.ModuleList()
        for stage, (width, number) in enumerate(zip(spec.widths, spec.blocks, strict=True)):
            layers = []
            for place in range(number):
                stride = 2 if stage > 0 and place == 0 else 1
                layers.append(block(inputs, width, stride, spec.shortcut))
                inputs = width * block.expansion
            self.stages.append(nn.Sequential(*layers))
        self.last = nn.Sequential()
        if preactivated:
            self.last = nn.Sequential(nn.BatchNorm2d(inputs), nn.LeakyReLU(0.1, inplace=True))
        self.standardise: nn.Module = nn.Identity()
        if spec.standardise:
            self.standardise = nn.BatchNorm1d(inputs, affine=False)
        self.num_features = inputs
        self.unit = spec.pixels == "unit"
        mean, deviation = (torch.tensor(v).view(-1, 1, 1) for v in PIXELS[spec.pixels])
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("deviation", deviation, persistent=False)
        self._frozen: list[nn.Module] = []
        self._cached = False
        self._statistics: Statistics = "frozen"
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, generator=generator)

    def learn_last(
        self, stages: int | None, statistics: Statistics = "frozen", *, cached: bool = False
    ) -> None:
        """Freeze all but the last stages.

        Args:
            stages: how many learn; all of them if None.
            statistics: whether the batch-norm statistics of the frozen part stay as they are, or
                follow the batches, as in ORCA's code.
            cached: whether `forward` gets the maps that the frozen part has computed already.
        """
        number = 0 if stages is None else len(self.stages) - stages
        self.requires_grad_(True)
        self._frozen = [self.stem, *self.stages[:number]] if number else []
        if number == len(self.stages):
            self._frozen += [self.last, self.standardise]
        for module in self._frozen:
            module.requires_grad_(False)
        self._statistics, self._cached = statistics, cached

    def train(self, mode: bool = True) -> Backbone:
        """As in torch, but a frozen part with frozen statistics stays in evaluation mode."""
        super().train(mode)
        if self._statistics == "frozen":
            for module in self._frozen:
                module.eval()
        return self

    @torch.no_grad()
    def trunk(self, images: Tensor) -> Tensor:
        """(N, channels, h, w) in [0, 1] to the maps at the end of the frozen part."""
        maps = images if self.unit else (images - self.mean) / self.deviation
        for layer in self._layers(frozen=True):
            maps = layer(maps)
        return maps

    def forward(self, images: Tensor) -> Tensor:
        """(N, channels, h, w) in [0, 1], or cached maps of the frozen part, to (N, D)."""
        maps = images if self._cached else self.trunk(images)
        for layer in self._layers(frozen=False):
            maps = layer(maps)
        return cast(Tensor, self.standardise(maps.mean((2, 3))))

    def _layers(self, *, frozen: bool) -> list[nn.Module]:
        """The layers of the frozen part, or those after it."""
        layers = [self.stem, *self.stages, self.last]
        return [layer for layer in layers if (layer in self._frozen) == frozen]
