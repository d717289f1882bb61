"""Bundles of any head and adapter on features of no encoder, for tests."""

from typing import Any

import numpy as np
import torch

from protofission.models.adapters import AdapterSpec
from protofission.models.encoders import EncoderSpec
from protofission.models.encoders.own_backbone import OwnBackbone
from protofission.models.heads import HeadSpec
from protofission.models.model import Model
from protofission.triage.bundle import Bundle
from protofission.triage.calibrated_model import SingleModel

WIDTH = 12
FACTS = {"fingerprint": "of no encoder", "num_features": WIDTH, "size": 32}
HEADS = {
    "linear": HeadSpec("linear"),
    "cosine": HeadSpec("cosine", temperature=7.0, offset=0.5),
    "fission": HeadSpec("fission", prototypes=3),
    "tied": HeadSpec("fission", prototypes=4, novel_prototypes=2, temperature=5.0),
    "euclidean": HeadSpec("fission", prototypes=2, similarity="euclidean"),
    "mahalanobis": HeadSpec("fission", prototypes=2, similarity="mahalanobis", offset=1.0),
    "distance": HeadSpec("distance", prototypes=3, temperature=4.0, offset=0.5),
    "reciprocal": HeadSpec("reciprocal", temperature=3.0),
    "reciprocal-dot": HeadSpec("reciprocal-dot", offset=0.5),
}
ADAPTERS = {
    "none": AdapterSpec("none"),
    "linear": AdapterSpec("linear", width=8),
    "rectified": AdapterSpec("rectified", width=8),
    "mlp": AdapterSpec("mlp", width=8, hidden=9),
}


def calibrated_model_of(
    head: str = "fission",
    adapter: str = "linear",
    novel: int = 0,
    *,
    inputs: int = WIDTH,
    known: int = 3,
    threshold: float = 0.25,
    clusters: bool = True,
    seed: int = 0,
) -> SingleModel:
    """One away from its start, so that no two numbers in it are the same by chance."""
    generator = torch.Generator().manual_seed(seed)
    body = ADAPTERS[adapter].build(inputs, generator)
    top = HEADS[head].build(body.num_features, known + novel, known, generator)
    model = Model(body, top)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        body.mean.copy_(torch.randn(inputs, generator=generator))
        body.deviation.copy_(torch.rand(inputs, generator=generator) + 0.5)
    return SingleModel(model, known, temperature=1.7, threshold=threshold, clusters=clusters)


def bundle_of(
    head: str = "fission",
    adapter: str = "linear",
    novel: int = 0,
    *,
    spec: EncoderSpec | None = None,
    facts: dict[str, Any] | None = None,
    names: tuple[str, ...] = ("cat", "dog", "cow"),
    card: dict[str, Any] | None = None,
    threshold: float = 0.25,
    clusters: bool = True,
    seed: int = 0,
) -> Bundle:
    facts = facts or FACTS
    calibrated_model = calibrated_model_of(
        head,
        adapter,
        novel,
        inputs=facts["num_features"],
        known=len(names),
        threshold=threshold,
        clusters=clusters,
        seed=seed,
    )
    scores = np.random.default_rng(seed).normal(size=17)
    return Bundle.of(
        calibrated_model, names, spec or OwnBackbone("simclr-cifar10"), facts, scores, card
    )


def features(rows: int, seed: int = 0, width: int = WIDTH) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))
