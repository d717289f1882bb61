"""Labels in doubt, their table, and the column of near-duplicates."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS
from protofission.triage.label_verdicts import NO_FOLD, judge_labels
from protofission.triage.prediction_table import Row, read_rows, row_of, text_of, write_rows
from protofission.triage.triage_tables import (
    LABEL_COLUMNS,
    write_label_table,
    write_triage_tables,
)
from small_triages import small_triage


def test_doubts_are_those_of_a_slow_twin() -> None:
    rng = np.random.default_rng(0)
    labels, probs = rng.integers(0, 4, 300), rng.dirichlet([0.4] * 4, 300)
    folds = rng.integers(NO_FOLD, 3, 300)
    found = judge_labels(labels, np.where(folds[:, None] == NO_FOLD, np.nan, probs), folds)
    confusion = np.zeros((4, 4), int)
    for i in range(300):
        if folds[i] == NO_FOLD:
            assert found.likeliest[i] == NO_CLASS
            assert not found.doubtful[i]
            continue
        best = max(range(4), key=lambda c, i=i: probs[i, c])
        own = [probs[j, best] for j in range(300) if folds[j] != NO_FOLD and labels[j] == best]
        doubtful = best != labels[i] and probs[i, best] >= sum(own) / len(own)
        assert found.doubtful[i] == doubtful
        assert found.likeliest[i] == best
        assert found.doubts[i] == (probs[i, best] - probs[i, labels[i]] if doubtful else 0)
        confusion[labels[i], best] += 1
    assert 20 < found.doubtful.sum() < 200
    assert (found.confusion(4) == confusion).all()


def test_a_class_without_judged_labels_puts_none_in_doubt() -> None:
    found = judge_labels(np.array([0, 1]), np.array([[0.1, 0.9], [0, 1]]), np.array([0, NO_FOLD]))
    assert found.likeliest.tolist() == [1, NO_CLASS]
    assert not found.doubtful.any()


def test_labels_in_doubt_are_at_the_top_of_their_table(tmp_path: Path) -> None:
    data = small_triage(tmp_path / "none")
    write_label_table(tmp_path / "labels.csv", data)
    with (tmp_path / "labels.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == LABEL_COLUMNS
    assert rows[0] == ["b/3.png", "b", data.class_names[0], "0.05", "0.9", "1", "1"]
    assert [row[0] for row in rows[1:]] == [f"{'ab'[i % 2]}/{i}.png" for i in (0, 1, 2, 4, 5)]
    assert [row[4:] for row in rows[1:]] == [
        ["", "0", "1"], ["", "1", "2"], ["", "0", ""], ["", "0", ""], ["", "1", ""],
    ]  # fmt: skip


def test_near_duplicates_share_a_number_in_both_forms(tmp_path: Path) -> None:
    data = small_triage(tmp_path / "none")
    rows = [Row(path, "b", 0.5, "b / 1", 0.25, "accept") for path in data.paths[6:]]
    write_triage_tables(tmp_path, data, rows, [Row("cut.png", error="no image")])
    for form in ("csv", "parquet"):
        found = list(read_rows(tmp_path / f"triage.{form}"))
        assert [row._replace(duplicate_group=None) for row in found[:-1]] == rows
        assert {row.path: row.duplicate_group for row in found if row.duplicate_group} == {
            data.paths[7]: 2,
            data.paths[8]: 1,
        }
        assert found[-1] == Row("cut.png", error="no image")


def test_files_of_predictions_have_the_columns_of_before(tmp_path: Path) -> None:
    row = Row("a.png", "b", 0.5, "b / 1", 0.25, "accept", "", "", 7)
    old = "path,class,probability,subclass,id_score,decision,cluster,error\na.png,b,0.5,b / 1,0.25,"
    write_rows(tmp_path / "rows.csv", [row], "csv")
    assert (tmp_path / "rows.csv").read_text() == f"{old}accept,,\n"
    assert b"duplicate" not in text_of([row], "jsonl")
    assert list(read_rows(tmp_path / "rows.csv")) == [row._replace(duplicate_group=None)]


def test_a_journal_of_before_is_read() -> None:
    values = ["a.png", "b", 0.5, "b / 1", 0.25, "accept", "", ""]
    assert row_of(values) == Row(*values)
    assert row_of([*values, 7]) == Row(*values, 7)
    for wrong in (values[:-1], [*values, "7"], [*values, 7, 7]):
        with pytest.raises(InputError):
            row_of(wrong)
