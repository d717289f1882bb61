"""The content of bundle.json: names, the encoder, and the structure of the calibrated model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from protofission.core.errors import InputError, require
from protofission.models.adapters import Adapter, AdapterSpec
from protofission.models.encoders import EncoderSpec, spec_of
from protofission.models.heads import HeadSpec, head_spec_of, sizes_of
from protofission.models.model import Model
from protofission.models.weight_files import first_few
from protofission.system.json_files import as_type
from protofission.triage.calibrated_model import CalibratedModel, SingleModel
from protofission.triage.fold_ensemble import CenterSizes, FoldEnsemble, UnitCenters
from protofission.triage.fold_model import FoldModelSizes

FORMAT = 4
"""The newest format: models of folds. Those of format 3 have no points of classes, those of format
2 no mixture of centers either, and say nothing of them; bundles of format 1 hold a single model."""
MODEL, CALIBRATION = "model.safetensors", "calibration.npy"
BUNDLE_PARTS = (MODEL, CALIBRATION)
LARGEST_MODEL_SIZE = 2**20
"""Classes, prototypes of a class, or features: more are refused before room is made for them."""

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class EncoderReference:
    """The encoder of a bundle: kind, source and options to load it, and facts to check it by."""

    kind: str
    source: str
    options: dict[str, Any]
    describe: dict[str, Any]
    """The output of `Encoder.describe`."""

    def spec(self) -> EncoderSpec:
        """The specification that loads it."""
        return spec_of(self.kind, self.source, self.options)

    @property
    def num_features(self) -> int:
        """D."""
        return as_type(self.describe.get("num_features"), int, "num_features")


@dataclass(frozen=True)
class ManifestFacts:
    """The fields of bundle.json in every format."""

    format: int
    protofission: str
    class_names: tuple[str, ...]
    subclass_names: tuple[tuple[str, ...], ...]
    cluster_names: tuple[str, ...]
    encoder: EncoderReference
    files: dict[str, str]
    """SHA-256 of each file."""
    card: dict[str, Any]

    def __post_init__(self) -> None:
        require(
            set(self.files) == set(BUNDLE_PARTS),
            f"it names the files {first_few(self.files)}, not {' and '.join(BUNDLE_PARTS)}.",
        )
        _check_sizes({"num_features": self.encoder.num_features})


@dataclass(frozen=True)
class SingleManifest(ManifestFacts):
    """The content of bundle.json in format 1, of a `SingleModel`."""

    known: int
    novel: int
    """Heads beside those of known classes; without cluster names they only make room."""
    head: HeadSpec
    adapter: AdapterSpec

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_model(self.head, self.adapter)
        _check_sizes({"known": self.known})
        _check_sizes({"novel": self.novel}, least=0)

    def shapes(self) -> Shapes:
        """Shapes of the calibrated model's tensors by name, without allocating them."""
        inputs = self.encoder.num_features
        body, heads = self.adapter.shapes(inputs), self.known + self.novel
        head = self.head.entry.shapes(self.head, self.adapter.outputs(inputs), heads)
        return {
            "temperature": (),
            "threshold": (),
            **{f"model.backbone.{name}": shape for name, shape in body.items()},
            **{f"model.head.{name}": shape for name, shape in head.items()},
        }

    def calibrated_model(self) -> CalibratedModel:
        """Build the calibrated model, before its tensors are loaded."""
        generator = torch.Generator()
        body = self.adapter.build(self.encoder.num_features, generator)
        heads = self.known + self.novel
        head = self.head.build(body.num_features, heads, self.known, generator)
        return SingleModel(Model(body, head), self.known, clusters=bool(self.cluster_names))


@dataclass(frozen=True)
class Manifest(ManifestFacts):
    """The content of bundle.json, of a `FoldEnsemble`."""

    models: tuple[FoldModelSizes, ...]
    fold_sizes: tuple[int, ...]
    """Labels of each fold."""
    parts: CenterSizes
    """Sub-classes."""
    clusters: CenterSizes
    says_novel: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 < len(self.models) == len(self.fold_sizes),
            f"it has {len(self.models)} models and {len(self.fold_sizes)} folds.",
        )
        known, inputs = self.models[0].known, self.encoder.num_features
        for model in self.models:
            _check_model(model.head, model.adapter)
            names = ("inputs", "reduced", "near", "width", "known")
            _check_sizes({name: getattr(model, name) for name in names})
            _check_sizes(
                {name: getattr(model, name) for name in ("strange", "free", "points")}, least=0
            )
            require(
                model.known == known and model.inputs == inputs and model.near <= model.reduced,
                "its models do not fit each other.",
            )
        for sizes in (self.parts, self.clusters):
            _check_sizes({"width": sizes.width, "inputs": sizes.inputs})
            require(sizes.inputs == inputs, "its centers do not fit its models.")
        _check_sizes(dict(_numbered("parts", self.parts.counts)))
        counts = (*_numbered("clusters", self.clusters.counts), *_numbered("fold", self.fold_sizes))
        _check_sizes(dict(counts), least=0)
        require(
            len(self.parts.counts) == known and len(self.clusters.counts) == 1,
            f"it has sub-classes of {len(self.parts.counts)} classes and models of {known}.",
        )

    def shapes(self) -> Shapes:
        """Shapes of the calibrated model's tensors by name, without allocating them."""
        found: Shapes = {
            "temperature": (),
            "threshold": (),
            "centers": (len(self.models),),
            "scales": (len(self.models),),
            "label_scores": (sum(self.fold_sizes),),
        }
        for place, model in enumerate(self.models):
            found |= {f"models.{place}.{name}": shape for name, shape in model.shapes().items()}
        for group, sizes in (("parts", self.parts), ("clusters", self.clusters)):
            found |= {f"{group}.{name}": shape for name, shape in sizes.shapes().items()}
        return found

    def calibrated_model(self) -> CalibratedModel:
        """Build the calibrated model, before its tensors are loaded."""
        return FoldEnsemble(
            [sizes.build() for sizes in self.models],
            self.fold_sizes,
            UnitCenters(self.parts),
            UnitCenters(self.clusters),
            says_novel=self.says_novel,
        )


def manifest_of(calibrated_model: CalibratedModel, facts: dict[str, Any]) -> ManifestFacts:
    """The manifest of a calibrated model.

    Args:
        facts: the fields of `ManifestFacts` but for the format.
    """
    match calibrated_model:
        case FoldEnsemble():
            return Manifest(
                format=FORMAT,
                models=calibrated_model.sizes,
                fold_sizes=calibrated_model.fold_sizes,
                parts=calibrated_model.parts.sizes,
                clusters=calibrated_model.clusters.sizes,
                says_novel=calibrated_model.says_novel,
                **facts,
            )
        case SingleModel():
            adapter, head = specs_of(calibrated_model.model)
            heads = sizes_of(calibrated_model.model.head).classes
            known = calibrated_model.num_seen
            return SingleManifest(
                format=1, known=known, novel=heads - known, head=head, adapter=adapter, **facts
            )
    raise InputError(f"A {type(calibrated_model).__name__} is no model for bundles.")


def specs_of(model: Model) -> tuple[AdapterSpec, HeadSpec]:
    """The specs that build the same model; the start of its training is left out."""
    body = model.backbone
    if not isinstance(body, Adapter):
        raise InputError("A bundle wants a model on features: give one with an adapter.")
    return body.spec, head_spec_of(model.head)


def _check_model(head: HeadSpec, adapter: AdapterSpec) -> None:
    head.check()
    require(head.entry.can_bundle, f"a {head.kind} head is not for bundles.")
    sizes = {"prototypes": head.prototypes, "width": adapter.width, "hidden": adapter.hidden}
    _check_sizes(sizes)


def _check_sizes(sizes: dict[str, int], least: int = 1) -> None:
    for name, size in sizes.items():
        require(
            least <= size <= LARGEST_MODEL_SIZE,
            f"{name} = {size} must be from {least} to {LARGEST_MODEL_SIZE}.",
        )


def _numbered(name: str, values: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    for place, value in enumerate(values):
        yield f"{name}[{place}]", value
