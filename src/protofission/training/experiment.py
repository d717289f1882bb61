"""The experiment: one frozen value that determines a run."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from protofission.core.checks import check_sizes
from protofission.core.distance_scores import DISTANCE_SCORES
from protofission.core.errors import InputError, check_choices, require, unknown
from protofission.core.memory_limits import require_memory
from protofission.core.options import FIXED, NAMED
from protofission.core.rng import check_seed
from protofission.core.scores import SCORES
from protofission.data.datasets import DataSpec
from protofission.data.splits.registry import find_split
from protofission.methods import Method, find_method
from protofission.models.adapters import AdapterSpec
from protofission.models.backbones import BackboneSpec
from protofission.models.heads import HeadSpec
from protofission.models.model import BodySpec, find_body
from protofission.system.json_files import as_type, fill_fields, parse_json
from protofission.training.recipe import Recipe

WEIGHTS = 3
"""Numbers that are kept for each weight: itself, its gradient, its momentum."""
LAYERS, SIMILARITIES = 2, 10
"""Arrays of the size of a body's largest layer, and of all similarities, that a step has at once;
the second is measured, with fission, on CPUs."""


@dataclass(frozen=True)
class Judging:
    """Options of the evaluation on the test set."""

    ood_score: str = "own"
    """The method's own score (`max_probability` for a method that has none); a name of
    protofission.core.scores.SCORES, from class logits; or a name of
    protofission.core.distance_scores.DISTANCE_SCORES, from features: nearest_neighbors,
    mahalanobis, relative_mahalanobis, pool_filter."""
    novel: Literal["own", "reject", "cluster"] = "own"
    """The way to predict novel classes: the method's own; reject, then cluster the rejected; or
    cluster all images, then match the clusters to the seen classes through the labels."""
    auc_heads: Literal["seen", "all"] = "seen"
    """Heads that the ID score is computed from; a confident novel cluster is not ID."""
    keep: float = 0.95
    """Methods without novel heads reject: this share of the labeled images is kept."""
    select: Literal["last", "oracle"] = "last"
    """The reported epoch. "oracle" is the best one by the test set's own labels: a bound."""
    every: int = 1
    """Epochs between two evaluations on the test set; the last epoch always has one."""
    neighbours: int = 200
    """k of the k-nearest-neighbor accuracy, by which features without a classifier are judged."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.ood_score not in (known := ("own", *SCORES, *DISTANCE_SCORES)):
            raise unknown("ood_score", self.ood_score, known)
        require(0 < self.keep < 1, f"keep = {self.keep} must lie between 0 and 1.")
        check_sizes(every=self.every, neighbours=self.neighbours)


@dataclass(frozen=True)
class Experiment:
    """Everything that determines a run; a frozen value, which `override` changes a copy of.

    Examples:
        >>> from protofission import METHODS, Experiment, preset
        >>> experiment = preset("digits", "orca+pf")
        >>> isinstance(experiment, Experiment), experiment.name, experiment.head.prototypes
        (True, 'orca+pf', 5)
    """

    name: str = field(metadata={FIXED: True})
    """The method's name."""
    method: Method[Any]
    head: HeadSpec
    data: DataSpec = field(default_factory=DataSpec)
    backbone: BodySpec = field(default_factory=BackboneSpec, metadata={NAMED: find_body})
    """A name of protofission.models.model.BODIES, with its options."""
    recipe: Recipe = field(default_factory=Recipe)
    judging: Judging = field(default_factory=Judging)
    seed: int = field(
        default=0,
        metadata={FIXED: "use --seed, or --first-seed and --seeds where there are several"},
    )
    """Seed of all random numbers in training."""

    def __post_init__(self) -> None:
        check_seed(self.seed)

    @classmethod
    def from_json(cls, content: str | bytes) -> Experiment:
        """Read what `as_json` wrote.

        An option that an earlier version did not have yet has its default.

        Raises:
            InputError: a part is missing, or this version does not know an option or a value.
        """
        try:
            plain = as_type(parse_json(content), dict[str, Any], "")
            for part in dataclasses.fields(cls):
                require(part.name in plain, f"{part.name} is missing.")
            return fill_fields(_example(plain), plain, "")
        except InputError as error:
            why = str(error).removesuffix(".")
            raise InputError(
                f"The experiment is not one of this version ({why}): run it again."
            ) from None

    def rows(self, processes: int = 1) -> int:
        """The number of rows in a step of each process: all views of its share of the batch."""
        views, recipe = self.method.traits.views, self.recipe
        labeled = len(views.labeled) * recipe.labeled_batch
        return (labeled + len(views.unlabeled) * recipe.unlabeled_batch) // processes

    def check_memory(self, shape: tuple[int, ...], num_classes: int, processes: int = 1) -> None:
        """Refuse a model and step that do not fit into the memory of this machine.

        Args:
            shape: of an image, or of its features.
            num_classes: heads of the model.
        """
        rows, body = self.rows(processes), self.backbone.extent(shape)
        head = self.head.extent(body.out, num_classes)
        held = WEIGHTS * (body.weights + head.weights)
        step = rows * (math.prod(shape) + LAYERS * body.row + SIMILARITIES * head.row)
        require_memory(
            4 * (held + step),
            f"A step of {rows:,} rows on {num_classes:,} classes of {self.head.slots:,} prototypes "
            f"with {body.out:,} features",
        )

    def check(self, processes: int = 1) -> None:
        """Refuse parts that do not fit each other, or the number of processes."""
        self.head.check()
        self.method.check(self.head)
        require(
            self.judging.novel != "reject" or self.method.traits.novel == "reject",
            f"judging.novel = reject does not fit {self.name}, which has a way of its own to speak "
            "of novel classes: leave it at own.",
        )
        traits, ood_score = self.method.traits, self.judging.ood_score
        require(
            ood_score not in SCORES or traits.classifies,
            f"judging.ood_score = {ood_score} looks at class logits, and {self.name} has none: "
            "leave it at own.",
        )
        require(
            ood_score == "own" or traits.predicts,
            f"judging.ood_score = {ood_score} is for predictions, and {self.name} makes none: "
            "leave it at own.",
        )
        require(
            processes == 1 or not self.method.traits.inner_step,
            f"{self.name} takes an inner step at every step, which processes cannot share: use 1.",
        )
        views = self.method.traits.views
        for name, wanted in (("labeled", views.labeled), ("unlabeled", views.unlabeled)):
            batch = getattr(self.recipe, f"{name}_batch") if wanted else 0
            require(
                batch % processes == 0,
                f"recipe.{name}_batch = {batch} cannot be shared by {processes} processes: "
                "choose a multiple.",
            )
        require(
            self.rows(processes) > 1,
            "A batch of one image cannot be standardized: raise recipe.labeled_batch.",
        )
        stages = self.recipe.trainable_stages
        require(
            stages is None or 0 <= stages <= self.backbone.stages,
            f"trainable_stages = {stages} must be between 0 and the backbone's "
            f"{self.backbone.stages} stages.",
        )
        if self.recipe.trunk_cache:
            self._check_trunk_cache(stages)

    def _check_trunk_cache(self, stages: int | None) -> None:
        """Refuse a trunk cache where the trunk changes, or where there is none."""
        require(
            self.data.store is None,
            f"trunk_cache is for images, and data.store = {self.data.store} holds features: leave "
            "one of them out.",
        )
        frozen = 0 if stages is None else self.backbone.stages - stages
        require(
            frozen > 0,
            f"trunk_cache = {self.recipe.trunk_cache} wants frozen stages, and all "
            f"{self.backbone.stages} learn: set recipe.trainable_stages=1.",
        )
        require(
            self.recipe.frozen_statistics == "frozen",
            "trunk_cache wants maps that stay as they are: set recipe.frozen_statistics=frozen.",
        )
        views = self.method.traits.views
        wanted = (views.labeled, views.unlabeled)
        most = max(names.count(name) for names in wanted for name in names)
        require(
            most <= self.recipe.trunk_cache <= 1000,
            f"trunk_cache = {self.recipe.trunk_cache}: {self.name} wants {most} views of an image "
            f"that differ, and 1000 versions are the most: set recipe.trunk_cache={max(most, 4)}.",
        )


def experiment_of(name: str, **parts: Any) -> Experiment:
    """The experiment of a method by name, with the head that it wants where none is given."""
    method = find_method(name)
    return Experiment(name, **{"method": method, "head": method.traits.head, **parts})


def _example(plain: dict[str, Any]) -> Experiment:
    """The defaults of the method, split and backbone that an experiment in JSON names."""
    name = as_type(plain["name"], str, "name")
    data = as_type(plain["data"], dict[str, Any], "data")
    split = as_type(data.get("split"), dict[str, Any], "data.split")
    named = find_split(as_type(split.get("name"), str, "data.split.name"))
    backbone = as_type(plain["backbone"], dict[str, Any], "backbone")
    adapts = "hidden" in backbone
    require(adapts or "blocks" in backbone, "backbone.blocks is missing.")
    return experiment_of(
        name,
        head=HeadSpec(),
        data=DataSpec(split=named),
        backbone=AdapterSpec() if adapts else BackboneSpec(),
    )


def as_json(value: Any) -> str:
    """A dataclass value, such as an experiment, as JSON with its fields in order."""
    return json.dumps(dataclasses.asdict(value), indent=2)
