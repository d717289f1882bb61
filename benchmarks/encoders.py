"""Cost of the packaged encoders by quality, size and engine, against one of them in the same run.

    python benchmarks/encoders.py              some minutes
    python benchmarks/encoders.py --sizes 96 160

Every encoder computes the features of random pixels on one thread, in turns, so that the machine's
mood cancels. Times are the processor's, and ratios are to efficientnet-lite0 at 96 px by torch: the
only encoder that there was before. OpenVINO is measured where it is installed; the package does not
use it, because it is not faster than onnxruntime.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from importlib.util import find_spec

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch import Tensor

from protofission.models.encoders.efficientnet import (
    ENGINES,
    PACKAGED,
    EfficientNetLite,
    EfficientNetLiteEncoder,
)
from protofission.models.encoders.quality import QUALITIES

BASE = "efficientnet-lite0 at 96 px, torch"


def openvino_of(encoder: EfficientNetLiteEncoder) -> Callable[[Tensor], Tensor]:
    import openvino

    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY"}
    network = core.compile_model(core.read_model(encoder.to_onnx(), b""), "CPU", options)
    request = network.create_infer_request()

    def run(prepared: Tensor) -> Tensor:
        request.infer([prepared.numpy()])
        return torch.from_numpy(request.get_output_tensor(0).data)

    return run


def forms(name: str, size: int) -> dict[str, tuple[Callable[[Tensor], Tensor], Tensor]]:
    """The encoder by each engine, with a chunk of images for it."""
    found = {}
    for engine in ENGINES:
        if find_spec(engine) is None:
            continue
        encoder = EfficientNetLite(name, size, engine).load()
        images = encoder.prepare(torch.rand(encoder.chunk, 3, size, size))
        found[f"{name} at {size} px, {engine}"] = encoder.run, images
    if find_spec("openvino") is not None:
        found[f"{name} at {size} px, openvino"] = openvino_of(encoder), images
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[96, 128, 160, 192, 224, 256])
    parser.add_argument("--encoders", nargs="+", default=list(PACKAGED), choices=list(PACKAGED))
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    ready = forms("efficientnet-lite0", 96)
    for name in options.encoders:
        for size in options.sizes:
            if size <= PACKAGED[name]:
                ready |= forms(name, size)
    seconds: dict[str, list[float]] = {what: [] for what in ready}
    with torch.no_grad():
        for turn in range(options.repeats + 1):
            for what, (run, images) in ready.items():
                begun = time.process_time()
                run(images)
                if turn:  # the first one warms up
                    seconds[what].append((time.process_time() - begun) / len(images))
    middle = {what: sorted(times)[len(times) // 2] for what, times in seconds.items()}
    for what, value in middle.items():
        twin = middle[what.rpartition(",")[0] + ", torch"]
        print(
            f"{what}: {value / middle[BASE]:.2f} times {BASE}; {value / twin:.2f} of torch's time; "
            f"{1 / value:.0f} images a second of a core"
        )
    for quality, entry in QUALITIES.items():
        what = f"{entry.encoder} at {entry.largest} px, {ENGINES[0]}"
        if what in middle:
            print(f"--quality {quality}, at most: {middle[what] / middle[BASE]:.2f} times {BASE}")


if __name__ == "__main__":
    main()
