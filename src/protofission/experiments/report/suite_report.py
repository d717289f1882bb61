"""The report of a suite: a page, Markdown, tables, figures and plain numbers of its runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from protofission import __version__
from protofission.experiments.report.formats import (
    csv_text,
    latex_tables,
    markdown_code,
    markdown_table,
    markdown_text,
)
from protofission.experiments.report.quantities import GLOSSARY
from protofission.experiments.report.statistics import Sample
from protofission.experiments.report.suite_figures import Drawing, drawings
from protofission.experiments.report.suite_grid import Grid, GridEntry, grid_of
from protofission.experiments.report.suite_tables import (
    Table,
    anchors,
    curve_tables,
    difference_table,
    result_tables,
    x_text,
)
from protofission.experiments.suite import Run, Suite
from protofission.pages.drawing import write_drawing
from protofission.pages.template import render
from protofission.system.json_files import to_json
from protofission.system.whole_files import write_text
from protofission.training.run_folder import RunFolder

Plain = dict[str, Any]


@dataclass(frozen=True)
class ListedRun:
    """A run as the report lists it."""

    run: Run
    state: str
    """finished, begun or not run."""
    path: str
    """Path from the report to its folder."""

    @property
    def url(self) -> str:
        """The same as a link."""
        return quote(os.fsencode(self.path))


@dataclass(frozen=True)
class ReportContent:
    """Content of a report, independent of its formats."""

    grid: Grid
    command: str
    marks: Sequence[str]
    tables: dict[str, list[Table]]
    """Tables by the names of their files."""
    drawings: list[Drawing]
    runs: dict[str, list[ListedRun]]
    """Runs by anchor."""

    @property
    def progress_sentence(self) -> str:
        """The number of finished runs as a sentence."""
        states = [listed.state for some in self.runs.values() for listed in some]
        return f"{states.count('finished')} of {len(states)} runs are finished."

    @property
    def glossary(self) -> dict[str, str]:
        """The explanations of the words in the tables' heads."""
        columns = self.grid.columns.values()
        words = {word for column in columns for word in (column.title, column.protocol)}
        return {word: line for word, line in GLOSSARY.items() if word in words}


def write_report(
    folder: Path,
    suite: Suite,
    runs: Sequence[Run],
    command: str,
    marks: Sequence[str] = (),
    pictures: Sequence[Markup] = (),
) -> list[Path]:
    """Write the report of a suite into a folder; return its files, the page last.

    Args:
        runs: all that were asked for, finished or not.
        command: the command that made them, as typed.
        marks: warnings above all tables, such as a budget that is not the paper's.
        pictures: elements for the page, a <figure> each.
    """
    content = _content(folder, suite, runs, command, marks)
    texts = {f"tables/{name}": text for name, text in _table_files(content).items()} | {
        "results.json": to_json(_plain(content)) + "\n",
        "report.md": _markdown(content, bool(pictures)),
        "report.html": _page(content, pictures),
    }
    for kind in ("figures", "tables"):  # of a report that had other ones
        for old in (folder / kind).glob("*.*"):
            if old.suffix in (".csv", ".tex", ".png", ".svg"):
                old.unlink()
    paths = [
        path
        for drawing in content.drawings
        for path in write_drawing(folder / "figures" / drawing.name, drawing.draw, drawing.inches)
    ]
    for name, text in texts.items():
        paths.append(folder / name)
        write_text(paths[-1], text)
    return paths


def _content(
    folder: Path, suite: Suite, runs: Sequence[Run], command: str, marks: Sequence[str]
) -> ReportContent:
    grid = grid_of(suite, runs)
    tables = {"results": result_tables(grid)}
    if suite.axis:
        tables["curves"] = curve_tables(grid)
    if suite.pairs:
        tables["differences"] = [difference_table(grid)]
    anchor = anchors(grid)
    listed = {
        anchor[place]: [_listed_run(run, run in entry.finished, folder) for run in entry.runs]
        for place, entry in grid.entries.items()
    }
    return ReportContent(grid, command, marks, tables, drawings(grid, marks), listed)


def _listed_run(run: Run, finished: bool, folder: Path) -> ListedRun:
    path = Path(os.path.relpath(run.folder.path.resolve(), folder.resolve())).as_posix()
    return ListedRun(run, "finished" if finished else _unfinished_state(run.folder), path)


def _unfinished_state(folder: RunFolder) -> str:
    if folder.finished:
        return "damaged"
    return "begun" if folder.has("experiment.json") else "not run"


def _page(content: ReportContent, pictures: Sequence[Markup]) -> str:
    return render(
        "suite.html.jinja",
        content=content,
        suite=content.grid.suite,
        pictures=pictures,
        version=__version__,
        x_text=x_text,
    )


def _markdown(content: ReportContent, pictured: bool) -> str:
    suite = content.grid.suite
    parts = [f"# {markdown_text(suite.title)}\n"]
    parts += [f"> **{markdown_text(mark)}**\n" for mark in content.marks]
    parts += [f"{markdown_text(suite.note)}\n"] if suite.note else []
    parts += [f"{content.progress_sentence} Made by {markdown_code(content.command)}.\n"]
    parts += [markdown_table(table) for some in content.tables.values() for table in some]
    parts += [_markdown_figure(drawing) for drawing in content.drawings]
    parts += ["Pictures are in [report.html](report.html#pictures).\n"] if pictured else []
    return "\n".join([*parts, _markdown_runs(content)])


def _markdown_figure(drawing: Drawing) -> str:
    title, file = markdown_text(drawing.title), f"figures/{drawing.name}"
    image = f"![{markdown_text(drawing.label)}]({file}.png)"
    return f"### {title}\n\n{image}\n\n{drawing.caption} [PNG]({file}.png), [SVG]({file}.svg)\n"


def _markdown_runs(content: ReportContent) -> str:
    lines = ["## Runs\n", "| row | on | x | seed | state | folder | command |", "|---" * 7 + "|"]
    for anchor, some in content.runs.items():
        for place, listed in enumerate(some):
            run, name = listed.run, markdown_text(listed.run.folder.path.name)
            mark = "" if place else f'<a id="{anchor}"></a>'
            cells = [
                mark + markdown_text(run.case.row),
                markdown_text(run.case.panel),
                x_text(run.case.x),
                str(run.seed),
                listed.state,
                name if listed.state == "not run" else f"[{name}]({listed.url})",
                markdown_code(run.command),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _table_files(content: ReportContent) -> dict[str, str]:
    """The tables by file name; a CSV file has the marks on each of its lines."""
    plain, marks = _plain(content), " ".join(content.marks)
    files = {f"{name}.tex": latex_tables(some, content.marks)
             for name, some in content.tables.items()}  # fmt: skip
    for name in (*content.tables, "runs"):
        lines = plain[name]
        header = [key for key in (lines[0] if lines else {}) if key != "values"]
        values = [[_csv_value(line[key]) for key in header] + [marks] for line in lines]
        files[f"{name}.csv"] = csv_text([*header, "marks"], values)
    return files


def _csv_value(value: Any) -> Any:
    return " ".join(value) if isinstance(value, list) else value


def _plain(content: ReportContent) -> Plain:
    """All numbers of the report."""
    suite, grid = content.grid.suite, content.grid
    return {
        "suite": suite.name,
        "title": suite.title,
        "marks": list(content.marks),
        "note": suite.note,
        "command": content.command,
        "axis": suite.axis,
        "version": __version__,
        "results": list(_results(grid)),
        "differences": list(_differences(grid)),
        "curves": list(_curves(grid)) if suite.axis else [],
        "runs": [
            {
                "row": listed.run.case.row,
                "panel": listed.run.case.panel,
                "x": listed.run.case.x,
                "seed": listed.run.seed,
                "state": listed.state,
                "folder": listed.path,
                "command": listed.run.command,
            }
            for some in content.runs.values()
            for listed in some
        ],
    }


def _results(grid: Grid) -> Iterator[Plain]:
    entries = dict(grid.entries)
    for row, panel in () if grid.suite.axis else grid.suite.published:
        entries.setdefault((row, panel, None), GridEntry())
    for (row, panel, x), entry in entries.items():
        for key in grid.columns:
            yield {
                "row": row,
                "panel": panel,
                "x": x,
                "quantity": key,
                **_statistics(entry.sample(key)),
                "paper": grid.paper(row, panel, key),
                "state": entry.state,
                "values": {str(seed): value for seed, value in entry.by_seed(key).items()},
                "runs": [run.folder.path.name for run in entry.finished],
            }


def _differences(grid: Grid) -> Iterator[Plain]:
    for row, base, panel in grid.comparisons:
        for x in grid.along(panel):
            for key in grid.columns:
                sample = grid.difference(row, base, panel, x, key)
                yield {
                    "row": row,
                    "against": base,
                    "panel": panel,
                    "x": x,
                    "quantity": key,
                    **_statistics(sample),
                    "told": sample.against_zero if sample.n else "not run",
                    "values": list(sample.values),
                }


def _curves(grid: Grid) -> Iterator[Plain]:
    for panel in grid.panels:
        for row in grid.rows:
            for name, sample in grid.curve(row, panel).items():
                yield {
                    "row": row,
                    "panel": panel,
                    "quantity": grid.suite.quantities[0],
                    "summary": name,
                    **_statistics(sample),
                    "values": list(sample.values),
                }


def _statistics(sample: Sample) -> Plain:
    return {"n": sample.n, "mean": sample.mean, "sd": sample.sd, "interval": sample.interval}
