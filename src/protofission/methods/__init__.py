"""All methods by name. A new one is a file beside this and a line here."""

from __future__ import annotations

from typing import Any

from protofission.errors import unknown
from protofission.methods.base import Adam, Method
from protofission.methods.fixmatch import FixMatch, FixMatchSigmoid
from protofission.methods.orca import Orca
from protofission.methods.simclr import SimCLR
from protofission.methods.supervised import Supervised
from protofission.methods.with_fission import WithFission

METHODS: dict[str, Method[Any]] = {
    "supervised": Supervised(),
    "supervised+pf": WithFission(Supervised()),
    "fixmatch": FixMatch(),
    "fixmatch+pf": WithFission(FixMatch()),
    "fixmatch-sigmoid": FixMatchSigmoid(),
    "fixmatch-sigmoid+pf": WithFission(FixMatchSigmoid()),
    "orca": Orca(),
    "orca+pf": WithFission(Orca()),
    "simclr": SimCLR(),
}


def method_named(name: str) -> Method[Any]:
    """The method of that name with its default options."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


__all__ = [
    "METHODS",
    "Adam",
    "FixMatch",
    "FixMatchSigmoid",
    "Method",
    "Orca",
    "SimCLR",
    "Supervised",
    "WithFission",
    "method_named",
]
