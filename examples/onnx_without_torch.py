"""What an exported model says of image files: python onnx_without_torch.py model.onnx FILE ..."""

# For files of 8 bits a channel: convert("RGB") cuts 16-bit gray off, which predict scales.

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
about = {k: json.loads(v) for k, v in session.get_modelmeta().custom_metadata_map.items()}
wanted = ["class", "probability", "id_score", "subclass", "decision"]
size = session.get_inputs()[0].shape[2]
for path in sys.argv[2:]:
    with Image.open(path) as image:
        image.draft(None, (2 * size, 2 * size))  # a large JPEG is decoded at a part of its size
        upright = ImageOps.exif_transpose(image.convert("RGB"))
    pixels = np.asarray(ImageOps.fit(upright, (size, size), Image.Resampling.BICUBIC))
    found = session.run(wanted, {"images": pixels.transpose(2, 0, 1)[None]})
    said = {name: values[0].item() for name, values in zip(wanted, found, strict=True)}
    said["subclass"] = about["subclass_names"][said["class"]][said["subclass"]]
    said["class"] = about["class_names"][said["class"]]
    said["decision"] = about["decisions"][said["decision"]]
    print(json.dumps({"path": path, **said}))
