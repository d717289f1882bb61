"""A suite of the user's own: a small YAML file that names methods, data, options and seeds.

    title: How many prototypes?
    data: [cifar10]                    # names, or folders of stores
    seeds: 3
    options: [recipe.epochs=10]        # for all
    methods:
      - orca
      - orca+pf
      - {row: "two", method: orca+pf, options: [head.prototypes=2]}
    compare: [[orca+pf, orca], [two, orca+pf]]
    quantities: [all_strict, auc]

In Python the same is a value: `Suite`, with `Setting.case` for its cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from protofission.core.errors import InputError, printable, require, unknown
from protofission.experiments.report.quantities import QUANTITIES
from protofission.experiments.suite import Suite
from protofission.experiments.suites.paper import ACCURACIES, SUITES
from protofission.experiments.suites.setting import Setting, Tier
from protofission.system.json_files import as_type
from protofission.system.plain_files import read_plain
from protofission.system.yaml_files import parse_yaml

Value = TypeVar("Value")
_Pairs = tuple[tuple[str, str], ...]

KEYS = ("title", "tier", "data", "seeds", "options", "methods", "compare", "quantities", "note")
MOST_SUITE_BYTES = 100_000
"""Bytes that a small file may have."""


@dataclass(frozen=True)
class _Row:
    """A method with a row of its own in the tables."""

    row: str
    method: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class YamlSuite:
    """A suite file."""

    path: Path
    content: Mapping[str, Any]

    @staticmethod
    def read(path: Path) -> YamlSuite:
        """Read a suite file.

        Raises:
            InputError: it cannot be read, is no YAML, or has other keys than KEYS.
        """
        try:
            found = parse_yaml(read_plain(path, MOST_SUITE_BYTES))
        except OSError as error:
            raise InputError(
                f"{path} cannot be read as a suite ({error.strerror}): name a small YAML file."
            ) from None
        except InputError as error:
            raise InputError(f"{path} {str(error).removeprefix('it ')}") from None
        own = YamlSuite(path, found if isinstance(found, dict) else {})
        own._need(isinstance(found, dict), "holds no names and values: see docs/suites.md")
        stem = path.stem
        own._need(
            stem not in (*SUITES, "runs") and not stem.startswith("."),
            "cannot be called so, for its report has another's place: give it another name",
        )
        for key in own.content:
            if key not in KEYS:
                raise unknown(f"key in {path}:", printable(str(key)), KEYS)
        return own

    @property
    def seeds(self) -> int | None:
        """The number of seeds, if the file has one."""
        if self.content.get("seeds") is None:
            return None
        return self._value("seeds", int, 0, "give a whole number")

    @property
    def tier(self) -> Tier:
        """The tier of the suite, features if the file does not say; `Setting` checks it."""
        return self.content.get("tier", Setting.tier)  # type: ignore[no-any-return]

    def setting(self, given: Setting, *, keep_datasets: bool) -> Setting:
        """A given setting with the file's options, and its data sets unless those are kept."""
        options = (*self._texts("options"), *given.options)
        data = given.datasets if keep_datasets else self._texts("data") or given.datasets
        return replace(given, datasets=data, options=options)

    def suite(self, setting: Setting) -> Suite:
        """The suite that the file describes."""
        methods = self.content.get("methods")
        self._need(isinstance(methods, list) and bool(methods), "names no methods: give a list")
        cases = [
            setting.case(*self._row(entry, f"methods[{place}]", dataset))
            for dataset in setting.datasets
            for place, entry in enumerate(methods or ())
        ]
        quantities = self._texts("quantities") or ACCURACIES
        for quantity in quantities:
            if quantity not in QUANTITIES:
                raise unknown(f"quantity in {self.path}:", quantity, QUANTITIES)
        return Suite(
            self.path.stem,
            self._text("title") or self.path.stem,
            tuple(cases),
            quantities,
            pairs=self._pairs(),
            note=self._text("note"),
        )

    def _row(self, entry: Any, place: str, dataset: str) -> tuple[str, ...]:
        """Row, method, data set and options of a case."""
        if isinstance(entry, str):
            return entry, entry, dataset
        whole = {"options": [], **entry} if isinstance(entry, dict) else entry
        row = self._as_type(whole, _Row, place, "give a name, or row, method and options")
        return row.row, row.method, dataset, *row.options

    def _pairs(self) -> tuple[tuple[str, str], ...]:
        return self._value("compare", _Pairs, (), "give a list of pairs of rows")

    def _texts(self, key: str) -> tuple[str, ...]:
        return self._value(key, tuple[str, ...], (), "give a list of texts")

    def _text(self, key: str) -> str:
        return self._value(key, str, "", "give a text")

    def _value(self, key: str, wanted: type[Value], default: Value, remedy: str) -> Value:
        """The value of a key, as one of a type, or the default if the file has no such key."""
        if key not in self.content:
            return default
        return self._as_type(self.content[key], wanted, key, remedy)

    def _as_type(self, value: Any, wanted: type[Value], place: str, remedy: str) -> Value:
        try:
            return as_type(value, wanted, place)
        except InputError as error:
            raise InputError(f"In {self.path} {str(error).removesuffix('.')}: {remedy}.") from None

    def _need(self, condition: bool, words: str) -> None:
        require(condition, printable(f"{self.path} {words}."))
