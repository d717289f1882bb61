"""Named experiments. A preset is a function of a method's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from protofission.data.datasets import DataSpec
from protofission.errors import unknown
from protofission.experiment import Experiment, Recipe, experiment_of
from protofission.methods import FixMatchSigmoid, Method, Orca, WithFission


def digits(name: str) -> Experiment:
    """scikit-learn's digits, 0-4 seen, 5-9 novel: the demo's recipe, seconds on a laptop.

    What differs from the methods' defaults is the same for a base and its version with fission:
    - ORCA: an entropy weight of 3 and a margin of at most 0.2 T. With 1 and 0.5, a novel digit
      settled on a seen head in every other run of these few hundred steps.
    - FixMatch-Sigmoid: literal, that is, no warm-up and no ignore band. With them, the linear head
      learns to be sure of strangers before they can be taken for OOD.
    Fission has a diversity weight of 0.3: with 0.001, one of the five prototypes does all the work.
    """
    experiment = experiment_of(name)
    method = experiment.method
    if name == "simclr":
        return replace(
            experiment,
            data=DataSpec(pool_has_labeled=True),
            recipe=Recipe(
                epochs=20,
                epoch="pool",
                unlabeled_batch=256,
                learning_rate=0.2,
                schedule="cosine",
                trainable_stages=None,
            ),
        )
    if method.discovers:
        recipe = Recipe(epochs=30, labeled_batch=64, unlabeled_batch=192, learning_rate=0.05)
    else:
        recipe = Recipe(
            epochs=20, epoch="pool", labeled_batch=32, unlabeled_batch=224, learning_rate=0.05
        )
    return replace(experiment, method=_for_digits(method), recipe=recipe)


def _for_digits(method: Method[Any]) -> Method[Any]:
    match method:
        case WithFission():
            return replace(method, base=_for_digits(method.base), diversity_weight=0.3)
        case Orca():
            return replace(method, entropy_weight=3.0, margin_cap=0.2)
        case FixMatchSigmoid():
            return replace(method, literal=True)
        case _:
            return method


def literal(name: str) -> Experiment:
    """The digits with the paper's words and weights to the letter, in the demo's training time."""
    return replace(digits(name), method=literally(experiment_of(name).method))


def literally(method: Method[Any]) -> Method[Any]:
    """A method as the paper's words have it, without our departures."""
    match method:
        case WithFission():
            return replace(
                method,
                base=literally(method.base),
                local_diversity_weight=0.0,
                diversity_min_samples=1,
            )
        case Orca():
            return replace(method, entropy_on="max")
        case FixMatchSigmoid():
            return replace(method, literal=True)
        case _:
            return method


PRESETS: dict[str, Callable[[str], Experiment]] = {"digits": digits, "digits/literal": literal}


def preset(name: str, method: str) -> Experiment:
    """The experiment of a preset for a method, both by name."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name](method)
