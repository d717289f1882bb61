"""The loop: seeds that do what they say, and a pool whose labels nobody reads."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from protofission.data.augment import DIGITS
from protofission.data.datasets import Data
from protofission.data.images import floats
from protofission.experiment import Experiment, Recipe
from protofission.folder import RunFolder
from protofission.methods import METHODS
from protofission.optimizers import learning_rate
from protofission.run import perform
from protofission.train import TrainState, start, steps_per_epoch, train
from runs import digits, small


def trained(experiment: Experiment, data: Data) -> TrainState:
    state = start(experiment, data.training, data.augmentations)
    for _ in train(state, experiment, data.training, data.augmentations):
        pass
    return state


def weights(state: TrainState) -> dict[str, torch.Tensor]:
    return {**state.model.state_dict(), **state.memory.state_dict(prefix="memory.")}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_scrambled_pool_labels_leave_every_weight_bit_identical(name: str, tmp_path: Path) -> None:
    experiment = small(name)
    folders = [RunFolder(tmp_path / "true"), RunFolder(tmp_path / "scrambled")]
    for folder, scramble in zip(folders, (False, True), strict=True):
        for _ in perform(experiment, digits(scramble), folder):
            pass
    assert_same(folders[0].weights(), folders[1].weights())
    if experiment.method.predicts:  # the scrambling was real: judging saw it
        assert folders[0].summary() != folders[1].summary()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_same_seed_same_weights_other_seed_other_weights(name: str) -> None:
    data = digits()
    first = weights(trained(small(name), data))
    assert_same(first, weights(trained(small(name), data)))
    other = weights(trained(replace(small(name), seed=1), data))
    assert not torch.equal(
        first["backbone.stages.2.0.conv1.weight"], other["backbone.stages.2.0.conv1.weight"]
    )


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_global_generator_is_neither_read_nor_moved(name: str) -> None:
    data = digits()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = weights(trained(small(name), data))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert_same(first, weights(trained(small(name), data)))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_training_that_stops_and_goes_on_equals_training_that_does_not(name: str) -> None:
    data, experiment = digits().training, small(name)
    whole = start(experiment, data, DIGITS)
    for _ in train(whole, experiment, data, DIGITS):
        pass
    halves = start(experiment, data, DIGITS)
    for report in train(halves, experiment, data, DIGITS):
        if report.step == 3:
            break
    for _ in train(halves, experiment, data, DIGITS):
        pass
    assert_same(weights(whole), weights(halves))


def test_only_the_last_stages_and_the_head_learn() -> None:
    data, experiment = digits().training, small("orca+pf", "recipe.trainable_stages=1")
    state = start(experiment, data, DIGITS)
    before = {name: value.clone() for name, value in state.model.state_dict().items()}
    for _ in train(state, experiment, data, DIGITS):
        pass
    for name, value in state.model.state_dict().items():
        frozen = name.startswith(("backbone.stages.0.", "backbone.stages.1."))
        assert torch.equal(before[name], value) == frozen, name


def test_without_trainable_stages_the_backbone_stays_as_it_is() -> None:
    data, experiment = digits().training, small("orca", "recipe.trainable_stages=0")
    state = start(experiment, data, DIGITS)
    before = {name: value.clone() for name, value in state.model.backbone.state_dict().items()}
    for _ in train(state, experiment, data, DIGITS):
        pass
    assert_same(before, state.model.backbone.state_dict())


def test_weight_decay_spares_delta_unless_asked() -> None:
    data = digits().training
    for assignments, decays in ([], 0.0), (["recipe.decay_delta=true"], 5e-4):
        state = start(small("orca+pf", *assignments), data, DIGITS)
        (delta,) = (p for n, p in state.model.named_parameters() if n == "head.delta")
        (group,) = (g for g in state.optimizer.param_groups if any(p is delta for p in g["params"]))
        assert group["weight_decay"] == decays


def test_orca_surveys_the_pool_before_each_epoch() -> None:
    data, experiment = digits().training, small("orca")
    state = start(experiment, data, DIGITS)
    with torch.no_grad():
        probs = state.model.eval()(floats(data.unlabeled)).logits.softmax(-1)
    expected = 1 - probs.amax(1).mean()
    steps = train(state, experiment, data, DIGITS)
    next(steps)
    torch.testing.assert_close(state.memory.get_buffer("uncertainty"), expected)
    next(steps)
    torch.testing.assert_close(state.memory.get_buffer("uncertainty"), expected)
    next(steps), next(steps)
    assert state.memory.get_buffer("uncertainty") != expected


def test_a_running_mean_of_the_usage_is_kept_with_scope_ema() -> None:
    data = digits().training
    state = start(small("supervised+pf", "method.diversity_scope=ema"), data, DIGITS)
    even = state.memory.get_buffer("usage").clone()
    for _ in train(state, small("supervised+pf", "method.diversity_scope=ema"), data, DIGITS):
        pass
    usage = state.memory.get_buffer("usage")
    torch.testing.assert_close(usage.sum(1), torch.ones(5))
    assert not torch.equal(usage, even)


def test_the_schedule_decays_where_the_paper_says() -> None:
    recipe = Recipe(learning_rate=1.0)
    rates = [learning_rate(recipe, 8 * e, 1600, 8) for e in (0, 139, 140, 179, 180, 199)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("cosine", [1, 0.5 + math.sqrt(2) / 4, 0.5, 0]),
        ("fixmatch", [1, math.cos(7 * math.pi / 64), math.cos(7 * math.pi / 32), 0.1950903220]),
        ("constant", [1, 1, 1, 1]),
    ],
)
def test_schedules_have_their_closed_forms(schedule: Any, rates: list[float]) -> None:
    recipe = Recipe(learning_rate=1.0, schedule=schedule)
    assert [learning_rate(recipe, s, 400, 10) for s in (0, 100, 200, 400)] == pytest.approx(rates)


def test_a_warm_up_rises_to_the_schedule_and_leaves_it_the_rest() -> None:
    recipe = Recipe(learning_rate=2.0, schedule="cosine", warmup_epochs=0.5)
    rates = [learning_rate(recipe, step, 45, 10) for step in range(46)]
    assert rates[:6] == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0, 2.0])
    assert rates[25] == pytest.approx(1.0)
    assert rates[45] == pytest.approx(0.0)


def test_an_epoch_is_one_pass_over_the_labeled_data_or_the_pool() -> None:
    data = digits().training
    recipe = Recipe(labeled_batch=64, unlabeled_batch=100)
    assert steps_per_epoch(recipe, data) == 8  # 465 / 64
    assert steps_per_epoch(replace(recipe, epoch="pool"), data) == 14  # 1332 / 100
    assert steps_per_epoch(replace(recipe, steps_per_epoch=3), data) == 3


def test_a_loss_that_diverges_is_said_in_words() -> None:
    with pytest.raises(ValueError, match=r"lower (recipe\.learning_rate|the learning rate)"):
        trained(small("fixmatch", "recipe.learning_rate=1e30"), digits())


@pytest.mark.parametrize("similarity", ["euclidean", "mahalanobis"])
def test_other_similarities_learn_the_digits(similarity: str) -> None:
    data = digits()
    experiment = small(
        "supervised+pf",
        f"head.similarity={similarity}",
        "recipe.trainable_stages=3",
        "recipe.steps_per_epoch=40",
        "recipe.learning_rate=0.005",
    )
    state = trained(experiment, data)
    with torch.no_grad():
        predicted = state.model.eval()(floats(data.test.inputs)).logits.argmax(1).numpy()
    seen = data.test.labels < 5
    assert (predicted == data.test.labels)[seen].mean() > 0.8
