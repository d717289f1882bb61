"""Prediction against its limit, the bare encoder, in one run, so that the machine's mood cancels.

    python benchmarks/predict.py              some minutes

One process, one thread of computation: files are read, decoded, resized, encoded, judged and
journaled as rows, against the encoder's forward on ready tensors, for the default encoder, JPEG
and PNG files of 32 and of 256 pixels a side. The share of the clock is what a user sees where a
processor is free to decode; the share of the processor's time is what is left where none is.

Pictures are smooth noise: of no interest, but about as costly as photographs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from PIL import Image

from protofission.data.augment.feature_views import FeatureViews
from protofission.data.image_sets import TrainingData
from protofission.models.encoders import DEFAULT, Encoder, find_encoder
from protofission.triage.bundle import Bundle
from protofission.triage.calibrated_model import SingleModel
from protofission.triage.predict import predict
from protofission.triage.quick_training import QuickTraining, train_quickly

CLASSES = 10
FILES = ((32, "jpeg"), (32, "png"), (256, "jpeg"), (256, "png"))


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def model(folder: Path) -> Encoder:
    """A bundle of the default encoder, fitted to noise."""
    spec = find_encoder(DEFAULT)
    encoder = spec.load()
    features = torch.rand(200, encoder.num_features, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(100) % CLASSES
    data = TrainingData(features[:100], labels, features[100:], CLASSES, CLASSES)
    fitted = train_quickly(QuickTraining(steps=3), data, FeatureViews.of(features))
    names = [f"class {number}" for number in range(CLASSES)]
    Bundle.of(SingleModel(fitted, CLASSES), names, spec, encoder.describe()).save(folder)
    return encoder


def pictures(folder: Path, side: int, kind: str, number: int) -> None:
    folder.mkdir()
    for place in range(number):
        coarse = np.random.default_rng(place).integers(0, 256, (side // 8, side // 8, 3), np.uint8)
        smooth = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
        smooth.save(folder / f"{place}.{kind}")


def compare(folder: Path, images: Path, encoder: Encoder) -> list[tuple[float, float]]:
    """Of each block, the bare encoder's seconds over prediction's: by the clock, by the processor.

    After each block the bare encoder takes its turn, so that both meet the same neighbours.
    """
    found: list[tuple[float, float]] = []
    begun = (0.0, 0.0)
    before = 0
    ready = encoder.prepare(torch.rand(encoder.chunk, 3, encoder.decode, encoder.decode))

    def turn(done: int, total: int) -> None:
        nonlocal begun, before
        ended = now()
        if done > before:
            with torch.no_grad():
                for _ in range((done - before) // encoder.chunk):
                    encoder.run(ready)
            after = now()
            found.append(
                (
                    (after[0] - ended[0]) / (ended[0] - begun[0]),
                    (after[1] - ended[1]) / (ended[1] - begun[1]),
                )
            )
        begun, before = now(), done

    predict(folder / "model", [images], folder / "rows.csv", progress=turn)
    return found


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1024, help="a multiple of 256")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        encoder = model(folder / "model")
        for side, kind in FILES:
            pictures(folder / f"{side}-{kind}", side, kind, options.images)
        for _ in range(options.repeats):
            for side, kind in FILES:
                shares = compare(folder, folder / f"{side}-{kind}", encoder)
                found.setdefault(f"{side} {kind}", []).extend(shares)
    for name, shares in found.items():
        clock, processor = ([share[place] for share in shares] for place in range(2))
        print(
            f"predict / bare encoder, {name}: {median(clock):.3f} (best {max(clock):.3f}); "
            f"of the processor {median(processor):.3f}"
        )


if __name__ == "__main__":
    main()
