"""The verbs of the workbench: label, next."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from protofission.cli.arguments import Flag, OptionalOut, OptionalPath, Whole
from protofission.cli.json_results import Json, gives_json
from protofission.core.errors import printable


def label(
    model: Path,
    pool: OptionalPath = None,
    /,
    *,
    labeled: OptionalPath = None,
    port: Whole = 0,
    host: str = "127.0.0.1",
    allow_remote: Flag = False,
    no_browser: Flag = False,
) -> None:
    """Open the workbench of a model in the browser: look, label, merge, refit, export.

    Prints an address of this machine that works once, and opens it where there is a browser. What
    you do is kept at once, in a log beside the model; every change can be undone, also after a
    restart. Your images are never moved or changed. Needs: pip install "protofission[web]".

    For example:

        protofission label model
        protofission label model /new/place/of/pool --labeled /new/place/of/labeled
        protofission label model --port 8080 --no-browser
        protofission label model --host 0.0.0.0 --allow-remote

    Parameters
    ----------
    model
        The folder of a model, as `protofission fit` writes it.
    pool
        The folder or list of the pool, if it was moved since the fit.
    labeled
        The folder or list of the labeled images, if it was moved since the fit.
    port
        The port to listen at; 0 takes a free one.
    host
        The address to listen at; another one than 127.0.0.1 wants --allow-remote.
    allow_remote
        Let other machines reach it, without encryption.
    no_browser
        Print the address, and open nothing.
    """
    from protofission.web.label.label import label as open_workbench

    def say(line: str) -> None:
        print(line, flush=True)

    open_workbench(
        model,
        pool,
        labeled=labeled,
        host=host,
        port=port,
        allow_remote=allow_remote,
        browser=not no_browser,
        say=say,
    )


@gives_json("next")
def next_(
    model: Path,
    /,
    *,
    n: Whole = 50,
    out: OptionalOut = None,
    force: Flag = False,
    json: Json = False,
) -> dict[str, Any]:
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
    from protofission.triage.workbench.next_table import next_rows, next_table, write_next

    if json and out is None:
        rows = next_rows(model, n)
        return {"out": None, "number": len(rows), "images": [row._asdict() for row in rows]}
    if out is None:
        table = next_table(model, n)
        sys.stdout.buffer.write(table)
        number = table.count(b"\n") - 1  # names have no line breaks: they are escaped
        if number < n:
            print(f"{_images_to_label(number, n)}.", file=sys.stderr)
        return {}
    number = write_next(model, n, out, force=force)
    print(f"{_images_to_label(number, n)}: {printable(str(out))}")
    return {"out": out, "number": number, "images": None}


def _images_to_label(number: int, wanted: int) -> str:
    images = "1 image" if number == 1 else f"{number:,} images"
    left = "" if number == wanted else f" (of {wanted:,}: no more are left)"
    return f"{images} to label next{left}"
