"""Which figures of the docs are stale, how they are made again, and how seeds are added."""

import json
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from protofission.experiments.report.statistics import Sample, paired_differences
from protofission.experiments.suites import SUITES

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
PACKAGE = ROOT / "src" / "protofission"


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(RESULTS))
    import results

    return results


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(RESULTS))
    import tables

    monkeypatch.setattr(tables, "HERE", tmp_path)
    return tables


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of one figure, whose command copies a report that stands on one file of code."""
    docs, package = tmp_path / "docs" / "results", tmp_path / "package"
    package.mkdir()
    (package / "one.py").write_text('"""A file."""\n\n\ndef one() -> int:\n    return 1\n')
    (package / "other.py").write_text("two = 2\n")
    docs.mkdir(parents=True)
    (docs / "all.yaml").write_text(
        "one:\n  command: mkdir -p OUT && cp made.json OUT/results.json\n"
        "  report: OUT\n  code: [one.py]\n"
    )
    shutil.copy(RESULTS / "tables.py", docs)
    (tmp_path / "made.json").write_text(json.dumps(report({"a": {0: 1.0}})))
    return tmp_path


def report(rows: dict[str, dict[int, float]], pair: tuple[str, str] | None = None) -> dict:
    """The results.json of a suite: one panel and quantity, and the difference of two rows."""

    def statistics(sample: Sample) -> dict:
        found = {"n": sample.n, "mean": sample.mean, "sd": sample.sd, "interval": sample.interval}
        return {key: None if np.isnan(value) else value for key, value in found.items()}

    place = {"panel": "p", "x": None, "quantity": "auc"}
    results = [
        {
            "row": row,
            **place,
            **statistics(Sample(tuple(values.values()))),
            "values": {str(seed): value for seed, value in values.items()},
            "runs": ["left out"],
        }
        for row, values in rows.items()
    ]
    differences = []
    if pair:
        sample = paired_differences(rows[pair[0]], rows[pair[1]])
        entry = {"row": pair[0], "against": pair[1], **place, **statistics(sample)}
        differences.append({**entry, "values": list(sample.values)})
    whole = dict.fromkeys(("suite", "title", "note", "command"), "some words")
    parts = {"marks": [], "curves": [], "results": results, "differences": differences}
    return {**whole, **parts}


def test_words_for_readers_make_no_figure_stale_and_a_token_does(
    results: ModuleType, project: Path
) -> None:
    folder, package = project / "docs" / "results", project / "package"
    code = package / "one.py"
    assert results.states(package, folder) == {"one": "not made"}
    (folder / "one.json").write_text("{}")
    assert results.states(package, folder) == {"one": "not known"}
    results.note("one", package, folder)
    assert results.states(package, folder) == {"one": "fresh"}
    code.write_text('"""Another word."""\n# a remark\ndef one() -> int:\n    return (1)\n')
    (package / "other.py").write_text("two = 3\n")  # not what the figure stands on
    assert results.states(package, folder) == {"one": "fresh"}
    code.write_text(code.read_text().replace("(1)", "(2)"))
    assert results.states(package, folder) == {"one": "stale"}


def test_a_file_that_the_command_names_is_part_of_what_the_figure_stands_on(
    results: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text("seeds: 3")
    figure = results.Figure("own", "protofission suite own.yaml", "suites/own", ("fission.py",))
    before = figure.digest(PACKAGE, tmp_path)
    assert before == figure.digest(PACKAGE, tmp_path)
    (tmp_path / "own.yaml").write_text("seeds: 4")
    assert figure.digest(PACKAGE, tmp_path) != before


def test_a_stale_figure_is_made_taken_and_noted(results: ModuleType, project: Path) -> None:
    folder, package = project / "docs" / "results", project / "package"
    (figure,) = results.read_figures(folder).values()
    results.make(figure, package, folder, project)
    assert json.loads((folder / "one.json").read_text())["results"][0]["values"] == {"0": 1.0}
    assert results.states(package, folder) == {"one": "fresh"}
    assert results.read_made(folder)["one"]["minutes"] < 10
    (made,) = (project / "results-out").iterdir()
    (package / "one.py").write_text("one = 1")
    results.make(figure, package, folder, project)
    assert len(list(made.parent.iterdir())) == 2  # no run of older code is taken for one of this


def test_a_command_that_fails_leaves_its_figure_stale(results: ModuleType, project: Path) -> None:
    folder, package = project / "docs" / "results", project / "package"
    (project / "made.json").unlink()
    (figure,) = results.read_figures(folder).values()
    with pytest.raises(results.subprocess.CalledProcessError):
        results.make(figure, package, folder, project)
    assert results.states(package, folder) == {"one": "not made"}
    assert results.read_made(folder) == {}


def test_code_that_changes_while_a_figure_is_made_is_refused(
    results: ModuleType, project: Path
) -> None:
    folder, package = project / "docs" / "results", project / "package"
    text = (folder / "all.yaml").read_text()
    (folder / "all.yaml").write_text(text.replace("&&", "&& echo x=1 >> package/one.py &&"))
    (figure,) = results.read_figures(folder).values()
    with pytest.raises(SystemExit, match="changed meanwhile"):
        results.make(figure, package, folder, project)
    assert results.read_made(folder) == {}


def test_every_figure_stands_on_code_that_is_there_and_every_suite_s_file_is_one(
    results: ModuleType,
) -> None:
    figures = results.read_figures()
    states = results.states(PACKAGE)
    files = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    suites = {name for name, content in files.items() if "suite" in content}
    assert suites == {name for name, state in states.items() if state != "not made"}
    for figure in figures.values():
        words = figure.command.split()
        assert "OUT" in words
        if words[1] == "suite":
            assert words[2] in SUITES or (ROOT / words[2]).is_file()


def test_added_seeds_give_the_numbers_of_all_seeds_together(
    tables: ModuleType, tmp_path: Path
) -> None:
    numbers = np.random.default_rng(0).normal(size=(2, 6)).round(3).tolist()
    rows = {row: dict(enumerate(own)) for row, own in zip("ab", numbers, strict=True)}
    rows["b"].pop(5)  # a seed that has no partner
    first = {row: {s: v for s, v in own.items() if s < 3} for row, own in rows.items()}
    later = {row: {s: v for s, v in own.items() if s >= 2} for row, own in rows.items()}
    found = []
    for part, way in ((rows, tables.take), (first, tables.take), (later, tables.add)):
        (tmp_path / "results.json").write_text(json.dumps(report(part, ("a", "b"))))
        way(tmp_path, "all")
        found.append(json.loads((tmp_path / "all.json").read_text()))
    together, half, added = found
    assert half["results"] != together["results"]
    for part in ("results", "differences"):
        for one, other in zip(added[part], together[part], strict=True):
            assert one["n"] == other["n"]
            for key in ("mean", "sd", "interval"):
                assert one[key] == pytest.approx(other[key], rel=1e-4), (part, key)
    assert [entry["n"] for entry in added["results"]] == [6, 5]
    assert added["differences"][0]["n"] == 5


def test_seeds_of_another_setting_are_not_added(tables: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps(report({"a": {0: 1.0}})))
    tables.take(tmp_path, "all")
    before = (tmp_path / "all.json").read_text()
    other = {**report({"a": {1: 2.0}}), "marks": ["A smaller version."]}
    (tmp_path / "results.json").write_text(json.dumps(other))
    with pytest.raises(SystemExit, match="was made otherwise"):
        tables.add(tmp_path, "all")
    assert (tmp_path / "all.json").read_text() == before


def test_a_table_of_all_rows_against_one_has_the_paired_differences(
    tables: ModuleType, tmp_path: Path
) -> None:
    rows = {"a": {0: 1.0, 1: 3.0}, "b": {0: 0.5, 1: 1.0, 2: 9.0}, "c": {5: 1.0}}
    (tmp_path / "all.json").write_text(json.dumps(report(rows)))
    sample = paired_differences(rows["a"], rows["b"])
    low, high = sample.ends
    found = tables.table("all against b", "p", ["auc"]).splitlines()
    assert found[2:] == [f"| a against b | 2 | {sample.mean:+.3f} [{low:+.3f}, {high:+.3f}] |"]
