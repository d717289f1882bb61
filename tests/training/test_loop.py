"""The loop: seeds that do what they say, and a pool whose labels nobody reads."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from protofission.core.errors import InputError
from protofission.core.records import Survey
from protofission.data.augment.affine_views import DIGITS
from protofission.data.datasets import Data
from protofission.data.image_sets import floats
from protofission.methods import METHODS
from protofission.models.start_from_data import start_from_data
from protofission.system.distributed import ALONE
from protofission.training.experiment import Experiment
from protofission.training.loop import evaluation_memory, train
from protofission.training.recipe import Recipe
from protofission.training.run import perform
from protofission.training.run_folder import RunFolder
from protofission.training.schedules import learning_rate, steps_per_epoch
from protofission.training.state import TrainState, start
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
def test_weights_are_of_the_experiment_alone(name: str, tmp_path: Path) -> None:
    """Neither of the pool's labels nor of the global generator, which stays where it is."""
    experiment = small(name)
    folders = [RunFolder(tmp_path / "true"), RunFolder(tmp_path / "scrambled")]
    for number, folder in enumerate(folders):
        torch.manual_seed(number)
        before = torch.get_rng_state()
        for _ in perform(experiment, digits(scramble=number == 1), folder):
            pass
        assert torch.equal(before, torch.get_rng_state())
    assert_same(folders[0].weights(), folders[1].weights())
    if experiment.method.traits.predicts:  # the scrambling was real: judging saw it
        assert folders[0].metrics() != folders[1].metrics()


@pytest.mark.parametrize("name", ["orca+pf", "opencon"])
def test_training_that_stops_and_goes_on_equals_training_that_does_not(name: str) -> None:
    """The living state of two; test_restore.py has every method's from its file."""
    data, experiment = digits().training, small(name)
    whole, halves = (start(experiment, data, DIGITS) for _ in range(2))
    for _ in train(whole, experiment, data, DIGITS):
        pass
    for report in train(halves, experiment, data, DIGITS):
        if report.step == 3:
            break
    for _ in train(halves, experiment, data, DIGITS):
        pass
    assert_same(weights(whole), weights(halves))


def test_another_seed_gives_other_weights() -> None:
    """Of the net and of what is drawn while it trains."""
    data, experiment = digits(), small("orca+pf")
    other = replace(experiment, seed=1)
    begun = start(experiment, data.training, DIGITS)
    state = start(other, data.training, DIGITS)
    first, second = weights(begun), weights(state)
    name = "backbone.stages.2.0.conv1.weight"
    assert not torch.equal(first[name], second[name])
    for part in ("model", "memory"):
        getattr(state, part).load_state_dict(getattr(begun, part).state_dict())
    for one, own in ((begun, experiment), (state, other)):
        for _ in train(one, own, data.training, DIGITS):
            pass
    assert not torch.equal(weights(begun)[name], weights(state)[name])


class Starts:
    """Every start of a head from the data, with what it was made of."""

    def __init__(self) -> None:
        self.features: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self.heads: list[nn.Module] = []

    def __call__(
        self,
        head: nn.Module,
        labeled: torch.Tensor,
        labels: torch.Tensor,
        pool: torch.Tensor,
        num_seen: int,
        seed: int,
    ) -> None:
        start_from_data(head, labeled, labels, pool, num_seen, seed)
        self.features.append((labeled, labels, pool))
        self.heads.append(copy.deepcopy(head))


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    found = Starts()
    monkeypatch.setattr("protofission.training.state.start_from_data", found)
    return found


def assert_same_rows(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """In any order, and up to what the neighbors in a batch do to a rounding."""
    assert found.shape == wanted.shape
    far = torch.cdist(found.double(), wanted.double())
    assert max(far.amin(0).max(), far.amin(1).max()) < 1e-5 * wanted.norm(dim=1).mean()


@pytest.mark.parametrize("name", ["dtc", "dtc+pf"])
def test_a_head_begins_at_the_features_of_its_moment(name: str, starts: Starts) -> None:
    """And the moving average's head with it; of its steps before, nothing is left."""
    data, experiment = digits().training, small(name, "recipe.ema=0.75")
    state = start(experiment, data, DIGITS)
    first, average = copy.deepcopy(state.model.head), state.average
    assert average is not None
    assert not starts.heads
    steps = train(state, experiment, data, DIGITS)
    for _ in range(3):
        terms = {term.name: float(term.value) for term in next(steps).terms}
        assert terms["transfer"] > 0
        assert terms["clusters"] == terms["views"] == 0
    moment = copy.deepcopy(state.model).eval()
    if name == "dtc":  # nothing is charged to it so far; with fission, L_ldiv is
        assert_same(first.state_dict(), moment.head.state_dict())
    assert not starts.heads
    terms = {term.name: float(term.value) for term in next(steps).terms}
    assert terms["transfer"] == 0
    assert min(terms["clusters"], terms["views"]) > 0

    (begun,), ((labeled, labels, everyone),) = starts.heads, starts.features
    assert len(labeled) == len(labels) == 0  # which clusters are seen classes, labels tell later
    with torch.no_grad():
        images = torch.cat([data.labeled, data.unlabeled])
        assert_same_rows(everyone, moment(floats(images)).features)
    start_from_data(moment.head, labeled, labels, everyone, 0, experiment.seed)
    assert_same(begun.state_dict(), moment.head.state_dict())
    parts, groups = (begun, state.model.head, average.model.head), state.optimizer.param_groups
    for started, moved, mean in zip(*(part.parameters() for part in parts), strict=True):
        torch.testing.assert_close(mean, 0.75 * started + 0.25 * moved)
        (decay,) = (g["weight_decay"] for g in groups if any(moved is p for p in g["params"]))
        momentum = state.optimizer.state[moved]["momentum_buffer"]
        torch.testing.assert_close(momentum, moved.grad + decay * started)
    assert any(
        not torch.equal(a, b)
        for a, b in zip(begun.parameters(), state.model.head.parameters(), strict=True)
    )
    for _ in steps:
        pass
    assert len(starts.heads) == 1


@pytest.mark.parametrize(
    ("share", "begins"), [(0.0, 0), (1e-9, 1), (1 / 6, 1), (0.34, 3), (0.5, 3), (5 / 6, 5)]
)
def test_a_head_begins_once_at_the_first_step_past_its_share(
    share: float, begins: int, starts: Starts
) -> None:
    """Of six steps."""
    data, experiment = digits().training, small("dtc", f"method.transfer_share={share}")
    state = start(experiment, data, DIGITS)
    begun, clustered = [], []
    for report in train(state, experiment, data, DIGITS):
        if len(starts.heads) > len(begun):
            begun.append(report.step)
        if {term.name: term.value for term in report.terms}["clusters"] > 0:
            clustered.append(report.step)
    assert begun == [begins]
    assert clustered == list(range(begins, 6))


def test_a_head_that_no_step_is_left_for_is_refused() -> None:
    experiment = small("dtc", "method.transfer_share=0.84")
    with pytest.raises(InputError, match=r"^The head begins after 0\.84 .* 6 steps leave none"):
        start(experiment, digits().training, DIGITS)


@pytest.mark.parametrize("name", ["dtc", "dtc+pf"])
@pytest.mark.parametrize("last", [2, 3])
def test_a_run_saved_about_the_step_at_which_its_head_begins_ends_in_the_same_bits(
    name: str, last: int
) -> None:
    data, experiment = digits().training, small(name, "recipe.ema=0.75")
    whole = start(experiment, data, DIGITS)
    for report in train(whole, experiment, data, DIGITS):
        if report.step == last:
            saved = {key: value.clone() for key, value in whole.tensors().items()}
    again = start(experiment, data, DIGITS, restored=True)
    again.restore(saved)
    reports = list(train(again, experiment, data, DIGITS))
    assert [report.step for report in reports] == list(range(last + 1, 6))
    assert_same(whole.tensors(), again.tensors())


@pytest.mark.parametrize("name", ["openmatch", "opencon", "cgdl+pf", "iomatch"])
def test_the_average_is_of_all_that_learns_and_has_what_was_updated(name: str) -> None:
    """Parameters of model and memory move by a quarter; buffers are those after the update."""
    data, experiment = digits().training, small(name, "recipe.ema=0.75")
    state = start(experiment, data, DIGITS)
    assert state.average is not None
    before = [[p.clone() for p in part.parameters()] for part in state.average]
    next(train(state, experiment, data, DIGITS))
    for old, average, own in zip(before, state.average, (state.model, state.memory), strict=True):
        for was, mean, value in zip(old, average.parameters(), own.parameters(), strict=True):
            torch.testing.assert_close(mean, 0.75 * was + 0.25 * value)
        assert_same(dict(average.named_buffers()), dict(own.named_buffers()))


@pytest.mark.parametrize("name", ["cgdl", "step+pf", "opencos"])
def test_a_model_is_judged_by_statistics_of_its_own_features(name: str) -> None:
    """Not by those of the last survey, an epoch ago, nor by those of the model without average."""
    data, experiment = digits().training, small(name, "recipe.ema=0.75")
    state = trained(experiment, digits())
    kept = {key: value.clone() for key, value in state.memory.state_dict().items()}
    memory = evaluation_memory(state, experiment, data, floats, ALONE)
    assert_same(kept, state.memory.state_dict())
    model, expected = state.for_evaluation.model.eval(), copy.deepcopy(state.for_evaluation.memory)
    with torch.no_grad():
        seen, pool = ([model(floats(part))] for part in (data.labeled, data.unlabeled))
    experiment.method.survey(expected, Survey(seen, data.labels, pool))
    for key, value in expected.state_dict().items():
        torch.testing.assert_close(memory.state_dict()[key], value, rtol=1e-4, atol=1e-5)
    old = [v for k, v in kept.items() if k in dict(memory.named_buffers())]
    assert not all(map(torch.equal, old, memory.buffers()))


def test_clipping_leaves_the_model_alone_where_a_net_of_its_own_optimizer_is_far_off() -> None:
    data, experiment = digits().training, small("cgdl", "recipe.clip=0.01")
    state = start(experiment, data, DIGITS)
    next(train(state, experiment, data, DIGITS))
    for optimizer in state.optimizers().values():
        own = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norm = torch.stack([g.norm() for g in own if g is not None]).norm()
        assert norm.item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("name", ["ds3l", "step", "supervised", "gcd"])
def test_a_method_that_takes_no_image_of_the_pool_for_a_class_has_no_trusted_share(
    name: str,
) -> None:
    data, experiment = digits().training, small(name)
    state = start(experiment, data, DIGITS)
    assert next(train(state, experiment, data, DIGITS)).trusted is None


@pytest.mark.parametrize(
    "name", [n for n, method in METHODS.items() if method.traits.has_novel_heads]
)
def test_where_no_class_is_novel_methods_for_novel_ones_learn_all_the_same(name: str) -> None:
    data, experiment = replace(digits().training, num_classes=5), small(name)
    state = start(experiment, data, DIGITS)
    for report in train(state, experiment, data, DIGITS):
        assert all(term.value.isfinite() for term in report.terms)


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
