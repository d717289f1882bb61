"""Prototype Fission on one page: Eqs. 1-8 of the paper, then the head that applies them.

    Eq. 1  combine                 p(c,i) = (1 - lambda(c,i)) norm(g(c)) + lambda(c,i) norm(l(c,i))
    Eq. 2  mixing                  lambda(c,i) = (tanh delta(c,i) + 1) / 2
    Eq. 3  similarity, max_logits  logit(x)[c] = max_i sim(x,c,i),  L_max = R(sigma(logit(x)), y)
    Eq. 4  local_diversity_loss    L_ldiv = mean over i != j of cos(l(c,i), l(c,j))
    Eq. 5  assignments             A(x)[i] = softmax_i(T sim(x,y,i))
    Eq. 6  diversity_loss          L_div = KL(class mean of A(x) || prior)
    Eq. 7  consistency_loss        L_cst = (1/V) sum_i R(sigma(logit(x,i)), y)
    Eq. 8  fission_loss            L = L_max + lambda_div L_div + lambda_cst L_cst

Eqs. 9, 10 and 12, the activations sigma with their risks R, are in core/risks.py; docs/method.md
has all equations, and every choice that the paper leaves open.

The functions are pure and vectorized over rows, classes and slots. Shapes: N rows, C classes,
V prototypes (slots) per class, D features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.checks import check_features, check_labels, check_sizes
from protofission.core.errors import require, unknown
from protofission.core.records import Output, Prototypes
from protofission.core.threaded_products import cosines

Similarity = Literal["cosine", "euclidean", "mahalanobis"]


# Prototypes and logits


def combine(g: Tensor, l: Tensor, delta: Tensor) -> Tensor:
    """Eq. 1: p(c,i) = (1 - lambda(c,i)) norm(g(c)) + lambda(c,i) norm(l(c,i)).

    Args:
        g: (C, D), the global part, which the prototypes of a class share.
        l: (C, V, D), the local part of each prototype.
        delta: (C, V), which gives lambda by Eq. 2.

    Returns:
        (C, V, D) prototypes, not normalized.
    """
    share = mixing(delta)[..., None]
    return (1 - share) * unit(g)[:, None] + share * unit(l)


def mixing(delta: Tensor) -> Tensor:
    """Eq. 2: lambda(c,i) = (tanh delta(c,i) + 1) / 2, clamped into (0, 1) against rounding."""
    eps = torch.finfo(delta.dtype).eps
    return (0.5 * (delta.tanh() + 1)).clamp(eps, 1 - eps)


def unit(vectors: Tensor) -> Tensor:
    """norm(.) of Eq. 1: vectors scaled to length 1 along the last dimension; 0 stays 0."""
    return F.normalize(vectors, dim=-1)


def similarity(
    features: Tensor,
    prototypes: Tensor,
    kind: Similarity = "cosine",
    precision_root: Tensor | None = None,
) -> Tensor:
    """sim(x,c,i) of Eq. 3, of all rows with all prototypes.

    "cosine" normalizes both sides. "euclidean" is 1 - |f - p|^2 / 2, which equals the cosine of
    unit vectors, so that T and b keep their meaning. "mahalanobis" is the same with
    |W^T (f - p)|^2, that is, with the precision W W^T.

    Args:
        features: (N, D).
        prototypes: (C, V, D).
        precision_root: W, (D, D), for "mahalanobis" only.

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


# Losses


def local_diversity_loss(l: Tensor, reduction: Literal["mean", "sum"] = "mean") -> Tensor:
    """Eq. 4: L_ldiv, the mean of cos(l(c,i), l(c,j)) over ordered pairs i != j, then over classes.

    The sum over pairs is |sum_i u_i|^2 - sum_i |u_i|^2 for unit u_i: linear in V.

    Args:
        l: (C, V, D), the local parts.
        reduction: "sum" adds up the V (V - 1) pairs of a class instead.
    """
    units = unit(l)
    lengths = units.detach().square().sum((1, 2))  # 1 each, whatever l is: no gradient
    pairs = units.sum(1).square().sum(-1) - lengths  # (C,)
    slots = l.shape[1]
    return pairs.mean() / (max(slots * (slots - 1), 1) if reduction == "mean" else 1)


def assignments(similarities: Tensor, labels: Tensor, temperature: float = 10.0) -> Tensor:
    """Eq. 5: A(x)[i] = softmax_i(T sim(x,y,i)), over the slots of the row's own class y.

    Args:
        similarities: (N, C, V).
        labels: (N,); a row of NO_CLASS gets the assignment of class 0, and L_div leaves it out.

    Returns:
        (N, V), rows sum to 1.
    """
    rows = torch.arange(len(labels), device=labels.device)
    return (temperature * similarities[rows, labels.clamp_min(0)]).softmax(-1)


def class_usage(assigned: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """The class means of A(x), (C, V), and the number of rows of each class, (C,)."""
    classes = torch.arange(num_classes, device=labels.device)
    members = (labels[:, None] == classes).to(assigned.dtype)  # (N, C)
    counts = members.sum(0)
    return (members.T @ assigned) / counts.clamp_min(1)[:, None], counts


def kl_to_prior(usage: Tensor, prior: Tensor | None = None) -> Tensor:
    """KL(usage || prior) over the last dimension; the prior is uniform if None."""
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
    """Eq. 6: L_div = KL(class mean of A(x) || prior), averaged over the classes present.

    Args:
        assigned: (N, V), A(x) of Eq. 5.
        labels: (N,) in [0, C), or NO_CLASS for a row to leave out.
        prior: (V,) or (C, V), each row a distribution; uniform if None.
        reduce: "per_sample" averages KL(A(x) || prior) over the rows of a class instead.
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
    """Eq. 7: L_cst = (1/V) sum_i R(sigma(logit(x,i)), y), the risk of each slot's logits.

    Args:
        risk: from (N, C) logits to a scalar; `torch.vmap` runs it over the slots.
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

    This is the equation to the letter. By default `WithFission` also adds L_ldiv, and leaves
    classes with a single row out of L_div.

    Args:
        risk: R(sigma(.), y) of any (N, C) logits, for instance
            ``lambda logits: F.cross_entropy(logits, labels)``.
        output: of a `FissionHead`.
        labels: (N,) labels or pseudo-labels; NO_CLASS keeps a row out of L_div.
        diversity_weight: lambda_div.
        consistency_weight: lambda_cst.
        assign_temperature: T of Eq. 5.
        prior: of Eq. 6, see `diversity_loss`.

    Returns:
        A scalar.

    Examples:
        >>> import torch
        >>> from protofission import FissionHead, fission_loss
        >>> features, labels = torch.randn(64, 128), torch.randint(10, (64,))
        >>> output = FissionHead(num_features=128, num_classes=10)(features)
        >>> loss = fission_loss(
        ...     lambda logits: torch.nn.functional.cross_entropy(logits, labels), output, labels
        ... )
        >>> loss.backward()
        >>> loss.ndim
        0
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


# The head


class FissionHead(nn.Module):
    """V learnable prototypes per class: the parameters g, l and delta, and Eqs. 1-3.

    With V = 1 it is a cosine head whose weight is the combined prototype.

    Args:
        num_features: D.
        num_classes: C, the seen classes first.
        prototypes: V.
        temperature: T of Eqs. 10 and 12.
        offset: b of Eq. 10.
        similarity: of features and prototypes, see the function of that name.
        num_seen: S, required only with `novel_prototypes`.
        novel_prototypes: prototypes of each class from S on, a divisor of V. Slot i of such a
            class is its prototype i modulo this number, so that every class keeps V slots.
        delta: initial value of delta; 0 gives lambda = 1/2.
        generator: for the random initial g and l.

    Examples:
        >>> import torch
        >>> from protofission import FissionHead
        >>> head = FissionHead(num_features=128, num_classes=10, prototypes=5)
        >>> output = head(torch.randn(64, 128))
        >>> tuple(output.logits.shape), tuple(output.similarities.shape)
        ((64, 10), (64, 10, 5))
    """

    _own: Tensor
    """(C, V): the index of the prototype in each slot."""

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
        """The current prototypes (Eqs. 1 and 2)."""
        l: Tensor = self.l
        delta: Tensor = self.delta
        if self._tied:
            classes = torch.arange(len(l), device=l.device)[:, None]
            l, delta = l[classes, self._own], delta[classes, self._own]
        return Prototypes(combine(self.g, l, delta), l, mixing(delta))

    def extra_repr(self) -> str:
        """Sizes and similarity, for print."""
        classes, prototypes, width = self.l.shape
        return f"{width} features, {classes} classes of {prototypes} prototypes, {self.similarity}"

    def forward(self, features: Tensor) -> Output:
        """Eq. 3: (N, D) features to an `Output` with (N, C, V) similarities."""
        check_features(features, self.g.shape[-1])
        prototypes = self.prototypes()
        sims = similarity(features, prototypes.combined, self.similarity, self.precision_root)
        return Output(features, sims, max_logits(sims), prototypes, self.temperature, self.offset)


def random_directions(*shape: int, generator: torch.Generator | None = None) -> Tensor:
    """Random vectors of length 1 along the last dimension, uniform on the sphere."""
    return F.normalize(torch.randn(*shape, generator=generator), dim=-1)


def check_novel_prototypes(novel: int | None, prototypes: int) -> None:
    """Refuse a number of novel prototypes that does not divide V."""
    require(
        novel is None or (1 <= novel <= prototypes and prototypes % novel == 0),
        f"novel_prototypes = {novel} must divide prototypes = {prototypes}.",
    )
