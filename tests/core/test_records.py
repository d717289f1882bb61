"""Rows of a batch, and the references, which import nothing of the package."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from builders import normal, output_of, rng, step_of
from protofission.core.errors import InputError
from protofission.core.records import Layout
from protofission.methods import Orca, Supervised
from protofission.methods.base import label_rows


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 3), st.integers(0, 3))
def test_a_layout_lists_every_row_once_view_by_view_labeled_first(
    labeled, unlabeled, labeled_views, unlabeled_views
):
    layout = Layout(labeled, unlabeled, labeled_views, unlabeled_views)
    rows = list(range(layout.rows))
    found = []
    for view in range(max(labeled_views, unlabeled_views)):
        if view < labeled_views:
            assert len(rows[layout.labeled_rows(view)]) == labeled
            found += rows[layout.labeled_rows(view)]
        if view < unlabeled_views:
            assert len(rows[layout.unlabeled_rows(view)]) == unlabeled
            found += rows[layout.unlabeled_rows(view)]
    assert found == rows


def test_a_step_cuts_rows_by_view():
    step = step_of(Orca(), output_of(normal(10, 3)), [0, 1], 3)
    rows = torch.arange(10)
    assert step.labeled(rows).tolist() == [0, 1]
    assert step.unlabeled(rows).tolist() == [2, 3, 4]
    assert step.both(rows).tolist() == [0, 1, 2, 3, 4]
    assert step.labeled(rows, 1).tolist() == [5, 6]
    assert step.unlabeled(rows, 1).tolist() == [7, 8, 9]
    assert step.both(rows, 1).tolist() == [5, 6, 7, 8, 9]
    assert label_rows(step).tolist() == [0, 1, -1, -1, -1, 0, 1, -1, -1, -1]


def test_a_layout_without_images_is_refused():
    with pytest.raises(InputError, match=r"no labeled image.*recipe\.labeled_batch"):
        Layout(0, 3, 1, 1)
    with pytest.raises(InputError, match=r"no unlabeled image.*recipe\.unlabeled_batch"):
        Layout(3, 0, 1, 1)
    assert Layout(3, 0, 1, 0).rows == 3


def test_a_step_has_no_place_for_labels_of_the_pool():
    step = step_of(Supervised(), output_of(normal(2, 3)), [0, 1], 0, generator=rng(1))
    tensors = {name for name, value in vars(step).items() if isinstance(value, torch.Tensor)}
    assert tensors == {"labels"}
    assert len(step.labels) == step.layout.labeled


def imported_packages(path: Path) -> set[str]:
    """The packages that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


REFERENCE = Path(__file__).parents[1] / "reference"


@pytest.mark.parametrize("name", ["methods", "metrics", "prototypes", "risks", "scores"])
def test_scalar_twins_import_the_standard_library_alone(name):
    assert imported_packages(REFERENCE / f"{name}.py") <= {*sys.stdlib_module_names, "reference"}


def test_no_reference_imports_what_it_judges():
    for path in REFERENCE.glob("*.py"):
        assert "protofission" not in imported_packages(path), path.name


def test_a_view_that_is_not_there_is_refused():
    layout = Layout(2, 3, 1, 2)
    with pytest.raises(ValueError, match="no view 1 of the labeled"):
        layout.labeled_rows(1)
    with pytest.raises(ValueError, match="no view 2 of the unlabeled"):
        layout.unlabeled_rows(2)
