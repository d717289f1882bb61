"""A better encoder in the cache of the hub is found by the names of folders alone."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pictures import write
from protofission.models.encoders import find_encoder
from protofission.models.encoders.hub_cache import find_better_encoder
from protofission.models.encoders.huggingface import Transformers


def cached(hub: Path, name: str, weights: str = "model.safetensors") -> None:
    version = hub / f"models--{name.replace('/', '--')}" / "snapshots" / "0a"
    write(version / "config.json", b"")
    write(version / weights, b"")


def test_a_whole_vision_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("transformers") is None:
        pytest.skip("wants transformers, which takes seconds to import")
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert find_better_encoder() is None
    hub = tmp_path / "hub"
    cached(hub, "google-bert/bert-base")
    cached(hub, "CIDAS/clipseg-rd64")
    cached(hub, "facebook/dinov2-large", "pytorch_model.bin")
    (hub / "models--facebook--dinov2-giant" / "snapshots" / "0b").mkdir(parents=True)
    (hub / "datasets--me--clip").mkdir()
    (hub / "CLIP").touch()
    cached(hub, "clip")  # no name that an encoder can be given by
    assert find_better_encoder() is None
    cached(hub, "openai/clip-vit-base-patch32")
    assert find_better_encoder() == "openai/clip-vit-base-patch32"
    cached(hub, "facebook/dinov2-small", "model.safetensors.index.json")
    cached(hub, "facebook/dinov2-base")
    found = find_better_encoder()
    assert found == "facebook/dinov2-base"
    assert find_encoder(found) == Transformers(found)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "other"))
    assert find_better_encoder() is None
    cached(tmp_path / "other", "google/siglip-base")
    assert find_better_encoder() == "google/siglip-base"
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert find_better_encoder() is None
