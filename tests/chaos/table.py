"""The table at the end, for a terminal and as Markdown."""

from collections.abc import Sequence

from chaos.verdicts import Outcome, Result

COLUMNS = ("tried", "survived", "same", "refused", "traceback", "hang", "differ", "left", "rough")
_OF = {
    "same": Outcome.SAME,
    "refused": Outcome.REFUSED,
    "traceback": Outcome.TRACEBACK,
    "hang": Outcome.HANG,
    "differ": Outcome.DIFFERENT,
    "left": Outcome.LEFT,
    "rough": Outcome.ROUGH,
}
MEANING = (
    "survived: ended as promised; same: with the bytes of an undisturbed run; refused: in one\n"
    "sentence, exit code 2; differ: success with other bytes; left: processes or files left over;\n"
    "rough: another exit code, or more than a sentence."
)


def rows(results: Sequence[Result], by: str = "kind") -> list[tuple[str, ...]]:
    """A head, a row a kind or subject, and all of them."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(str(getattr(result, by)), []).append(result)
    if by == "subject":
        groups = dict(sorted(groups.items()))
    body = [_row(name, own) for name, own in groups.items()]
    return [("fault" if by == "kind" else by, *COLUMNS), *body, _row("all", results)]


def _row(name: str, results: Sequence[Result]) -> tuple[str, ...]:
    counts = {column: sum(r.outcome is _OF[column] for r in results) for column in _OF}
    counts |= {"tried": len(results), "survived": sum(r.outcome.kept for r in results)}
    return name, *(str(counts[column]) for column in COLUMNS)


def terminal(results: Sequence[Result], by: str = "kind") -> str:
    """Within 80 columns."""
    found = rows(results, by)
    first = min(18, max(len(row[0]) for row in found))
    widths = [max(len(row[c]) for row in found) for c in range(1, len(found[0]))]
    return "\n".join(
        f"{row[0][:first]:<{first}}"
        + "".join(f" {cell:>{width}}" for cell, width in zip(row[1:], widths, strict=True))
        for row in found
    )


def markdown(results: Sequence[Result], by: str = "kind") -> str:
    """For a page."""
    head, *body = rows(results, by)
    shown = [head, ("---", *("---:" for _ in COLUMNS)), *body]
    return "\n".join(f"| {' | '.join(row)} |" for row in shown)


def kills(results: Sequence[Result]) -> str:
    """How many kills there were, and how many of them counted."""
    killed = sum(result.kills for result in results)
    used = sum(result.used for result in results)
    return f"{killed} kills; after {used} of them the next life went on from saved work."
