"""Names that shells complete, as types; a verb takes other texts too, and says what it knows.

They are written out, as importing what has them takes longer than help may; a test compares them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

KnownMethod = Literal[
    "supervised",
    "supervised+pf",
    "fixmatch",
    "fixmatch+pf",
    "fixmatch-sigmoid",
    "fixmatch-sigmoid+pf",
    "orca",
    "orca+pf",
    "simclr",
    "simclr-kmeans",
    "dtc",
    "dtc+pf",
    "rankstats",
    "rankstats+pf",
    "gcd",
    "simgcd",
    "simgcd+pf",
    "protogcd",
    "protogcd+pf",
    "pim",
    "pim+pf",
    "tida",
    "tida+pf",
    "opencon",
    "owmatch",
    "owmatch+pf",
    "openmatch",
    "openmatch+pf",
    "iomatch",
    "iomatch+pf",
    "opencos",
    "opencos+pf",
    "cpl",
    "rpl",
    "arpl",
    "ds3l",
    "ds3l+pf",
    "openldn",
    "openldn+pf",
    "cgdl",
    "cgdl+pf",
    "step",
    "step+pf",
    "t2t",
    "t2t+pf",
    "nach",
    "nach+pf",
    "pmal",
    "p-odn",
]
KnownPreset = Literal[
    "digits",
    "digits/literal",
    "cpu/cifar10",
    "cpu/cifar100",
    "features",
    "features/cifar10",
    "features/cifar100",
    "features/imagenet100",
    "features/cifar10/literal",
    "features/cifar100/literal",
    "features/imagenet100/literal",
    "paper/cifar10",
    "paper/cifar100",
    "paper/imagenet100",
    "paper/cifar10/literal",
    "paper/cifar100/literal",
    "paper/imagenet100/literal",
    "fixmatch/cifar10",
    "fixmatch/cifar100",
]
KnownDataSet = Literal[
    "digits",
    "mnist",
    "fashion-mnist",
    "cifar10",
    "cifar100",
    "imagenet100",
]
KnownOfficialDataSet = Literal[
    "cifar10",
    "cifar100",
    "mnist",
    "fashion-mnist",
]

MethodName = Annotated[str | KnownMethod, Parameter(show_choices=False)]
PresetName = Annotated[str | KnownPreset, Parameter(show_choices=False)]
OptionalPreset = Annotated[
    str | KnownPreset | None, Parameter(show_choices=False, show_default=False)
]
DataSetName = Annotated[str | KnownDataSet, Parameter(show_choices=False)]
OfficialDataSetName = Annotated[str | KnownOfficialDataSet, Parameter(show_choices=False)]
