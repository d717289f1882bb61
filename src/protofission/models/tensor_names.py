"""Naming styles of residual networks: find the one of a checkpoint, and translate our names."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from torch import Tensor

from protofission.core.errors import InputError, printable
from protofission.models.backbones import Backbone
from protofission.models.residual_blocks import PreactivatedBlock
from protofission.models.weight_files import first_few, is_plain

_BODY = re.compile(r"(conv|bn|norm|layer|block|stage|stem)s?[0-9]*|last|standardise")
"""A name with such a first part belongs to a backbone; `fc`, `projector` or `queue` do not."""
_NUMBERED_BLOCK = re.compile(r"[0-9]+\.[0-9]+\.(conv|bn|downsample|shortcut)")
_COPIES = {"averaged", "ema", "k", "key", "momentum", "optimizer", "shadow", "target", "teacher"}
"""Words in the prefix of a momentum copy, which is used only if there is nothing else."""


@dataclass(frozen=True)
class NamingStyle:
    """The names of a residual network's tensors in somebody's code."""

    name: str
    stem: tuple[str, str] = ("conv1", "bn1")
    """The convolution and its batch norm."""
    stage: str = "layer"
    first: int = 1
    """The number of the first stage."""
    norm: str = "bn"
    shortcut: tuple[str, str] = ("downsample.0", "downsample.1")
    """The convolution and its batch norm."""

    def translate(self, ours: str) -> str:
        """The name in this style of one of our backbone's tensors."""
        match ours.split("."):
            case ["stem", place, kind]:
                return f"{self.stem[int(place)]}.{kind}"
            case ["stages", stage, block, "shortcut", place, kind]:
                layer = self.shortcut[int(place) - 1]  # place 0 has no weights
            case ["stages", stage, block, layer, kind]:
                layer = layer.replace("norm", self.norm)
            case _:
                return ours
        return f"{self.stage}{self.first + int(stage)}.{block}.{layer}.{kind}"

    def is_backbone(self, name: str, stages: int) -> bool:
        """Whether a tensor of that name, without its prefix, belongs to a backbone."""
        first = name.partition(".")[0]
        if not self.stage and re.fullmatch("[0-9]{1,9}", first):
            return int(first) < self.first + stages or bool(_NUMBERED_BLOCK.match(name))
        return bool(_BODY.fullmatch(first))


_PLAIN = ("shortcut.0", "shortcut.1")

OURS = NamingStyle(
    "protofission", ("stem.0", "stem.1"), "stages.", 0, "norm", ("shortcut.1", "shortcut.2")
)
STYLES = (
    OURS,
    NamingStyle("torchvision"),
    NamingStyle("pytorch-cifar", shortcut=_PLAIN),
    *(
        NamingStyle("sequential", ("0", "1"), "", first, shortcut=shortcut)
        for first, shortcut in product((2, 3, 4), (NamingStyle.shortcut, _PLAIN))
    ),
)
"""Ours; torchvision's; kuangliu's, which SupContrast and ORCA use; and the positions in a
Sequential, where the first stage comes after ReLU and pool, after a ReLU, or directly."""


def find_naming(
    backbone: Backbone, source: str, tensors: Mapping[str, Tensor]
) -> tuple[NamingStyle, str]:
    """The style and the prefix by which most of the backbone's tensors are found.

    Raises:
        InputError: if too few tensors have names of a residual network.
    """
    state = backbone.state_dict()
    preactivated = any(isinstance(module, PreactivatedBlock) for module in backbone.modules())
    styles = (OURS,) if preactivated else STYLES  # others' Wide-ResNets share names, not shortcuts
    meant = defaultdict(list)
    for style, ours in product(styles, state):
        meant[style.translate(ours)].append((style, state[ours].shape))
    found: Counter[tuple[NamingStyle, str]] = Counter()
    fitting: Counter[tuple[NamingStyle, str]] = Counter()
    for name, value in tensors.items():
        for prefix, rest in _endings(name):
            for style, shape in meant.get(rest, ()):
                found[style, prefix] += 1
                fitting[style, prefix] += is_plain(value) and value.shape == shape
    if not found or 10 * max(found.values()) < min(len(state), len(tensors)):
        raise InputError(
            f"{printable(source)} holds no backbone of this kind, its {len(tensors)} tensors "
            f"({first_few(tensors)}) have other names: take weights of a ResNet, or another "
            "backbone=."
        )
    return min(
        found,
        key=lambda key: (-found[key], -fitting[key], _is_copy(key[1]), len(key[1]), key[1]),
    )


def _endings(name: str) -> Iterator[tuple[str, str]]:
    """All splits of a name into prefix and rest, at one of its last dots or before all of it."""
    parts = name.rsplit(".", 6)
    for place in range(len(parts)):
        rest = ".".join(parts[place:])
        yield name.removesuffix(rest), rest


def _is_copy(prefix: str) -> bool:
    return not _COPIES.isdisjoint(re.split("[._]", prefix.lower()))
