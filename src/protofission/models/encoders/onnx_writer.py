"""Write a small convolutional network as the content of an .onnx file, without the onnx library.

An .onnx file is a protobuf message. Of its many fields these few are written, by their numbers in
onnx.proto3, so that a network is ready for onnxruntime in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

IR_VERSION, OPSET = 8, 13
"""Versions of the format and of its operators, which onnxruntime reads from 1.10 on."""
FLOAT = 1
"""Number of float32 among the types of tensors."""
_INTEGER, _INTEGERS = 2, 7
"""Numbers of the types of an attribute."""

Attributes = dict[str, int | tuple[int, ...]]


class OnnxWriter:
    """A network that grows layer by layer; each method returns the name of what it adds."""

    def __init__(self, channels: int, size: int) -> None:
        self._nodes: list[bytes] = []
        self._tensors: list[bytes] = []
        self._input = _value("images", ("n", channels, size, size))
        self._bounds = [self._tensor(np.array(bound, np.float32)) for bound in (0, 6)]

    def convolution(
        self,
        name: str,
        weight: NDArray[np.float32],
        bias: NDArray[np.float32],
        stride: int,
        groups: int,
    ) -> str:
        """A convolution, padded so that n pixels give n / stride, with less padding at the start.

        Args:
            name: of its input.
            weight: (out, in / groups, side, side).
        """
        side = weight.shape[-1]
        start, end = (side - stride) // 2, -(-(side - stride) // 2)
        attributes: Attributes = {
            "group": groups,
            "kernel_shape": (side, side),
            "pads": (start, start, end, end),
            "strides": (stride, stride),
        }
        return self._node("Conv", [name, self._tensor(weight), self._tensor(bias)], attributes)

    def relu6(self, name: str) -> str:
        """The values of a map, kept within 0 and 6."""
        return self._node("Clip", [name, *self._bounds])

    def add(self, one: str, other: str) -> str:
        """The sum of two maps."""
        return self._node("Add", [one, other])

    def content(self, name: str, width: int) -> bytes:
        """The file, whose output "features" is the mean over the pixels of a map.

        Args:
            width: the number of channels of the map, and so of features.
        """
        mean = self._node("GlobalAveragePool", [name])
        self._node("Flatten", [mean], {"axis": 1}, "features")
        graph = b"".join(
            [
                *(_bytes(1, node) for node in self._nodes),
                _bytes(2, b"encoder"),
                *(_bytes(5, tensor) for tensor in self._tensors),
                _bytes(11, self._input),
                _bytes(12, _value("features", ("n", width))),
            ]
        )
        return _number(1, IR_VERSION) + _bytes(7, graph) + _bytes(8, _number(2, OPSET))

    def _node(
        self,
        kind: str,
        inputs: Sequence[str],
        attributes: Attributes | None = None,
        output: str = "",
    ) -> str:
        output = output or f"map {len(self._nodes)}"
        self._nodes.append(
            b"".join(
                [
                    *(_bytes(1, name.encode()) for name in inputs),
                    _bytes(2, output.encode()),
                    _bytes(4, kind.encode()),
                    *(_bytes(5, _attribute(*item)) for item in (attributes or {}).items()),
                ]
            )
        )
        return output

    def _tensor(self, values: NDArray[np.float32]) -> str:
        name = f"tensor {len(self._tensors)}"
        sides = b"".join(_number(1, side) for side in values.shape)
        little = np.ascontiguousarray(values, "<f4").tobytes()
        self._tensors.append(
            sides + _number(2, FLOAT) + _bytes(8, name.encode()) + _bytes(9, little)
        )
        return name


def _attribute(name: str, value: int | tuple[int, ...]) -> bytes:
    if isinstance(value, int):
        return _bytes(1, name.encode()) + _number(3, value) + _number(20, _INTEGER)
    listed = b"".join(_number(8, part) for part in value)
    return _bytes(1, name.encode()) + listed + _number(20, _INTEGERS)


def _value(name: str, sides: Iterable[int | str]) -> bytes:
    """A float32 input or output; a side that is a name may have any length."""
    dimensions = b"".join(
        _bytes(1, _bytes(2, side.encode()) if isinstance(side, str) else _number(1, side))
        for side in sides
    )
    tensor = _number(1, FLOAT) + _bytes(2, dimensions)
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, tensor))


def _number(field: int, value: int) -> bytes:
    """A field that is a whole number from 0 on."""
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    """A field that is a text, bytes or another message."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """A whole number, seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
