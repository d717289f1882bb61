"""All methods by name. A new one is a file beside this and a line here."""

from __future__ import annotations

from typing import Any

from protofission.core.errors import unknown
from protofission.methods.base import Adam, Method, Traits
from protofission.methods.cgdl import Cgdl
from protofission.methods.cpl import Cpl
from protofission.methods.ds3l import DS3L
from protofission.methods.dtc import DTC
from protofission.methods.fixmatch import FixMatch, FixMatchSigmoid
from protofission.methods.gcd import GCD
from protofission.methods.iomatch import IOMatch
from protofission.methods.nach import Nach
from protofission.methods.opencon import OpenCon
from protofission.methods.opencos import OpenCos
from protofission.methods.openldn import OpenLDN
from protofission.methods.openmatch import OpenMatch
from protofission.methods.orca import Orca
from protofission.methods.owmatch import OwMatch
from protofission.methods.p_odn import POdn
from protofission.methods.pim import Pim
from protofission.methods.pmal import Pmal
from protofission.methods.protogcd import ProtoGCD
from protofission.methods.rankstats import RankStats
from protofission.methods.reciprocal import Arpl, Rpl
from protofission.methods.simclr import SimCLR, SimCLRKMeans
from protofission.methods.simgcd import SimGCD
from protofission.methods.step_ood import StepOOD
from protofission.methods.supervised import Supervised
from protofission.methods.t2t import T2T
from protofission.methods.tida import Tida
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
    "simclr-kmeans": SimCLRKMeans(),
    "dtc": DTC(),
    "dtc+pf": WithFission(DTC()),
    "rankstats": RankStats(),
    "rankstats+pf": WithFission(RankStats()),
    "gcd": GCD(),
    "simgcd": SimGCD(),
    "simgcd+pf": WithFission(SimGCD()),
    "protogcd": ProtoGCD(),
    "protogcd+pf": WithFission(ProtoGCD()),
    "pim": Pim(),
    "pim+pf": WithFission(Pim()),
    "tida": Tida(),
    "tida+pf": WithFission(Tida()),
    "opencon": OpenCon(),
    "owmatch": OwMatch(),
    "owmatch+pf": WithFission(OwMatch()),
    "openmatch": OpenMatch(),
    "openmatch+pf": WithFission(OpenMatch()),
    "iomatch": IOMatch(),
    "iomatch+pf": WithFission(IOMatch()),
    "opencos": OpenCos(),
    "opencos+pf": WithFission(OpenCos()),
    "cpl": Cpl(),
    "rpl": Rpl(),
    "arpl": Arpl(),
    "ds3l": DS3L(),
    "ds3l+pf": WithFission(DS3L()),
    "openldn": OpenLDN(),
    "openldn+pf": WithFission(OpenLDN()),
    "cgdl": Cgdl(),
    "cgdl+pf": WithFission(Cgdl()),
    "step": StepOOD(),
    "step+pf": WithFission(StepOOD()),
    "t2t": T2T(),
    "t2t+pf": WithFission(T2T()),
    "nach": Nach(),
    "nach+pf": WithFission(Nach()),
    "pmal": Pmal(),
    "p-odn": POdn(),
}
"""Methods by name, with their default options; `+pf` is a method with fission.

Examples:
    >>> from protofission import METHODS
    >>> METHODS["fixmatch"].threshold
    0.95
"""


def find_method(name: str) -> Method[Any]:
    """The method of that name with its default options."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def title_of(name: str) -> str:
    """The name of a method as tables and lists show it: a reading carries a mark."""
    reading = name in METHODS and METHODS[name].traits.reading
    return f"{name} (reading)" if reading else name


__all__ = [
    "DS3L",
    "DTC",
    "GCD",
    "METHODS",
    "T2T",
    "Adam",
    "Arpl",
    "Cgdl",
    "Cpl",
    "FixMatch",
    "FixMatchSigmoid",
    "IOMatch",
    "Method",
    "Nach",
    "OpenCon",
    "OpenCos",
    "OpenLDN",
    "OpenMatch",
    "Orca",
    "OwMatch",
    "POdn",
    "Pim",
    "Pmal",
    "ProtoGCD",
    "RankStats",
    "Rpl",
    "SimCLR",
    "SimCLRKMeans",
    "SimGCD",
    "StepOOD",
    "Supervised",
    "Tida",
    "Traits",
    "WithFission",
    "find_method",
    "title_of",
]
