"""Counts and times of a server, in the text format of Prometheus."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from protofission.system.plain_files import read_plain
from protofission.web.asgi import Application, Message, Receive, Scope, Send

TIME_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATM = "/proc/self/statm"
"""The kernel's word on the memory of this process, on Linux."""


class CountedValues:
    """A histogram: how many values are up to each bound, their number and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str = "") -> Iterable[str]:
        """Lines of the text format."""
        before, below = f"{labels}," if labels else "", 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            below += count
            yield f'{name}_bucket{{{before}le="{bound}"}} {below}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self.sum:.9g}"
        yield f"{name}_count{braces} {below}"


class ServeMetrics:
    """Counts of requests, images and batches of one server; any thread may count.

    Args:
        paths: those that are told apart; others are counted together.
        facts: labels of the model.
    """

    def __init__(self, paths: Iterable[str], facts: Mapping[str, str]) -> None:
        self._lock, self._paths, self._facts = threading.Lock(), frozenset(paths), dict(facts)
        self._requests: Counter[tuple[str, int]] = Counter()
        self._images: Counter[str] = Counter()
        self._seconds = {
            path: CountedValues(TIME_BOUNDS) for path in sorted(self._paths | {"other"})
        }
        self._batches, self._in_flight, self._begun = CountedValues(BATCH_BOUNDS), 0, time.time()
        self.queue: Callable[[], int] = lambda: 0
        """The number of images that wait."""

    def count_images(self, decisions: Iterable[str]) -> None:
        """Count images by their decision; an empty one is an error."""
        with self._lock:
            self._images.update(decision or "error" for decision in decisions)

    def count_batch(self, size: int) -> None:
        """Count a batch."""
        with self._lock:
            self._batches.add(size)

    def count_requests(self, app: Application) -> Application:
        """The application, its requests counted."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            path = scope["path"] if scope["path"] in self._paths else "other"
            begun, status = time.perf_counter(), 0

            async def noted(message: Message) -> None:
                nonlocal status
                status = message.get("status", status)
                await send(message)

            with self._lock:
                self._in_flight += 1
            try:
                await app(scope, receive, noted)
            finally:
                with self._lock:
                    self._in_flight -= 1
                    self._requests[path, status] += 1
                    self._seconds[path].add(time.perf_counter() - begun)

        return counted

    def text(self) -> str:
        """All figures."""
        facts = ",".join(f'{name}="{_escape(value)}"' for name, value in self._facts.items())
        with self._lock:
            lines = [
                *_head("model_info", "gauge", "The model that is served."),
                f"protofission_model_info{{{facts}}} 1",
                *_head("requests_total", "counter", "Requests by path and status."),
                *(
                    f'protofission_requests_total{{path="{path}",code="{code}"}} {number}'
                    for (path, code), number in sorted(self._requests.items())
                ),
                *_head("request_seconds", "histogram", "Times of requests, bodies included."),
            ]
            for path, seconds in self._seconds.items():
                lines += seconds.lines("protofission_request_seconds", f'path="{path}"')
            lines += [
                *_head("batch_images", "histogram", "Images that were encoded together."),
                *self._batches.lines("protofission_batch_images"),
                *_head("images_total", "counter", "Images by decision."),
                *(
                    f'protofission_images_total{{decision="{decision}"}} {number}'
                    for decision, number in sorted(self._images.items())
                ),
                *_head("queue_images", "gauge", "Images that wait."),
                f"protofission_queue_images {self.queue()}",
                *_head("requests_in_flight", "gauge", "Requests that are being answered."),
                f"protofission_requests_in_flight {self._in_flight}",
                "# HELP process_start_time_seconds Start of the server.",
                "# TYPE process_start_time_seconds gauge",
                f"process_start_time_seconds {self._begun:.3f}",
            ]
        if (size := resident_bytes()) is not None:
            lines += [
                "# HELP process_resident_memory_bytes Memory of the server.",
                "# TYPE process_resident_memory_bytes gauge",
                f"process_resident_memory_bytes {size}",
            ]
        return "\n".join(lines) + "\n"


def resident_bytes() -> int | None:
    """The memory of this process; None where the system does not say."""
    try:
        return int(read_plain(STATM, 4096).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _head(name: str, kind: str, words: str) -> tuple[str, str]:
    return f"# HELP protofission_{name} {words}", f"# TYPE protofission_{name} {kind}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
