"""Suites by name: grids of runs that share data and splits, and end in tables and figures."""

from __future__ import annotations

from protofission.core.errors import unknown
from protofission.experiments.suite import Case, Run, Suite
from protofission.experiments.suites.paper import SUITES
from protofission.experiments.suites.setting import Setting


def find_suite(name: str, setting: Setting) -> Suite:
    """A suite by its name, in a setting."""
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    return SUITES[name](setting)


__all__ = ["SUITES", "Case", "Run", "Setting", "Suite", "find_suite"]
