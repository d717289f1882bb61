"""Rows: every text and number comes back as it was, and no cell is a formula."""

import csv
import io
import json
import math
import os
import string
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS
from protofission.triage.calibrated_model import ACCEPT, NOVEL, REJECT, Verdicts
from protofission.triage.prediction_table import (
    PREDICTION_COLUMNS,
    Format,
    Names,
    Row,
    format_of,
    read_rows,
    rows_of,
    shortest_floats,
    text_of,
    write_rows,
)

BYTES = [chr(code) for code in range(0xDC80, 0xDD00)]
"""Bytes that are no UTF-8, as the file system gives them."""
WIDE = "\uff1d\uff0b\uff0d\uff20"
"""Signs of formulas that are as wide as Chinese letters."""
NASTY = [*"'\"=+-@\t\r\n ,;\\\0\x1b\x85\u202e\u2028\ufeff\u200bnrtux0", *WIDE, *BYTES[:3]]
TEXTS = st.one_of(
    st.text(st.sampled_from(NASTY), max_size=8),
    st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(BYTES))),
)
NUMBERS = st.one_of(st.none(), st.floats(width=32, allow_nan=False, allow_infinity=False))
FORMATS = get_args(Format)


def number(value: float | None) -> float | None:
    return None if value is None else shortest_floats([value])[0]


ROWS = st.builds(
    lambda texts, p, s, decision: Row(
        texts[0], texts[1], number(p), texts[2], number(s), decision, texts[3], texts[4]
    ),
    st.tuples(*[TEXTS] * 5),
    NUMBERS,
    NUMBERS,
    st.sampled_from(["accept", "reject", "novel", ""]),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.mark.parametrize("form", FORMATS)
@given(rows=st.lists(ROWS, max_size=4))
@example(rows=[])
@example(rows=[Row("a" * 100_000)])
def test_rows_come_back_as_they_were(form: Format, rows: list[Row], place: Path):
    path = place / f"rows.{form}"
    write_rows(path, rows, form)
    assert list(read_rows(path)) == rows
    assert [p.name for p in place.iterdir() if p.name.startswith(".")] == []


@given(rows=st.lists(ROWS, max_size=4))
def test_a_row_is_one_plain_line_of_text(rows: list[Row]):
    for form in ("csv", "jsonl"):
        text = text_of(rows, form).decode()
        assert len(text.splitlines()) == len(rows)
        assert not any(c in text for c in map(chr, [*range(10), *range(11, 32), 127, 0x202E]))


DANGEROUS = "=+-@\t\r\n" + WIDE


@given(text=TEXTS)
@example(text="=1+1")
@example(text=' "\t=cmd|x')
@example(text="'=1")
@example(text="\ufeff\uff20SUM(A1)")
def test_no_spreadsheet_sees_a_formula(text: str):
    line = text_of([Row(text, text, error=text)], "csv").decode()
    cells = next(csv.reader(io.StringIO(line), strict=True))
    assert len(cells) == len(PREDICTION_COLUMNS)
    for cell in cells:
        bare = cell.lstrip(string.whitespace + '"\ufeff\u200b\u00a0')
        assert not bare or bare[0] not in DANGEROUS


def test_a_plain_reader_sees_usual_names_unchanged():
    names = ["photos/a b/1.jpg", 'he said "no", twice.png', "猫/ねこ é ü.webp", "it's.png", "a\\b"]
    rows = [Row(name, "cat", 0.5, "cat 1", -2.25, "accept") for name in names]
    text = text_of(rows, "csv").decode()
    cells = list(csv.reader(io.StringIO(text)))
    assert [row[0] for row in cells] == [*names[:4], "a\\\\b"]
    assert {tuple(row[1:]) for row in cells} == {("cat", "0.5", "cat 1", "-2.25", "accept", "", "")}
    lines = [json.loads(line) for line in text_of(rows, "jsonl").splitlines()]
    assert [line["path"] for line in lines] == names
    assert lines[0] == dict(zip(PREDICTION_COLUMNS, rows[0], strict=False))


def test_escapes_are_what_the_documentation_says():
    name = os.fsdecode(b"a\xff\n\x1b\t") + "\\"
    assert text_of([Row(name)], "csv") == rb"a\xff\n\u001b\t\\,,,,,,," + b"\n"
    assert text_of([Row("=a")], "csv") == b"'=a,,,,,,,\n"
    assert text_of([Row("'a")], "csv") == b"''a,,,,,,,\n"


def digits_of(text: str) -> int:
    return len(text.partition("e")[0].replace("-", "").replace(".", "").strip("0"))


@given(bits=st.integers(0, 2**32 - 1))
def test_a_number_is_the_shortest_that_reads_back_to_the_same_float32(bits: int):
    value = np.array(bits, np.uint32).view(np.float32)
    if not math.isfinite(value):
        return
    (found,) = shortest_floats([value])
    assert np.float32(found).view(np.uint32) == bits
    assert float(repr(found)) == found
    wanted = next(f"{value:.{n}e}" for n in range(9) if np.float32(f"{value:.{n}e}") == value)
    assert digits_of(repr(found)) <= digits_of(wanted)


def verdicts() -> Verdicts:
    return Verdicts(
        probs=torch.tensor([[0.1, 0.9], [0.7, 0.3], [0.5, 0.5], [0.2, 0.8]]),
        classes=torch.tensor([1, 0, 0, 1]),
        subclasses=torch.tensor([1, 0, 1, 0]),
        id_scores=torch.tensor([2.0, -0.1, -3.0, math.nan]),
        decisions=torch.tensor([ACCEPT, REJECT, NOVEL, REJECT]),
        clusters=torch.tensor([NO_CLASS, NO_CLASS, 1, NO_CLASS]),
    )


def test_rows_name_what_the_model_numbers():
    names = Names(("cat", "dog"), (("c1", "c2"), ("d1", "d2")), ("novel 1", "novel 2"))
    assert rows_of(["a", "b", "c", "d"], verdicts(), names) == [
        Row("a", "dog", 0.9, "d2", 2.0, "accept"),
        Row("b", "cat", 0.7, "c1", -0.1, "reject"),
        Row("c", "cat", 0.5, "c2", -3.0, "novel", "novel 2"),
        Row("d", error="features that are no numbers"),
    ]


def test_the_format_is_what_is_asked_for_or_what_the_name_tells():
    assert format_of(Path("a.JSONL"), None) == "jsonl"
    assert format_of(Path("a.parquet"), "csv") == "csv"
    assert format_of(Path("a.txt"), None) == format_of(None, None) == "csv"
    with pytest.raises(InputError, match=r"Unknown format 'cvs'\. Did you mean 'csv'\?"):
        format_of(None, "cvs")
    with pytest.raises(InputError, match="wants a file"):
        format_of(None, "parquet")


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_that_is_none_of_ours_is_refused_in_one_sentence(form: Format, tmp_path: Path):
    path = tmp_path / f"rows.{form}"
    for content in (b"path,label\na,b\n", b"[1, 2]\n", b"\xff\xfe\n", b"{}\n"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="does not hold the rows of a prediction"):
            list(read_rows(path))
    path.unlink()
    with pytest.raises(InputError, match="cannot be read: No such file"):
        list(read_rows(path))


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written: "):
        write_rows(tmp_path / "file" / "rows.csv", [], "csv")
