"""OpenLDN, image by image and pair by pair."""

from __future__ import annotations

import math

from reference.inner import Net, label_risk
from reference.methods import Classes, Key, Logits, Loss, Scene, best
from reference.prototypes import cosine, mean
from reference.risks import cross_entropy, log_sum_exp, softmax


def likeness_of(scene: Scene, net: Net) -> dict[tuple[Key, Key], float]:
    """What the net says of the features of each ordered pair of first views."""
    images = scene.images(0)
    return {(a, b): net(scene.features[a] + scene.features[b]) for a in images for b in images}


def first_stage(
    scene: Scene,
    logits: Logits,
    *,
    likeness: dict[tuple[Key, Key], float],
    pair_weight: float = 1.0,
    entropy_weight: float = 1.0,
    unlabeled_weight: float = 1.0,
    base_threshold: float = 0.5,
) -> Loss:
    """Labels, hard pseudo-labels, likeness of all ordered pairs, and -H(mean probability)."""
    pseudo = 0.0
    for u in range(scene.unlabeled):
        confidence, label = best(softmax(scene.max_logits(("unlabeled", 0, u))))
        if confidence >= base_threshold:
            pseudo += cross_entropy(logits(("unlabeled", 1, u)), label)
    images = scene.images(0)
    probs = [softmax(logits(key)) for key in images]
    pairs = [
        (cosine(p, q) - likeness[a, b]) ** 2
        for a, p in zip(images, probs, strict=True)
        for b, q in zip(images, probs, strict=True)
    ]
    average = [mean([p[c] for p in probs]) for c in range(scene.heads)]
    return {
        "supervised": label_risk(scene, logits),
        "pseudo": unlabeled_weight * pseudo / scene.unlabeled,
        "pairs": pair_weight * mean(pairs),
        "entropy": entropy_weight * math.fsum(p * math.log(p) for p in average),
    }


def first_classes(scene: Scene, base_threshold: float = 0.5) -> Classes:
    classes = scene.label_classes()
    for u in range(scene.unlabeled):
        confidence, label = best(softmax(scene.max_logits(("unlabeled", 0, u))))
        classes["unlabeled", 1, u] = label if confidence >= base_threshold else None
    return classes


def second_stage(
    scene: Scene,
    logits: Logits,
    *,
    chosen: dict[int, int],
    unlabeled_weight: float = 1.0,
    sharpen_temperature: float = 0.4,
    closed_threshold: float = 0.8,
) -> Loss:
    """Chosen images are labeled ones; the strong view of the rest meets the sharpened weak one."""
    labeled = [cross_entropy(logits(("labeled", 0, i)), y) for i, y in enumerate(scene.labels)]
    labeled += [cross_entropy(logits(("unlabeled", 0, u)), y) for u, y in chosen.items()]
    rest, met = [u for u in range(scene.unlabeled) if u not in chosen], 0.0
    for u in rest:
        weak = scene.max_logits(("unlabeled", 0, u))
        target = softmax([z / sharpen_temperature for z in weak])
        strong = logits(("unlabeled", 1, u))
        if max(target) >= closed_threshold:
            met += math.fsum(
                t * (log_sum_exp(strong) - z) for t, z in zip(target, strong, strict=True)
            )
    return {
        "supervised": mean(labeled),
        "pseudo": unlabeled_weight * met / len(rest),
        "pairs": 0.0,
        "entropy": 0.0,
    }


def chosen_images(confidence: list[float], heads: list[int], num_seen: int, most: int) -> dict:
    """Place and class of the surest images of each novel head; the earlier one where two tie."""
    chosen = {}
    for head in sorted(set(heads)):
        if head >= num_seen:
            own = [place for place, other in enumerate(heads) if other == head]
            own.sort(key=lambda place: -confidence[place])
            chosen |= dict.fromkeys(own[:most], head)
    return chosen
