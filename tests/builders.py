"""Random steps for any method, and the same steps as the lists that the scalar twins read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from protofission.core.records import Layout, Output, Prototypes, Sizes, Step
from protofission.fission import FissionHead
from protofission.methods import Method
from protofission.models.heads import HeadSpec
from protofission.models.heads.cosine import CosineHead
from protofission.models.heads.distance import DistanceHead
from protofission.models.heads.linear import LinearHead
from protofission.models.heads.projection import ProjectionHead
from protofission.models.heads.reciprocal import ReciprocalHead
from protofission.models.heads.student import StudentHead
from reference import prototypes as scalar
from reference.methods import Key, Scene

SEEN, NOVEL, WIDTH = 3, 2, 6
LABELS = (0, 1, 0, 2, 1, 0)
"""Class 2 has one image only."""
UNLABELED = 8


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=rng(seed), dtype=dtype)


@dataclass(frozen=True)
class HeadAgain:
    """`Again` for a case, where the head alone learns."""

    head: nn.Module
    features: Tensor

    @property
    def weights(self) -> dict[str, Tensor]:
        return dict(self.head.named_parameters())

    def __call__(self, weights: Mapping[str, Tensor]) -> Output:
        return functional_call(self.head, dict(weights), (self.features,))


@dataclass
class Case:
    """A method with a head, a memory and the features of a batch."""

    method: Method[Any]
    head: nn.Module
    memory: nn.Module
    features: Tensor
    """(N, D), a leaf that wants its gradient."""
    keys: list[Key]
    """Which view of which image each row is."""
    progress: float = 0.5

    @property
    def layout(self) -> Layout:
        views = self.method.traits.views
        return Layout(
            len(LABELS) if views.labeled else 0,
            UNLABELED if views.unlabeled else 0,
            len(views.labeled),
            len(views.unlabeled),
        )

    def step(self, features: Tensor | None = None) -> Step:
        """The step, with a graph and a generator of its own at every call."""
        return Step(
            output=self.head(self.features if features is None else features),
            labels=torch.tensor(
                LABELS if self.method.traits.views.labeled else (), dtype=torch.long
            ),
            layout=self.layout,
            num_seen=SEEN,
            memory=self.memory,
            generator=rng(77),
            progress=self.progress,
            places=torch.arange(self.layout.unlabeled),
            again=HeadAgain(self.head, self.features if features is None else features),
            head=self.head,
        )

    def rows(self, kind: str, view: int) -> list[int]:
        return [row for row, key in enumerate(self.keys) if key[:2] == (kind, view)]

    def scene(self) -> Scene:
        """The step for the scalar twins, from the parameters up."""
        rows = self.features.tolist()
        output = self.head(self.features)
        sims = [scalar_similarities(self.head, row) for row in rows]
        return Scene(
            features=dict(zip(self.keys, rows, strict=True)),
            sims=dict(zip(self.keys, sims, strict=True)),
            labels=list(LABELS) if self.method.traits.views.labeled else [],
            unlabeled=UNLABELED if self.method.traits.views.unlabeled else 0,
            temperature=output.temperature,
            offset=output.offset,
        )


def scalar_similarities(head: nn.Module, row: list[float]) -> list[list[float]]:
    match head:
        case FissionHead():
            own = [p.tolist() for p in (head.g, head.l, head.delta)]
            root = None if head.precision_root is None else head.precision_root.tolist()
            return scalar.similarities(row, scalar.combine(*own), head.similarity, root)
        case CosineHead():
            return [[scalar.cosine(row, w)] for w in head.weight.tolist()]
        case LinearHead():
            weights = zip(head.weight.tolist(), head.bias.tolist(), strict=True)
            return [[scalar.dot(row, w) + b] for w, b in weights]
        case DistanceHead():
            prototypes = head.prototypes.tolist()
            return [
                [-scalar.squared_distance(row, p) / len(row) for p in own] for own in prototypes
            ]
        case ReciprocalHead():
            points = head.points.tolist()
            far = [scalar.squared_distance(row, r) / len(row) for r in points]
            aside = [scalar.dot(row, r) if head.dot else 0.0 for r in points]
            return [[d - a] for d, a in zip(far, aside, strict=True)]
        case StudentHead():
            mapped = [scalar.dot(row, axis) for axis in head.axes.tolist()]
            far = [scalar.squared_distance(mapped, c) for c in head.centres.tolist()]
            return [[-math.log(1 + d)] for d in far]
        case ProjectionHead():
            layers = zip(head.hidden.tolist(), head.hidden_bias.tolist(), strict=True)
            hidden = [max(scalar.dot(row, w) + b, 0.0) for w, b in layers]
            return [[scalar.dot(hidden, w)] for w in head.weight.tolist()]
        case _:
            raise AssertionError(head)


def make_head(spec: HeadSpec, num_classes: int, seed: int) -> nn.Module:
    """A head away from its start: nothing at 0, no vector of length 1."""
    head = spec.build(WIDTH, num_classes, SEEN, rng(seed)).double()
    with torch.no_grad():
        for number, parameter in enumerate(head.parameters()):
            parameter.add_(0.3 * normal(*parameter.shape, seed=seed * 100 + number))
            if parameter.ndim > 1 and parameter is not getattr(head, "delta", None):
                parameter.mul_(1 + normal(*parameter.shape[:-1], 1, seed=seed + number).abs())
    return head


def make_case(
    method: Method[Any],
    seed: int = 0,
    *,
    head: HeadSpec | None = None,
    uncertainty: float = 0.3,
    progress: float = 0.5,
) -> Case:
    """A batch in which some images sit near a prototype and some far from all.

    Rows stand as `Layout` promises: view by view, the labeled images before the unlabeled.
    """
    num_classes = SEEN + NOVEL if method.traits.has_novel_heads else SEEN
    spec = head or replace(method.traits.head, prototypes=4)
    module = make_head(spec, num_classes, seed)
    slots = spec.slots
    memory = method.memory(Sizes(WIDTH, num_classes, SEEN, slots), rng(seed)).double()
    for name, buffer in memory.named_buffers():
        if name.endswith("uncertainty"):
            buffer.fill_(uncertainty)
        elif name.endswith("usage"):
            buffer.copy_(normal(*buffer.shape, seed=seed).softmax(-1))

    anchors = module(normal(1, WIDTH)).prototypes.combined.detach()  # (C, V, D)
    anchors = anchors / anchors.norm(dim=-1, keepdim=True)
    generator = rng(seed + 1000)
    pool = torch.randint(anchors.shape[0], (UNLABELED,), generator=generator).tolist()
    images = [("labeled", y) for y in LABELS] + [("unlabeled", y) for y in pool]
    centres = {}
    for number, (kind, y) in enumerate(images):
        slot = int(torch.randint(anchors.shape[1], (), generator=generator))
        near = (0.02, 0.3, 0.5)[number % 3] * normal(WIDTH, seed=seed + 10 * number)
        near += anchors[y, slot] if number % 7 else -anchors.mean((0, 1))
        index = number if kind == "labeled" else number - len(LABELS)
        centres[kind, index] = (1.0, 2.5, 5.0, 8.0)[number % 4] * near

    keys: list[Key] = []
    views = {
        "labeled": len(method.traits.views.labeled),
        "unlabeled": len(method.traits.views.unlabeled),
    }
    for view in range(max(views.values())):
        for kind in ("labeled", "unlabeled"):
            if view < views[kind]:
                keys += [(k, view, i) for k, i in centres if k == kind]
    features = torch.stack([centres[kind, image] for kind, _, image in keys])
    shaken = 0.1 * features.norm(dim=-1, keepdim=True) * normal(*features.shape, seed=seed + 5)
    features = features + shaken
    return Case(method, module, memory, features.requires_grad_(), keys, progress)


def output_of(
    similarities: Tensor,
    features: Tensor | None = None,
    temperature: float = 1.0,
    offset: float = 0.0,
) -> Output:
    """An output with given (N, C, V) similarities, or (N, C) ones with V = 1."""
    sims = similarities if similarities.ndim == 3 else similarities[..., None]
    rows, classes, slots = sims.shape
    vectors = normal(classes, slots, WIDTH)
    return Output(
        features=normal(rows, WIDTH) if features is None else features,
        similarities=sims,
        nearest=sims.amax(-1),
        prototypes=Prototypes(vectors, vectors, torch.full((classes, slots), 0.5)),
        temperature=temperature,
        offset=offset,
    )


def step_of(
    method: Method[Any], output: Output, labels: list[int], unlabeled: int, **others: Any
) -> Step:
    """A step from a hand-made output."""
    views = method.traits.views
    slots = output.similarities.shape[2]
    return Step(
        output=output,
        labels=torch.tensor(labels, dtype=torch.long),
        layout=Layout(len(labels), unlabeled, len(views.labeled), len(views.unlabeled)),
        **{
            "num_seen": SEEN,
            "memory": method.memory(
                Sizes(output.features.shape[1], output.similarities.shape[1], SEEN, slots), rng(0)
            ),
            "generator": rng(0),
            **others,
        },
    )
