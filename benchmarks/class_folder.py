"""Write the first images of each class of a data set as a folder of PNG files, for small trials.

    python benchmarks/class_folder.py cifar100 160 cifar100-160

Such a folder is embedded like any other, by `protofission embed cifar100-160 --out STORE`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from protofission.data.datasets import DATASETS, DataSpec


def write(dataset: str, number: int, folder: Path) -> None:
    images = DataSpec(dataset).read().train
    for label, name in enumerate(images.class_names):
        places = np.flatnonzero(images.labels == label)[:number]
        (folder / name).mkdir(parents=True, exist_ok=True)
        for place in places:
            pixels = images.pixels[place : place + 1][0].transpose(1, 2, 0)
            Image.fromarray(pixels.squeeze()).save(folder / name / f"{place:05}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("number", type=int, help="images of each class, the first in file order")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    write(given.dataset, given.number, given.folder)


if __name__ == "__main__":
    main()
