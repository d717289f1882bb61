"""Reads an export with Label Studio's own library; run as a script by a Python that has it.

Arguments: the folder of the export, and one to convert to. Prints what was found as JSON.
"""

import json
import sys
from pathlib import Path

from label_studio_sdk._extensions.label_studio_tools.core.utils.io import (
    resolve_local_storage_file,
)
from label_studio_sdk.converter import Converter
from label_studio_sdk.label_interface import LabelInterface

folder, converted = map(Path, sys.argv[1:])
config = (folder / "labeling_config.xml").read_text(encoding="utf-8")
tasks = json.loads((folder / "tasks.json").read_bytes())
interface = LabelInterface(config)
interface.validate()
errors, files = [], []
annotations = predictions = 0
for task in tasks:
    data = {"data": task["data"]}
    if not interface.validate_task(data):
        errors.append(task)
    for annotation in task.get("annotations", []):
        annotations += 1
        errors += interface._validate_object(annotation, return_errors=True)
    for prediction in task.get("predictions", []):
        predictions += 1
        errors += interface.validate_prediction(prediction, return_errors=True)
    found = resolve_local_storage_file(task["data"]["image"])
    if Path(found).exists():
        files.append(found)
converter = Converter(config, str(converted.parent), download_resources=False)
converter.convert(str(folder / "tasks.json"), str(converted), "JSON_MIN", is_dir=False)
rows = json.loads(next(converted.rglob("*.json")).read_text())
print(
    json.dumps(
        {
            "errors": errors,
            "annotations": annotations,
            "predictions": predictions,
            "files": files,
            "converted": [[row["row"], row["label"]] for row in rows],
        }
    )
)
