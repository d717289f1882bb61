"""The card of a served model, as JSON; it names no folder of the machine."""

from __future__ import annotations

import math
from typing import Any

from protofission.triage.bundle import Bundle
from protofission.web.serve.options import ServeOptions


def model_card(bundle: Bundle, options: ServeOptions) -> dict[str, Any]:
    """Classes, sub-classes, threshold, guarantee, encoder, and the limits of requests."""
    calibration = bundle.card.get("calibration")
    facts = calibration if isinstance(calibration, dict) else {}
    threshold = float(bundle.calibrated_model.threshold)
    guarantee, accuracy = facts.get("guarantee"), facts.get("accuracy on held-out images")
    return {
        "fingerprint": bundle.fingerprint,
        "made_by": f"protofission {bundle.version}",
        "classes": [
            {"name": name, "subclasses": list(own)}
            for name, own in zip(bundle.class_names, bundle.subclass_names, strict=True)
        ],
        "clusters": list(bundle.cluster_names),
        "threshold": threshold if math.isfinite(threshold) else None,
        "temperature": float(bundle.calibrated_model.temperature),
        "guarantee": guarantee if isinstance(guarantee, str) else None,
        "accuracy": accuracy if isinstance(accuracy, float) else None,
        "encoder": {
            name: bundle.encoder_facts.get(name) for name in ("kind", "size", "num_features")
        },
        "limits": {
            "body_bytes": options.body_bytes,
            "images": options.images,
            "pixels": options.pixels,
            "queue": options.queue,
            "seconds": options.seconds,
        },
    }
