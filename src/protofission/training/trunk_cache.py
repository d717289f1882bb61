"""The maps of a frozen trunk, computed once: training then costs the last stages alone.

In contrast to a run that computes them in every step, an image has a fixed number of versions of
each view in the place of endless ones, and its maps are rounded to float16.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from protofission.core.errors import InputError
from protofission.core.progress import Progress
from protofission.core.rng import step_rng
from protofission.data.datasets import DATASETS, Data
from protofission.data.readers.official_datasets import cache_home
from protofission.data.store.manifest import fingerprint
from protofission.models.backbones import Backbone, BackboneSpec
from protofission.models.encoders import Encoder
from protofission.models.encoders.base import encoder_fingerprint
from protofission.models.encoders.preprocessing import Preprocessing
from protofission.training.embed import Images, ViewCounts, embed
from protofission.training.experiment import Experiment
from protofission.training.state import load_weights


def load_data(experiment: Experiment) -> Data:
    """Load the data of an experiment, with its trunk cached if `recipe.trunk_cache` says so."""
    return cached_trunk(experiment) if experiment.recipe.trunk_cache else experiment.data.load()


def cached_trunk(
    experiment: Experiment, processes: int = 1, progress: Progress | None = None
) -> Data:
    """Load the data of an experiment with its images as maps of the frozen stages.

    Missing maps are computed. They lie in the cache folder, where all runs of the same trunk,
    images and views find them.
    """
    spec, recipe = experiment.data, experiment.recipe
    if not isinstance(experiment.backbone, BackboneSpec) or spec.dataset is None:
        raise InputError("trunk_cache wants images and a backbone: set recipe.trunk_cache=0.")
    sets = spec.read()
    views = spec.views or DATASETS[spec.dataset][1]
    own = experiment.method.traits.views
    wanted = {*own.labeled, *own.unlabeled} - {"plain"}
    counts = ViewCounts(**{name: recipe.trunk_cache if name in wanted else 0 for name in RANDOM})
    _, channels, *sides = sets.train.pixels.shape
    trunk = TrunkSpec(
        experiment.backbone, recipe.trainable_stages or 0, channels, max(sides), experiment.seed
    )
    encoder = trunk.load()
    images = Images(spec.dataset, sets, views)
    images = replace(images, known_fingerprint=images.fingerprint())
    key = fingerprint(images.fingerprint(), encoder.fingerprint, views, counts.counts())
    store = embed(
        images,
        trunk,
        cache_home() / "trunks" / key[:32],
        counts,
        processes=processes,
        encoder=encoder,
        progress=progress,
        wait=True,
    )
    return spec.load_store(store)


RANDOM = ("weak", "strong", "simclr")
TRUNK_CHUNK = 64
"""Images that a trunk takes at once."""


@dataclass(frozen=True)
class TrunkSpec:
    """All of a backbone but its last stages, as a run has it at its start."""

    backbone: BackboneSpec
    stages: int
    """Number of last stages that are trained, and so left out."""
    channels: int
    size: int
    seed: int
    """Seed of the random initial weights, if the backbone names none."""
    source: str = "trunk"

    def load(self, device: torch.device | None = None) -> Trunk:
        """The trunk with its weights, on a device."""
        body = self.backbone.build(self.channels, step_rng(self.seed, 0, "backbone"))
        load_weights(body, self.backbone)
        body.learn_last(self.stages)
        return Trunk(self, body).freeze_on(device)


class Trunk(Encoder):
    """The frozen stages of a backbone: its "features" are maps."""

    kind = "trunk"

    def __init__(self, spec: TrunkSpec, backbone: Backbone) -> None:
        as_they_are = Preprocessing(spec.size, spec.size, spec.channels)
        super().__init__(spec.source, as_they_are, backbone.num_features, TRUNK_CHUNK)
        self.backbone = backbone
        options = {**dataclasses.asdict(spec.backbone), "weights": None}
        self.fingerprint = encoder_fingerprint(
            sorted(backbone.state_dict().items()), as_they_are, spec=options, stages=spec.stages
        )

    def prepare(self, images: Tensor) -> Tensor:
        """Images as they are: the backbone standardizes them itself."""
        return images

    def forward(self, prepared: Tensor) -> Tensor:
        """(n, channels, h, w) to maps."""
        return self.backbone.trunk(prepared)

    def features(self, images: Tensor) -> Tensor:
        """The maps of images, chunk by chunk."""
        device = self.mean.device
        return torch.cat([self(chunk.to(device)) for chunk in torch.split(images, self.chunk)])
