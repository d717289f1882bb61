"""The losses of the methods, image by image: the words of docs/method.md turned into loops.

A loss is a dictionary of *weighted* terms; their sum is the loss of the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from reference.prototypes import assignment, cosine, diversity, kl, local_diversity, mean, usage
from reference.risks import cross_entropy, log_sum_exp, one_vs_all, sigmoid, softmax

Key = tuple[str, int, int]
"""("labeled" or "unlabeled", view, image), counted from 0."""
Logits = Callable[[Key], list[float]]
Classes = dict[Key, int | None]
Loss = dict[str, float]


@dataclass
class Scene:
    """A step as lists: every view of every image under its key."""

    features: dict[Key, list[float]]
    sims: dict[Key, list[list[float]]]
    labels: list[int]
    unlabeled: int
    temperature: float = 1.0
    offset: float = 0.0

    def max_logits(self, key: Key) -> list[float]:
        return [self.temperature * max(slots) - self.offset for slots in self.sims[key]]

    def slot_logits(self, slot: int) -> Logits:
        return lambda key: [self.temperature * own[slot] - self.offset for own in self.sims[key]]

    @property
    def slots(self) -> int:
        return len(next(iter(self.sims.values()))[0])

    @property
    def heads(self) -> int:
        return len(next(iter(self.sims.values())))

    def images(self, view: int) -> list[Key]:
        """Labeled, then unlabeled."""
        return [("labeled", view, i) for i in range(len(self.labels))] + [
            ("unlabeled", view, u) for u in range(self.unlabeled)
        ]

    def label_classes(self) -> Classes:
        return {key: self.labels[key[2]] if key[0] == "labeled" else None for key in self.sims}


def best(probs: list[float]) -> tuple[float, int]:
    return max(probs), probs.index(max(probs))


def supervised(scene: Scene, logits: Logits) -> Loss:
    risks = [cross_entropy(logits(("labeled", 0, i)), y) for i, y in enumerate(scene.labels)]
    return {"supervised": mean(risks)}


def fixmatch(
    scene: Scene, logits: Logits, *, threshold: float = 0.95, unlabeled_weight: float = 1.0
) -> Loss:
    """Softmax: a doubtful image is ignored, but counts in the mean."""
    charged = 0.0
    for u in range(scene.unlabeled):
        confidence, pseudo = best(softmax(scene.max_logits(("unlabeled", 0, u))))
        if confidence >= threshold:
            charged += cross_entropy(logits(("unlabeled", 1, u)), pseudo)
    return {
        **supervised(scene, logits),
        "pseudo": unlabeled_weight * charged / scene.unlabeled,
    }


def fixmatch_classes(
    scene: Scene, activation: Callable[[list[float]], list[float]], threshold: float = 0.95
) -> Classes:
    """Labels, and trusted pseudo-labels on the strong view."""
    classes = scene.label_classes()
    for u in range(scene.unlabeled):
        confidence, pseudo = best(activation(scene.max_logits(("unlabeled", 0, u))))
        classes["unlabeled", 1, u] = pseudo if confidence >= threshold else None
    return classes


def sigmoids(logits: list[float]) -> list[float]:
    return [sigmoid(z) for z in logits]


def fixmatch_sigmoid(
    scene: Scene,
    logits: Logits,
    slots: bool = False,
    *,
    progress: float,
    threshold: float = 0.95,
    unlabeled_weight: float = 1.0,
    ood_weight: float = 1.0,
    ood_warmup: float = 0.25,
    ood_below: float = 0.5,
    literal: bool = False,
    ood_on: str = "max",
    bce_reduction: str = "sum",
) -> Loss:
    """One-vs-all: a doubtful image is taken for OOD (Eq. 9), save in warm-up and band.

    `slots` says that the logits are those of one slot rather than the max-logits.
    """
    if literal:
        ood_warmup, ood_below = 0.0, threshold
    labeled = [
        one_vs_all(logits(("labeled", 0, i)), y, bce_reduction) for i, y in enumerate(scene.labels)
    ]
    pseudo_risk = ood_risk = 0.0
    for u in range(scene.unlabeled):
        confidence, pseudo = best(sigmoids(scene.max_logits(("unlabeled", 0, u))))
        strong = logits(("unlabeled", 1, u))
        if confidence >= threshold:
            pseudo_risk += one_vs_all(strong, pseudo, bce_reduction)
        elif confidence < ood_below and progress >= ood_warmup and (ood_on == "slots" or not slots):
            ood_risk += one_vs_all(strong, None, bce_reduction)
    return {
        "supervised": mean(labeled),
        "pseudo": unlabeled_weight * pseudo_risk / scene.unlabeled,
        "ood": ood_weight * ood_risk / scene.unlabeled,
    }


def orca_partners(
    scene: Scene,
    labeled_partners: list[int],
    pair_space: str = "feature",
    pair_among: str = "batch",
) -> list:
    """Given ones for labeled images; an unlabeled image's nearest among all or unlabeled ones."""
    images = scene.images(0)

    def place(key: Key) -> list[float]:
        if pair_space == "feature":
            return scene.features[key]
        logits = scene.max_logits(key)
        return logits if pair_space == "logit" else softmax(logits)

    partners = list(labeled_partners)
    for me in range(len(scene.labels), len(images)):
        first = 0 if pair_among == "batch" else len(scene.labels)
        others = [j for j in range(first, len(images)) if j != me]
        partners.append(max(others, key=lambda j: cosine(place(images[me]), place(images[j]))))
    return partners


def orca(
    scene: Scene,
    logits: Logits,
    slots: bool = False,
    *,
    labeled_partners: list[int],
    uncertainty: float,
    margin_cap: float = 0.5,
    margin_on: str = "both",
    pair_weight: float = 1.0,
    pair_space: str = "feature",
    pair_among: str = "batch",
    pair_labeled: bool = True,
    pair_detach: bool = False,
    entropy_weight: float = 1.0,
    entropy_on: str = "both",
    novel_share: None = None,
    hard_threshold: float = 0.95,
) -> Loss:
    """Margin cross entropy, Eqs. 11 and 13, and -H(mean probability) of view 1."""
    margin = scene.temperature * min(uncertainty, margin_cap)
    if slots and margin_on == "max":
        margin = 0.0
    labeled = []
    for i, y in enumerate(scene.labels):
        z = logits(("labeled", 0, i))
        labeled.append(cross_entropy([v + (margin if c == y else 0) for c, v in enumerate(z)], y))

    partners = orca_partners(scene, labeled_partners, pair_space, pair_among)
    first, second = scene.images(0), scene.images(1)
    pairs = []
    for i, j in enumerate(partners):
        if i < len(scene.labels) and not pair_labeled:
            continue
        mine, theirs = softmax(logits(first[i])), softmax(scene.max_logits(second[j]))
        pairs.append(-math.log(math.fsum(p * q for p, q in zip(mine, theirs, strict=True))))

    probs = [softmax(logits(key)) for key in first]
    average = [mean([p[c] for p in probs]) for c in range(scene.heads)]
    entropy = -math.fsum(p * math.log(p) for p in average)
    charged = not slots or entropy_on == "both"
    return {
        "supervised": mean(labeled),
        "pairs": pair_weight * mean(pairs),
        "entropy": -entropy_weight * entropy if charged else 0.0,
    }


def orca_classes(scene: Scene, hard_threshold: float = 0.95) -> Classes:
    """Labels, and confident classes of unlabeled images, view by view."""
    classes = scene.label_classes()
    for key in scene.sims:
        if key[0] == "unlabeled":
            confidence, head = best(softmax(scene.max_logits(key)))
            classes[key] = head if confidence >= hard_threshold else None
    return classes


def nt_xent(first: list[list[float]], second: list[list[float]], temperature: float) -> float:
    """Each of the 2U vectors has to find its image's other view among the 2U - 1 others."""
    vectors = first + second
    losses = []
    for a in range(len(vectors)):
        partner = (a + len(first)) % len(vectors)
        others = [b for b in range(len(vectors)) if b != a]
        scaled = {b: cosine(vectors[a], vectors[b]) / temperature for b in others}
        losses.append(log_sum_exp(list(scaled.values())) - scaled[partner])
    return mean(losses)


def simclr(scene: Scene, logits: Logits, *, contrast_temperature: float = 0.2) -> Loss:
    views = [[logits(("unlabeled", view, u)) for u in range(scene.unlabeled)] for view in (0, 1)]
    return {"contrast": nt_xent(*views, contrast_temperature)}


def compared(scene: Scene, slot: int, classes: Classes, negatives: str) -> Logits:
    """The logits that slot `slot` is charged on."""

    def logits(key: Key) -> list[float]:
        own = scene.slot_logits(slot)(key)
        if negatives == "same_slot" or classes[key] is None:
            return own
        if negatives == "max_slot":
            others = scene.max_logits(key)
        else:
            all_slots = [scene.slot_logits(i)(key) for i in range(scene.slots)]
            others = [log_sum_exp([z[c] for z in all_slots]) for c in range(scene.heads)]
        return [own[c] if c == classes[key] else others[c] for c in range(scene.heads)]

    return logits


def with_fission(
    scene: Scene,
    base: Callable[[Logits, bool], Loss],
    classes: Classes,
    local: list[list[list[float]]],
    *,
    num_seen: int,
    remembered: list[list[float]],
    consistency_weight: float = 0.6,
    consistency_negatives: str = "same_slot",
    diversity_weight: float = 0.001,
    diversity_reduce: str = "batch_mean",
    diversity_scope: str = "batch",
    diversity_momentum: float = 0.9,
    diversity_min_samples: int = 2,
    diversity_classes: str = "all",
    local_diversity_weight: float = 1.0,
    local_diversity_reduction: str = "mean",
    assign_temperature: float = 10.0,
    prior: tuple[float, ...] | None = None,
) -> Loss:
    """Eq. 8 around a base, which takes logits and whether they are those of one slot."""
    on_slots = [
        sum(base(compared(scene, slot, classes, consistency_negatives), True).values())
        for slot in range(scene.slots)
    ]
    divided, assigned = divide(scene, classes, num_seen, diversity_classes, assign_temperature)
    even = None if prior is None else list(prior)
    if diversity_scope == "batch":
        uneven = diversity(
            assigned, divided, scene.heads, even, diversity_reduce, diversity_min_samples
        )
    else:
        after = running_usage(remembered, assigned, divided, diversity_momentum)
        present = [c for c in range(scene.heads) if c in divided]
        uneven = mean([kl(after[c], even) for c in present]) if present else 0.0
    alike = local_diversity(local, local_diversity_reduction)
    return {
        **base(scene.max_logits, False),
        "consistency": consistency_weight * mean(on_slots),
        "diversity": diversity_weight * uneven,
        "local_diversity": diversity_weight * local_diversity_weight * alike,
    }


def divide(
    scene: Scene, classes: Classes, num_seen: int, which: str, temperature: float
) -> tuple[list[int | None], list[list[float]]]:
    """The rows that L_div divides, each with its class and its A(x)."""
    rows = [
        (key, c) for key, c in classes.items() if c is not None and (which == "all" or c < num_seen)
    ]
    return (
        [c for _, c in rows],
        [assignment(scene.sims[key][c], temperature) for key, c in rows],
    )


def running_usage(
    remembered: list[list[float]],
    assigned: list[list[float]],
    classes: list[int | None],
    momentum: float,
) -> list[list[float]]:
    """The running mean of A(x) by class after a batch; a class not in the batch stays."""
    after = []
    for c, before in enumerate(remembered):
        now, rows = usage(assigned, classes, c)
        after.append(
            [momentum * b + (1 - momentum) * n for b, n in zip(before, now, strict=True)]
            if rows
            else before
        )
    return after
