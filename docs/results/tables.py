"""Fill the tables of docs/results.md and docs/report.md from the JSON files beside this one.

    python docs/results/tables.py                     refill the pages
    python docs/results/tables.py SUITE_FOLDER NAME   take a finished suite as NAME.json
    python docs/results/tables.py SUITE_FOLDER NAME --add   add its seeds to those of NAME.json

A table is asked for by a comment, `<!-- NAME | PANEL | QUANTITIES -->`, and stands below it up to
`<!-- end -->`. After NAME, `differences` or `curves` asks for these, `against ROW` for the
differences of all other rows from that one, and `tables` for a table of texts as it is in the file,
PANEL its title.
"""

import json
import re
import statistics
import sys
from pathlib import Path

from scipy.special import stdtrit

HERE = Path(__file__).parent
PAGES = (HERE.parent / "results.md", HERE.parent / "report.md")
TITLES = {
    "seen": "seen",
    "novel_orca": "novel (orca)",
    "novel_strict": "novel (strict)",
    "all_orca": "all (orca)",
    "all_strict": "all (strict)",
    "auc": "AUC",
    "effective": "effective V",
    "sub_nmi": "NMI",
    "cluster_nmi": "NMI of k-means",
    "nmi_gain": "gain in NMI",
    "sub_accuracy": "accuracy",
    "cluster_accuracy": "accuracy of k-means",
    "fpr95": "FPR95",
}
AXES = {"merged": "{} merged"}
"""Heads of columns along an axis; by default that is the share of strangers, r."""
FRACTIONS = ("auc", "effective", "sub_nmi", "cluster_nmi", "nmi_gain")


def take(folder: Path, name: str) -> None:
    """Keep what a table needs of a suite's results."""
    found = json.loads((folder / "results.json").read_text())
    kept = {key: found[key] for key in ("suite", "title", "marks", "note", "command", "curves")}
    for part in ("results", "differences"):
        kept[part] = [
            {k: _rounded(v) for k, v in entry.items() if k != "runs"}
            for entry in found[part]
            if entry["n"]
        ]
    (HERE / f"{name}.json").write_text(_text(kept))


def add(folder: Path, name: str) -> None:
    """Take a suite's results, and the seeds that the file has and the suite has not run again.

    A difference is computed anew from the values of the seeds that both rows have.
    """
    path = HERE / f"{name}.json"
    old = json.loads(path.read_text())
    take(folder, name)
    new = json.loads(path.read_text())
    if old["marks"] != new["marks"]:
        path.write_text(_text(old))
        raise SystemExit(f"{name}.json was made otherwise ({old['marks']}): take it without --add.")
    joined = {_place(entry): entry for entry in old["results"]}
    for entry in new["results"]:
        values = joined.get(_place(entry), entry)["values"] | entry["values"]
        joined[_place(entry)] = {**entry, "values": values, **_statistics([*values.values()])}
    differences = {}
    for entry in old["differences"] + new["differences"]:
        first, second = (
            joined.get((entry[row], entry["panel"], entry["x"], entry["quantity"]), {"values": {}})
            for row in ("row", "against")
        )
        gaps = _gaps(first["values"], second["values"])
        place = (*_place(entry), entry["against"])
        differences[place] = _rounded({**entry, "values": gaps, **_statistics(gaps)})
    new["results"] = [_rounded(entry) for entry in joined.values()]
    new["differences"] = list(differences.values())
    path.write_text(_text(new))


def _gaps(first: dict[str, float], second: dict[str, float]) -> list[float]:
    """Differences over the seeds that both have."""
    return [value - second[seed] for seed, value in first.items() if seed in second]


def _place(entry: dict) -> tuple:
    return entry["row"], entry["panel"], entry["x"], entry["quantity"]


def _statistics(values: list[float]) -> dict:
    """n, mean, standard deviation, and half of the width of Student's 95 % interval."""
    n, sd = len(values), statistics.stdev(values) if len(values) > 1 else None
    interval = None if sd is None else float(stdtrit(n - 1, 0.975)) * sd / n**0.5
    return {"n": n, "mean": statistics.fmean(values), "sd": sd, "interval": interval}


def _text(content: dict) -> str:
    text = json.dumps(content, indent=None, separators=(",", ":")).replace("},{", "},\n{")
    return text + "\n"


def _rounded(value: object) -> object:
    match value:
        case float():
            return float(f"{value:.6g}")
        case dict():
            return {k: _rounded(v) for k, v in value.items()}
        case list():
            return [_rounded(v) for v in value]
    return value


def number(quantity: str, entry: dict, signed: bool = False) -> str:
    """Mean and spread of a cell, or mean and interval of a difference."""
    digits = (2 if quantity == "effective" else 3) if quantity in FRACTIONS else 1
    mean = f"{entry['mean']:{'+' if signed else ''}.{digits}f}"
    if signed and entry["interval"] is None:
        return mean
    if signed:
        low, high = entry["mean"] - entry["interval"], entry["mean"] + entry["interval"]
        shown = f"{mean} [{low:+.{digits}f}, {high:+.{digits}f}]"
        return f"**{shown}**" if low > 0 or high < 0 else shown
    return mean if entry["sd"] is None else f"{mean} ± {entry['sd']:.{digits}f}"


def table(name: str, panel: str, quantities: list[str]) -> str:
    """One Markdown table."""
    name, _, part = name.partition(" ")
    content = json.loads((HERE / f"{name}.json").read_text())
    if part == "tables":
        return texts(content[part].get(panel, {"heads": ["none"], "rows": []}))
    signed = part == "differences" or part.startswith("against ")
    if part.startswith("against "):
        content[part] = against(content["results"], part.removeprefix("against "))
    entries = [e for e in content[part or "results"] if e["panel"] == panel]
    if part == "curves":  # columns are what a curve sums up to, all of one quantity
        return sums(entries)
    several = len({e["x"] for e in entries}) > 1
    rows: dict[tuple, dict[str, dict]] = {}
    for entry in entries:
        title = f"{entry['row']} against {entry['against']}" if signed else entry["row"]
        if several:
            if entry["quantity"] == quantities[0]:
                rows.setdefault((title,), {})[f"{entry['x']:g}"] = entry
        else:
            rows.setdefault((title,), {})[entry["quantity"]] = entry
    found = {column for row in rows.values() for column in row}
    columns = sorted(found, key=float) if several else quantities
    axis = AXES.get(name, "r = {}")
    heads = [axis.format(c) for c in columns] if several else [TITLES[c] for c in columns]
    lines = [f"|  | n | {' | '.join(heads)} |", f"|---|---|{'---|' * len(heads)}"]
    for (title,), cells in rows.items():
        shown = [
            number(quantities[0] if several else column, cells[column], signed)
            if column in cells
            else ""
            for column in columns
        ]
        count = next(iter(cells.values()))["n"]
        lines.append(f"| {title} | {count} | {' | '.join(shown)} |")
    return "\n".join(lines)


def against(results: list[dict], base: str) -> list[dict]:
    """The differences of all rows from one, over the seeds that both have."""
    own = {_place(entry): entry["values"] for entry in results}
    found = []
    for entry in results:
        other = own.get((base, *_place(entry)[1:]), {})
        gaps = _gaps(entry["values"], other)
        if gaps and entry["row"] != base:
            found.append({**entry, "against": base, **_statistics(gaps)})
    return found


def sums(entries: list[dict]) -> str:
    """A table of curves: a row each, a column for each number that sums one up."""
    names = list(dict.fromkeys(entry["summary"] for entry in entries))
    rows: dict[str, list[dict]] = {}
    for entry in entries:
        rows.setdefault(entry["row"], []).append(entry)
    lines = [f"|  | n | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    lines += [
        f"| {row} | {cells[0]['n']} | {' | '.join(number(c['quantity'], c) for c in cells)} |"
        for row, cells in rows.items()
    ]
    return "\n".join(lines)


def texts(found: dict) -> str:
    """A table of texts: its heads and its rows."""
    heads, rows = found["heads"], found["rows"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def filled(text: str) -> str:
    """The page with its tables as the JSON files have them."""

    def fill(match: re.Match[str]) -> str:
        name, panel, quantities = (part.strip() for part in match[1].split("|"))
        return f"<!-- {match[1]} -->\n{table(name, panel, quantities.split())}\n<!-- end -->"

    return re.sub(r"<!-- ([^\n]*\|[^\n]*) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [folder, name]:
            take(Path(folder), name)
        case [folder, name, "--add"]:
            add(Path(folder), name)
    for page in PAGES:
        if page.exists():
            page.write_text(filled(page.read_text()))
