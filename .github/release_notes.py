"""Print the section of a version of CHANGELOG.md, for the notes of its release.

python .github/release_notes.py 0.2.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def release_notes(changelog: str, version: str) -> str:
    """The text under `## VERSION`, up to the next version.

    Raises:
        ValueError: there is no such section, or nothing is in it.
    """
    heading = re.compile(rf"^## \[?{re.escape(version)}\]?(?:\s.*)?$", re.MULTILINE)
    found = heading.search(changelog)
    if found is None:
        raise ValueError(f"CHANGELOG.md has no section {version}: give the changes their version.")
    rest = changelog[found.end() :]
    text = re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not text:
        raise ValueError(f"The section {version} of CHANGELOG.md is empty: say what changed.")
    return text + "\n"


def package_version(source: str) -> str:
    """The version that the package's own file names."""
    found = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if found is None:
        raise ValueError("src/protofission/__init__.py names no version.")
    return found[1]


def main(version: str) -> str:
    """The notes of a version, if it is the package's."""
    own = package_version((ROOT / "src/protofission/__init__.py").read_text(encoding="utf-8"))
    if own != version:
        raise ValueError(f"The tag is of {version}, and the package is {own}: tag what it is.")
    return release_notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)


if __name__ == "__main__":
    try:
        print(main(sys.argv[1]), end="")
    except ValueError as error:
        sys.exit(str(error))
