"""NACH as it is read here, image by image."""

from __future__ import annotations

import math

from reference.methods import Key, Logits, Loss, Scene, best, supervised
from reference.prototypes import cosine, mean
from reference.risks import cross_entropy, softmax


def likeness(scene: Scene) -> float:
    """The mean cosine of two labeled images of one class; 1 where there are no two."""
    found = []
    for i, y in enumerate(scene.labels):
        for j in range(i):
            if scene.labels[j] == y:
                rows = (scene.features["labeled", 0, k] for k in (i, j))
                found.append(cosine(*rows))
    return mean(found) if found else 1.0


def pairs(scene: Scene) -> list[tuple[Key, bool]]:
    """Partner of each unlabeled image among all others, and whether it is near enough."""
    least, found = likeness(scene), []
    for u in range(scene.unlabeled):
        mine = ("unlabeled", 0, u)
        others = [key for key in scene.images(0) if key != mine]
        near = {key: cosine(scene.features[mine], scene.features[key]) for key in others}
        partner = max(near, key=lambda key: near[key])
        found.append((partner, near[partner] >= least))
    return found


def aligned(scene: Scene, use: list[float]) -> list[list[float]]:
    found = []
    for u in range(scene.unlabeled):
        probs = softmax(scene.max_logits(("unlabeled", 0, u)))
        parts = [p / q for p, q in zip(probs, use, strict=True)]
        found.append([p / math.fsum(parts) for p in parts])
    return found


def trusted(
    scene: Scene, use: list[float], confidence: list[float], num_seen: int, threshold: float
) -> list[tuple[int, bool]]:
    found = []
    for probs in aligned(scene, use):
        sure, head = best(probs)
        novel = threshold * min(1.0, confidence[1] / confidence[0])
        found.append((head, sure >= (novel if head >= num_seen else threshold)))
    return found


def nach(
    scene: Scene,
    logits: Logits,
    use: list[float],
    confidence: list[float],
    num_seen: int,
    *,
    threshold: float,
    pair_weight: float,
    unlabeled_weight: float,
    entropy_weight: float,
) -> Loss:
    agreed = []
    for u, (partner, near) in enumerate(pairs(scene)):
        kind, _, image = partner
        other: Key = (kind, 0, image) if kind == "labeled" else (kind, 1, image)
        mine = softmax(logits(("unlabeled", 0, u)))
        theirs = softmax(scene.max_logits(other))
        if near:
            agreed.append(-math.log(math.fsum(p * q for p, q in zip(mine, theirs, strict=True))))
    pseudo = [
        cross_entropy(logits(("unlabeled", 1, u)), head) if sure else 0.0
        for u, (head, sure) in enumerate(trusted(scene, use, confidence, num_seen, threshold))
    ]
    probs = [softmax(logits(key)) for key in scene.images(0)]
    means = [mean([p[c] for p in probs]) for c in range(scene.heads)]
    return {
        **supervised(scene, logits),
        "pairs": pair_weight * (mean(agreed) if agreed else 0.0),
        "pseudo": unlabeled_weight * mean(pseudo),
        "entropy": entropy_weight * math.fsum(p * math.log(p) for p in means),
    }


def moved(
    scene: Scene, use: list[float], confidence: list[float], num_seen: int, momentum: float
) -> tuple[list[float], list[float]]:
    """The running means after a batch."""
    after = list(confidence)
    for group in (0, 1):
        sure = [best(p) for p in aligned(scene, use)]
        own = [c for c, head in sure if (head >= num_seen) == bool(group)]
        if own:
            after[group] = momentum * confidence[group] + (1 - momentum) * mean(own)
    probs = [softmax(scene.max_logits(("unlabeled", 0, u))) for u in range(scene.unlabeled)]
    batch = [mean([p[c] for p in probs]) for c in range(scene.heads)]
    return [momentum * a + (1 - momentum) * b for a, b in zip(use, batch, strict=True)], after
