"""Our own backbones as encoders: rebuilt from what a run, a card or the options say."""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from protofission.core.errors import InputError
from protofission.models.backbones import BACKBONES, PIXELS, Backbone, BackboneSpec
from protofission.models.encoders.own_backbone import OwnBackbone
from protofission.training.experiment import as_json
from runs import small

NARROW = replace(BACKBONES["resnet18"], width=4, blocks=(1, 1))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def build(spec: BackboneSpec, channels: int) -> Backbone:
    """A backbone whose statistics are those of no start."""
    backbone = spec.build(channels, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for number, value in enumerate(backbone.state_dict().values()):
            if value.is_floating_point():
                rng = torch.Generator().manual_seed(number)
                value.add_(torch.rand(value.shape, generator=rng), alpha=0.1)
    return backbone.eval()


def pack(network: Backbone, file: Path, **card: object) -> Path:
    tensors = {name: value.contiguous() for name, value in network.state_dict().items()}
    save_file(tensors, file, {"card": json.dumps(card)} if card else None)
    return file


def images(channels: int, side: int) -> Tensor:
    return torch.rand(5, channels, side, side, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a finished run on the gray digits."""
    experiment = small("orca")
    assert isinstance(experiment.backbone, BackboneSpec)
    backbone, folder = build(experiment.backbone, 1), tmp_path / "run"
    folder.mkdir()
    (folder / "experiment.json").write_text(as_json(experiment))
    tensors = {f"backbone.{name}": v.contiguous() for name, v in backbone.state_dict().items()}
    save_file({**tensors, "head.weight": torch.ones(3)}, folder / "weights.safetensors")
    (folder / "finished").touch()
    return folder


def test_a_run_gives_the_backbone_it_ends_with(run: Path) -> None:
    experiment = small("orca")
    assert isinstance(experiment.backbone, BackboneSpec)
    backbone, batch = build(experiment.backbone, 1), images(1, 8)
    before = torch.get_rng_state()
    encoder = OwnBackbone(str(run)).load()
    assert torch.equal(torch.get_rng_state(), before)
    assert (encoder.size, encoder.decode, encoder.channels) == (8, 8, 1)
    assert encoder.num_features == experiment.backbone.num_features
    with torch.no_grad():
        torch.testing.assert_close(encoder.features(batch), backbone(batch))
    assert encoder.describe()["source"] == "run"
    moved = run.rename(run.parent / "moved")
    assert OwnBackbone(str(moved)).load().fingerprint == encoder.fingerprint
    assert OwnBackbone(str(moved), size=16).load().fingerprint != encoder.fingerprint


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("finished", "is a run that did not finish: give a finished run"),
        ("weights.safetensors", "cannot be read .*: give another"),
        ("experiment.json", "does not say what network it is of, or is damaged: set backbone="),
    ],
)
def test_an_unfinished_or_damaged_run_is_refused(run: Path, missing: str, words: str) -> None:
    (run / missing).unlink()
    with pytest.raises(InputError, match=words):
        OwnBackbone(str(run)).load()


@pytest.mark.parametrize("fields", [{}, {"blocks": 3}, {"blocks": [1], "depth": 9}, [], "x"])
def test_a_backbone_that_is_not_known_is_refused(run: Path, fields: object) -> None:
    experiment = json.loads((run / "experiment.json").read_text())
    (run / "experiment.json").write_text(json.dumps({**experiment, "backbone": fields}))
    told = isinstance(fields, dict)
    words = "describes no backbone that" if told else "does not say what network it is of"
    with pytest.raises(InputError, match=f"{words}.*: set backbone="):
        OwnBackbone(str(run)).load()


def test_a_card_tells_the_backbone_and_the_size(tmp_path: Path) -> None:
    spec = replace(NARROW, pixels="cifar100")
    card = {"backbone": asdict(replace(spec, weights="somewhere")), "dataset": "fashion-mnist"}
    file = pack(build(spec, 3), tmp_path / "x.safetensors", **card)
    encoder, batch = OwnBackbone(str(file)).load(), images(3, 28)
    card["backbone"] = asdict(spec)
    same = pack(build(spec, 3), tmp_path / "y.safetensors", **card)
    assert OwnBackbone(str(same)).load().fingerprint == encoder.fingerprint
    assert encoder.size == 28
    mean, deviation = (torch.tensor(v).view(3, 1, 1) for v in PIXELS["cifar100"])
    bare = build(replace(spec, pixels="unit"), 3)
    with torch.no_grad():  # the pixels are standardized once
        torch.testing.assert_close(encoder.features(batch), bare((batch - mean) / deviation))
    assert OwnBackbone(str(file), size=12).load().size == 12
    with pytest.raises(InputError, match=r"made with backbone.stem=cifar, not half"):
        OwnBackbone(str(file), stem="half").load()


def test_packaged_weights_by_name() -> None:
    encoder = OwnBackbone("simclr-cifar10").load()
    assert (encoder.size, encoder.channels, encoder.num_features) == (32, 3, 256)


@pytest.mark.parametrize(("stem", "size"), [("cifar", 32), ("imagenet", 224), ("none", 32)])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_checkpoint_of_others_wants_its_backbone_named(
    stem: str, size: int, channels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKBONES, "resnet18", NARROW)
    spec = replace(NARROW, stem=stem)  # type: ignore[arg-type]
    backbone = build(spec, channels)
    torch.save({"state_dict": backbone.state_dict()}, tmp_path / "x.pth")
    encoder = OwnBackbone(
        str(tmp_path / "x.pth"),
        backbone="resnet18",
        stem=stem,  # type: ignore[arg-type]
    ).load()
    assert (encoder.size, encoder.channels) == (size, channels)
    batch = images(channels, size)
    with torch.no_grad():
        torch.testing.assert_close(encoder.features(batch), backbone(batch))
    with pytest.raises(InputError, match="does not say what network it is of"):
        OwnBackbone(str(tmp_path / "x.pth")).load()
    other = "half" if stem == "none" else "none"
    with pytest.raises(InputError, match="does not fit the backbone"):
        OwnBackbone(str(tmp_path / "x.pth"), backbone="resnet18", stem=other).load()  # type: ignore[arg-type]


def test_wrong_sources_are_refused(tmp_path: Path) -> None:
    for source, words in (
        ("nothing.pth", "nothing.pth does not exist"),
        (str(tmp_path), "is no run: give a finished run"),
        ("simclr-cifar", "Unknown weights 'simclr-cifar'. Did you mean"),
    ):
        with pytest.raises(InputError, match=words):
            OwnBackbone(source).load()
    with pytest.raises(InputError, match="Unknown backbone 'resnet19'"):
        OwnBackbone("x.pth", backbone="resnet19")
    five = pack(build(NARROW, 5), tmp_path / "x.safetensors", backbone=asdict(NARROW))
    with pytest.raises(InputError, match="it takes 5-channel images and these have 3, take other"):
        OwnBackbone(str(five)).load()
