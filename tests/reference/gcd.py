"""GCD's two contrasts, put together."""

from __future__ import annotations

from reference.contrast import class_contrast, view_contrast
from reference.methods import Logits, Loss, Scene


def gcd(
    scene: Scene,
    logits: Logits,
    *,
    supervised_weight: float = 0.35,
    contrast_temperature: float = 1.0,
    class_temperature: float = 0.07,
    view: str = "simclr",
) -> Loss:
    first, second = ([logits(key) for key in scene.images(number)] for number in (0, 1))
    labeled = first[: len(scene.labels)] + second[: len(scene.labels)]
    classes = class_contrast(labeled, [*scene.labels, *scene.labels], class_temperature)
    return {
        "contrast": (1 - supervised_weight) * view_contrast(first, second, contrast_temperature),
        "class_contrast": supervised_weight * classes,
    }
