"""The prediction service: images of many requests, decoded and encoded together, within bounds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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


@dataclass(frozen=True)
class WaitingImage:
    """An image that waits for a thread, and the future of its row."""

    image: RequestImage
    row: asyncio.Future[Row]


@dataclass(frozen=True)
class DecodedImage:
    """The pixels of an image, or the row or the error of one that has none."""

    waiting: WaitingImage
    found: NDArray[np.uint8] | Row | Exception


@dataclass(frozen=True)
class EncodedImage:
    """The (1, D) features of an image, or the row or the error of one that has none."""

    waiting: WaitingImage
    found: Tensor | Row | Exception


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
        self._parsers = ThreadPoolExecutor(threads, "parse")
        self._queue: BatchQueue[WaitingImage, DecodedImage, EncodedImage] = BatchQueue(
            self._decode,
            self._encode,
            self._answer,
            most=options.batch or max(LEAST_BATCH, predictor.encoder.chunk),
            places=options.queue,
            threads=threads,
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
        loop, waiting = asyncio.get_running_loop(), list[WaitingImage]()
        try:
            async with asyncio.timeout(self.options.seconds):
                arguments = content, content_type, self.options.images, name
                if media_type(content_type) in PARSED:
                    images = await loop.run_in_executor(self._parsers, images_of, *arguments)
                else:
                    images = images_of(*arguments)
                waiting = [WaitingImage(image, loop.create_future()) for image in images]
                if not self._queue.put(waiting):
                    raise self._queue_full()
                rows = [await one.row for one in waiting]
        except TimeoutError:
            seconds = f"{self.options.seconds:g}"
            raise AnswerError(
                504, f"The images were not predicted within {seconds} s: ask again with fewer."
            ) from None
        finally:
            for one in waiting:
                if not one.row.cancel() and not one.row.cancelled():
                    one.row.exception()  # looked at, so that asyncio does not call it lost
        self._metrics.count_images(row.decision for row in rows)
        return rows

    def close(self) -> None:
        """Finish what was begun, and end all threads."""
        self.stopping = True
        self._parsers.shutdown()
        self._queue.stop()

    def _decode(self, batch: Sequence[WaitingImage]) -> list[DecodedImage]:
        """Decode the images that somebody still waits for."""
        return [DecodedImage(one, self._pixels(one)) for one in batch]

    def _pixels(self, one: WaitingImage) -> NDArray[np.uint8] | Row | Exception:
        image = one.image
        if one.row.cancelled() or image.error:
            return Row(image.name, error=image.error)
        try:
            return decode(image.content, self._decoding)
        except RefusedError as refusal:
            return Row(image.name, error=str(refusal))
        except Exception as error:  # the next image may do better
            return error

    def _encode(self, batch: Sequence[DecodedImage]) -> list[EncodedImage]:
        """Encode the images that somebody still waits for."""
        batch = [one for one in batch if not one.waiting.row.cancelled()]
        pixels = [one.found for one in batch if isinstance(one.found, np.ndarray)]
        encoded: Iterator[Tensor | Exception] = iter(())
        if pixels:
            self._metrics.count_batch(len(pixels))
            try:
                encoded = iter(torch.split(self._predictor.encode_pixels(pixels), 1))
            except Exception as error:  # the next batch may do better
                encoded = repeat(error)
        return [
            EncodedImage(
                one.waiting, next(encoded) if isinstance(one.found, np.ndarray) else one.found
            )
            for one in batch
        ]

    def _answer(self, batch: Sequence[EncodedImage]) -> None:
        """Predict images by their features, and wake the loop once for all."""
        names = [one.waiting.image.name for one in batch if isinstance(one.found, Tensor)]
        features = [one.found for one in batch if isinstance(one.found, Tensor)]
        predicted: Iterator[Row | Exception] = iter(())
        if features:
            try:
                predicted = iter(self._predictor.judge(names, torch.cat(features)))
            except Exception as error:  # the next batch may do better
                predicted = repeat(error)
        rows = [next(predicted) if isinstance(one.found, Tensor) else one.found for one in batch]
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            batch[0].waiting.row.get_loop().call_soon_threadsafe(_settle, batch, rows)

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


def _settle(batch: Sequence[EncodedImage], rows: Sequence[Row | Exception]) -> None:
    """Hand rows to the requests that still wait for them; in the loop's own thread."""
    for one, row in zip(batch, rows, strict=True):
        future = one.waiting.row
        if future.done():
            continue
        if isinstance(row, Exception):
            future.set_exception(row)
        else:
            future.set_result(row)
