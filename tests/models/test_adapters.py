"""Adapters: standardization is part of the model, and what learns is what was asked for."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import Call
from protofission.core.errors import InputError
from protofission.core.options import override
from protofission.core.rng import step_rng
from protofission.methods import METHODS
from protofission.models.adapters import ADAPTERS, AdapterSpec
from protofission.models.model import BODIES, find_body
from protofission.training.loop import train
from protofission.training.presets import preset
from protofission.training.state import start
from stores import WIDTH, made


def build(spec: AdapterSpec, inputs: int = 7, seed: int = 0):
    return spec.build(inputs, step_rng(seed, 0, "backbone"))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99))
def test_standardization_is_that_of_all_rows_at_once(sizes: list[int], seed: int):
    generator = torch.Generator().manual_seed(seed)
    rows = 100 + 3 * torch.randn(sum(sizes) + 1, 7, generator=generator)
    adapter = build(ADAPTERS["adapter-none"])
    adapter.standardize_by(torch.split(rows, [*sizes, 1]))
    deviation = rows.double().std(0, unbiased=False)
    wanted = (rows - rows.mean(0)) / torch.maximum(deviation, 0.03 * deviation.max()).float()
    torch.testing.assert_close(adapter(rows), wanted, rtol=1e-3, atol=1e-3)


def test_a_constant_feature_stays_finite_and_zero():
    rows = torch.randn(30, 7)
    rows[:, 3] = 5
    adapter = build(ADAPTERS["adapter-none"])
    adapter.standardize_by([rows])
    assert adapter(rows)[:, 3].abs().max() < 1e-4
    assert adapter(rows).isfinite().all()


def test_a_feature_that_varies_in_other_views_alone_does_not_drown_the_others():
    rows = torch.randn(300, 7)
    rows[:, 3] *= 1e-4
    adapter = build(ADAPTERS["adapter-none"])
    adapter.standardize_by([rows])
    view = rows + 0.5 * torch.randn(300, 7)
    assert adapter(view)[:, 3].abs().max() < 100


def test_what_each_kind_computes():
    rows = torch.randn(5, 7)
    linear, mlp = build(AdapterSpec("linear", 3)), build(AdapterSpec("mlp", 3, hidden=4))
    rectified = build(AdapterSpec("rectified", 3))
    with torch.no_grad():
        first = linear.layers[0]
        torch.testing.assert_close(linear(rows), rows @ first.weight.T + first.bias)
        a, b = mlp.layers[0], mlp.layers[2]
        hidden = (rows @ a.weight.T + a.bias).clamp_min(0)
        torch.testing.assert_close(mlp(rows), hidden @ b.weight.T + b.bias)
        wanted = linear(rows).clamp_min(0)
        assert torch.equal(rectified(rows), wanted)  # the same start, so the same map
        assert 0 < (wanted > 0).sum() < wanted.numel()
    bodies = (linear, rectified, mlp, build(AdapterSpec("none")))
    assert [body.num_features for body in bodies] == [3, 3, 3, 7]
    assert [body.spec.widths for body in bodies] == [(3,), (3,), (4, 3), ()]
    assert list(dict(build(AdapterSpec("none")).named_parameters())) == []


def test_the_start_depends_on_its_generator_alone():
    before = torch.random.get_rng_state()
    one, same, other = (build(AdapterSpec(), seed=seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(one.layers[0].weight, same.layers[0].weight)
    assert not torch.equal(one.layers[0].weight, other.layers[0].weight)


LEARNING = [kind for kind in ADAPTERS if kind != "adapter-none"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "adapter-none") for name in METHODS),
        *zip(METHODS, itertools.cycle(LEARNING), strict=False),
    ],
)
def test_every_method_trains_on_a_store(name: str, kind: str, tmp_path: Path):
    """Each without an adapter that learns, and with one; each of these with many methods."""
    store = made(tmp_path / "s")
    experiment = preset("features", name)
    for assignment in (
        f"data.store={store.folder}",
        "data.split=orca",
        f"backbone={kind}",
        "recipe.epochs=1",
        "recipe.steps_per_epoch=3",
        "recipe.labeled_batch=16",
        "recipe.unlabeled_batch=24",
    ):
        experiment = override(experiment, assignment)
    data = experiment.data.load()
    state = start(experiment, data.training, data.augmentations)
    rows = torch.cat([data.training.labeled, data.training.unlabeled])
    plain = data.augmentations.plain(rows).float()
    torch.testing.assert_close(state.model.backbone.mean, plain.mean(0), rtol=1e-4, atol=1e-5)
    before = {key: value.clone() for key, value in state.model.state_dict().items()}
    for report in train(state, experiment, data.training, data.augmentations):
        assert all(torch.isfinite(term.value) for term in report.terms)
    moved = {k for k, v in state.model.state_dict().items() if not torch.equal(v, before[k])}
    assert not {key for key in moved if key.endswith(("mean", "deviation"))}
    body = {k: p for k, p in state.model.named_parameters() if k.startswith("backbone")}
    trained = {name for name, parameter in body.items() if parameter.requires_grad}
    assert trained == body.keys() & moved
    frozen = experiment.recipe.trainable_stages == 0  # by the method's preset
    assert (kind == "adapter-none" or frozen) == (not trained)


def test_standardization_is_saved_with_the_weights(tmp_path: Path):
    adapter = build(AdapterSpec(), WIDTH)
    adapter.standardize_by([torch.randn(9, WIDTH) * 3 + 1])
    again = build(AdapterSpec(), WIDTH, seed=1)
    again.load_state_dict(adapter.state_dict())
    rows = torch.randn(4, WIDTH)
    assert torch.equal(adapter(rows), again(rows))


def test_what_does_not_fit_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"Unknown backbone 'adapter-liner'\. Did you mean"):
        find_body("adapter-liner")
    with pytest.raises(InputError, match="width = 0"):
        AdapterSpec(width=0)
    store = made(tmp_path / "s", rows=60)
    experiment = override(preset("features", "orca"), f"data.store={store.folder}")
    data = experiment.data.load()
    with pytest.raises(InputError, match="The pool has 50 images, fewer than a batch of 384"):
        start(experiment, data.training, data.augmentations)
    image = override(experiment, "backbone=compact")
    with pytest.raises(InputError, match=r"holds vectors of 12 features, .* backbone=adapter-lin"):
        start(image, data.training, data.augmentations)
    digits = override(preset("digits", "orca"), "backbone=adapter-linear")
    images = digits.data.load()
    with pytest.raises(InputError, match="An adapter wants features, and these are images"):
        start(digits, images.training, images.augmentations)
    with pytest.raises(InputError, match="There is no store: make one with `protofission embed"):
        preset("features", "orca").data.load()
    with pytest.raises(InputError, match=r"is a store of blobs, not of cifar10.*--preset features"):
        override(preset("features/cifar10", "orca"), f"data.store={store.folder}").data.load()


@pytest.mark.parametrize("method", ["orca+pf", "fixmatch+pf"])
@pytest.mark.parametrize("named", ["features/cifar10", "features/cifar100/literal", "cpu/cifar10"])
def test_a_preset_for_other_images_names_one_that_works(
    named: str, method: str, tmp_path: Path, call: Call
):
    folder = made(tmp_path / "s", rows=240).folder
    brief = ("--set", "recipe.steps=2", "--set", "recipe.unlabeled_batch=32")
    command = ("train", method, "--store", folder, *brief, "--out")
    said = call(*command, tmp_path / "no", "--preset", named)
    assert said.code == 2
    (remedy,) = re.findall(r"train with --preset (\S+),", said.err)
    assert call(*command, tmp_path / "yes", "--preset", remedy).code == 0


def test_names_are_distinct_and_adapters_are_values():
    assert set(ADAPTERS) < set(BODIES)
    assert np.all([isinstance(spec, AdapterSpec) for spec in ADAPTERS.values()])
