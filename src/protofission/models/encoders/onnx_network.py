"""A network in an .onnx file as an encoder, run by onnxruntime on the CPU."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from protofission.core.errors import InputError, check_choices, printable, require, unknown
from protofission.core.options import FIXED
from protofission.models.encoders.base import (
    CPU_CHUNK,
    Encoder,
    count_features,
    probe_images,
    reason_of,
)
from protofission.models.encoders.onnx_external_data import MalformedError, data_files
from protofission.models.encoders.onnx_session import open_session
from protofission.models.encoders.preprocessing import LARGEST_SIDE, Pixels, Preprocessing
from protofission.system.digests import sha256_hex
from protofission.system.optional_libraries import import_optional
from protofission.system.plain_files import open_plain, read_plain

PIECE = 2**20
"""Bytes of a file that are read and hashed at once."""


@dataclass(frozen=True)
class Onnx:
    """A network in an .onnx file."""

    source: str = field(metadata={FIXED: True})
    """The file. Its input is (n, 1 or 3, size, size) floats."""
    size: int | None = None
    """Side of the images that the network takes, where the file leaves it open."""
    pixels: Pixels = "imagenet"
    """Data set whose mean and deviation standardize the pixels; "half" is 0.5 and 0.5."""
    output: str | None = None
    """The output with the features, if there are several. Maps are averaged over their pixels; of a
    sequence of tokens the first is taken."""

    def __post_init__(self) -> None:
        check_choices(self)
        require(
            self.size is None or 1 <= self.size <= LARGEST_SIDE,
            f"size = {self.size}: give 1 to {LARGEST_SIDE} pixels.",
        )

    def load(self, device: torch.device | None = None) -> Encoder:
        """Load the encoder. Its network runs on the CPU; images and features are on `device`."""
        runtime = import_optional("onnxruntime", "encoder", "An .onnx encoder")
        path = Path(self.source).expanduser()
        require(
            path.is_file(), f"{printable(self.source)} is no file: give one that ends in .onnx."
        )
        digests = _hash_files(path)
        network = _Network(open_session(runtime, str(path), str(path)), self)
        preprocessing = Preprocessing.standard(network.size, network.channels, self.pixels)
        rows = network.batch or 2
        images = probe_images(preprocessing, rows)
        found = network(images)
        num_features = count_features(self.source, found, network(images), rows)
        encoder = OnnxEncoder(self.source, preprocessing, num_features, network)
        plain = [digests, preprocessing.describe(), network.output]
        encoder.fingerprint = sha256_hex(json.dumps(plain).encode())
        return encoder.freeze_on(device)


class OnnxEncoder(Encoder):
    """A network that onnxruntime runs."""

    kind = "onnx"

    def __init__(
        self, source: str, preprocessing: Preprocessing, num_features: int, network: _Network
    ) -> None:
        super().__init__(source, preprocessing, num_features, network.batch or CPU_CHUNK)
        self.network = network

    def forward(self, prepared: Tensor) -> Tensor:
        """(n, channels, size, size) to (n, D); a fixed batch size is filled up with zeros."""
        batch = self.network.batch
        if batch is None:
            return self.network(prepared)
        found = []
        for part in torch.split(prepared, batch):
            filled = F.pad(part, (0, 0, 0, 0, 0, 0, 0, batch - len(part)))
            found.append(self.network(filled)[: len(part)])
        return torch.cat(found) if found else prepared.new_empty(0, self.num_features)

    def describe(self) -> dict[str, Any]:
        """As of every encoder, with the name of its output."""
        return {**super().describe(), "output": self.network.output}


class _Network:
    """A session with one input and one chosen output, as a function of tensors."""

    def __init__(self, session: Any, spec: Onnx) -> None:
        self.session = session
        self.shown = printable(spec.source)
        inputs = session.get_inputs()
        require(
            len(inputs) == 1,
            f"{self.shown} has {len(inputs)} inputs: give a network that takes images alone.",
        )
        shape = [n if isinstance(n, int) else None for n in inputs[0].shape]
        require(
            inputs[0].type == "tensor(float)" and len(shape) == 4 and shape[1] in (None, 1, 3),
            f"{self.shown} takes {inputs[0].type} of the shape {_shape(inputs[0].shape)}, not "
            "floats of the shape n x 1 or 3 x size x size: export it so.",
        )
        self.input = inputs[0].name
        self.batch = shape[0]
        self.channels = shape[1] or 3
        self.size = self._find_size(shape[2], shape[3], spec.size)
        names = [output.name for output in session.get_outputs()]
        require(
            spec.output is not None or len(names) == 1,
            f"{self.shown} has the outputs {', '.join(map(printable, names))}: say which one, as "
            "output=.",
        )
        self.output = str(names[0] if spec.output is None else spec.output)
        if self.output not in names:
            raise unknown("output", self.output, names)

    def _find_size(self, height: int | None, width: int | None, wanted: int | None) -> int:
        sides = {side for side in (height, width, wanted) if side is not None}
        require(bool(sides), f"{self.shown} leaves the size of images open: set size=.")
        require(
            len(sides) == 1,
            f"{self.shown} takes images of {_shape([height, width])}, not {wanted or 'squares'}: "
            "leave size= out, or give a network for squares of that size.",
        )
        return sides.pop()

    def __call__(self, images: Tensor) -> Tensor:
        """(n, channels, size, size) to (n, D) on the device of the images."""
        try:
            (array,) = self.session.run([self.output], {self.input: images.cpu().numpy()})
            found = torch.from_numpy(array)
        except Exception as error:  # the library raises what its parts raise
            raise InputError(
                f"{self.shown} cannot be run on {_shape(images.shape)} images "
                f"({reason_of(error)}): export it again."
            ) from None
        require(
            found.is_floating_point() and found.ndim in (2, 3, 4),
            f"{self.shown} gives {_shape(found.shape)} of {found.dtype} at {self.output}, not "
            "features, tokens or maps: choose another output=.",
        )
        if found.ndim == 4:
            found = found.mean((2, 3))
        elif found.ndim == 3:
            found = found[:, 0]
        return found.float().to(images.device)


def _hash_files(path: Path) -> list[str]:
    """The SHA-256 of the file, and of the files beside it that hold its tensors."""
    shown = printable(str(path))
    try:
        content = read_plain(path)
        names = data_files(content)
        digests = [sha256_hex(content)]
        for name in names:
            digests.append(_hash_file(_beside(path, name)))
    except MalformedError:
        raise InputError(f"{shown} is damaged or no .onnx file: export it again.") from None
    except OSError as error:
        raise InputError(
            f"{shown} or its data cannot be read ({error.strerror}): give another file."
        ) from None
    return digests


def _beside(path: Path, name: str) -> Path:
    """The path of an external data file, which must be in the folder of the network's file."""
    folder = path.parent.resolve()
    file = (folder / name.replace("\0", "")).resolve()
    require(
        "\0" not in name and file.is_relative_to(folder) and file.is_file(),
        f"{printable(str(path))} keeps tensors in {printable(name)}, which is missing or outside "
        "its folder, and is not read: put them side by side.",
    )
    return file


def _hash_file(file: Path) -> str:
    digest = hashlib.sha256()
    with open_plain(file) as opened:
        while piece := opened.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _shape(sides: Any) -> str:
    return " x ".join("any" if side is None else printable(str(side)) for side in sides)
