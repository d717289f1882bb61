"""A reading of PMAL: prototypes are labeled images, mined for robustness and diversity.

After Lu et al., 2022, as far as it is public; docs/methods.md names every choice of ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.checks import check_sizes
from protofission.core.errors import require
from protofission.core.records import Output, Sizes, Step, Survey, Targets, Term, Terms
from protofission.methods.base import Method, Traits, label_rows
from protofission.models.heads import HeadSpec

MOST = 1000
"""Images of a class that are looked at in the mining, evenly spaced."""


@dataclass(frozen=True)
class Pmal(Method[Targets]):
    """Classes by the distance from a set of fixed images each; labels only."""

    perturbations: int = 5
    """Perturbed embeddings by which the robustness of an image is told."""
    dropped: float = 0.2
    """The share of the features that a perturbation sets to 0."""
    candidate_share: float = 0.5
    """The share of a class's images, the most robust ones, that prototypes are chosen from."""
    attention_temperature: float = 10.0
    """Multiplies the similarities of a class's prototypes in the attention over them."""

    traits = Traits(
        head=HeadSpec("distance"),
        survey_before_epoch=True,  # the mining, and the images' features as they are then
        reading=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(1000, perturbations=self.perturbations)
        require(0 < self.dropped < 1, f"dropped = {self.dropped} must be above 0 and below 1.")
        share = self.candidate_share
        require(0 < share <= 1, f"candidate_share = {share} must be above 0, at most 1.")

    def check(self, head: HeadSpec) -> None:
        """Refuse any other head: prototypes are features, and classes are told by distance."""
        super().check(head)
        require(
            head.kind == "distance",
            f"head.kind = {head.kind} does not fit: pmal measures distances from images, so leave "
            "it at distance.",
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The places of the mined images among the labeled ones, and their features."""
        memory, shape = nn.Module(), (sizes.num_seen, sizes.num_slots)
        memory.register_buffer("places", torch.zeros(shape, dtype=torch.long))
        memory.register_buffer("prototypes", torch.zeros(*shape, sizes.num_features))
        memory.register_buffer("mined", torch.zeros((), dtype=torch.bool))
        memory.register_buffer("seed", torch.randint(2**31, (), generator=generator))
        return memory

    @torch.no_grad()
    def survey(self, memory: nn.Module, survey: Survey) -> None:
        """Mine the images, once; then take their features as they are now."""
        features = torch.cat([output.features for output in survey.labeled])
        places, mined = memory.get_buffer("places"), memory.get_buffer("mined")
        if not mined:
            generator = torch.Generator().manual_seed(int(memory.get_buffer("seed")))
            for c in range(len(places)):
                own = (survey.labels == c).nonzero()[:, 0]
                own = own[:: max(1, -(-len(own) // MOST))]
                if len(own):
                    chosen = self.mine(features[own].cpu().double(), places.shape[1], generator)
                    places[c] = own[chosen.to(own.device)]
            mined.fill_(True)
        memory.get_buffer("prototypes").copy_(features[places])

    def mine(self, features: Tensor, number: int, generator: torch.Generator) -> Tensor:
        """(number,): places of robust rows that lie far from each other.

        The first is the most robust one; each further one is the candidate that is farthest, by
        cosine, from those before it. Where there are too few candidates, some repeat.
        """
        robust = robustness(features, self.perturbations, self.dropped, generator)
        most = max(1, int(self.candidate_share * len(features)))
        candidates = robust.topk(most).indices
        units = F.normalize(features[candidates], dim=-1)
        cosines, chosen = units @ units.T, [0]
        for _ in range(number - 1):
            chosen.append(int(cosines[chosen].amax(0).argmin()))
        return candidates[chosen]

    def decide(self, step: Step) -> Targets:
        """The labels."""
        return Targets(label_rows(step))

    def risk(self, step: Step, targets: Targets, logits: Tensor) -> Terms:
        """R on the weak view of the labeled images."""
        return (Term("distance", self.sigma.risk(step.labeled(logits), step.labels).mean()),)

    def charge(self, step: Step, targets: Targets) -> Terms:
        """R of the classes as `set_logits` has them."""
        return self.risk(step, targets, set_logits(step.output, self.attention_temperature))

    @torch.no_grad()
    def update(self, step: Step, targets: Targets) -> None:
        """Put the head's prototypes back to the mined images: they do not learn."""
        if step.head is not None:
            head, mined = step.head.get_parameter("prototypes"), step.memory.get_buffer("mined")
            head.copy_(torch.where(mined, step.memory.get_buffer("prototypes"), head))

    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor:
        """(N,): 1 - the largest probability."""
        logits = set_logits(output, self.attention_temperature)
        return 1 - self.sigma.probs(logits)[:, :num_seen].amax(-1)


def robustness(
    features: Tensor, perturbations: int, dropped: float, generator: torch.Generator
) -> Tensor:
    """(M,): minus the mean squared change of a row's cosines with the others under perturbation.

    A perturbation sets a share of the features to 0, the same ones in all rows.
    """
    units = F.normalize(features, dim=-1)
    cosines, changes = units @ units.T, features.new_zeros(len(features))
    for _ in range(perturbations):
        kept = torch.rand(features.shape[1], generator=generator, dtype=torch.float64) >= dropped
        moved = F.normalize(features * kept, dim=-1)
        changes += (moved @ moved.T - cosines).square().mean(1)
    return -changes / perturbations


def set_logits(output: Output, temperature: float) -> Tensor:
    """(N, C): logits by the mean similarity of a class's prototypes, the nearest weighing most."""
    attention = (temperature * output.similarities).softmax(-1)
    return (attention * output.slot_logits).sum(-1)
