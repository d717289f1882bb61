"""Say which figures of the docs are older than the code they stand on, and make them again.

    python docs/results/results.py                  say which are stale
    python docs/results/results.py --make           make these again
    python docs/results/results.py --make NAME ...  make some again
    python docs/results/results.py --made NAME ...  note that some were made with the code as it is

all.yaml names each figure with its command and its code. made.json keeps the digest of that code
and the minutes that the command took. A digest is of the files that the command names, and of the
code's syntax without comments and docstrings: a reworded sentence makes nothing stale.
"""

import argparse
import ast
import hashlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SUITES = (
    "fission.py",
    "core",
    "data",
    "methods/base.py",
    "methods/parts",
    "methods/with_fission.py",
    "models",
    "training",
    "experiments/suites",
)
"""What every suite stands on; the methods that it runs are named beside it."""
NOT_KNOWN, NOT_MADE = "not known", "not made"
"""States of figures that were made before their code was noted, and of those never made."""


@dataclass(frozen=True)
class Figure:
    """A file of figures: how it is made, and the code that it stands on."""

    name: str
    command: str
    """A line for a shell; OUT in it is the folder of its runs and reports."""
    report: str
    """The folder of the report that is taken."""
    code: tuple[str, ...]
    """Files and folders of the package, or `suites` for SUITES."""

    def digest(self, package: Path, root: Path = ROOT) -> str:
        """The digest of its code, and of the files that its command names."""
        named = [part for name in self.code for part in (SUITES if name == "suites" else (name,))]
        files = {file for name in named for file in _python_files(package / name)}
        whole = hashlib.sha256()
        for file in sorted(files):
            text = f"{file.relative_to(package).as_posix()}\n{meaning(file.read_text())}\n"
            whole.update(text.encode())
        for word in self.command.split():
            if (root / word).is_file():
                whole.update((root / word).read_bytes())
        return whole.hexdigest()[:16]


def _python_files(path: Path) -> list[Path]:
    found = [path] if path.is_file() else sorted(path.rglob("*.py"))
    if not found:
        raise SystemExit(f"{path} is no file or folder of code: mend `code` in all.yaml.")
    return found


def meaning(source: str) -> str:
    """The syntax of a file without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):  # a string by itself says something to readers alone
            node.body = [part for part in body if not _is_text(part)]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def read_figures(folder: Path = HERE) -> dict[str, Figure]:
    """The figures of all.yaml by name."""
    found = yaml.safe_load((folder / "all.yaml").read_text())
    return {
        name: Figure(name, **{**entry, "code": tuple(entry["code"])})
        for name, entry in found.items()
    }


def read_made(folder: Path = HERE) -> dict[str, dict]:
    """What is known of the last making of each figure: digest of its code, and minutes."""
    path = folder / "made.json"
    return json.loads(path.read_text()) if path.exists() else {}


def note(name: str, package: Path, folder: Path = HERE, minutes: float | None = None) -> None:
    """Note that a figure was made with the code as it is."""
    own = {"code": read_figures(folder)[name].digest(package), "minutes": minutes}
    text = json.dumps(read_made(folder) | {name: own}, indent=1, sort_keys=True)
    (folder / "made.json").write_text(text + "\n")


def states(package: Path, folder: Path = HERE) -> dict[str, str]:
    """fresh, stale, not known or not made, for each figure."""
    made = read_made(folder)

    def state(name: str, figure: Figure) -> str:
        if not (folder / f"{name}.json").exists():
            return NOT_MADE
        if name not in made:
            return NOT_KNOWN
        return "fresh" if made[name]["code"] == figure.digest(package) else "stale"

    return {name: state(name, figure) for name, figure in read_figures(folder).items()}


def make(figure: Figure, package: Path, folder: Path = HERE, root: Path = ROOT) -> None:
    """Make a figure by its command, take it, fill the tables, and note the code.

    Its folder is called by the code too: what was interrupted goes on, and no run of older code is
    taken for one of this.
    """
    digest, start = figure.digest(package), time.monotonic()
    out = f"results-out/{figure.name}-{digest}"
    command, report = (text.replace("OUT", out) for text in (figure.command, figure.report))
    print(f"{figure.name}: {command}", flush=True)
    subprocess.run(command, shell=True, check=True, cwd=root)
    take = [sys.executable, str(folder / "tables.py"), report, figure.name]
    subprocess.run(take, check=True, cwd=root)
    if figure.digest(package) != digest:
        raise SystemExit(f"The code of {figure.name} changed meanwhile: make it again.")
    note(figure.name, package, folder, round((time.monotonic() - start) / 60, 1))


def main(arguments: list[str] | None = None) -> None:
    """Carry out a command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="figures of all.yaml; by default those not fresh")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--make", action="store_true", help="make figures again")
    way.add_argument("--made", action="store_true", help="note that they were made as the code is")
    given = parser.parse_args(arguments)
    package, figures = ROOT / "src" / "protofission", read_figures()
    for name in given.names:
        if name not in figures:
            parser.error(f"{name} is no figure of all.yaml: name one of {', '.join(figures)}.")
    found = states(package)
    chosen = given.names or [name for name, state in found.items() if state != "fresh"]
    if given.made:
        for name in given.names:
            note(name, package)
        return
    made = read_made()
    for name in given.names or found:
        minutes = made.get(name, {}).get("minutes")
        print(f"{found[name]:9}  {name}" + (f", {minutes:g} minutes" if minutes else ""))
    if given.make:
        for name in chosen:
            make(figures[name], package)


if __name__ == "__main__":
    main()
