"""A bundle's card as text."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from protofission.core.errors import printable
from protofission.triage.bundle_files import specs_of

if TYPE_CHECKING:
    from protofission.triage.bundle import Bundle


def card_lines(bundle: Bundle) -> list[str]:
    """Write the facts of a bundle's model, its classes and its card as lines."""
    calibrated_model, facts = bundle.calibrated_model, bundle.encoder_facts
    adapter, head = specs_of(calibrated_model.model)
    threshold = float(calibrated_model.threshold)
    known, novel, side = len(bundle.class_names), len(bundle.cluster_names), facts.get("size", "?")
    clusters = f" and {novel} novel cluster{'s' * (novel != 1)}" if novel else ""
    model = {
        "encoder": f"{bundle.encoder_spec.source}, {facts['num_features']} features of images of "
        f"{side} x {side} pixels",
        "adapter": adapter.kind,
        "head": f"{head.kind}, prototypes of a class: {head.slots}",
        "accepted": f"from an ID score of {threshold:.4g} on"
        if threshold > -math.inf
        else "every image",
        "temperature of probabilities": float(calibrated_model.temperature),
        "held-out scores, kept to tell drift": len(bundle.calibration),
    }
    classes = {
        name: f"sub-classes 1 to {len(own)}"
        if own == numbered_subclasses(name, len(own))
        else ", ".join(own)
        for name, own in zip(bundle.class_names, bundle.subclass_names, strict=True)
    }
    groups = [
        ("model", model),
        ("classes", classes if calibrated_model.slots > 1 else list(classes)),
        ("novel clusters", list(bundle.cluster_names)),
        *bundle.card.items(),
    ]
    lines = [
        f"A model of {known} known class{'es' * (known != 1)}{clusters}, made by protofission "
        f"{bundle.version}."
    ]
    for title, group in groups:
        inside = _indent(group, "  ")
        lines += ["", title[:1].upper() + title[1:], *inside] if inside else []
    return [printable(line) for line in lines]


def numbered_subclasses(name: str, slots: int) -> tuple[str, ...]:
    """Names of the sub-classes of a class that nobody named: "cat / 1" and so on."""
    return tuple(f"{name} / {number}" for number in range(1, slots + 1))


def _indent(value: Any, indent: str) -> list[str]:
    """Write the parts of a card as lines; the parts of a part are indented further."""
    if not isinstance(value, dict):
        parts = value if isinstance(value, list) else [value]
        return [f"{indent}{_text(part)}" for part in parts if part is not None]
    lines = []
    for key, part in value.items():
        inside = _indent(part, f"{indent}  ")
        if isinstance(part, dict | list) and inside:
            lines += [f"{indent}{key}:", *inside]
        elif inside:
            lines.append(f"{indent}{key}: {_text(part)}")
    return lines


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value)
