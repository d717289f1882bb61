"""Small networks as .onnx files, for tests; wants onnx."""

from typing import Any

import numpy as np
import onnx
from onnx import helper

FLOAT = onnx.TensorProto.FLOAT
KERNEL = np.random.default_rng(0).normal(size=(5, 3, 3, 3)).astype(np.float32)


def external(name: str, location: str, shape: tuple[int, ...]) -> Any:
    """A tensor whose numbers are in another file."""
    tensor = onnx.TensorProto(name=name, data_type=FLOAT, dims=shape, data_location=1)
    tensor.external_data.add(key="location", value=location)
    return tensor


def model(
    shape: tuple[Any, ...] = ("n", 3, 8, 8),
    kernel: Any = None,
    nodes: tuple[Any, ...] = (),
    output: str = "maps",
    kind: int = FLOAT,
    more: tuple[str, ...] = (),
    out: int = FLOAT,
) -> bytes:
    """A convolution, with what follows it."""
    kernel = kernel or onnx.numpy_helper.from_array(KERNEL, "kernel")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["images", "kernel"], ["maps"]), *nodes],
        "net",
        [helper.make_tensor_value_info("images", kind, shape)],
        [helper.make_tensor_value_info(n, out, None) for n in (output, *more)],
        [kernel],
    )
    opset = [helper.make_opsetid("", 17)]
    content: bytes = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    return content
