"""Labeled images to export, with files on the disk and names of the nastiest kind."""

from __future__ import annotations

import os
from pathlib import Path

from pictures import picture
from protofission.triage.prediction_table import shortest_floats
from protofission.triage.workbench.exports.labeled_images import LabeledImage, LabeledImages
from small_triages import MARKUP, ODD_NAMES

CLASSES = ("cat", "Cat", f"a {MARKUP}", "=1+1", "c/d", os.fsdecode(b"no-utf-8 \xff"), "", "empty")
CLASS_NAMES = tuple(name or "two\nlines, \"'\r" for name in CLASSES)


def labeled_image(row: int, folder: Path, path: str, **changes: object) -> LabeledImage:
    """An image that is accepted as a cat, without a label."""
    plain = LabeledImage(
        row=row,
        folder=folder.name,
        path=path,
        file=str(folder / path),
        label=None,
        none_of_these=False,
        source="",
        model_class="cat",
        probability=shortest_floats([0.9 - row / 1000])[0],
        subclass="cat / 1",
        id_score=shortest_floats([0.1 + row / 700])[0],
        decision="accept",
        cluster="",
    )
    return plain._replace(**changes)  # type: ignore[arg-type]


def labeled_pictures(home: Path) -> LabeledImages:
    """Two folders of images, some with the same names; an image's size tells its row.

    An image whose label was taken back, two labels of every class but the last, and images of the
    pool: accepted ones with the model's label, a rejected one in a cluster, one in none, and a
    stranger.
    """
    labeled, pool = home / "labeled", home / "pool"
    images: list[LabeledImage] = []

    def add(folder: Path, path: str, **changes: object) -> None:
        row = len(images)
        picture(folder / path, seed=row, side=8 + row)
        images.append(labeled_image(row, folder, path, **changes))

    add(labeled, "taken back.png", decision="reject")
    for name in CLASS_NAMES[:-1]:
        for file in ("1.png", "A.PNG"):
            place = f"{len(images)} x/{file}"
            add(labeled, place, label=name, source="folder")
    for name in ODD_NAMES:
        add(pool, name, label="cat", source="next")
    for name in ("1.png", "a.png"):
        add(pool, f"deep/er/{name}", label="cat", source="model")
    add(pool, "stranger.png", none_of_these=True, source="grid", decision="reject")
    add(pool, "r1.png", decision="reject", cluster="novel: 1", model_class="=1+1")
    add(pool, "r2.png", decision="novel")
    return LabeledImages.of(images, CLASS_NAMES, (str(labeled), str(pool)))
