"""Models of timm and open_clip as encoders.

Both libraries want torchvision, so most machines of developers have neither: a stand-in has the
functions of their API that are called, with their names and arguments, and a real small network.
Where they are installed (`make zoo-tests`), models of theirs are tested too, with random weights.
"""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from protofission.core.errors import InputError
from protofission.models.encoders import fetch, find_encoder, kept_options, kind_of, spec_of
from protofission.models.encoders.base import Encoder
from protofission.models.encoders.open_clip_model import OpenClip
from protofission.models.encoders.timm_model import Timm


class Net(nn.Module):
    """Eight features of an image: means of its quarters, by channel, mixed."""

    def __init__(self, classes: int = 8) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.mix = nn.Linear(12, classes)
        self.seen: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(images)
        return self.mix(self.pool(images).flatten(1))


CONFIG = {
    "input_size": (3, 16, 16),
    "interpolation": "bilinear",
    "mean": (0.1, 0.2, 0.3),
    "std": (0.5, 0.6, 0.7),
    "crop_pct": 0.8,
    "crop_mode": "center",
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Stand-ins for both libraries; the list of calls of what makes a model."""
    made: list[Any] = []
    nets = {name: Net() for name in ("small", "visual")}

    def create_timm(name: str, *, pretrained: bool, num_classes: int) -> nn.Module:
        if name != "small":
            raise RuntimeError(f"Unknown model ({name})")
        made.append((name, pretrained, num_classes))
        return nets["small"]

    def create_clip(name: str, *, pretrained: str, precision: str) -> nn.Module:
        made.append((name, pretrained, precision))
        model = nn.Module()
        model.visual = nets["visual"]
        return model

    timm, clip = ModuleType("timm"), ModuleType("open_clip")
    timm.create_model = create_timm
    timm.data = SimpleNamespace(resolve_model_data_config=lambda model: dict(CONFIG))
    clip.create_model = create_clip
    clip.get_model_preprocess_cfg = lambda model: {
        "size": (16, 16),
        "mean": CONFIG["mean"],
        "std": CONFIG["std"],
        "interpolation": "bicubic",
        "resize_mode": "shortest",
    }
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "open_clip", clip)
    return made


@pytest.mark.parametrize("text", ["timm:small", "open-clip:ViT-S/small_tag"])
def test_a_model_of_another_library_is_an_encoder(text: str, calls: list[Any]) -> None:
    spec = find_encoder(text)
    fetch(spec)
    encoder = spec.load()
    assert calls == 2 * [
        ("small", True, 0) if isinstance(spec, Timm) else ("ViT-S", "small_tag", "fp32")
    ]
    assert encoder.num_features == 8
    assert len(encoder.fingerprint) == 64
    assert encoder.fingerprint == spec.load().fingerprint
    images = torch.rand(3, 3, 40, 24, generator=torch.Generator().manual_seed(0))
    features = encoder.features(images)
    assert features.shape == (3, 8)
    assert not features.requires_grad
    # What the network got: resized, cropped to its size and standardized by its own numbers.
    net = encoder.network if isinstance(spec, Timm) else encoder.network.visual
    prepared = encoder.prepare(images)
    assert torch.equal(net.seen[-1], prepared)
    gray = encoder.prepare(torch.full((1, 3, 40, 24), 0.5))
    expected = [(0.5 - m) / s for m, s in zip(CONFIG["mean"], CONFIG["std"], strict=True)]
    assert gray[0, :, 0, 0].tolist() == pytest.approx(expected, rel=1e-5)
    assert spec_of(kind_of(spec), spec.source, kept_options(spec)) == spec
    assert encoder.describe()["kind"] == kind_of(spec)


def test_timm_s_crop_is_of_a_larger_image(calls: list[Any]) -> None:
    encoder = Timm("small").load()
    assert (encoder.size, encoder.preprocessing.resized) == (16, 20)
    assert encoder.preprocessing.filter == "bilinear"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"crop_mode": "border"}, "crops by border, which is not known"),
        ({"interpolation": "lanczos"}, "resizes by lanczos: bilinear and bicubic are known"),
        ({"input_size": (3, 16, 24)}, "images of 16 x 24: only squares are known"),
    ],
)
def test_preprocessing_that_is_not_known_is_refused(
    change: dict[str, Any], words: str, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in change.items():
        monkeypatch.setitem(CONFIG, name, value)
    with pytest.raises(InputError, match=words):
        Timm("small").load()


def test_names_that_the_libraries_do_not_know_are_refused_in_a_sentence(calls: list[Any]) -> None:
    with pytest.raises(InputError, match=r"^timm has no model huge .*list_models"):
        Timm("huge").load()
    with pytest.raises(InputError, match=r"^ViT-B-32 names no weights: give NAME/TAG"):
        OpenClip("ViT-B-32")


@pytest.mark.parametrize(
    ("text", "library"), [("timm:small", "timm"), ("open-clip:a/b", "open_clip")]
)
def test_without_the_library_the_extra_is_named(
    text: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"needs {library}: pip install"):
        find_encoder(text).load()


def noise(side: int) -> Image.Image:
    """A smooth square picture, so that rounding to levels does not matter much."""
    coarse = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)


def assert_same_features(encoder: Encoder, transform: Callable[[Image.Image], Tensor]) -> None:
    """The features of a picture are those of the network after the library's own preprocessing."""
    picture = noise(200)
    pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None] / 255
    with torch.no_grad():
        expected = encoder(transform(picture)[None])
    assert expected.std() > 0.01
    torch.testing.assert_close(encoder.features(pixels), expected, rtol=0.01, atol=0.02)


@pytest.mark.filterwarnings("ignore")  # of the library
@pytest.mark.parametrize("name", ["test_vit.r160_in1k", "test_resnet.r160_in1k"])
def test_a_model_of_timm_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    timm = pytest.importorskip("timm")
    create = timm.create_model

    def at_random(name: str, *, pretrained: bool, num_classes: int) -> nn.Module:
        assert pretrained
        model: nn.Module = create(name, num_classes=num_classes)
        return model

    monkeypatch.setattr(timm, "create_model", at_random)
    encoder = Timm(name).load()
    config = timm.data.resolve_model_data_config(encoder.network)
    assert encoder.size == config["input_size"][-1]
    assert_same_features(encoder, timm.data.create_transform(**config))


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_open_clip_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    open_clip = pytest.importorskip("open_clip")
    create = open_clip.create_model

    def at_random(name: str, *, pretrained: str, precision: str) -> nn.Module:
        assert pretrained == "laion2b_s34b_b79k"
        model: nn.Module = create(name, precision=precision)
        return model

    monkeypatch.setattr(open_clip, "create_model", at_random)
    encoder = OpenClip("ViT-B-32/laion2b_s34b_b79k").load()
    assert (encoder.size, encoder.num_features) == (224, 512)
    config = open_clip.transform.PreprocessCfg(**encoder.network.visual.preprocess_cfg)
    assert_same_features(encoder, open_clip.transform.image_transform_v2(config, is_train=False))
