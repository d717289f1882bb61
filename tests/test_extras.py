"""Extras: few, named for what they give, and the ones that refusals and pages name."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from oldest_versions import oldest_versions
from protofission.data.readers.remote_files import PROTOCOLS

DEVELOPERS = {"dev", "dev-scale", "dev-zoo", "docs"}
IMPORTS = re.compile(r'(?:import|check)_optional\(\s*[^,()]+,\s*"([\w-]+)"')
NAMED = re.compile(r"protofission\[([\w,-]+)\]")


@pytest.fixture(scope="module")
def extras(project: Path) -> dict[str, Any]:
    return tomllib.loads((project / "pyproject.toml").read_text())["project"][  # type: ignore[no-any-return]
        "optional-dependencies"
    ]


def test_all_is_all_that_users_may_want(extras: dict[str, Any]) -> None:
    (every,) = extras["all"]
    assert set(NAMED.findall(every)[0].split(",")) == set(extras) - DEVELOPERS - {"all", "zoo"}
    assert {"encoder", "hub", "ray", "web"} <= set(extras)


def test_every_extra_that_is_named_is_there(extras: dict[str, Any], project: Path) -> None:
    named = set(PROTOCOLS.values())
    pages = [project / "README.md", project / "Dockerfile", *(project / "docs").glob("*.md")]
    for path in (project / "src").rglob("*.py"):
        found, text = IMPORTS.findall(path.read_text()), path.read_text()
        if path.name not in ("optional_libraries.py", "remote_files.py", "hub_cache.py"):
            # these are told the extra
            assert len(found) == len(re.findall(r"(?:import|check)_optional\(", text)), path
        named |= set(found)
    for path in [*pages, *(project / "src").rglob("*.py")]:
        for text in NAMED.findall(path.read_text()):
            named |= set(text.split(","))
    assert {"encoder", "hub", "web", "parquet"} <= named
    assert named <= set(extras)


def test_the_oldest_versions_are_those_of_the_project(project: Path) -> None:
    wanted = oldest_versions(project / "pyproject.toml")
    held = (project / "constraints-oldest.txt").read_text().splitlines()
    assert held == [f"{name}=={version}" for name, version in wanted.items()]
    assert len(held) > 25
