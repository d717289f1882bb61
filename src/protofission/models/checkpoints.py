"""Pretrained weights into a backbone, whose names they may not share.

Names are translated, and a file either fits the backbone as a whole or is refused with what is
missing, unexpected or misshapen.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from protofission.core.errors import InputError, printable, require
from protofission.core.options import as_text
from protofission.models.backbones import Backbone, BackboneSpec, PreactivatedBlock
from protofission.models.weight_files import card_of, few, read_tensors

COLUMNS = 80

_NUMBERS = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
)
_BODY = re.compile(r"(conv|bn|norm|layer|block|stage|stem)s?[0-9]*|last|standardise")
"""A name that begins like this belongs to a backbone; `fc`, `projector` or `queue` do not."""
_NUMBERED_BLOCK = re.compile(r"[0-9]+\.[0-9]+\.(conv|bn|downsample|shortcut)")
_COPIES = {"averaged", "ema", "k", "key", "momentum", "optimizer", "shadow", "target", "teacher"}
"""Words in the names of a slowly following copy, which is taken only if there is nothing else."""


@dataclass(frozen=True)
class Style:
    """How the tensors of a residual network are named."""

    name: str
    stem: tuple[str, str] = ("conv1", "bn1")
    """The convolution and its batch norm."""
    stage: str = "layer"
    first: int = 1
    """The number of the first stage."""
    norm: str = "bn"
    shortcut: tuple[str, str] = ("downsample.0", "downsample.1")
    """The convolution and its batch norm."""

    def theirs(self, ours: str) -> str:
        """The name in this style of one of our backbone's tensors."""
        match ours.split("."):
            case ["stem", place, kind]:
                return f"{self.stem[int(place)]}.{kind}"
            case ["stages", stage, block, "shortcut", place, kind]:
                layer = self.shortcut[int(place) - 1]  # the first halves the image, without weights
            case ["stages", stage, block, layer, kind]:
                layer = layer.replace("norm", self.norm)
            case _:
                return ours
        return f"{self.stage}{self.first + int(stage)}.{block}.{layer}.{kind}"

    def inside(self, name: str, stages: int) -> bool:
        """Whether a name, without its prefix, is one of a backbone's."""
        first = name.partition(".")[0]
        if not self.stage and re.fullmatch("[0-9]{1,9}", first):
            return int(first) < self.first + stages or bool(_NUMBERED_BLOCK.match(name))
        return bool(_BODY.fullmatch(first))


_PLAIN = ("shortcut.0", "shortcut.1")

OURS = Style(
    "protofission", ("stem.0", "stem.1"), "stages.", 0, "norm", ("shortcut.1", "shortcut.2")
)
STYLES = (
    OURS,
    Style("torchvision"),
    Style("pytorch-cifar", shortcut=_PLAIN),
    *(
        Style("sequential", ("0", "1"), "", first, shortcut=shortcut)
        for first, shortcut in product((2, 3, 4), (Style.shortcut, _PLAIN))
    ),
)
"""Ours; torchvision's; kuangliu's, which SupContrast and ORCA use; and the places in a Sequential,
where the first stage comes after rectifier and pool, after a rectifier or directly."""


class Misshapen(NamedTuple):
    """A tensor of another shape than the backbone's."""

    name: str
    found: tuple[int, ...]
    wanted: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} is {_size(self.found)}, not {_size(self.wanted)}"


@dataclass(frozen=True)
class Fit:
    """How a file's tensors fit a backbone. All names are the file's, but for those of `kept`."""

    source: str
    style: str
    """Whose names the tensors have: a `Style`'s name."""
    prefix: str
    """What stands before these names, dictionaries around them included."""
    loaded: int
    """How many tensors fit."""
    missing: tuple[str, ...]
    """Tensors that the backbone needs and the file has not."""
    unexpected: tuple[str, ...]
    """Tensors of the file's backbone that this backbone has not."""
    misshapen: tuple[Misshapen, ...]
    left_out: tuple[str, ...]
    """Tensors that are no part of a backbone: classifiers, projections, momentum copies."""
    kept: tuple[str, ...]
    """The backbone's statistics and counters that the file has not; they stay as they are."""

    @property
    def whole(self) -> bool:
        """Whether the backbone in the file is this one."""
        return not (self.missing or self.unexpected or self.misshapen)

    def lines(self) -> list[str]:
        """The whole report, every tensor named, in lines of at most 80 columns."""
        after = f' after "{self.prefix}"' if self.prefix else ""
        lines = _wrapped(printable(f"{self.source}: names of {self.style}{after}"))
        lines.append(f"loaded: {self.loaded}")
        for kind in ("missing", "unexpected", "misshapen", "left_out", "kept"):
            names = [printable(str(entry)) for entry in getattr(self, kind)]
            lines.append(f"{kind.replace('_', ' ')}: {len(names) or 'none'}")
            lines += _wrapped(", ".join(names), "  ")
        return lines


def load_backbone(backbone: Backbone, source: str) -> Fit:
    """Put weights into a backbone, all of them or, with an `InputError`, none.

    Args:
        source: a checkpoint file, the folder of a finished run, or the name of packaged weights.
    """
    fit, values, names = _compared(backbone, source)
    if not fit.whole:
        raise InputError(_misfit(fit))
    state = backbone.state_dict()
    cast = {name: value.to(state[name]) for name, value in values.items()}
    wrong = [names[name] for name in cast if not _possible(name, values[name], cast[name])]
    require(
        not wrong,
        f"{printable(source)} holds NaN, infinite numbers or negative variances in {few(wrong)}: "
        "take another copy or another epoch of it.",
    )
    backbone.load_state_dict({**state, **cast})
    return fit


def check_origin(spec: BackboneSpec, source: str) -> None:
    """Refuse weights of ours that were made for another net, though their tensors may fit."""
    origin = card_of(source).get("backbone", {})
    for name in ("block", "width", "blocks", "stem", "shortcut", "pixels"):
        wanted = getattr(spec, name)
        found = origin.get(name, wanted)
        same = tuple(found) == wanted if isinstance(found, list) else found == wanted
        require(
            same,
            f"{printable(source)} does not fit the backbone: it was made with backbone.{name}="
            f"{as_text(found)}, not {as_text(wanted)}.",
        )


def compare(backbone: Backbone, source: str) -> Fit:
    """How weights would fit a backbone, which stays as it is."""
    return _compared(backbone, source)[0]


def _compared(backbone: Backbone, source: str) -> tuple[Fit, dict[str, Tensor], dict[str, str]]:
    """The fit, and by our names the tensors that fit and the file's names."""
    tensors, state = read_tensors(source), backbone.state_dict()
    style, prefix = _naming(backbone, source, tensors)
    theirs = {ours: prefix + style.theirs(ours) for ours in state}
    found = {ours: tensors[name] for ours, name in theirs.items() if name in tensors}
    for ours, value in found.items():
        require(
            _is_plain(value),
            f"{printable(source)} holds {few([theirs[ours]])} as no plain tensor of numbers "
            "(sparse, quantised, nested, complex or of a rare type): save it as float32.",
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
    inside = {
        name
        for name in others
        if name.startswith(prefix) and style.inside(name.removeprefix(prefix), len(backbone.stages))
    }
    fit = Fit(
        source=source,
        style=style.name,
        prefix=prefix,
        loaded=len(fits),
        missing=tuple(theirs[ours] for ours in absent if ours not in kept),
        unexpected=tuple(name for name in others if name in inside),
        misshapen=tuple(
            Misshapen(theirs[ours], tuple(value.shape), tuple(state[ours].shape))
            for ours, value in found.items()
            if ours not in fits
        ),
        left_out=tuple(name for name in others if name not in inside),
        kept=tuple(kept),
    )
    return fit, fits, theirs


def _naming(backbone: Backbone, source: str, tensors: Mapping[str, Tensor]) -> tuple[Style, str]:
    """The style and the prefix under which most of the backbone's tensors are found."""
    state = backbone.state_dict()
    preactivated = any(isinstance(module, PreactivatedBlock) for module in backbone.modules())
    styles = (OURS,) if preactivated else STYLES  # Wide-ResNets of one naming differ in shortcuts
    meant = defaultdict(list)
    for style, ours in product(styles, state):
        meant[style.theirs(ours)].append((style, state[ours].shape))
    found: Counter[tuple[Style, str]] = Counter()
    fitting: Counter[tuple[Style, str]] = Counter()
    for name, value in tensors.items():
        for prefix, rest in _endings(name):
            for style, shape in meant.get(rest, ()):
                found[style, prefix] += 1
                fitting[style, prefix] += _is_plain(value) and value.shape == shape
    if not found or 10 * max(found.values()) < min(len(state), len(tensors)):
        raise InputError(
            f"{printable(source)} holds no backbone of this kind, its {len(tensors)} tensors "
            f"({few(tensors)}) have other names: take weights of a ResNet, or another backbone=."
        )
    return min(
        found,
        key=lambda key: (-found[key], -fitting[key], _is_copy(key[1]), len(key[1]), key[1]),
    )


def _endings(name: str) -> Iterator[tuple[str, str]]:
    """A name cut into prefix and rest, at each of the last dots and before all of it."""
    parts = name.rsplit(".", 6)
    for place in range(len(parts)):
        rest = ".".join(parts[place:])
        yield name.removesuffix(rest), rest


def _is_copy(prefix: str) -> bool:
    return not _COPIES.isdisjoint(re.split("[._]", prefix.lower()))


def _is_plain(value: Tensor) -> bool:
    return (
        type(value) in (Tensor, nn.Parameter)
        and not value.is_nested
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and value.dtype in _NUMBERS
    )


def _possible(name: str, value: Tensor, cast: Tensor) -> bool:
    """Whether a tensor's numbers can be those of a network."""
    finite = bool(value.isfinite().all() and cast.isfinite().all())
    return finite and not (name.endswith(".running_var") and bool(cast.lt(0).any()))


def _misfit(fit: Fit) -> str:
    kinds = [
        f"{len(entries)} {kind} ({few(entries)})"
        for kind in ("missing", "unexpected", "misshapen")
        if (entries := getattr(fit, kind))
    ]
    return (
        f"{printable(fit.source)} does not fit the backbone: {fit.loaded} of its tensors fit, "
        f"{', '.join(kinds)}; {_remedy(fit)} (`protofission weights` lists them all)."
    )


def _remedy(fit: Fit) -> str:
    if not (fit.missing or fit.unexpected) and all(map(_differ_in_inputs, fit.misshapen)):
        found, wanted = (shape[1] for shape in fit.misshapen[0][1:])
        return f"it takes {found}-channel images and these have {wanted}, take other weights"
    statistics = f"{fit.prefix}standardise."
    if not (fit.missing or fit.misshapen) and all(
        name.startswith(statistics) for name in fit.unexpected
    ):
        return "set backbone.standardise=true"
    return (
        "choose another backbone= or set backbone.stem, backbone.width, backbone.blocks or "
        "backbone.shortcut"
    )


def _differ_in_inputs(tensor: Misshapen) -> bool:
    """Whether two shapes of a convolution differ in its input channels and nothing else."""
    found, wanted = tensor.found, tensor.wanted
    return len(found) == 4 and (found[0], *found[2:]) == (wanted[0], *wanted[2:])


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, COLUMNS, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
