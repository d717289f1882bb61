"""Constraints that install the oldest versions that pyproject.toml allows: `make test-oldest`.

python tests/oldest_versions.py > constraints-oldest.txt
"""

import re
import tomllib
from pathlib import Path

NOT_OLDEST = {"torch": "2.13.0"}
"""Packages that are tested in a newer version than the oldest, because on PyPI the older ones for
Linux come with libraries for graphics cards alone, of gigabytes."""
REQUIREMENT = re.compile(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)")


def oldest_versions(pyproject: Path) -> dict[str, str]:
    """The lower bound of every requirement that has one, of the package and its extras.

    Where an extra wants a newer version than the package, it has to be in NOT_OLDEST.
    """
    project = tomllib.loads(pyproject.read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    found: dict[str, str] = {}
    for name, version in (
        match.groups() for group in groups for match in map(REQUIREMENT.fullmatch, group) if match
    ):
        same = found.setdefault(name, version) == version
        assert same or name in NOT_OLDEST, f"{name} has two lower bounds"
    return dict(sorted({**found, **NOT_OLDEST}.items()))


if __name__ == "__main__":
    for name, version in oldest_versions(Path(__file__).parent.parent / "pyproject.toml").items():
        print(f"{name}=={version}")
