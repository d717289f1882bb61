"""Small bundles with a small encoder, for tests."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from protofission.models.adapters import AdapterSpec
from protofission.models.backbones import BackboneSpec
from protofission.models.encoders.own_backbone import OwnBackbone
from protofission.models.heads import HeadSpec
from protofission.models.model import Model
from protofission.triage.bundle import Bundle
from protofission.triage.calibrated_model import SingleModel

SIDE = 8


def encoder_at(path: Path, seed: int = 0) -> OwnBackbone:
    """An encoder of images of 8 x 8 pixels, written to a file."""
    spec = BackboneSpec(width=4, blocks=(1, 1))
    backbone = spec.build(3, torch.Generator().manual_seed(seed))
    tensors = {name: value.contiguous() for name, value in backbone.state_dict().items()}
    card = {"backbone": {**dataclasses.asdict(spec), "blocks": list(spec.blocks)}}
    save_file(tensors, path, {"card": json.dumps(card)})
    return OwnBackbone(str(path), size=SIDE)


def bundle_at(folder: Path, *, novel: int = 2, seed: int = 0, threshold: float = 0.0) -> Bundle:
    """A saved bundle of two known classes, whose head nobody trained."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = encoder_at(folder.with_name(f"{folder.name}.safetensors"))
    encoder = spec.load()
    generator = torch.Generator().manual_seed(seed)
    body = AdapterSpec("linear", width=6).build(encoder.num_features, generator)
    usual = encoder.features(torch.rand(64, 3, SIDE, SIDE, generator=generator))
    body.mean.copy_(usual.mean(0))
    body.deviation.copy_(usual.std(0) + 1e-3)
    head = HeadSpec("fission", prototypes=3).build(6, 2 + novel, 2, generator)
    calibrated_model = SingleModel(Model(body, head), 2, temperature=0.5, threshold=threshold)
    scores = np.random.default_rng(seed).normal(size=200)
    bundle = Bundle.of(calibrated_model, ("cat", "=dog, 2"), spec, encoder.describe(), scores)
    bundle.save(folder)
    return bundle
