"""Predict blocks of images by one process or several, with the same rows.

Every process computes on one thread, while others decode what comes next: the rows of a block
depend on its images and the model, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protofission.core.errors import printable, require
from protofission.core.progress import Progress
from protofission.core.threads import one_thread
from protofission.data.image_sets import floats
from protofission.data.readers.decode import Decoding, decode, quiet_pillow
from protofission.data.readers.file_listing import content_of
from protofission.data.readers.image_formats import RefusedError
from protofission.data.store.manifest import fingerprint
from protofission.data.store.reader import RowReader, Store
from protofission.models.encoders import Encoder
from protofission.system.launch.in_order import SHORT, run_in_order
from protofission.system.launch.launcher import Tell, Work
from protofission.system.processors import processors
from protofission.system.worker_processes import check_processes
from protofission.triage.bundle import Bundle
from protofission.triage.model_source import find_model
from protofission.triage.prediction_inputs import (
    InputBlock,
    InputFile,
    Inputs,
    Span,
    StoreBlock,
    StoreRows,
    inputs_of,
)
from protofission.triage.prediction_table import Names, Row, rows_of

MOST_IMAGES = 256
"""Most images of a block, which is lost if its process is killed."""
MOST_PIXELS = 2**23
"""Most numbers in the decoded images of a block."""


MOST_MAPPED = 2**28
"""Bytes of a store that are held in memory at a time."""


@dataclass(frozen=True)
class PredictionJob:
    """Inputs to predict, the predictor, and the number of processes."""

    predictor: Predictor
    inputs: Inputs
    processes: int

    @staticmethod
    def of(
        bundle_folder: Path,
        sources: Sequence[Path],
        processes: int = 1,
        allow_download: bool = False,
    ) -> PredictionJob:
        """Load a model, and list its inputs.

        Args:
            allow_download: get the encoder from the hub, if it is not on this machine.
        """
        check_processes(processes)
        decoders = max(1, processors() // processes - 1)
        predictor = Predictor(bundle_folder, decoders, allow_download)
        job = PredictionJob(predictor, inputs_of(sources), processes)
        job.check()
        return job

    def check(self) -> None:
        """Refuse a store of another encoder than the model's."""
        for source in self.inputs.sources:
            require(
                not isinstance(source, StoreRows)
                or source.encoder == self.predictor.encoder.fingerprint,
                f"{printable(str(getattr(source, 'folder', '')))} is a store of another encoder "
                "than the model's: embed the images with the model's encoder, or give the images.",
            )

    @cached_property
    def spans(self) -> list[Span]:
        """The blocks in their order."""
        return self.inputs.spans(self.predictor.images)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of all that the rows depend on."""
        own = self.predictor
        return fingerprint(
            own.bundle.fingerprint,
            own.encoder.describe(),  # with its engine
            own.decoding.settings(),
            own.images,
            self.inputs.fingerprint,
        )

    def rows(
        self, first: int = 0, progress: Progress | None = None
    ) -> Generator[list[Row], None, None]:
        """Yield the rows of each block, from the block `first` on."""
        own, spans, block = self.predictor, self.spans[first:], self.inputs.block
        total = sum(span.stop - span.start for span in self.spans)
        done = total - sum(span.stop - span.start for span in spans)
        by_worker = Work(_begin, (own.folder, own.decoders, own.bundle.fingerprint), _carry_out)
        if progress is not None:
            progress(done, total)
        with one_thread(strictly=True):
            here: Callable[[Span], list[Row]] = lambda span: own.rows(block(span))  # noqa: E731
            results = run_in_order(spans, here, by_worker, block, self.processes, SHORT)
            with closing(results) as found:
                for rows in found:
                    yield rows
                    done += len(rows)
                    if progress is not None:
                        progress(done, total)


class Predictor:
    """A loaded model with its encoder, which predicts blocks in any process.

    Args:
        decoders: threads that read and decode files beside the one that computes.
        allow_download: get the encoder from the hub, if it is not on this machine.
    """

    def __init__(self, folder: Path, decoders: int, allow_download: bool = False) -> None:
        self.folder, self.decoders = find_model(folder), decoders
        self.bundle = Bundle.load(self.folder)
        self.bundle.calibrated_model.settle()
        self.encoder: Encoder = self.bundle.encoder(allow_download=allow_download)
        self.names = Names(
            self.bundle.class_names, self.bundle.subclass_names, self.bundle.cluster_names
        )
        self.decoding = Decoding(self.encoder.decode, self.encoder.decode)
        self.images = max(1, min(MOST_IMAGES, MOST_PIXELS // int(np.prod(self.decoding.shape))))
        """Most images of a block."""
        self._stored: dict[tuple[Path, str], RowReader] = {}

    def rows(self, block: InputBlock) -> list[Row]:
        """Predict the images of a block."""
        if isinstance(block, StoreBlock):
            return self.judge(block.paths, self._load_features(block))
        features, refused = self._encode(block)
        read = [file.path for place, file in enumerate(block) if place not in refused]
        judged = iter(self.judge(read, features))
        return [
            Row(file.path, error=refused[place]) if place in refused else next(judged)
            for place, file in enumerate(block)
        ]

    def encode_pixels(self, pixels: Sequence[NDArray[np.uint8]]) -> Tensor:
        """(n, D) features of decoded images, as a store has them; several threads may do so."""
        images = floats(torch.from_numpy(np.stack(pixels)))
        return _as_stored(self.encoder.features(images))

    def judge(self, paths: Sequence[str], features: Tensor) -> list[Row]:
        """Predict images by their (n, D) features; several threads may do so."""
        return rows_of(paths, self.bundle.predict_features(features), self.names)

    def _load_features(self, block: StoreBlock) -> Tensor:
        """Load the features of a block; its store is verified when it is first opened."""
        key = block.folder, block.part
        if key not in self._stored:
            store = Store.open(block.folder)
            self._stored[key] = store.view_rows(block.part, "plain", MOST_MAPPED)
        places = np.arange(block.start, block.start + len(block.paths))
        return torch.from_numpy(self._stored[key][places].astype(np.float32))

    def _encode(self, files: Sequence[InputFile]) -> tuple[Tensor, dict[int, str]]:
        """Encode files: (readable files, D) features, and by index why the others cannot be read.

        Some files are decoded while others are in the encoder. This thread decodes what no other
        has begun, from the end of a chunk to its start, and so never waits for more than a file.
        """
        refused: dict[int, str] = {}
        features = [torch.empty(0, self.encoder.num_features)]
        with quiet_pillow(), ThreadPoolExecutor(self.decoders) as pool:
            begun = [pool.submit(self._pixels, file) for file in files]
            for start in range(0, len(files), self.encoder.chunk):
                places = range(start, min(start + self.encoder.chunk, len(files)))
                own = {
                    place: self._pixels(files[place])
                    for place in reversed(places)
                    if begun[place].cancel()
                }
                ready: list[NDArray[np.uint8]] = []
                for place in places:
                    pixels = own[place] if place in own else begun[place].result()
                    if isinstance(pixels, str):
                        refused[place] = pixels
                    else:
                        ready.append(pixels)
                if ready:
                    images = floats(torch.from_numpy(np.stack(ready)))
                    features.append(self.encoder.features(images))
        return _as_stored(torch.cat(features)), refused

    def _pixels(self, file: InputFile) -> NDArray[np.uint8] | str:
        try:
            if file.reason:
                return file.reason
            return decode(content_of(file.place, self.decoding.byte_limit), self.decoding)
        except RefusedError as refusal:
            return str(refusal)


def _as_stored(features: Tensor) -> Tensor:
    """Round features as a store has them, on which the model was trained and calibrated."""
    return features.half().float()


def _begin(folder: Path, decoders: int, known: str) -> Predictor:
    predictor = Predictor(folder, decoders)
    require(
        predictor.bundle.fingerprint == known,
        f"{printable(str(folder))} was changed meanwhile: give the same command again.",
    )
    return predictor


def _carry_out(predictor: Predictor, block: InputBlock, _: Tell) -> list[Row]:
    return predictor.rows(block)
