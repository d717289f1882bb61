"""Suites by name: grids of runs that share data and splits, and end in tables and figures."""

from __future__ import annotations

from protofission.errors import unknown
from protofission.suite import Case, Run, Suite
from protofission.suites.paper import SUITES
from protofission.suites.setting import Setting


def suite_named(name: str, setting: Setting) -> Suite:
    """A suite by its name, in a setting."""
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    return SUITES[name](setting)


__all__ = ["SUITES", "Case", "Run", "Setting", "Suite", "suite_named"]
