"""The prediction service: decode images in some threads, encode them together, within bounds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from protofission.data.readers.decode import decode
from protofission.data.readers.image_formats import RefusedError
from protofission.system.processors import processors
from protofission.triage.prediction_blocks import Predictor
from protofission.triage.prediction_table import Row
from protofission.web.sentences import AnswerError
from protofission.web.serve.batches import BatchQueue
from protofission.web.serve.metrics import ServeMetrics
from protofission.web.serve.options import ServeOptions
from protofission.web.serve.request_images import PARSED, RequestImage, images_of, media_type

RETRY = {"Retry-After": "1"}
LEAST_BATCH = 16
"""Images of a batch, by default at least: to judge one takes as long as to judge all of these."""
DecodedImage = tuple[str, NDArray[np.uint8]]
"""Name and pixels."""


class PredictionService:
    """A model that predicts the images of many requests at a time.

    Args:
        predictor: the model with its encoder.
    """

    def __init__(self, predictor: Predictor, options: ServeOptions, metrics: ServeMetrics) -> None:
        self.options, self._predictor, self._metrics = options, predictor, metrics
        self._decoding = replace(
            predictor.decoding, pixel_limit=options.pixels, byte_limit=options.body_bytes
        )
        threads = options.threads or processors()
        self._decoders = ThreadPoolExecutor(threads, "decode")
        self._queue: BatchQueue[DecodedImage, Row] = BatchQueue(
            self._predict_batch,
            most=options.batch or max(LEAST_BATCH, predictor.encoder.chunk),
            places=options.queue,
            wait=options.wait,
            threads=threads,
            observe=metrics.count_batch,
        )
        metrics.queue = lambda: self._queue.waiting
        self._held, self._lock = 0, threading.Lock()
        self.stopping = False
        """Whether new requests are refused; a handler of signals may set it."""

    @property
    def ready(self) -> bool:
        """Whether requests are answered."""
        return not self.stopping and self._queue.alive

    def check_open(self) -> None:
        """Refuse a request before its body is read, if it could not be answered now."""
        if not self.ready:
            raise AnswerError(503, "The server is stopping: ask again when it is back.", RETRY)
        if self._queue.waiting >= self.options.queue:
            raise self._queue_full()

    @contextmanager
    def held_body(self) -> Iterator[HeldBytes]:
        """The bytes of a body, which count among those of all requests until the block ends."""
        held = HeldBytes(self)
        try:
            yield held
        finally:
            self.hold(-held.number)

    def hold(self, number: int) -> None:
        """Count bytes as held; refuse them with 429 if they are too many."""
        with self._lock:
            if number > 0 and self._held + number > self.options.held_bytes:
                raise AnswerError(
                    429, "The server holds too many bytes of other requests: ask again.", RETRY
                )
            self._held += number

    async def predict(self, content: bytes, content_type: bytes, name: str) -> list[Row]:
        """Predict the images of a body; one that cannot be read is a row with an error.

        Args:
            name: of a single image.

        Raises:
            AnswerError: the body cannot be used, the queue is full, or the time is over.
        """
        loop, results = asyncio.get_running_loop(), list[asyncio.Future[Row]]()
        try:
            async with asyncio.timeout(self.options.seconds):
                arguments = content, content_type, self.options.images, name
                if media_type(content_type) in PARSED:
                    images = await loop.run_in_executor(self._decoders, images_of, *arguments)
                else:
                    images = images_of(*arguments)
                if not self._queue.reserve(len(images)):
                    raise self._queue_full()
                for image in images:
                    result: Future[Row] = Future()
                    self._decoders.submit(self._decode, image, result)
                    results.append(asyncio.wrap_future(result))
                rows = [await result for result in results]
        except TimeoutError:
            seconds = f"{self.options.seconds:g}"
            raise AnswerError(
                504, f"The images were not predicted within {seconds} s: ask again with fewer."
            ) from None
        finally:
            for one in results:
                if not one.cancel() and not one.cancelled():
                    one.exception()  # looked at, so that asyncio does not call it lost
        self._metrics.count_images(row.decision for row in rows)
        return rows

    def close(self) -> None:
        """Finish what was begun, and end all threads."""
        self.stopping = True
        self._decoders.shutdown()
        self._queue.stop()

    def _decode(self, image: RequestImage, result: Future[Row]) -> None:
        """Decode an image into its place in the queue, or give the place back."""
        if result.cancelled():
            self._queue.give_back()
            return
        try:
            if image.error:
                raise RefusedError(image.error)
            pixels = decode(image.content, self._decoding)
        except RefusedError as refusal:
            self._queue.give_back()
            _set(result, Row(image.name, error=str(refusal)))
        except BaseException as error:  # such as a lack of memory
            self._queue.give_back()
            if result.set_running_or_notify_cancel():
                result.set_exception(error)
        else:
            self._queue.fill((image.name, pixels), result)

    def _predict_batch(self, images: Sequence[DecodedImage]) -> list[Row]:
        names, pixels = zip(*images, strict=True)
        return self._predictor.rows_of_pixels(names, pixels)

    def _queue_full(self) -> AnswerError:
        return AnswerError(
            429, f"The queue of {self.options.queue:,} images is full: ask again.", RETRY
        )


class HeldBytes:
    """The number of bytes of one body that count among those of all requests."""

    def __init__(self, service: PredictionService) -> None:
        self._service, self.number = service, 0

    def add(self, number: int) -> None:
        """Count some more; refused with 429 if all requests hold too many."""
        self._service.hold(number)
        self.number += number


def _set(result: Future[Row], row: Row) -> None:
    if result.set_running_or_notify_cancel():
        result.set_result(row)
