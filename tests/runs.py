"""Small real runs on the digits, for tests."""

import numpy as np

from protofission.core.options import override
from protofission.data.augment.affine_views import DIGITS
from protofission.data.datasets import Data
from protofission.data.image_sets import ImageSet, ImageSets, divide
from protofission.data.readers.digits import load_digits
from protofission.data.splits.registry import orca_split
from protofission.training.experiment import Experiment
from protofission.training.presets import preset


def small(name: str, *assignments: str) -> Experiment:
    """An experiment of two short epochs on a narrow backbone."""
    experiment = preset("digits", name)
    usual = [
        "backbone.width=4",
        "recipe.epochs=2",
        "recipe.steps_per_epoch=3",
        "recipe.labeled_batch=16",
        "recipe.unlabeled_batch=24",
    ]
    for assignment in [*usual, *assignments]:
        experiment = override(experiment, assignment)
    return experiment


def digits(scramble: bool = False) -> Data:
    """The digits; with `scramble`, the labels of the pool mean nothing."""
    images = load_digits()
    split = orca_split(images.labels, 10)
    labels = images.labels.copy()
    if scramble:
        labels[split.unlabeled] = np.random.default_rng(0).permutation(labels[split.unlabeled])
    scrambled = ImageSet(images.pixels, labels, images.class_names)
    training, test = divide(ImageSets(scrambled), split)
    return Data(training, test, DIGITS, split, images.class_names)
