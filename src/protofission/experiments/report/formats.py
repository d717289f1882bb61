"""Tables as Markdown and LaTeX, and lines of CSV; names of any kind stay names in all of them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from io import StringIO
from math import isnan

from protofission.experiments.report.suite_tables import Cell, Table

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "–": "--",  # noqa: RUF001
    "\n": " ",
    "[": "{[}",  # else the option of a line's end
    "*": "{*}",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


def csv_text(header: Sequence[str], lines: Iterable[Sequence[str | float | None]]) -> str:
    """A CSV file: numbers as numbers, a number that is not there empty, texts never formulas."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_csv_value(value) for value in line] for line in lines)
    return text.getvalue()


def _csv_value(value: str | float | None) -> str | float:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    return "" if value is None or isnan(value) else value


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, also in a table."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_{}\[\]>#|~$])", r"\\\1", text)


def markdown_code(text: str) -> str:
    """Text as code, also in a table."""
    text = " ".join(text.split()).replace("|", r"\|")
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{ticks} {text} {ticks}" if len(ticks) > 1 else f"`{text}`"


def markdown_table(table: Table) -> str:
    """A table with its title and caption; numbers lead to their runs."""
    titles = [" ".join(filter(None, head)) for head in table.heads]
    if table.shows_groups:
        above = [title for title, span in table.groups for _ in range(span)]
        titles = [f"{group}: {title}" for group, title in zip(above, titles, strict=True)]
    header = [markdown_text(text) for text in (*table.corner, *titles)]
    rule = ["---"] * len(table.corner) + ["---:"] * len(titles)
    body = [
        [*map(markdown_text, line.labels), *map(_markdown_cell, line.cells)] for line in table.lines
    ]
    lines = "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *body))
    return f"### {markdown_text(table.title)}\n\n{lines}\n\n{markdown_text(table.caption)}\n"


def _markdown_cell(cell: Cell) -> str:
    text = f"[{cell.text}](#{cell.anchor})" if cell.anchor else cell.text
    return "<br>".join([text, *map(markdown_text, cell.notes)])


def latex_text(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(LATEX.get(sign, sign) for sign in text)


def latex_tables(tables: Sequence[Table], marks: Sequence[str]) -> str:
    r"""Tables for \usepackage{booktabs}, each with the marks above its head."""
    start = "% \\usepackage[T1]{fontenc}\n% \\usepackage{booktabs}\n"
    return start + "".join(f"\n{_latex_table(table, marks)}" for table in tables)


def _latex_table(table: Table, marks: Sequence[str]) -> str:
    labels, width = len(table.corner), len(table.corner) + len(table.heads)
    lines = [rf"\begin{{tabular}}{{{'l' * labels}{'r' * len(table.heads)}}}"]
    lines += [
        rf"\multicolumn{{{width}}}{{l}}{{\textbf{{{latex_text(mark)}}}}} \\" for mark in marks
    ]
    lines += [r"\toprule", *_latex_groups(table)]
    heads = [latex_text(" ".join(filter(None, head))) for head in table.heads]
    lines += [" & ".join([*map(latex_text, table.corner), *heads]) + r" \\", r"\midrule"]
    for line in table.lines:
        cells = [*map(latex_text, line.labels), *map(_latex_cell, line.cells)]
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    comments = ["% " + " ".join(text.split()) for text in (table.title, table.caption)]
    return "\n".join([*comments, *lines]) + "\n"


def _latex_groups(table: Table) -> list[str]:
    if not table.groups:
        return []
    spans = [rf"\multicolumn{{{span}}}{{c}}{{{latex_text(t)}}}" for t, span in table.groups]
    return [" & ".join([*[""] * len(table.corner), *spans]) + r" \\"]


def _latex_cell(cell: Cell) -> str:
    """Write a number with its notes under it; its minus is a minus, not a hyphen."""
    text, *notes = (
        re.sub(r"-(?=\d)", "$-$", latex_text(part)) for part in (cell.text, *cell.notes)
    )
    small = "".join(rf"\\ \scriptsize {{{note}}}" for note in notes)
    return rf"\shortstack[r]{{{text}{small}}}" if notes else text
