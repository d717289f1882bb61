"""Pieces of work that count images: their progress together, and their failures at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

from protofission.core.progress import Progress
from protofission.system.launch.launcher import Launcher, Work, check_failures


def run_counted(
    launcher: Launcher,
    work: Work,
    pieces: Iterable[Any],
    count: Callable[[Any], int],
    total: int,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Iterator[tuple[int, Any]]:
    """Carry out pieces, and yield the number and the result of each that succeeds.

    Args:
        pieces: each tells the number of its images that are done.
        count: the number of images of a result.
        total: the number of all images.
        say: called with a sentence for each piece that failed, when it has.

    Raises:
        InputError: at the end, if some have failed.
    """
    under_way: dict[int, int] = {}
    done, ended, failures = 0, 0, list[str]()
    if progress is not None:
        progress(0, total)
    with closing(launcher.run(work, pieces)) as told:
        for news in told:
            under_way[news.place] = 0 if news.ended else int(news.told)
            if news.ended:
                del under_way[news.place]
                ended += 1
            if news.failure:
                failures.append(f"shard {news.place}: {news.failure}")
                if say is not None:
                    say(f"Failed: {failures[-1]}")
            elif news.ended:
                done += count(news.told)
                yield news.place, news.told
            if progress is not None:
                progress(min(done + sum(under_way.values()), total), total)
    check_failures(failures, ended, "shards")
