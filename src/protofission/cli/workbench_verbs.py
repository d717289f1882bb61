"""The verbs of the workbench: next."""

from __future__ import annotations

import sys
from pathlib import Path

from protofission.cli.arguments import Flag, OptionalOut, Whole
from protofission.core.errors import printable


def next_(model: Path, /, *, n: Whole = 50, out: OptionalOut = None, force: Flag = False) -> None:
    """Choose the images of the pool that are most worth a label, with a suggestion each.

    Uncertain, typical and different ones, the most useful first; of near-duplicates one. Images
    that were labeled or skipped in the workbench are left out. The rows have the path, the
    suggestion and its probability, the ID score, and the reason in words.

    For example:

        protofission next model --out next.csv
        protofission next model --n 200 --out next.csv --force
        protofission next model --n 12

    Parameters
    ----------
    model
        The folder of a model, as `protofission fit` writes it.
    n
        Number of images; there are fewer where fewer are left.
    out
        The CSV file to write; by default standard output.
    force
        Write over a file that is there.
    """
    from protofission.triage.workbench.next_table import next_table, write_next

    if out is None:
        sys.stdout.buffer.write(next_table(model, n))
        return
    number = write_next(model, n, out, force=force)
    images = "1 image" if number == 1 else f"{number:,} images"
    print(f"{images} to label next: {printable(str(out))}")
