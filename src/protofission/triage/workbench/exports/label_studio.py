"""Tasks for Label Studio, and the labeling configuration that they are for.

The user's labels are annotations; accepted classes of the model are predictions, never annotations.
Tasks and annotations are numbered from 1: the converter wants it; the server gives its own ids.
Images are not copied: Label Studio serves them as local files, below the root of all images.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from protofission.core.errors import require
from protofission.triage.calibrated_model import ACCEPT, DECISIONS
from protofission.triage.prediction_table import escape_text
from protofission.triage.workbench.exports.csv_table import EXPORT_COLUMNS, cells_of
from protofission.triage.workbench.exports.export_format import ExportFormat, ExportTask
from protofission.triage.workbench.exports.labeled_images import BY_MODEL, LabeledImage

_NO_XML = re.compile("[\ufffe\uffff]")


def write(task: ExportTask) -> None:
    """Write tasks.json and labeling_config.xml.

    Raises:
        InputError: paths are to be absolute, or the images have no folder in common.
    """
    root = task.images.root
    require(
        task.paths == "relative" and str(root) != os.sep,
        "Label Studio serves files below a folder that it is told: give relative paths, and have "
        "all images in one folder.",
    )
    names = {name: _choice(name) for name in task.images.class_names}
    stranger = _free_name(set(names.values()))
    tasks = [
        _task(task, number, image, names, stranger)
        for number, image in enumerate(task.images.images, 1)
    ]
    with (task.place / "tasks.json").open("w", encoding="ascii") as file:
        file.write(json.dumps(tasks, allow_nan=False))
    choices = "\n".join(
        f"    <Choice value={quoteattr(name)}/>" for name in (*names.values(), stranger)
    )
    (task.place / "labeling_config.xml").write_text(
        '<View>\n  <Image name="image" value="$image"/>\n'
        f'  <Choices name="label" toName="image" choice="single">\n{choices}\n'
        "  </Choices>\n</View>\n",
        encoding="utf-8",
    )


def _task(
    task: ExportTask, number: int, image: LabeledImage, names: dict[str, str], stranger: str
) -> dict[str, Any]:
    url = f"/data/local-files/?d={quote(os.fsencode(task.path_from_root(image)))}"
    cells = zip(EXPORT_COLUMNS, cells_of(image, image.path), strict=True)
    data = {k: _choice(v) if isinstance(v, str) else v for k, v in cells}
    found: dict[str, Any] = {"id": number, "data": {"image": url, **data}}
    label = stranger if image.none_of_these else names.get(image.label or "")
    if label is not None and image.source != BY_MODEL:
        found["annotations"] = [{"id": number, "result": [_result(label)]}]
    if image.decision == DECISIONS[ACCEPT] and image.model_class in names:
        prediction: dict[str, Any] = {"result": [_result(names[image.model_class])]}
        if image.probability is not None:
            prediction["score"] = image.probability
        found["predictions"] = [{"model_version": "protofission", **prediction}]
    return found


def _result(choice: str) -> dict[str, Any]:
    return {
        "from_name": "label",
        "to_name": "image",
        "type": "choices",
        "value": {"choices": [choice]},
    }


def _choice(text: str) -> str:
    """Escape a text as those of predictions, with characters that XML does not have."""
    return _NO_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", escape_text(text))


def _free_name(taken: set[str]) -> str:
    name, number = "none of these", 1
    while name in taken:
        number += 1
        name = f"none of these ({number})"
    return name


LABEL_STUDIO = ExportFormat(
    "Label Studio",
    "Tasks with annotations by you and predictions by the model, and a labeling configuration.",
    write,
    rooted=True,
)
