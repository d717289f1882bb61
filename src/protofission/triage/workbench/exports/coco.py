"""COCO: a JSON file of images, categories, and an annotation for each image that has a class.

Box and polygon of an annotation are the whole image. Sizes are those of the file, before it is
turned as EXIF says, as Pillow and pycocotools' users see them. Strangers have no annotation, and
`none_of_these` at the image. File names are relative to the root of all images, or absolute.
"""

from __future__ import annotations

import io
import json
from typing import Any

from PIL import Image

from protofission.data.readers.decode import quiet_pillow
from protofission.data.readers.image_formats import (
    TIFF_STARTS,
    RefusedError,
    check_content,
    formats_of,
)
from protofission.system.plain_files import open_plain
from protofission.triage.workbench.exports.export_format import ExportFormat, ExportTask
from protofission.triage.workbench.exports.image_files import MOST_BYTES, REPORT_EVERY
from protofission.triage.workbench.exports.labeled_images import BY_MODEL, LabeledImage

HEADER = 1024
"""Bytes of a file that tell its format."""


def write(task: ExportTask) -> None:
    """Write the file; every image is opened for its size, and not decoded."""
    numbers = {name: number for number, name in enumerate(task.images.class_names, 1)}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    with quiet_pillow():
        for done, image in enumerate(task.images.images):
            try:
                width, height = image_size(image.file)
            except RefusedError as refusal:
                task.leave_out(image, str(refusal))
                continue
            images.append(_image(task, image, width, height))
            if image.label is not None:
                number = len(annotations) + 1
                annotations.append(_annotation(image, number, numbers[image.label], width, height))
            if done % REPORT_EVERY == 0:
                task.report(done)
    task.report(len(task.images.images))
    categories = [
        {"id": number, "name": name, "supercategory": ""} for name, number in numbers.items()
    ]
    content = {
        "info": {"description": "Images labeled with protofission"},
        "licenses": [],
        "images": images,
        "annotations": annotations,
        "categories": categories,
    }
    with task.place.open("w", encoding="ascii") as file:
        file.write(json.dumps(content, allow_nan=False))


def image_size(path: str) -> tuple[int, int]:
    """(width, height) of an image file, which is not decoded.

    Raises:
        RefusedError: it cannot be opened, or is no image.
    """
    try:
        with open_plain(path) as file:
            start = file.read(HEADER)
            if start.startswith(TIFF_STARTS):  # it may announce huge tables
                start += file.read(MOST_BYTES)
                check_content(start)
                return _size(io.BytesIO(start), start)
            file.seek(0)
            return _size(file, start)
    except RefusedError:
        raise
    except OSError as error:
        raise RefusedError(error.strerror or "it is no image") from None
    except Exception as error:  # parsers raise what they like
        raise RefusedError(f"it is no image ({type(error).__name__})") from None


def _size(file: Any, start: bytes) -> tuple[int, int]:
    with Image.open(file, formats=formats_of(start)) as image:
        return image.size


def _image(task: ExportTask, image: LabeledImage, width: int, height: int) -> dict[str, Any]:
    return {
        "id": image.row + 1,
        "file_name": task.path_from_root(image),
        "width": width,
        "height": height,
        "row": image.row,
        "none_of_these": image.none_of_these,
        "source": image.source,
        "class": image.model_class,
        "probability": image.probability,
        "subclass": image.subclass,
        "id_score": image.id_score,
        "decision": image.decision,
        "cluster": image.cluster,
    }


def _annotation(
    image: LabeledImage, number: int, category: int, width: int, height: int
) -> dict[str, Any]:
    found = {
        "id": number,
        "image_id": image.row + 1,
        "category_id": category,
        "bbox": [0, 0, width, height],
        "area": width * height,
        "iscrowd": 0,
        "segmentation": [[0, 0, width, 0, width, height, 0, height]],
        "source": image.source,
    }
    return {**found, "score": image.probability} if image.source == BY_MODEL else found


COCO = ExportFormat(
    "COCO",
    "A JSON file with categories, image sizes and an annotation of each whole image.",
    write,
    ".json",
    reads=True,
    rooted=True,
)
