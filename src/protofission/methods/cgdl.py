"""CGDL: a ladder of Gaussian latents that rebuilds features, with one Gaussian for each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.checks import WIDEST, check_sizes
from protofission.core.devices import send
from protofission.core.errors import check_positive, require
from protofission.core.records import Output, Sizes, Step, Survey, Targets, Term, Terms
from protofission.fission import random_directions
from protofission.methods.base import Adam, Method, Traits, label_rows
from protofission.methods.parts.linear_map import LinearMap
from protofission.methods.parts.ramps import linear_ramp

LEAST_VARIANCE = 1e-6
"""Lower bound of the variances of the ladder's Gaussians."""
LEAST_DEVIATION = 1e-3
"""Lower bound of a feature's deviation, as a share of the largest: a feature that hardly varies is
not blown up."""
ADDED_AT_ONCE = 1024
"""Latents whose covariances are added up at once."""


class Gaussian(NamedTuple):
    """Independent coordinates, (N, Z) each."""

    mean: Tensor
    variance: Tensor

    def at(self, noise: Tensor) -> Tensor:
        """The point that standard normal noise leads to."""
        return self.mean + self.variance.sqrt() * noise


class Climb(NamedTuple):
    """One way up the ladder and down again."""

    top: Gaussian
    """The class latent."""
    latent: Tensor
    """(N, Z): a point of it."""
    lower: Gaussian
    """The lower latent, from above and below."""
    lower_prior: Gaussian
    """The same, from above alone."""
    rebuilt: Tensor
    """(N, D): reconstructed features."""


class Standard(NamedTuple):
    """Mean and deviation by which features are standardized, (D,) each."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, mean: Tensor, square: Tensor) -> Standard:
        """Build it from mean and mean square."""
        deviation = (square - mean.square()).clamp_min(0).sqrt()
        least = (LEAST_DEVIATION * deviation.max()).clamp_min(1e-12)
        return cls(mean, torch.maximum(deviation, least))

    def __call__(self, features: Tensor) -> Tensor:
        """(N, D)."""
        return (features - self.mean) / self.deviation


@dataclass(frozen=True)
class LadderTargets(Targets):
    """The features to be rebuilt, and the noise of the two latents."""

    standard: Tensor
    """(2, D): `Standard` of the batch's labeled images, as a backbone in training has them."""
    rows: Tensor
    """(L, D): standardized."""
    noise: Tensor
    """(2, L, Z): noise of the class latent, and of the lower one."""


class Ladder(nn.Module):
    """Ladder VAE with two latents, class means, and statistics of the last survey."""

    mean: Tensor
    deviation: Tensor
    centres: Tensor
    precisions: Tensor
    means: Tensor
    deviations: Tensor

    def __init__(
        self, width: int, num_seen: int, hidden: int, latent: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.up = LinearMap(width, hidden, generator)
        self.up_step = LinearMap(hidden, 2 * latent, generator)
        self.up_again = LinearMap(hidden, hidden, generator)
        self.up_top = LinearMap(hidden, 2 * latent, generator)
        self.down = LinearMap(latent, hidden, generator)
        self.down_step = LinearMap(hidden, 2 * latent, generator)
        self.down_again = LinearMap(latent, hidden, generator)
        self.rebuild = LinearMap(hidden, width, generator)
        self.classify = LinearMap(latent, num_seen, generator)
        self.class_means = nn.Parameter(random_directions(num_seen, latent, generator=generator))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))
        self.register_buffer("centres", torch.zeros(num_seen, latent))
        self.register_buffer("precisions", torch.eye(latent).repeat(num_seen, 1, 1))
        self.register_buffer("means", torch.zeros(2))
        self.register_buffer("deviations", torch.ones(2))

    @property
    def standard(self) -> Standard:
        """The standardization by all labeled images."""
        return Standard(self.mean, self.deviation)

    def forward(self, rows: Tensor, noise: Tensor | None = None) -> Climb:
        """(N, D) standardized features; without noise, every latent is its mean."""
        first = self.up(rows).relu()
        top = _gaussian(self.up_top(self.up_again(first).relu()))
        latent = top.mean if noise is None else top.at(noise[0])
        prior = _gaussian(self.down_step(self.down(latent).relu()))
        lower = gaussian_product(_gaussian(self.up_step(first)), prior)
        point = lower.mean if noise is None else lower.at(noise[1])
        return Climb(top, latent, lower, prior, self.rebuild(self.down_again(point).relu()))

    def rules(self, features: Tensor) -> Tensor:
        """(N, 2): the reconstruction error, and the squared distance from the nearest Gaussian."""
        rows = self.standard(features)
        climb: Climb = self(rows)
        gaps = climb.top.mean[:, None] - self.centres  # (N, S, Z)
        far = torch.einsum("nsa,sab,nsb->ns", gaps, self.precisions, gaps).amin(-1)
        return torch.stack([rebuilding_error(rows, climb.rebuilt), far], 1)


@dataclass(frozen=True)
class Cgdl(Method[LadderTargets]):
    """R of the labels, and a two-rung ladder VAE whose upper latent is one Gaussian a class.

    On the standardized features x of the labeled images: latent = R of a classifier on z;
    reconstruction = |x - x'|^2; divergence = KL(q(z | x) | N(W y, I)) + KL(q(s | x, z) | p(s | z)),
    s the lower latent. The lambda of the paper, which multiplies R, here divides the others.
    An image is OOD where it is rebuilt badly, or where z is far from every class's Gaussian.
    """

    generative_weight: float = 0.01
    """1 / lambda, the weight of reconstruction and divergence."""
    latent_weight: float = 1.0
    """Weight of the risk of the classifier on the latent."""
    warmup: float = 0.25
    """Share of training in which beta, another weight of the divergence, rises to 1."""
    rule: Literal["both", "reconstruction", "latent"] = "both"
    """The rules of rejection: either of the two, or one of them alone."""
    latent: int = 32
    """Z, the size of both latents."""
    hidden: int = 128
    """The width of the nets between them."""
    ladder_rate: float = 1e-3
    """The learning rate of the ladder, by Adam."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(WIDEST, latent=self.latent, hidden=self.hidden)
        check_positive(ladder_rate=self.ladder_rate)
        require(0 <= self.warmup <= 1, f"warmup = {self.warmup} must be between 0 and 1.")

    @property
    def traits(self) -> Traits:
        """Both rejection rules, and the OOD score, use statistics of all labeled images."""
        return Traits(
            survey_before_epoch=True,
            survey_before_scoring=True,
            memory_optimizer=Adam(self.ladder_rate),
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> Ladder:
        """The ladder."""
        sides = sizes.num_features, sizes.num_seen, self.hidden, self.latent
        return Ladder(*sides, generator)

    @torch.no_grad()
    def survey(self, memory: nn.Module, survey: Survey) -> None:
        """Standardization; then the Gaussian of each class, and how well features are rebuilt."""
        ladder = cast(Ladder, memory)
        total, rows = torch.zeros_like(ladder.mean, dtype=torch.float64), 0
        squares = torch.zeros_like(total)
        for output in survey.labeled:
            features = output.features.double()
            total += features.sum(0)
            squares += features.square().sum(0)
            rows += len(features)
        standard = Standard.of(total / rows, squares / rows)
        ladder.mean.copy_(standard.mean)
        ladder.deviation.copy_(standard.deviation)

        tops = [ladder(ladder.standard(output.features)).top for output in survey.labeled]
        latents = Gaussian(*(torch.cat(parts).double() for parts in zip(*tops, strict=True)))
        centres, covariances = class_gaussians(latents, survey.labels, *ladder.class_means.shape)
        ladder.centres.copy_(centres)
        ladder.precisions.copy_(torch.linalg.inv(covariances))
        found = torch.cat([ladder.rules(output.features) for output in survey.labeled]).double()
        ladder.means.copy_(found.mean(0))
        ladder.deviations.copy_(found.std(0, correction=0).clamp_min(1e-12))

    def beta(self, progress: float) -> float:
        """The share of its weight that the divergence has."""
        return linear_ramp(progress, self.warmup)

    @torch.no_grad()
    def decide(self, step: Step) -> LadderTargets:
        """The features as a target without gradient: they do not learn to be rebuilt easily."""
        features = step.labeled(step.output.features).detach()
        wide = features.double()  # the difference of two squares is a small one
        standard = Standard.of(wide.mean(0), wide.square().mean(0))
        noise = torch.randn(2, len(features), self.latent, generator=step.generator)
        return LadderTargets(
            label_rows(step),
            torch.stack(standard).to(features),
            standard(features).to(features),
            send(noise.to(features.dtype), features.device),
        )

    def risk(self, step: Step, targets: LadderTargets, logits: Tensor) -> Terms:
        """R on the weak view of the labeled images."""
        return (Term("supervised", self.sigma.risk(step.labeled(logits), step.labels).mean()),)

    def other_terms(self, step: Step, targets: LadderTargets) -> Terms:
        """The ladder's terms."""
        ladder = cast(Ladder, step.memory)
        inputs = Standard(*targets.standard)(step.labeled(step.output.features))
        climb: Climb = ladder(inputs, targets.noise)
        own = ladder.class_means[step.labels]
        apart = divergence(climb.top, Gaussian(own, torch.ones_like(own)))
        apart = apart + divergence(climb.lower, climb.lower_prior)
        error = rebuilding_error(targets.rows, climb.rebuilt).mean()
        known = F.cross_entropy(ladder.classify(climb.latent), step.labels)
        beta = self.beta(step.progress)
        return (
            Term("latent", known, self.latent_weight),
            Term("reconstruction", error, self.generative_weight),
            Term("divergence", apart.mean(), self.generative_weight * beta),
        )

    @torch.no_grad()
    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor:
        """(N,): by how many deviations the worse rule is above the labeled images' mean."""
        ladder = cast(Ladder, memory)
        found = (ladder.rules(output.features) - ladder.means) / ladder.deviations
        match self.rule:
            case "both":
                return found.amax(-1)
            case "reconstruction":
                return found[:, 0]
            case "latent":
                return found[:, 1]


def _gaussian(sides: Tensor) -> Gaussian:
    mean, variance = sides.chunk(2, -1)
    return Gaussian(mean, F.softplus(variance) + LEAST_VARIANCE)


def gaussian_product(first: Gaussian, second: Gaussian) -> Gaussian:
    """The product of two Gaussians: precisions add up, means are weighed by them."""
    whole = 1 / first.variance + 1 / second.variance
    mean = (first.mean / first.variance + second.mean / second.variance) / whole
    return Gaussian(mean, 1 / whole)


def divergence(own: Gaussian, prior: Gaussian) -> Tensor:
    """(N,): KL(own | prior) = 1/2 sum of log(v' / v) + (v + (m - m')^2) / v' - 1."""
    square = own.variance + (own.mean - prior.mean).square()
    logs = prior.variance.log() - own.variance.log()
    return (logs + square / prior.variance - 1).sum(-1) / 2


def rebuilding_error(rows: Tensor, rebuilt: Tensor) -> Tensor:
    """(N,): |x - x'|^2."""
    return (rows - rebuilt).square().sum(-1)


def class_gaussians(
    latents: Gaussian, labels: Tensor, num_seen: int, size: int
) -> tuple[Tensor, Tensor]:
    """(S, Z) means and (S, Z, Z) covariances of each class's latents.

    A covariance is that of the means plus the mean of the variances, so that it can be inverted
    however few images a class has; a class without any is N(0, I).
    """
    member = F.one_hot(labels, num_seen).to(latents.mean)
    counts = member.sum(0)
    centres = member.T @ latents.mean / counts.clamp_min(1)[:, None]
    own = (member.T @ latents.variance / counts.clamp_min(1)[:, None]).diag_embed()
    spread = latents.mean.new_zeros(num_seen * size, size)
    for start in range(0, len(labels), ADDED_AT_ONCE):
        some = slice(start, start + ADDED_AT_ONCE)
        gaps = latents.mean[some] - centres[labels[some]]
        spread += (member[some, :, None] * gaps[:, None]).flatten(1).T @ gaps
    covariances = spread.view(num_seen, size, size) / counts.clamp_min(1)[:, None, None] + own
    identity = torch.eye(size, dtype=covariances.dtype, device=covariances.device)
    return centres, torch.where((counts > 0)[:, None, None], covariances, identity)
