"""Records that pass between the parts: Batch, Output, Step, Targets, Terms.

Letters for shapes, in every docstring of the package:
N rows (images times views) in a batch, L labeled and U unlabeled images, C heads (the S seen
classes first, then slots for novel ones), V prototypes a class, D features.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from protofission.core.errors import require

NO_CLASS = -1
"""The label of a row that belongs to no class, or to none that is trusted."""


ViewName = Literal["plain", "weak", "strong", "simclr"]


@dataclass(frozen=True)
class Views:
    """The augmented views of each labeled and unlabeled image that a method asks for, in order."""

    labeled: tuple[ViewName, ...] = ()
    unlabeled: tuple[ViewName, ...] = ()


class Share(NamedTuple):
    """The part of a batch that process `rank` of `size` computes."""

    rank: int = 0
    size: int = 1

    def total(self, own: int) -> int:
        """The size of the whole, where this part has `own`."""
        return own * self.size

    def of(self, total: int) -> slice:
        """The slice of `total` rows that is this part; the last parts may be shorter."""
        own = -(-total // self.size)
        return slice(self.rank * own, (self.rank + 1) * own)


WHOLE = Share()


class Prototypes(NamedTuple):
    """Prototypes of a head, with which features are compared; a linear or cosine head has V = 1."""

    combined: Tensor
    """(C, V, D): Eq. 1."""
    local: Tensor
    """(C, V, D): l of Eq. 1, the part in which the slots of a class differ."""
    mixing: Tensor
    """(C, V): lambda of Eq. 2, the share of the local part."""

    @staticmethod
    def one_per_class(weight: Tensor) -> Prototypes:
        """A (C, D) weight as prototypes with V = 1, none of which is local."""
        return Prototypes(weight[:, None], weight[:, None], weight.new_zeros(len(weight), 1))


@dataclass(frozen=True)
class Output:
    """The output of every head: features, and their similarity to every prototype."""

    features: Tensor
    """(N, D): penultimate features."""
    similarities: Tensor
    """(N, C, V): logit(x, i) of Eq. 7; cosines of a prototype head, scores of a linear one."""
    nearest: Tensor
    """(N, C): logit(x) of Eq. 3, the similarity of each class's nearest prototype."""
    prototypes: Prototypes
    temperature: float = 1.0
    """T of Eqs. 10 and 12."""
    offset: float = 0.0
    """b of Eq. 10."""

    @property
    def logits(self) -> Tensor:
        """(N, C): the max-logits, ready for the activation."""
        return self._scale(self.nearest)

    @property
    def slot_logits(self) -> Tensor:
        """(N, C, V): the logits of each slot alone, ready for the activation."""
        return self._scale(self.similarities)

    def _scale(self, similarities: Tensor) -> Tensor:
        """T sim - b: the only place that scales logits by the temperature."""
        scaled = self.temperature * similarities
        return scaled - self.offset if self.offset else scaled


@dataclass(frozen=True)
class Layout:
    """The order of a batch's rows: view by view, labeled images before unlabeled ones."""

    labeled: int
    unlabeled: int
    labeled_views: int
    unlabeled_views: int

    def __post_init__(self) -> None:
        require(
            self.labeled > 0 or self.labeled_views == 0,
            "A batch has no labeled image: give it at least one (recipe.labeled_batch).",
        )
        require(
            self.unlabeled > 0 or self.unlabeled_views == 0,
            "A batch has no unlabeled image: give it at least one (recipe.unlabeled_batch).",
        )

    @property
    def rows(self) -> int:
        """N."""
        return self.labeled * self.labeled_views + self.unlabeled * self.unlabeled_views

    def labeled_rows(self, view: int) -> slice:
        """The rows of one view of the labeled images."""
        require(view < self.labeled_views, f"There is no view {view} of the labeled images.")
        start = view * self.labeled + min(view, self.unlabeled_views) * self.unlabeled
        return slice(start, start + self.labeled)

    def unlabeled_rows(self, view: int) -> slice:
        """The rows of one view of the unlabeled images."""
        require(view < self.unlabeled_views, f"There is no view {view} of the unlabeled images.")
        start = view * self.unlabeled + min(view + 1, self.labeled_views) * self.labeled
        return slice(start, start + self.unlabeled)

    def blocks(self) -> Iterator[slice]:
        """The rows of each view of the labeled or the unlabeled images, in order."""
        for view in range(max(self.labeled_views, self.unlabeled_views)):
            if view < self.labeled_views:
                yield self.labeled_rows(view)
            if view < self.unlabeled_views:
                yield self.unlabeled_rows(view)

    def places(self, size: int) -> Tensor:
        """(N,): the position of each row when the shares of `size` processes are concatenated."""
        rows = torch.arange(self.rows)
        shares = [
            rows[block][Share(rank, size).of(block.stop - block.start)]
            for rank in range(size)
            for block in self.blocks()
        ]
        return torch.cat(shares).argsort()


class Sizes(NamedTuple):
    """The sizes that a method's own parameters and buffers depend on."""

    num_features: int
    """D."""
    num_classes: int
    """C, all heads of the model."""
    num_seen: int
    """S."""
    num_slots: int = 1
    """V."""


class Survey(NamedTuple):
    """The model's outputs before an epoch, chunk by chunk; computed only when they are read."""

    labeled: Iterable[Output]
    labels: Tensor
    """(all labeled images,)."""
    pool: Iterable[Output]


class Again(Protocol):
    """The model on a step's batch once more, with other weights, for methods with an inner step."""

    @property
    def weights(self) -> dict[str, Tensor]:
        """The trainable weights, by name."""

    def __call__(self, weights: Mapping[str, Tensor]) -> Output:
        """The output with these weights; no batch-norm statistic is updated."""


@dataclass(frozen=True)
class Batch:
    """The data of one step. Unlabeled images have no label here, nor anywhere upstream."""

    inputs: Tensor
    """(N, ...): all views of all images, in the order of `layout`, or one process's share."""
    labels: Tensor
    """(L,): classes of the labeled images."""
    layout: Layout
    places: Tensor
    """(U,): the positions of the unlabeled images in the pool."""


@dataclass(frozen=True)
class Step:
    """One training step, as a method sees it."""

    output: Output
    labels: Tensor
    """(L,)."""
    layout: Layout
    num_seen: int
    """S."""
    memory: nn.Module
    """The method's own state between steps (`Method.memory`)."""
    generator: torch.Generator
    """Randomness of this step: a function of the seed and the step's number."""
    progress: float = 0.0
    """Share of the training that is done, in [0, 1)."""
    places: Tensor | None = None
    """(U,): the positions of the unlabeled images in the pool."""
    again: Again | None = None
    """Function that runs the batch again, for methods with `Traits.inner_step`."""
    head: nn.Module | None = None
    """The model's head, for methods whose `update` moves its prototypes."""

    @property
    def logits(self) -> Tensor:
        """(N, C): the max-logits of Eq. 3."""
        return self.output.logits

    def labeled(self, rows: Tensor, view: int = 0) -> Tensor:
        """The (L, ...) rows of one view of the labeled images."""
        return rows[self.layout.labeled_rows(view)]

    def unlabeled(self, rows: Tensor, view: int = 0) -> Tensor:
        """The (U, ...) rows of one view of the unlabeled images."""
        return rows[self.layout.unlabeled_rows(view)]

    def both(self, rows: Tensor, view: int = 0) -> Tensor:
        """The (L + U, ...) rows of one view of all images, labeled first."""
        return rows[self.layout.labeled_rows(view).start : self.layout.unlabeled_rows(view).stop]


@dataclass(frozen=True)
class Targets:
    """A method's decisions for a step, without gradient; methods add fields of their own."""

    classes: Tensor
    """(N,): the label or pseudo-label of each row, NO_CLASS where none; L_div is over these."""


class Term(NamedTuple):
    """One named loss of a step."""

    name: str
    value: Tensor
    """A scalar, before its weight."""
    weight: float | Tensor = 1.0
    """A tensor where reading its value would make the CPU wait for an accelerator."""


Terms = tuple[Term, ...]


def total(terms: Sequence[Term]) -> Tensor:
    """The loss of a step: the weighted sum of its terms."""
    return torch.stack([term.value * term.weight for term in terms]).sum()
