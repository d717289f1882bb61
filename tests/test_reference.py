"""The public names: typed, documented, on a page of the reference, with examples that run."""

import ast
import doctest
import inspect
import re
import runpy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import protofission

ROOT = Path(__file__).parent.parent
NAMES = sorted(set(protofission.__all__) - {"__version__"})
ON_DISK = {"fit", "load", "predict", "Bundle"}
"""Names whose examples want folders of images."""


def documentation(name: str) -> str:
    """The docstring of a public name; of a constant, the text below it."""
    home = import_module(f"protofission.{protofission._HOMES[name]}")
    body = ast.parse(Path(str(home.__file__)).read_text(encoding="utf-8")).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return ast.get_docstring(node) or documentation_of_value(name)
        targets = {
            ast.AnnAssign: lambda n: [n.target],
            ast.Assign: lambda n: n.targets,
        }.get(type(node), lambda n: [])(node)
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                return inspect.cleandoc(str(after.value.value))
            return ""
    return documentation_of_value(name)


def documentation_of_value(name: str) -> str:
    """The docstring of an overloaded function, whose first definitions have none."""
    return inspect.getdoc(getattr(protofission, name)) or ""


def run_examples(name: str, **given: Any) -> None:
    examples = doctest.DocTestParser().get_doctest(documentation(name), given, name, None, 0)
    assert examples.examples, f"{name} has no example"
    said: list[str] = []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        result = doctest.DocTestRunner(verbose=False).run(examples, out=said.append)
    assert result.failed == 0, "".join(said)


@pytest.mark.parametrize("name", sorted(set(NAMES) - ON_DISK))
def test_the_example_of_a_public_name_runs(name: str) -> None:
    run_examples(name)


@pytest.mark.slow
def test_the_examples_of_fit_load_predict_and_bundle_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folders = runpy.run_path(str(ROOT / "examples" / "fit_digits.py"))["write_folders"]
    write_folders(tmp_path, known=2, labels=25, pool=150)
    monkeypatch.chdir(tmp_path)
    images = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    for name in ("fit", "load", "Bundle", "predict"):
        run_examples(name, images=images)


def test_every_public_name_is_on_the_reference_page_once_and_no_other() -> None:
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    listed = re.findall(r"^::: protofission\.(\w+)$", page, re.MULTILINE)
    assert sorted(listed) == NAMES
    assert "`protofission.__version__`" in page
    assert f'`"{protofission.__version__}"`' in page


def test_all_is_what_can_be_imported_and_what_a_type_checker_sees() -> None:
    assert sorted(protofission._HOMES) == NAMES
    source = ast.parse(Path(str(protofission.__file__)).read_text(encoding="utf-8"))
    (typed,) = [node for node in source.body if isinstance(node, ast.If)]
    imported = {
        alias.name: node.module
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {n: f"protofission.{home}" for n, home in protofission._HOMES.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_public_function_has_a_type_and_a_word_for_every_argument(name: str) -> None:
    value = getattr(protofission, name)
    if not inspect.isroutine(value):
        return
    signature = inspect.signature(value)
    assert signature.return_annotation is not inspect.Signature.empty
    for argument in signature.parameters.values():
        assert argument.annotation is not inspect.Parameter.empty, argument.name
