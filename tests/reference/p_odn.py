"""P-ODN as it is read here, image by image."""

from __future__ import annotations

from reference.methods import Loss, Scene, supervised
from reference.prototypes import mean


def p_odn(
    scene: Scene, radiuses: list[float], *, prototype_weight: float, radius_weight: float
) -> Loss:
    far = [-scene.sims["labeled", 0, i][y][0] for i, y in enumerate(scene.labels)]
    width = len(next(iter(scene.features.values())))
    gaps = [(d - radiuses[y]) ** 2 for d, y in zip(far, scene.labels, strict=True)]
    return {
        "distance": supervised(scene, scene.max_logits)["supervised"],
        "prototype": prototype_weight * width * mean(far),
        "radius": radius_weight * mean(gaps),
    }


def score(
    distances: list[float], radiuses: list[float], accept_within: float, reject_beyond: float
) -> float:
    """The three zones: in radiuses, and between the thresholds by the second-nearest prototype."""
    order = sorted(range(len(distances)), key=lambda c: distances[c])
    nearest = distances[order[0]]
    ratio = nearest / radiuses[order[0]]
    if accept_within < ratio < reject_beyond:
        share = nearest / distances[order[1]]
        return accept_within + share * (reject_beyond - accept_within)
    return ratio
