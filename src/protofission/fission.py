"""Prototype Fission on one page: Eqs. 1-8 of docs/method.md, then the head that applies them.

Every function is pure and vectorised over rows, classes and slots. Shapes: N rows, C classes,
V prototypes (slots) a class, D features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.errors import require, unknown
from protofission.core.products import cosines
from protofission.core.records import Output, Prototypes

Similarity = Literal["cosine", "euclidean", "mahalanobis"]


def combine(g: Tensor, l: Tensor, delta: Tensor) -> Tensor:
    """Eq. 1: p(c,i) = (1 - lambda) norm(g(c)) + lambda norm(l(c,i)).

    Args:
        g: (C, D), the part that a class's prototypes share.
        l: (C, V, D), the part of each prototype's own.
        delta: (C, V).

    Returns:
        (C, V, D), not normalised.
    """
    share = mixing(delta)[..., None]
    return (1 - share) * unit(g)[:, None] + share * unit(l)


def mixing(delta: Tensor) -> Tensor:
    """Eq. 2: lambda = (tanh delta + 1) / 2, kept inside (0, 1) where tanh rounds to its limits."""
    eps = torch.finfo(delta.dtype).eps
    return (0.5 * (delta.tanh() + 1)).clamp(eps, 1 - eps)


def similarity(
    features: Tensor,
    prototypes: Tensor,
    kind: Similarity = "cosine",
    precision_root: Tensor | None = None,
) -> Tensor:
    """sim(x,c,i) of Eq. 3, for all prototypes at once.

    Cosine normalises both sides. Euclidean is 1 - |f - p|^2 / 2, which is the cosine where both
    sides have length 1, so that T and b keep their meaning. Mahalanobis is the same with
    |W^T (f - p)|^2, that is, with the precision W W^T.

    Args:
        features: (N, D).
        prototypes: (C, V, D).
        precision_root: W, (D, D), for Mahalanobis only.

    Returns:
        (N, C, V).
    """
    flat = prototypes.flatten(0, 1)  # (C V, D)
    if kind == "cosine":
        sims = cosines(features, flat)
    else:
        if precision_root is not None:
            features, flat = features @ precision_root, flat @ precision_root
        squares = features.square().sum(-1, keepdim=True) + flat.square().sum(-1)
        sims = 1 - 0.5 * squares + features @ flat.T
    return sims.view(-1, *prototypes.shape[:2])


def max_logits(similarities: Tensor) -> Tensor:
    """Eq. 3: logit(x)[c] = max_i sim(x,c,i). (N, C, V) -> (N, C)."""
    return similarities.amax(-1) if similarities.shape[-1] > 1 else similarities.squeeze(-1)


def local_diversity_loss(l: Tensor, reduction: Literal["mean", "sum"] = "mean") -> Tensor:
    """Eq. 4: the cosines of a class's local parts, over ordered pairs i != j, then over classes.

    The sum over pairs is |sum_i u_i|^2 - sum_i |u_i|^2 for unit u_i: linear in V.

    Args:
        l: (C, V, D).
        reduction: the mean over the V (V - 1) pairs of a class, or their sum.
    """
    units = unit(l)
    lengths = units.detach().square().sum((1, 2))  # 1 each whatever l is: no gradient
    pairs = units.sum(1).square().sum(-1) - lengths  # (C,)
    slots = l.shape[1]
    return pairs.mean() / (max(slots * (slots - 1), 1) if reduction == "mean" else 1)


def assignments(similarities: Tensor, labels: Tensor, temperature: float = 10.0) -> Tensor:
    """Eq. 5: A(x)[i] = softmax_i(T sim(x,y,i)), over the slots of the row's own class y.

    Args:
        similarities: (N, C, V).
        labels: (N,); a row of NO_CLASS gets the assignment of class 0, to be left out later.

    Returns:
        (N, V), rows sum to 1.
    """
    rows = torch.arange(len(labels), device=labels.device)
    return (temperature * similarities[rows, labels.clamp_min(0)]).softmax(-1)


def class_usage(assigned: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """The mean of A(x) over the rows of each class, (C, V), and the number of these rows, (C,)."""
    classes = torch.arange(num_classes, device=labels.device)
    members = (labels[:, None] == classes).to(assigned.dtype)  # (N, C)
    counts = members.sum(0)
    return (members.T @ assigned) / counts.clamp_min(1)[:, None], counts


def kl_to_prior(usage: Tensor, prior: Tensor | None = None) -> Tensor:
    """KL(usage || prior) over the last dimension; the prior is uniform where none is given."""
    log_prior = -math.log(usage.shape[-1]) if prior is None else prior.to(usage).log()
    tiny = torch.finfo(usage.dtype).tiny
    return (usage * (usage.clamp_min(tiny).log() - log_prior)).sum(-1)


def diversity_loss(
    assigned: Tensor,
    labels: Tensor,
    num_classes: int,
    prior: Tensor | None = None,
    *,
    reduce: Literal["batch_mean", "per_sample"] = "batch_mean",
    min_samples: int = 1,
) -> Tensor:
    """Eq. 6: KL( class mean of A(x) || prior ), averaged over the classes present.

    Args:
        assigned: (N, V), Eq. 5.
        labels: (N,) in [0, C), or NO_CLASS for a row that does not count.
        prior: (V,) or (C, V), each row a distribution; uniform where none is given.
        reduce: "per_sample" averages KL( A(x) || prior ) over a class instead.
        min_samples: a class with fewer rows counts as absent.
    """
    if reduce == "batch_mean":
        usage, counts = class_usage(assigned, labels, num_classes)
        divergence = kl_to_prior(usage, prior)  # (C,)
    else:
        own = prior if prior is None or prior.ndim == 1 else prior[labels.clamp_min(0)]
        divergences = kl_to_prior(assigned, own)[:, None]  # (N, 1)
        means, counts = class_usage(divergences, labels, num_classes)
        divergence = means[:, 0]
    present = (counts >= max(min_samples, 1)).to(assigned.dtype)
    return (divergence * present).sum() / present.sum().clamp_min(1)


def consistency_loss(risk: Callable[[Tensor], Tensor], slot_logits: Tensor) -> Tensor:
    """Eq. 7: (1/V) sum_i R(sigma(logit(x,i)), y), the risk charged to every slot's own logits.

    Args:
        risk: takes (N, C) logits, gives a scalar; it is vectorised over the slots.
        slot_logits: (N, C, V).
    """
    return torch.vmap(risk, in_dims=-1)(slot_logits).mean()


def fission_loss(
    risk: Callable[[Tensor], Tensor],
    output: Output,
    labels: Tensor,
    *,
    diversity_weight: float = 0.001,
    consistency_weight: float = 0.6,
    assign_temperature: float = 10.0,
    prior: Tensor | None = None,
) -> Tensor:
    """Eq. 8: L = L_max + lambda_div L_div + lambda_cst L_cst, for a training loop of your own.

    This is the equation to the letter. `WithFission` adds L_ldiv, and leaves single samples out of
    L_div, unless its options say otherwise.

    Args:
        risk: R(sigma(.), y) of any (N, C) logits, for instance
            ``lambda logits: F.cross_entropy(logits, labels)``.
        labels: (N,) labels or pseudo-labels; NO_CLASS keeps a row out of L_div.
    """
    num_classes = output.similarities.shape[1]
    check_labels(labels, len(output.features), num_classes)
    require(
        prior is None or bool((prior > 0).all() and (prior.sum(-1) - 1).abs().max() < 1e-6),
        f"prior = {prior} must be positive and sum to 1.",
    )
    assigned = assignments(output.similarities, labels, assign_temperature)
    return (
        risk(output.logits)
        + diversity_weight * diversity_loss(assigned, labels, num_classes, prior)
        + consistency_weight * consistency_loss(risk, output.slot_logits)
    )


class FissionHead(nn.Module):
    """V learnable prototypes a class: g, l and delta, and Eqs. 1-3 applied to them.

    With V = 1 it is a cosine head whose weight is the combined prototype.

    Args:
        num_features: D.
        num_classes: C, the seen classes first.
        prototypes: V.
        temperature: T of Eqs. 10 and 12.
        offset: b of Eq. 10.
        similarity: how features are compared with prototypes, see `similarity`.
        num_seen: S, needed only with `novel_prototypes`.
        novel_prototypes: prototypes of each class from S on; it divides V. Slot i of such a class
            is its prototype i modulo this number, so that every class keeps V slots.
        delta: the start of delta; 0 gives lambda = 1/2.
        generator: for the random start.
    """

    _own: Tensor
    """(C, V): the prototype behind each slot."""

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        prototypes: int = 5,
        *,
        temperature: float = 10.0,
        offset: float = 0.0,
        similarity: Similarity = "cosine",
        num_seen: int | None = None,
        novel_prototypes: int | None = None,
        delta: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_sizes(num_features=num_features, num_classes=num_classes, prototypes=prototypes)
        if similarity not in get_args(Similarity):
            raise unknown("similarity", similarity, get_args(Similarity))
        require(temperature > 0, f"temperature = {temperature} must be above 0.")
        require(
            num_seen is None or 0 <= num_seen <= num_classes,
            f"num_seen = {num_seen} must be between 0 and num_classes = {num_classes}.",
        )
        check_novel_prototypes(novel_prototypes, prototypes)
        novel = prototypes if novel_prototypes is None else novel_prototypes
        require(
            novel == prototypes or num_seen is not None,
            f"novel_prototypes = {novel} wants num_seen: which classes are novel?",
        )
        self.temperature, self.offset, self.similarity = temperature, offset, similarity
        self.g = nn.Parameter(random_directions(num_classes, num_features, generator=generator))
        self.l = nn.Parameter(
            random_directions(num_classes, prototypes, num_features, generator=generator)
        )
        self.delta = nn.Parameter(torch.full((num_classes, prototypes), float(delta)))
        self.precision_root = (
            nn.Parameter(torch.eye(num_features)) if similarity == "mahalanobis" else None
        )
        own = torch.arange(prototypes).repeat(num_classes, 1)
        own[num_classes if num_seen is None else num_seen :] %= novel
        self._tied = novel < prototypes
        self.register_buffer("_own", own, persistent=False)

    def prototypes(self) -> Prototypes:
        """The prototypes as they are now."""
        l: Tensor = self.l
        delta: Tensor = self.delta
        if self._tied:
            classes = torch.arange(len(l), device=l.device)[:, None]
            l, delta = l[classes, self._own], delta[classes, self._own]
        return Prototypes(combine(self.g, l, delta), l, mixing(delta))

    def extra_repr(self) -> str:
        """What print shows."""
        classes, prototypes, width = self.l.shape
        return f"{width} features, {classes} classes of {prototypes} prototypes, {self.similarity}"

    def forward(self, features: Tensor) -> Output:
        """(N, D) features to an `Output` of (N, C, V) similarities."""
        check_features(features, self.g.shape[-1])
        prototypes = self.prototypes()
        sims = similarity(features, prototypes.combined, self.similarity, self.precision_root)
        return Output(features, sims, max_logits(sims), prototypes, self.temperature, self.offset)


def unit(vectors: Tensor) -> Tensor:
    """Vectors made of length 1 along the last dimension; 0 stays 0."""
    return F.normalize(vectors, dim=-1)


def random_directions(*shape: int, generator: torch.Generator | None = None) -> Tensor:
    """Vectors of length 1 along the last dimension, uniform on the sphere."""
    return F.normalize(torch.randn(*shape, generator=generator), dim=-1)


MOST = 10**9
"""The largest number of anything."""
WIDEST = 2**14
"""The widest layer of a method's own nets: between two of these there are 268 million weights."""


def check_sizes(most: int = MOST, **sizes: int) -> None:
    """Refuse a C, V, D or other number below 1, or of which there cannot be so many."""
    for name, size in sizes.items():
        require(size >= 1, f"{name} = {size} must be at least 1.")
        require(size <= most, f"{name} = {size} must be at most {most:,}.")


def check_labels(labels: Tensor, rows: int, num_classes: int) -> None:
    """Refuse labels that are not one for each row, or not of a class."""
    require(
        labels.shape == (rows,) and rows > 0,
        f"Labels have the shape {tuple(labels.shape)}, but ({rows},) is wanted, and not empty.",
    )
    low, high = int(labels.min()), int(labels.max())
    require(
        low >= -1 and high < num_classes,
        f"Labels run from {low} to {high}, but classes from 0 to {num_classes - 1} (-1: none).",
    )


def check_novel_prototypes(novel: int | None, prototypes: int) -> None:
    """Refuse a number that V slots cannot be shared among evenly."""
    require(
        novel is None or (1 <= novel <= prototypes and prototypes % novel == 0),
        f"novel_prototypes = {novel} must divide prototypes = {prototypes}.",
    )


def check_features(features: Tensor, num_features: int) -> None:
    """Refuse features of another width, or, on a CPU, with a NaN or an infinity.

    On an accelerator a look at values would wait for all that is under way, at every forward; the
    loss of each step and the scores of a judgement are looked at anyway.
    """
    require(
        features.ndim == 2 and features.shape[1] == num_features,
        f"Features have the shape {tuple(features.shape)}, but the head wants (N, {num_features}).",
    )
    if features.device.type == "cpu" and not torch.compiler.is_compiling():
        total = features.detach().sum().item()  # one pass, in which no NaN or infinity can hide
        if math.isfinite(total):
            return
        bad = len(features) - int(features.isfinite().all(-1).sum())
        require(
            bad == 0,
            f"{bad} of {len(features)} feature vectors hold NaN or infinity: "
            "clean the input, or lower the learning rate if they came up in training.",
        )
