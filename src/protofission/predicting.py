"""Images through a fitted model into a file of rows, which goes on where it was after a kill."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from protofission.data.cache import Progress
from protofission.errors import printable, require
from protofission.journal import journal_of
from protofission.predictor import Work
from protofission.recognizer import DECISIONS
from protofission.rows import Row, format_of, head_of, text_of, write_rows


@dataclass(frozen=True)
class Summary:
    """What a prediction came to."""

    rows: int
    errors: int
    """Images that could not be read."""
    decisions: dict[str, int]
    """How many images of each."""
    kept: int = 0
    """Rows that were there from an earlier command."""

    def sentence(self) -> str:
        """In plain words."""
        decided = ", ".join(f"{n:,} {name}" for name, n in self.decisions.items() if n)
        errors = f"{self.errors:,} cannot be read" if self.errors else ""
        images = f"{self.rows:,} image{'s' * (self.rows != 1)}"
        return f"{images}: {', '.join(filter(None, (decided, errors)))}."


def predict(
    bundle_folder: Path,
    sources: Sequence[Path],
    out: Path | None = None,
    form: str | None = None,
    *,
    processes: int = 1,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Summary:
    """What a model says of images, as a file of rows, or on standard output.

    Rows are in the order of the sources. Begun again after a kill, it goes on with the blocks that
    are missing; a file that cannot be read is a row with an error.

    Args:
        sources: image files, folders, .csv or .parquet lists, stores.
        form: csv, jsonl or parquet, if not as the suffix of `out` says.
        processes: how many compute. A script that wants several keeps its calls under
            `if __name__ == "__main__":`.
        progress: called with the images that are done, and all.
        say: called with a sentence, if rows of other images or of another model are dropped.
    """
    wanted = format_of(out, form)
    if out is not None:
        out = out.expanduser()
        _check_apart(out, sources)
    work = Work.of(bundle_folder, sources, processes)
    tally = Tally()
    if out is None:
        sys.stdout.buffer.write(head_of(wanted))
        for rows in work.rows(progress=progress):
            sys.stdout.buffer.write(text_of(tally.counted(rows), wanted))
            sys.stdout.buffer.flush()
        return tally.summary()
    with journal_of(out) as journal:
        sizes = [span.stop - span.start for span in work.spans]
        others = journal.take_up(work.fingerprint, sizes)
        if others and say is not None:
            say(
                f"The unfinished rows of {printable(str(out))} were of another model or other "
                "images, and are dropped."
            )
        kept = journal.rows
        with closing(work.rows(journal.blocks, progress)) as blocks:
            for rows in blocks:
                journal.add(rows)
        write_rows(out, tally.counted(journal.all_rows()), wanted)
        journal.remove()
    return tally.summary(kept)


class Tally:
    """Counts rows as they pass."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def counted(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The same rows."""
        for row in rows:
            self._counts[row.decision] += 1
            yield row

    def summary(self, kept: int = 0) -> Summary:
        """Of all that passed."""
        decisions = {name: self._counts[name] for name in DECISIONS}
        return Summary(self._counts.total(), self._counts[""], decisions, kept)


def _check_apart(out: Path, sources: Sequence[Path]) -> None:
    """Refuse a file in the place of a source, or among the images of one."""
    shown, place = printable(str(out)), out.resolve()
    require(not place.is_dir(), f"{shown} is a folder: name a file for the rows.")
    for source in sources:
        own = source.expanduser().resolve()
        require(
            own != place and not (own.is_dir() and place.is_relative_to(own)),
            f"{shown} would be written over or among the images: name a file elsewhere.",
        )
