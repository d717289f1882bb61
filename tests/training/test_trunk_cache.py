"""A cached trunk: the same model as without, on a fixed number of views."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from protofission.core.errors import InputError
from protofission.core.options import override
from protofission.data.augment.affine_views import DIGITS
from protofission.data.store.stored_views import StoredViews
from protofission.training.experiment import Experiment
from protofission.training.loop import train
from protofission.training.outputs import outputs
from protofission.training.state import start
from protofission.training.trunk_cache import cached_trunk, load_data
from runs import small


def cached(*assignments: str) -> Experiment:
    return small("orca+pf", "recipe.trunk_cache=2", "recipe.trainable_stages=1", *assignments)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "protofission" / "trunks"


def test_training_on_maps_is_training_the_last_stage(home: Path):
    experiment = cached("head.init=random")  # from the data, maps are rounded and images are not
    data = cached_trunk(experiment)
    state = start(experiment, data.training, data.augmentations)
    uncached = override(experiment, "recipe.trunk_cache=0")
    images = uncached.data.load()
    whole = start(uncached, images.training, images.augmentations)
    assert list(whole.model.state_dict()) == list(state.model.state_dict())
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, state.model.state_dict()[key]), key  # the same start
    before = {key: value.clone() for key, value in state.model.state_dict().items()}
    for report in train(state, experiment, data.training, data.augmentations):
        assert all(term.value.isfinite() for term in report.terms)
    moved = {k for k, v in state.model.state_dict().items() if not torch.equal(v, before[k])}
    assert any(key.startswith("backbone.stages.2") for key in moved)
    assert not any(key.startswith(("backbone.stages.0", "backbone.stages.1")) for key in moved)
    # The trained weights, on images, say what the cached model says of its maps.
    whole.model.load_state_dict(state.model.state_dict())
    of_images = torch.cat([o.logits for o in outputs(whole.model, images.test.inputs)])
    of_maps = torch.cat(
        [o.logits for o in outputs(state.model, data.test.inputs, data.augmentations.plain)]
    )
    torch.testing.assert_close(of_maps, of_images, rtol=0, atol=0.02)


def test_the_split_and_the_labels_are_those_of_the_images():
    data, images = cached_trunk(cached()), cached().data.load()
    assert data.split.manifest() == images.split.manifest()
    assert torch.equal(data.training.labels, images.training.labels)
    assert data.training.shape == images.training.shape
    assert data.class_names == images.class_names


def test_runs_of_one_trunk_share_a_store_and_others_do_not(home: Path):
    first = cached_trunk(cached())
    cached_trunk(override(cached(), "method.entropy_weight=2"))
    assert len(list(home.iterdir())) == 1
    changes = ("recipe.trunk_cache=3", "recipe.trainable_stages=2", "backbone.width=3")
    others = [override(cached(), change) for change in changes]
    for number, other in enumerate([*others, replace(cached(), seed=1)]):
        cached_trunk(other)
        assert len(list(home.iterdir())) == number + 2, other
    assert isinstance(first.augmentations, StoredViews)
    assert first.augmentations.store.plan.parts["train"].views == {"plain": 1, "weak": 2}


def test_a_map_is_that_of_a_view(home: Path):
    experiment = cached()
    data = cached_trunk(experiment)
    images = experiment.data.load()
    body = start(
        override(experiment, "recipe.trunk_cache=0"), images.training, DIGITS
    ).model.backbone.eval()
    some = images.training.labeled[:20]
    maps = data.augmentations.plain(data.training.labeled[:20]).float()
    torch.testing.assert_close(maps, body.trunk(some.float() / 255), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("recipe.trainable_stages=none", "trunk_cache = 2 wants frozen stages, and all 3 learn"),
        ("recipe.trainable_stages=3", "trunk_cache = 2 wants frozen stages, and all 3 learn"),
        ("recipe.frozen_statistics=orca", "set recipe.frozen_statistics=frozen"),
        ("data.store=x", "data.store = x holds features"),
        ("recipe.trunk_cache=1", "orca\\+pf wants 2 views of an image that differ"),
    ],
)
def test_what_cannot_be_cached_is_refused(change: str, words: str):
    with pytest.raises(InputError, match=words):
        override(cached(), change).check()


def test_images_and_maps_are_not_taken_for_each_other():
    experiment = cached()
    images, maps = experiment.data.load(), cached_trunk(experiment)
    with pytest.raises(InputError, match=r"maps of a frozen trunk, .*trunk_cache\.load_data"):
        start(experiment, images.training, images.augmentations)
    with pytest.raises(InputError, match=r"maps want recipe\.trunk_cache"):
        start(override(experiment, "recipe.trunk_cache=0"), maps.training, maps.augmentations)
    assert load_data(experiment).training.labeled.ndim == 1
