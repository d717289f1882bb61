"""What 8-bit weights and activations would cost and gain: why the package does not use them.

    python benchmarks/quantized_encoders.py IMAGES --encoder efficientnet-lite0 --size 96

IMAGES is a folder with a subfolder for each class; wants onnx. The network is quantized by
onnxruntime with 200 of the images, and computes the features of all of them beside the one that is
not. Half of the classes are known, with 20 labels each, in ten draws: the accuracy of the nearest
class mean on the other known images, and the AUC of its distance against those of other classes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from protofission.core.metrics import auroc
from protofission.data.image_sets import floats
from protofission.data.readers.image_folders import load_folder
from protofission.models.encoders.efficientnet import (
    PACKAGED,
    EfficientNetLite,
    EfficientNetLiteEncoder,
)
from protofission.models.encoders.onnx_session import open_session

CALIBRATING, LABELS, DRAWS, CHUNK = 200, 20, 10, 10
Features = NDArray[np.float32]


class Chunks(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, images: Features) -> None:
        self.left = iter(np.split(images, len(images) // CHUNK))

    def get_next(self) -> dict[str, Features] | None:
        chunk = next(self.left, None)
        return None if chunk is None else {"images": chunk}


def quantized(content: bytes, images: Features) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"{number}.onnx") for number in range(3)]
        Path(files[0]).write_bytes(content)
        quant_pre_process(files[0], files[1])
        quantize_static(
            files[1],
            files[2],
            Chunks(images),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            reduce_range=True,
        )
        return Path(files[2]).read_bytes()


def judged(features: Features, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """(DRAWS, 2): accuracy and AUC."""
    spread = features.std(0)
    unit = (features - features.mean(0)) / (spread + 0.03 * spread.max())
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    found = []
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        known = rng.permutation(labels.max() + 1)[: (labels.max() + 1) // 2]
        rows = {c: rng.permutation(np.flatnonzero(labels == c))[:LABELS] for c in known}
        means = np.stack([unit[rows[c]].mean(0) for c in known])
        rest = np.setdiff1d(np.arange(len(labels)), np.concatenate(list(rows.values())))
        distances = np.linalg.norm(unit[rest, None] - means, axis=2)
        own = np.isin(labels[rest], known)
        right = known[distances.argmin(1)] == labels[rest]
        scores = distances.min(1)
        found.append([right[own].mean(), auroc(scores[own], scores[~own])])
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("images", type=Path)
    parser.add_argument("--encoder", default="efficientnet-lite0", choices=list(PACKAGED))
    parser.add_argument("--size", type=int, default=96)
    options = parser.parse_args()
    torch.set_num_threads(1)
    encoder = EfficientNetLite(options.encoder, options.size).load()
    assert isinstance(encoder, EfficientNetLiteEncoder)
    with tempfile.TemporaryDirectory() as cache:
        images, _ = load_folder(options.images, options.size, cache=cache)
        pixels = torch.from_numpy(np.array(images.pixels[:]))
    prepared = encoder.prepare(floats(pixels)).numpy()
    chosen = np.random.default_rng(0).permutation(len(prepared))[:CALIBRATING]
    begun = time.process_time()
    small = quantized(encoder.to_onnx(), prepared[chosen])
    print(f"quantized in {time.process_time() - begun:.0f} s of the processor's time")
    sessions = [encoder.session, open_session(onnxruntime, small, "the quantized network")]
    seconds, parts = [0.0, 0.0], [[], []]
    for start in range(0, len(prepared), encoder.chunk):
        for place, session in enumerate(sessions):
            begun = time.process_time()
            chunk = prepared[start : start + encoder.chunk]
            parts[place] += session.run(["features"], {"images": chunk})
            seconds[place] += time.process_time() - begun
    full, eight = (judged(np.concatenate(part), images.labels) for part in parts)
    print(f"time of 8 bits over that of floats: {seconds[1] / seconds[0]:.2f}")
    for place, name in enumerate(("accuracy", "AUC")):
        gain = eight[:, place] - full[:, place]
        error = gain.std(ddof=1) / DRAWS**0.5
        print(
            f"{name}: floats {full[:, place].mean():.4f}, 8 bits {eight[:, place].mean():.4f}, "
            f"difference {gain.mean():+.4f} ± {error:.4f} (standard error, {DRAWS} draws)"
        )


if __name__ == "__main__":
    main()
