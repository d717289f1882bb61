"""Imports point one way, and `import protofission` pays for nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

LAYERS = [
    ["__init__", "errors", "plain_files"],
    ["clusters", "extras", "memory", "options", "paths", "records", "rng", "threads", "whole"],
    ["calibration", "counting", "exact", "typed_json", "workers"],
    ["products", "risks", "scores", "metrics"],
    ["fission", "processes", "sealed_tensors"],
    ["models"],
    ["methods", "novel", "recognizer"],
    ["data"],
    ["experiment"],
    ["passes", "presets", "optimizers", "schedules"],
    ["state"],
    ["train"],
    ["embed", "evaluate", "learning"],
    ["fitted", "history", "rows", "trunks"],
    ["bundle_format", "estimator", "folder", "journal", "material"],
    ["bundle", "run"],
    ["export", "predictor", "suite"],
    ["predicting"],
    ["cards", "diagnosis", "drift", "report"],
    ["session"],
    ["demo", "fitting", "suites"],
    ["cli"],
    ["__main__"],
]
"""From the bottom up: a file imports from its own layer's folder, or from layers below."""


def layer(part: str) -> int:
    return next(height for height, names in enumerate(LAYERS) if part in names)


def imported(path: Path) -> set[str]:
    """The parts of the package that a file imports, at its top or inside its functions."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "protofission" else ["protofission.__init__"]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        parts |= {name.split(".")[1] for name in names if name.startswith("protofission.")}
    return parts


def test_imports_point_one_way(project: Path) -> None:
    package = project / "src" / "protofission"
    for path in package.rglob("*.py"):
        part = path.relative_to(package).parts[0].removesuffix(".py")
        if part == "__init__":
            continue  # it names what it offers, and imports it on first use
        for other in imported(path) - {part}:
            assert layer(other) < layer(part), f"{path.name} imports {other}"


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import protofission, protofission.cli, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_reference_twins_import_nothing_of_ours(project: Path) -> None:
    files = list((project / "tests" / "reference").glob("*.py"))
    assert files
    for path in files:
        text = path.read_text()
        for name in ("protofission", "torch", "numpy", "scipy", "sklearn"):
            assert f"import {name}" not in text
            assert f"from {name}" not in text


def test_every_name_that_the_package_offers_is_there() -> None:
    import protofission

    for name in protofission.__all__:
        assert getattr(protofission, name) is not None
