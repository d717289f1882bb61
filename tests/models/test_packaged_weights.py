"""The weights that come with the package: they fit, their cards are true."""

import os
from pathlib import Path

import pytest
import torch

from protofission.data.datasets import DataSpec
from protofission.data.image_sets import floats
from protofission.models.backbones import Backbone, find_backbone
from protofission.models.checkpoints import check_origin, load_backbone
from protofission.models.weight_files import packaged_weights
from protofission.training.neighbors import neighbor_classes
from protofission.training.packed_backbone import cards

NAMES = ("simclr-cifar10", "simclr-cifar100")


def load(name: str) -> Backbone:
    backbone = find_backbone("compact").build(3, torch.Generator().manual_seed(0))
    fit = load_backbone(backbone, name)
    assert (fit.left_out, fit.kept) == ((), ())
    return backbone.eval()


@pytest.mark.parametrize("name", NAMES)
def test_they_fit_the_compact_net_and_are_small(name: str) -> None:
    check_origin(find_backbone("compact"), name)
    features = load(name)(torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(1)))
    assert features.shape == (4, 256)
    assert features.isfinite().all()
    assert len(packaged_weights()[name].read_bytes()) < 3_000_000


def test_their_cards_tell_how_they_were_made() -> None:
    found = cards()
    assert tuple(found) == NAMES
    for name, card in found.items():
        assert card["method"] == "simclr"
        assert card["dataset"] == name.removeprefix("simclr-")
        assert card["steps"] == 36 * 196
        assert card["views"] == "natural-24"
    assert found["simclr-cifar10"]["metrics"]["neighbours"] == pytest.approx(0.6638, abs=1e-4)
    assert found["simclr-cifar100"]["metrics"]["neighbours"] == pytest.approx(0.3441, abs=1e-4)


@pytest.mark.parametrize(("name", "least"), [(NAMES[0], 0.55), (NAMES[1], 0.2)])
def test_their_features_tell_classes_apart(name: str, least: float) -> None:
    folder = os.environ.get("PROTOFISSION_DATA", "")
    if not folder or not Path(folder).exists():
        pytest.skip("PROTOFISSION_DATA names no folder")
    sets, backbone = DataSpec(name.removeprefix("simclr-")).read(), load(name)
    assert sets.test is not None
    features, labels = [], []
    for images, number in ((sets.train, 10_000), (sets.test, 1_000)):
        pixels = torch.from_numpy(images.pixels[:number].copy())
        with torch.no_grad():
            chunks = [backbone(floats(chunk)) for chunk in torch.split(pixels, 1000)]
        features.append(torch.cat(chunks))
        labels.append(torch.from_numpy(images.labels[:number].copy()))
    found = neighbor_classes(features[0], labels[0], features[1], 50)
    assert (found == labels[1]).float().mean() > least
