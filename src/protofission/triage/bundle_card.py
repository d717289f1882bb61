"""A bundle's card as text, whole or on one screen."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from protofission.core.errors import printable
from protofission.triage.bundle_manifest import specs_of
from protofission.triage.calibrated_model import CalibratedModel, SingleModel
from protofission.triage.fold_ensemble import FoldEnsemble
from protofission.triage.one_screen import fit_screen, shorten

if TYPE_CHECKING:
    from protofission.triage.bundle import Bundle

FIRST_GROUPS = ("calibration", "pool", "training", "data")
"""Parts of a card that come first on one screen."""
MOST_CLASS_LETTERS = 230
"""Letters in the list of classes on one screen."""


def card_screen(bundle: Bundle) -> list[str]:
    """Write what matters most of a bundle as lines that fit one screen, however many classes."""
    model, names = _model_facts(bundle), set(bundle.class_names)
    head = [_first_line(bundle), *(f"{key.capitalize()}: {model[key]}" for key in list(model)[:4])]
    head[-1] += "."
    order = sorted(bundle.card, key=lambda group: (*FIRST_GROUPS, group).index(group))
    leaves = [leaf for group in order for leaf in _leaves(bundle.card[group], group, names)]
    parts = [text for rank in range(2) for level, text in leaves if level == rank]
    return fit_screen(
        [printable(_shorten_end(line)) for line in (*head, _class_line(bundle))],
        [printable(text) for text in parts],
        "And {} more facts: --all shows everything.",
    )


def _shorten_end(line: str) -> str:
    """Cut a line that would take more than four lines of a screen."""
    return line if len(line) <= 300 else f"{line[:299]}…"


def _class_line(bundle: Bundle) -> str:
    """The classes, as many as fit some lines; those with the fewest labels first, if known."""
    data = bundle.card.get("data")
    counts = data.get("labeled") if isinstance(data, dict) else None
    names, title = list(bundle.class_names), "Classes"
    shown = {name: shorten(name) for name in names}
    if isinstance(counts, dict) and all(isinstance(counts.get(name), int) for name in names):
        names.sort(key=lambda name: int(counts[name]))
        title = "Classes and their labeled images, fewest first"
        shown = {name: f"{shown[name]} {counts[name]:,}" for name in names}
    kept, letters = 0, 0
    while kept < len(names) and letters + len(shown[names[kept]]) + 2 <= MOST_CLASS_LETTERS:
        letters += len(shown[names[kept]]) + 2
        kept += 1
    more = f" and {len(names) - kept:,} more" if kept < len(names) else ""
    return f"{title}: {', '.join(shown[name] for name in names[:kept])}{more}."


def _leaves(value: Any, path: str, names: Collection[str]) -> Iterator[tuple[int, str]]:
    """The facts in a part of a card, each with its path: 0 for one, 1 for one of a list or table.

    Args:
        names: the classes; what is said of each class is one of a table.
    """
    if isinstance(value, dict):
        for key, part in value.items():
            for level, text in _leaves(part, f"{path}, {key}", names):
                yield max(level, int(key in names)), text
    elif isinstance(value, list):
        for part in value:
            yield from ((1, text) for _, text in _leaves(part, path, names))
    elif value is not None:
        yield 0, f"{path[:1].upper()}{path[1:]}: {_text(value)}"


def card_lines(bundle: Bundle) -> list[str]:
    """Write the facts of a bundle's model, its classes and its card as lines."""
    model = bundle.calibrated_model
    classes = {
        name: f"sub-classes 1 to {len(own)}"
        if own == numbered_subclasses(name, len(own))
        else ", ".join(own)
        for name, own in zip(bundle.class_names, bundle.subclass_names, strict=True)
    }
    groups = [
        ("model", _model_facts(bundle)),
        ("classes", classes if max(model.subclass_counts) > 1 else list(classes)),
        ("novel clusters", list(bundle.cluster_names)),
        *bundle.card.items(),
    ]
    lines = [_first_line(bundle)]
    for title, group in groups:
        inside = _indent(group, "  ")
        lines += ["", title[:1].upper() + title[1:], *inside] if inside else []
    return [printable(line) for line in lines]


def _first_line(bundle: Bundle) -> str:
    known, novel = len(bundle.class_names), len(bundle.cluster_names)
    clusters = f" and {novel} novel cluster{'s' * (novel != 1)}" if novel else ""
    return (
        f"A model of {known} known class{'es' * (known != 1)}{clusters}, made by protofission "
        f"{bundle.version}."
    )


def _model_facts(bundle: Bundle) -> dict[str, Any]:
    calibrated_model, facts = bundle.calibrated_model, bundle.encoder_facts
    threshold, side = float(calibrated_model.threshold), facts.get("size", "?")
    return {
        "encoder": f"{bundle.encoder_spec.source}, {facts['num_features']} features of images of "
        f"{side} x {side} pixels",
        **_structure(calibrated_model),
        "accepted": f"from an ID score of {threshold:.4g} on"
        if threshold > -math.inf
        else "every image",
        "temperature of probabilities": float(calibrated_model.temperature),
        "held-out scores, kept to tell drift": len(bundle.calibration),
    }


def _structure(calibrated_model: CalibratedModel) -> dict[str, str]:
    """The parts of a calibrated model, in words."""
    if isinstance(calibrated_model, FoldEnsemble):
        head = calibrated_model.sizes[0].head
        number = len(calibrated_model.sizes)
        return {
            "models": f"{number}, each without the labels of a fold" if number > 1 else "1",
            "head": f"{head.kind}, prototypes of a class: {head.slots}",
        }
    assert isinstance(calibrated_model, SingleModel)
    adapter, head = specs_of(calibrated_model.model)
    return {
        "adapter": adapter.kind,
        "head": f"{head.kind}, prototypes of a class: {head.slots}",
    }


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
