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

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from protofission.core.errors import InputError, printable, require, unknown
from protofission.experiments.report.quantities import QUANTITIES
from protofission.experiments.suite import Suite
from protofission.experiments.suites.paper import ACCURACIES, SUITES
from protofission.experiments.suites.setting import Setting, Tier
from protofission.system.plain_files import read_plain

KEYS = ("title", "tier", "data", "seeds", "options", "methods", "compare", "quantities", "note")
LARGEST = 100_000
"""Bytes that a small file may have."""


@dataclass(frozen=True)
class YamlSuite:
    """The content of a suite's file, checked where it is read."""

    path: Path
    content: Mapping[str, Any]

    @staticmethod
    def read(path: Path) -> YamlSuite:
        """Read a file.

        Raises:
            InputError: it is no YAML, or has a key or a name that no suite has.
        """
        try:
            content = read_plain(path, LARGEST)
            aliases = (isinstance(e, yaml.AliasEvent) for e in yaml.parse(content, yaml.SafeLoader))
            require(not any(aliases), f"{path} refers to other places by *: write them out.")
            found = yaml.safe_load(content)
        except InputError:
            raise
        except OSError as error:
            raise InputError(
                f"{path} cannot be read as a suite ({error.strerror}): name a small YAML file."
            ) from None
        except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise InputError(f"{path} is no YAML: {str(error).splitlines()[0]}.") from None
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
        """The number of seeds; none if the file does not say."""
        seeds = self.content.get("seeds")
        self._need(
            seeds is None or (isinstance(seeds, int) and not isinstance(seeds, bool)),
            f"has seeds: {reprlib.repr(seeds)}, and a whole number is wanted",
        )
        return seeds

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
            setting.case(*self._row(entry, dataset))
            for dataset in setting.datasets
            for entry in methods or ()
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

    def _row(self, entry: Any, dataset: str) -> tuple[str, ...]:
        """Row, method, data set and options of a case."""
        if isinstance(entry, str):
            return entry, entry, dataset
        known = isinstance(entry, dict) and {"row", "method"} <= {*entry} <= _ROW_KEYS
        self._need(
            known and all(isinstance(entry[key], str) for key in ("row", "method")),
            f"has a method {reprlib.repr(entry)}: give a name, or row, method and options",
        )
        return entry["row"], entry["method"], dataset, *self._texts("options", entry)

    def _pairs(self) -> tuple[tuple[str, str], ...]:
        pairs = self.content.get("compare", [])
        two = isinstance(pairs, list) and all(
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(row, str) for row in pair)
            for pair in pairs
        )
        self._need(
            two, f"has compare: {reprlib.repr(pairs)}, and a list of pairs of rows is wanted"
        )
        return tuple((first, second) for first, second in pairs)

    def _texts(self, key: str, where: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        texts = (self.content if where is None else where).get(key, [])
        self._need(
            isinstance(texts, list) and all(isinstance(text, str) for text in texts),
            f"has {key}: {reprlib.repr(texts)}, and a list of texts is wanted",
        )
        return tuple(texts)

    def _text(self, key: str) -> str:
        text = self.content.get(key, "")
        self._need(isinstance(text, str), f"has {key}: {reprlib.repr(text)}, and a text is wanted")
        return str(text)

    def _need(self, condition: bool, words: str) -> None:
        require(condition, printable(f"{self.path} {words}."))


_ROW_KEYS = {"row", "method", "options"}
