"""Tables of options: for each method, or group of methods, what a preset changes.

A table has rows of `key=value` options, as `--set` takes them. Tables are applied one after
another, their rows from top to bottom, so a later row has the last word.

A row is for a group of `GROUPS`, or for a method by name: `orca` is ORCA with and without fission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from protofission.core.options import override
from protofission.methods import Method, find_method
from protofission.methods.with_fission import base_of
from protofission.training.experiment import Experiment, experiment_of

Options = tuple[str, ...]
Table = Mapping[str, Options]

FISSION = "+pf"
"""The end of the name of a method with fission."""


def _discovers(method: Method[Any]) -> bool:
    return bool(method.traits.views.labeled) and method.traits.novel != "reject"


GROUPS: dict[str, Callable[[Method[Any]], bool]] = {
    "all": lambda method: True,
    # Each method is in one of these four:
    "pretrains": lambda method: not method.traits.predicts,
    "clusters": lambda method: method.traits.predicts and not method.traits.views.labeled,
    "discovers": _discovers,
    "rejects": lambda method: bool(method.traits.views.labeled) and method.traits.novel == "reject",
    # And in any of these:
    "predicts": lambda method: method.traits.predicts,
    "with fission": lambda method: base_of(method) is not method,
    "prototypes": lambda m: _discovers(m) and m.traits.head.can_start_from_data,
    "base has prototypes": lambda m: _discovers(m) and base_of(m).traits.head.can_start_from_data,
}
"""Groups of methods by what they do:

all: every method;
pretrains: makes features without labels, and predicts nothing (SimCLR);
clusters: makes features without labels, which are then clustered;
discovers: learns from labels, and tells novel classes apart;
rejects: learns from labels, and rejects what is of no seen class;
predicts: every method but those that pretrain;
with fission: a method around which fission is wrapped;
prototypes: discovers, by a head whose prototypes may start from the data;
base has prototypes: discovers, and its base has such a head; alike with and without fission.
"""


@dataclass(frozen=True)
class Preset:
    """A named experiment for any method: tables of options on top of the defaults."""

    summary: str
    """Description in one line, for lists."""
    tables: tuple[Table, ...]

    def options(self, name: str) -> Iterator[str]:
        """All options for the method of that name, in the order in which they are applied."""
        method, names = find_method(name), (name, name.removesuffix(FISSION))
        for table in self.tables:
            for key, options in table.items():
                if key in names or (key in GROUPS and GROUPS[key](method)):
                    yield from options

    def experiment(self, name: str) -> Experiment:
        """The experiment of the method of that name."""
        experiment = experiment_of(name)
        for option in self.options(name):
            experiment = override(experiment, option)
        return experiment
