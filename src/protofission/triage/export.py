"""A bundle as one .onnx file, which runs wherever onnxruntime does: pixels in, decisions out."""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from protofission.core.errors import InputError, printable, require, unknown
from protofission.core.records import NO_CLASS
from protofission.core.rng import step_rng
from protofission.data.image_sets import floats
from protofission.models.encoders import Encoder
from protofission.models.encoders.base import reason_of
from protofission.models.encoders.onnx_network import OnnxEncoder
from protofission.system.optional_libraries import import_optional
from protofission.system.paths import path_of
from protofission.system.whole_files import whole_file
from protofission.triage.bundle import Bundle
from protofission.triage.calibrated_model import ACCEPT, DECISIONS, NOVEL, REJECT, CalibratedModel

Input = Literal["images", "features"]

OUTPUTS = ("class", "probability", "id_score", "subclass", "decision", "cluster", "probs")
TOLERANCE = 1e-4
"""Largest difference from torch, absolute below 1 and relative above."""
COMPARED_BATCHES = (1, 3, 8)
"""Batch sizes with which they are compared."""
MOST_ONNX_BYTES = 2**31 - 2**24
"""Largest size of the weights: an .onnx file holds at most 2 GiB."""


def export(
    bundle: Bundle, path: Path | str, input: Input = "images", *, allow_download: bool = False
) -> None:
    """Write a model with its encoder, calibration and threshold to an .onnx file.

    The file takes any number N of inputs: "images", (N, 3, size, size) bytes that cover the square
    of the encoder's `decode` pixels, or "features", (N, D) floats as the encoder gives them. It
    gives OUTPUTS; decisions are indices into DECISIONS, and the names are in its metadata, as JSON.

    Args:
        allow_download: of the model's encoder from the hub, if it is not on this machine.

    Raises:
        InputError: it cannot be written, or its outputs differ from torch's.
    """
    path = path_of(path)
    shown = printable(str(path))
    if input not in get_args(Input):
        raise unknown("input", input, get_args(Input))
    require(path.suffix == ".onnx", f"{shown} must end in .onnx.")
    require(not path.exists(), f"{shown} is there already: name another file.")
    for module in ("onnx", "onnxscript", "onnxruntime"):
        import_optional(module, "export", "An .onnx file")
    wanted = input == "images"
    graph = _Graph(bundle, bundle.encoder(allow_download=allow_download) if wanted else None)
    content = _convert(graph, {**_metadata(bundle), "input": input})
    gap = _largest_gap(graph, content)
    require(
        gap <= TOLERANCE,
        f"{shown} is not written, because onnxruntime and torch differ by {gap:.2g}: "
        'export with input="features", or another encoder.',
    )
    try:
        with whole_file(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise InputError(f"{shown} cannot be written: {error.strerror or error}.") from None


class _Graph(nn.Module):
    """The network in the file: one tensor in, the OUTPUTS out."""

    def __init__(self, bundle: Bundle, encoder: Encoder | None) -> None:
        super().__init__()
        require(
            not isinstance(encoder, OnnxEncoder),
            "The encoder is an .onnx file itself, which is not merged with the model: export with "
            'input="features", and run the two one after the other.',
        )
        # The weights in the file are named after this attribute.
        self.recognizer: CalibratedModel = bundle.calibrated_model
        self.encoder = encoder
        self.input = "features" if encoder is None else "images"

    def features(self, inputs: Tensor) -> Tensor:
        """(N, D): features of the inputs."""
        if self.encoder is None:
            return inputs
        found: Tensor = self.encoder(self.encoder.prepare(floats(inputs)))
        return found

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """The tensors of OUTPUTS, in that order."""
        outputs = self.recognizer(self.features(inputs))
        return (
            outputs.classes,
            outputs.probs.amax(-1),
            outputs.id_scores,
            outputs.subclasses,
            outputs.decisions,
            outputs.clusters,
            outputs.probs,
        )

    def example(self, rows: int) -> Tensor:
        """Random inputs, spread as those that the model was fitted to."""
        generator = step_rng(0, rows, "inputs of an exported model")
        if self.encoder is not None:
            shape = (rows, 3, self.encoder.decode, self.encoder.decode)
            return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        noise = torch.randn(rows, self.recognizer.inputs, generator=generator)
        return self.recognizer.typical(noise)


def _metadata(bundle: Bundle) -> dict[str, Any]:
    return {
        "class_names": bundle.class_names,
        "subclass_names": bundle.subclass_names,
        "cluster_names": bundle.cluster_names,
        "decisions": DECISIONS,
        "encoder": bundle.encoder_facts,
        "card": bundle.card,
        "protofission": bundle.version,
    }


def _convert(graph: _Graph, metadata: dict[str, Any]) -> bytes:
    """Convert the network to the content of an .onnx file."""
    size = sum(part.nbytes for part in graph.state_dict().values())
    require(
        size <= MOST_ONNX_BYTES,
        f"The weights take {size:,} bytes, and an .onnx file holds 2 GiB: "
        'export with input="features".',
    )
    try:
        with _quiet(), torch.no_grad():
            program = torch.export.export(  # strict: it sees that len() of a batch may vary
                graph.eval(),
                (graph.example(3),),
                dynamic_shapes=({0: torch.export.Dim("n")},),
                strict=True,
            )
            found: Any = torch.onnx.export(
                program,
                input_names=[graph.input],
                output_names=OUTPUTS,
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # the libraries raise what their parts raise
        raise InputError(
            f"The model cannot be put into an .onnx file ({reason_of(error)}): export with "
            'input="features", or another encoder.'
        ) from None
    model = found.model
    for node in model.graph.all_nodes():
        node.metadata_props.clear()  # they name the files of this machine
    model.metadata_props.clear()
    model.metadata_props.update({key: json.dumps(value) for key, value in metadata.items()})
    content: bytes = found.model_proto.SerializeToString(deterministic=True)
    return content


@torch.no_grad()
def _largest_gap(graph: _Graph, content: bytes) -> float:
    """The largest difference between onnxruntime and torch; of a tie, either class is right."""
    runtime = import_optional("onnxruntime", "export", "An .onnx file")
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # what is fatal is raised, and the rest is noise
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    gaps = []
    for rows in COMPARED_BATCHES:
        inputs = graph.example(rows)
        arrays = session.run(OUTPUTS, {graph.input: inputs.numpy()})
        outputs = dict(zip(OUTPUTS, map(torch.from_numpy, arrays), strict=True))
        gaps.append(_gap(graph.recognizer, graph.features(inputs), outputs))
    return max(gaps)


def _gap(calibrated_model: CalibratedModel, features: Tensor, outputs: dict[str, Tensor]) -> float:
    wanted, chances = calibrated_model(features), calibrated_model.affinities(features)
    own = chances.subclasses[torch.arange(len(features)), outputs["class"]]
    accepted = outputs["id_score"] >= calibrated_model.threshold
    clustered = outputs["cluster"] != NO_CLASS
    refused = torch.where(clustered & calibrated_model.says_novel, NOVEL, REJECT)
    if bool((outputs["decision"] != torch.where(accepted, ACCEPT, refused)).any()) or bool(
        (clustered != (~accepted & (calibrated_model.num_clusters > 0))).any()
    ):
        return math.inf
    low, high = calibrated_model.id_score_range(features, TOLERANCE)
    outside = (low - outputs["id_score"]).maximum(outputs["id_score"] - high)
    return max(
        _largest_difference(outputs["probs"], wanted.probs),
        _largest_difference(outputs["probability"], wanted.probs.amax(-1)),
        _largest_difference(_pick(wanted.probs, outputs["class"]), wanted.probs.amax(-1)),
        _largest_difference(_pick(own, outputs["subclass"]), own.amax(-1)),
        float(outside.nan_to_num(nan=math.inf).clamp_min(0).max()),
        _largest_difference(
            _pick(chances.clusters[clustered], outputs["cluster"][clustered]),
            chances.clusters[clustered].amax(-1),
        )
        if bool(clustered.any())
        else 0.0,
    )


def _pick(scores: Tensor, places: Tensor) -> Tensor:
    return scores.gather(1, places[:, None])[:, 0]


def _largest_difference(found: Tensor, wanted: Tensor) -> float:
    """The largest difference; infinity where one is NaN."""
    apart = ((found - wanted).abs() / wanted.abs().clamp_min(1)).nan_to_num(nan=math.inf)
    return float(apart.max()) if apart.numel() else 0.0


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings of the libraries, about which a user can do nothing."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
