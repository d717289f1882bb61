"""The parts of a residual network: stems, residual blocks and their shortcuts."""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor, nn

BlockKind = Literal["basic", "bottleneck", "preactivated"]
Stem = Literal["none", "cifar", "half", "imagenet"]
Shortcut = Literal["mean", "stride"]


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with batch norm, and a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = _build_shortcut(inputs, width, stride, shortcut)

    def forward(self, maps: Tensor) -> Tensor:
        """(N, inputs, h, w) to (N, width, h / stride, w / stride)."""
        hidden = self.norm1(self.conv1(maps)).relu_()
        return cast(Tensor, self.norm2(self.conv2(hidden)) + self.shortcut(maps)).relu_()


class BottleneckBlock(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions, the last to four times the width, and a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(4 * width)
        self.shortcut = _build_shortcut(inputs, 4 * width, stride, shortcut)

    def forward(self, maps: Tensor) -> Tensor:
        """(N, inputs, h, w) to (N, 4 width, h / stride, w / stride)."""
        hidden = self.norm1(self.conv1(maps)).relu_()
        hidden = self.norm2(self.conv2(hidden)).relu_()
        return cast(Tensor, self.norm3(self.conv3(hidden)) + self.shortcut(maps)).relu_()


class PreactivatedBlock(nn.Module):
    """Wide-ResNet's: batch norm and a leaky ReLU before each 3 x 3 convolution.

    A projecting shortcut starts from the activated maps, as in the Wide-ResNet paper.
    """

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != width or stride != 1:
            self.shortcut = nn.Sequential(
                _build_halving(stride, shortcut), nn.Conv2d(inputs, width, 1, bias=False)
            )

    def forward(self, maps: Tensor) -> Tensor:
        """(N, inputs, h, w) to (N, width, h / stride, w / stride)."""
        active = _leaky(self.norm1(maps))
        kept = maps if isinstance(self.shortcut, nn.Identity) else self.shortcut(active)
        hidden = _leaky(self.norm2(self.conv1(active)))
        return cast(Tensor, self.conv2(hidden) + kept)


BLOCKS: dict[BlockKind, type[BasicBlock | BottleneckBlock | PreactivatedBlock]] = {
    "basic": BasicBlock,
    "bottleneck": BottleneckBlock,
    "preactivated": PreactivatedBlock,
}


class EveryOther(nn.Module):
    """Take every other row and column.

    Before a 1 x 1 convolution it equals that convolution with a stride of 2, whose backward
    corrupts memory for narrow channels-last maps on CPUs (torch 2.13, oneDNN).
    """

    def forward(self, maps: Tensor) -> Tensor:
        """(N, c, h, w) to (N, c, h / 2, w / 2)."""
        return maps[:, :, ::2, ::2].contiguous(memory_format=torch.channels_last)


def _build_halving(stride: int, shortcut: Shortcut) -> nn.Module:
    """The layer that halves the image in a shortcut, or the identity for a stride of 1."""
    if stride == 1:
        return nn.Identity()
    return nn.AvgPool2d(stride, ceil_mode=True) if shortcut == "mean" else EveryOther()


def _build_shortcut(inputs: int, outputs: int, stride: int, shortcut: Shortcut) -> nn.Module:
    """The identity, or a projection where the number or the size of the maps changes."""
    if inputs == outputs and stride == 1:
        return nn.Identity()
    layers = [_build_halving(stride, shortcut), nn.Conv2d(inputs, outputs, 1, bias=False)]
    if shortcut == "stride":
        layers.append(nn.BatchNorm2d(outputs))
    return nn.Sequential(*layers)


def build_stem(stem: Stem, channels: int, width: int, *, norm: bool) -> nn.Sequential:
    """The first convolution; `norm` adds batch norm and a ReLU, which preactivated blocks have."""
    if stem == "none":
        return nn.Sequential()
    side, stride = {"cifar": (3, 1), "half": (3, 2), "imagenet": (7, 2)}[stem]
    layers: list[nn.Module] = [
        nn.Conv2d(channels, width, side, stride, padding=side // 2, bias=False)
    ]
    if norm:
        layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    if stem == "imagenet":
        layers.append(nn.MaxPool2d(3, 2, padding=1))
    return nn.Sequential(*layers)


def _leaky(maps: Tensor) -> Tensor:
    return nn.functional.leaky_relu(maps, 0.1, inplace=True)
