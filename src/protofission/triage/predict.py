"""Predict images with a fitted model: rows in memory, in a stream, or in a file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, overload

from protofission.core.errors import InputError, printable, require
from protofission.core.progress import Progress
from protofission.system.digests import file_digest
from protofission.system.paths import path_of, paths_of
from protofission.triage.calibrated_model import DECISIONS
from protofission.triage.prediction_blocks import PredictionJob
from protofission.triage.prediction_journal import FinishedRecord, journal_of
from protofission.triage.prediction_table import (
    Format,
    Row,
    format_of,
    header_of,
    text_of,
    write_rows,
)


@dataclass(frozen=True)
class PredictionSummary:
    """Counts of a prediction."""

    rows: int
    errors: int
    """Images that could not be read."""
    decisions: dict[str, int]
    """Number of images by decision."""
    kept: int = 0
    """Rows that an earlier call had finished."""

    def sentence(self) -> str:
        """The counts as a sentence."""
        decided = ", ".join(f"{n:,} {name}" for name, n in self.decisions.items() if n)
        errors = f"{self.errors:,} cannot be read" if self.errors else ""
        images = f"{self.rows:,} image{'s' * (self.rows != 1)}"
        return f"{images}: {', '.join(filter(None, (decided, errors)))}."


@overload
def predict(
    model: Path | str,
    images: Path | str | Iterable[Path | str],
    out: None = None,
    form: None = None,
    *,
    processes: int = 1,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
    allow_download: bool = False,
    force: bool = False,
) -> list[Row]: ...


@overload
def predict(
    model: Path | str,
    images: Path | str | Iterable[Path | str],
    out: Path | str,
    form: str | None = None,
    *,
    processes: int = 1,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
    allow_download: bool = False,
    force: bool = False,
) -> PredictionSummary: ...


def predict(
    model: Path | str,
    images: Path | str | Iterable[Path | str],
    out: Path | str | None = None,
    form: str | None = None,
    *,
    processes: int = 1,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
    allow_download: bool = False,
    force: bool = False,
) -> list[Row] | PredictionSummary:
    """Predict images: return their rows, or write them to a file and return a summary.

    Rows are in the order of the images; one that cannot be read is a row with an error. A file is
    written with little memory; after a stop or a kill the same call goes on where it was. Once it
    is finished, the same call does nothing; a file of anything else is refused.

    Args:
        model: the folder of a model, as `fit` writes it.
        images: an image file, a folder, a .csv or .parquet list or a store, or several of these.
        out: the file of rows; by default they are returned.
        form: csv, jsonl or parquet; by default that of the suffix of `out`.
        processes: number of processes. A script that uses several keeps its calls under
            `if __name__ == "__main__":`.
        progress: called with the number of images done, and of all.
        say: called with a sentence, if unfinished rows of other images or of another model are
            dropped, or if there is nothing to do.
        allow_download: get the encoder from the hub, if it is not on this machine.
        force: write over a file that is there.

    Examples:
        >>> import protofission
        >>> rows = protofission.predict("model", "new")
        >>> {row.decision for row in rows} <= {"accept", "reject", "novel"}
        True
        >>> protofission.predict("model", "new", "new.csv").rows == len(rows)
        True

    Raises:
        InputError: the file is there, and is not of this model and these images.
    """
    sources = paths_of(images)
    if out is None:
        require(form is None, f"form = {form!r} is of a file: name it, as out.")
        job = PredictionJob.of(path_of(model), sources, processes, allow_download)
        with closing(job.rows(progress=progress)) as blocks:
            return [row for rows in blocks for row in rows]
    out = path_of(out)
    wanted = format_of(out, form)
    check_apart(out, sources)
    job = PredictionJob.of(path_of(model), sources, processes, allow_download)
    return write_prediction(job, out, wanted, progress=progress, say=say, force=force)


def write_prediction(
    job: PredictionJob,
    out: Path,
    form: Format,
    *,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
    force: bool = False,
    wait: bool = False,
) -> PredictionSummary:
    """Write the rows of a job to a file; the arguments are those of `predict`.

    Args:
        wait: for another process that is writing the same file.
    """
    tally = Tally()
    with journal_of(out, wait=wait) as journal:
        if os.path.lexists(out) and not force and not journal.is_of(job.fingerprint):
            journal.remove_empty()
            return finished_before(out, job.fingerprint, form, say)
        sizes = [span.stop - span.start for span in job.spans]
        others = journal.take_up(job.fingerprint, sizes)
        if others and say is not None:
            say(
                f"The unfinished rows of {printable(str(out))} were of another model or other "
                "images, and are dropped."
            )
        kept = journal.rows
        with closing(job.rows(journal.blocks, progress)) as blocks:
            for rows in blocks:
                journal.add(rows)
        write_rows(out, tally.count(journal.all_rows()), form)
        done = tally.summary(kept)
        digest, counts = file_digest(out), (done.rows, done.errors, done.decisions)
        FinishedRecord(job.fingerprint, form, digest, *counts).write(out)
        journal.remove()
    return done


def predict_to(
    stream: BinaryIO,
    model: Path,
    images: Sequence[Path],
    form: str | None = None,
    *,
    processes: int = 1,
    progress: Progress | None = None,
    allow_download: bool = False,
) -> PredictionSummary:
    """Predict images and write their rows to a stream as csv or jsonl, block by block.

    The arguments are those of `predict`.
    """
    wanted = format_of(None, form)
    job, tally = PredictionJob.of(model, images, processes, allow_download), Tally()
    stream.write(header_of(wanted))
    with closing(job.rows(progress=progress)) as blocks:
        for rows in blocks:
            stream.write(text_of(tally.count(rows), wanted))
            stream.flush()
    return tally.summary()


class Tally:
    """Counts the decisions of rows as they pass."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def count(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Count rows, and yield them."""
        for row in rows:
            self._counts[row.decision] += 1
            yield row

    def summary(self, kept: int = 0) -> PredictionSummary:
        """The counts of all rows so far."""
        decisions = {name: self._counts[name] for name in DECISIONS}
        return PredictionSummary(self._counts.total(), self._counts[""], decisions, kept)


def finished_before(
    out: Path, fingerprint: str, form: str, say: Callable[[str], None] | None
) -> PredictionSummary:
    """The counts of an output file that is finished; any other is refused."""
    found, shown = FinishedRecord.read(out), printable(str(out))
    if found is None or (found.fingerprint, found.form) != (fingerprint, form):
        raise InputError(
            f"{shown} is there already, and is not known to be of this model and these images: "
            "name another file, or write over it with --force (in Python, force=True)."
        )
    if say is not None:
        say(f"{shown} is finished, and nothing was done: give --force to predict again.")
    return PredictionSummary(found.rows, found.errors, found.decisions, found.rows)


def check_apart(out: Path, sources: Sequence[Path]) -> None:
    """Refuse a file in the place of a source, or among the images of one."""
    shown, place = printable(str(out)), out.resolve()
    require(not place.is_dir(), f"{shown} is a folder: name a file for the rows.")
    for source in sources:
        own = source.resolve()
        require(
            own != place and not (own.is_dir() and place.is_relative_to(own)),
            f"{shown} would be written over or among the images: name a file elsewhere.",
        )
