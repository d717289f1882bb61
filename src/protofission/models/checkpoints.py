"""Load pretrained weights into a backbone, also if their tensors have other names.

Names are translated. Weights fit the backbone as a whole, or they are refused with the tensors that
are missing, unexpected or misshapen.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from protofission.core.errors import InputError, printable, require
from protofission.core.options import as_text
from protofission.models.backbones import Backbone, BackboneSpec
from protofission.models.tensor_names import find_naming
from protofission.models.weight_files import first_few, is_plain, read_card, read_tensors

TEXT_COLUMNS = 80
"""Width of a report."""


class ShapeMismatch(NamedTuple):
    """A tensor whose shape is not the backbone's."""

    name: str
    found: tuple[int, ...]
    wanted: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} is {_size(self.found)}, not {_size(self.wanted)}"


@dataclass(frozen=True)
class LoadReport:
    """The tensors of a file that fit a backbone, and those that do not.

    Names are the file's, but for those of `kept`.
    """

    source: str
    style: str
    """The `NamingStyle.name` of the tensors' names."""
    prefix: str
    """The prefix of these names, with the keys of dictionaries around them."""
    loaded: int
    """The number of tensors that fit."""
    missing: tuple[str, ...]
    """Tensors of the backbone that the file lacks."""
    unexpected: tuple[str, ...]
    """Tensors of the file's backbone that this backbone lacks."""
    misshapen: tuple[ShapeMismatch, ...]
    left_out: tuple[str, ...]
    """Tensors that belong to no backbone: classifiers, projections, momentum copies."""
    kept: tuple[str, ...]
    """Statistics and counters of the backbone that the file lacks; they stay as they are."""

    @property
    def whole(self) -> bool:
        """Whether the weights fit the backbone as a whole."""
        return not (self.missing or self.unexpected or self.misshapen)

    def lines(self) -> list[str]:
        """The report as text, with the name of every tensor, in lines of at most 80 columns."""
        after = f' after "{self.prefix}"' if self.prefix else ""
        lines = _wrap(printable(f"{self.source}: names of {self.style}{after}"))
        lines.append(f"loaded: {self.loaded}")
        for kind in ("missing", "unexpected", "misshapen", "left_out", "kept"):
            names = [printable(str(entry)) for entry in getattr(self, kind)]
            lines.append(f"{kind.replace('_', ' ')}: {len(names) or 'none'}")
            lines += _wrap(", ".join(names), "  ")
        return lines


def load_backbone(backbone: Backbone, source: str) -> LoadReport:
    """Load weights into a backbone, all or none of them.

    Args:
        source: a checkpoint file, the folder of a finished run, or the name of packaged weights.

    Raises:
        InputError: if they do not fit, or hold numbers that no network has.
    """
    report, values, names = _match_tensors(backbone, source)
    if not report.whole:
        raise InputError(_misfit_message(report))
    state = backbone.state_dict()
    cast = {name: value.to(state[name]) for name, value in values.items()}
    wrong = [names[name] for name in cast if not _is_possible(name, values[name], cast[name])]
    require(
        not wrong,
        f"{printable(source)} holds NaN, infinite numbers or negative variances in "
        f"{first_few(wrong)}: take another copy or another epoch of it.",
    )
    backbone.load_state_dict({**state, **cast})
    return report


def check_origin(spec: BackboneSpec, source: str) -> None:
    """Refuse weights of ours that were trained in another network, even if their tensors fit."""
    origin = read_card(source).get("backbone", {})
    for name in ("block", "width", "blocks", "stem", "shortcut", "pixels"):
        wanted = getattr(spec, name)
        found = origin.get(name, wanted)
        same = tuple(found) == wanted if isinstance(found, list) else found == wanted
        require(
            same,
            f"{printable(source)} does not fit the backbone: it was made with backbone.{name}="
            f"{as_text(found)}, not {as_text(wanted)}.",
        )


def compare(backbone: Backbone, source: str) -> LoadReport:
    """Compare weights with a backbone, which stays as it is."""
    return _match_tensors(backbone, source)[0]


def _match_tensors(
    backbone: Backbone, source: str
) -> tuple[LoadReport, dict[str, Tensor], dict[str, str]]:
    """The report, and by our names: the tensors that fit, and the file's names."""
    tensors, state = read_tensors(source), backbone.state_dict()
    style, prefix = find_naming(backbone, source, tensors)
    theirs = {ours: prefix + style.translate(ours) for ours in state}
    found = {ours: tensors[name] for ours, name in theirs.items() if name in tensors}
    for ours, value in found.items():
        require(
            is_plain(value),
            f"{printable(source)} holds {first_few([theirs[ours]])} as no plain tensor of numbers "
            "(sparse, quantized, nested, complex or of a rare type): save it as float32.",
        )
    fits = {ours: value for ours, value in found.items() if value.shape == state[ours].shape}
    absent = [ours for ours in state if ours not in found]
    bare = not any(ours.startswith("standardise.") for ours in found)
    kept = [
        ours
        for ours in absent
        if ours.endswith(".num_batches_tracked") or (bare and ours.startswith("standardise."))
    ]
    known = set(theirs.values())
    others = [name for name in tensors if name not in known]
    stages = len(backbone.stages)
    inside = {
        name
        for name in others
        if name.startswith(prefix) and style.is_backbone(name.removeprefix(prefix), stages)
    }
    report = LoadReport(
        source=source,
        style=style.name,
        prefix=prefix,
        loaded=len(fits),
        missing=tuple(theirs[ours] for ours in absent if ours not in kept),
        unexpected=tuple(name for name in others if name in inside),
        misshapen=tuple(
            ShapeMismatch(theirs[ours], tuple(value.shape), tuple(state[ours].shape))
            for ours, value in found.items()
            if ours not in fits
        ),
        left_out=tuple(name for name in others if name not in inside),
        kept=tuple(kept),
    )
    return report, fits, theirs


def _is_possible(name: str, value: Tensor, cast: Tensor) -> bool:
    """Whether a network can have such numbers, as they are stored and as they are cast."""
    finite = bool(value.isfinite().all() and cast.isfinite().all())
    return finite and not (name.endswith(".running_var") and bool(cast.lt(0).any()))


def _misfit_message(report: LoadReport) -> str:
    kinds = [
        f"{len(entries)} {kind} ({first_few(entries)})"
        for kind in ("missing", "unexpected", "misshapen")
        if (entries := getattr(report, kind))
    ]
    return (
        f"{printable(report.source)} does not fit the backbone: {report.loaded} of its tensors "
        f"fit, {', '.join(kinds)}; {_remedy(report)} (`protofission weights` lists them all)."
    )


def _remedy(report: LoadReport) -> str:
    if not (report.missing or report.unexpected) and all(map(_differ_in_inputs, report.misshapen)):
        found, wanted = (shape[1] for shape in report.misshapen[0][1:])
        return f"it takes {found}-channel images and these have {wanted}, take other weights"
    statistics = f"{report.prefix}standardise."
    if not (report.missing or report.misshapen) and all(
        name.startswith(statistics) for name in report.unexpected
    ):
        return "set backbone.standardise=true"
    return (
        "choose another backbone= or set backbone.stem, backbone.width, backbone.blocks or "
        "backbone.shortcut"
    )


def _differ_in_inputs(tensor: ShapeMismatch) -> bool:
    """Whether two shapes of a convolution differ in its input channels and nothing else."""
    found, wanted = tensor.found, tensor.wanted
    return len(found) == 4 and (found[0], *found[2:]) == (wanted[0], *wanted[2:])


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _wrap(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, TEXT_COLUMNS, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
