"""A state that went through a file is the living one, to the last stride of the last tensor."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from protofission.methods import METHODS
from protofission.training.history import RunHistory
from protofission.training.loop import StepReport, train
from protofission.training.run_folder import RunFolder
from protofission.training.state import TrainState, start
from runs import digits, small

DATA = digits()
RECIPE = (
    "recipe.trainable_stages=none",  # so that every convolution learns
    "recipe.epochs=2",
    "recipe.ema=0.9",
    "recipe.clip=5",
    "backbone.stem=cifar",
)


def begun(
    name: str, *options: str, restored: bool = False
) -> tuple[TrainState, Iterator[StepReport]]:
    experiment = small(name, *RECIPE, *options)
    state = start(experiment, DATA.training, DATA.augmentations, restored=restored)
    return state, train(state, experiment, DATA.training, DATA.augmentations)


def through_a_file(state: TrainState, folder: RunFolder) -> dict[str, Tensor]:
    folder.save_state(state.tensors(), RunHistory())
    saved = folder.load_state()
    assert saved is not None
    return saved[0]


def strides(tensor: Tensor) -> list[int]:
    """Of the dimensions that have any."""
    return [s for s, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


OTHERS = [
    ("orca+pf", "recipe.optimizer=lars"),
    ("openldn", "recipe.optimizer=lars"),
    ("simclr", "recipe.nesterov=true"),
    ("orca+pf", "recipe.trainable_stages=1"),
]


@pytest.mark.parametrize(
    ("name", "option"), [*((m, "recipe.optimizer=sgd") for m in METHODS), *OTHERS]
)
def test_a_restored_state_goes_on_as_the_living_one(name: str, option: str, tmp_path: Path) -> None:
    living, rest = begun(name, option)
    for _ in range(4):  # to the middle of the second epoch
        next(rest)
    restored, other_rest = begun(name, option, restored=True)
    restored.restore(through_a_file(living, RunFolder(tmp_path)))
    for moment in ("restored", "at the end"):
        one, other = living.tensors(), restored.tensors()
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert torch.equal(value, other[key]), (moment, key)
            assert value.dtype == other[key].dtype, (moment, key)
            assert strides(value) == strides(other[key]), (moment, key)
        if moment == "restored":
            momentum = [value for key, value in other.items() if key.startswith("optimizer.")]
            # what a wrong order would spoil is there: a convolution's momentum, channels last
            assert any(m.ndim == 4 and not m.is_contiguous() and m.any() for m in momentum)
            assert sum(1 for _ in rest) == sum(1 for _ in other_rest) == 2
