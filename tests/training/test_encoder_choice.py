"""The encoder by quality, its size by the images, and the engine of a store that is continued."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Call
from pictures import picture
from protofission.core.errors import InputError
from protofission.data.image_sets import ImageSet, ImageSets
from protofission.data.readers.digits import load_digits
from protofission.data.store.manifest import fingerprint
from protofission.models.encoders.efficientnet import PACKAGED, EfficientNetLite
from protofission.models.encoders.own_backbone import OwnBackbone
from protofission.models.encoders.quality import QUALITIES, size_for
from protofission.training import embed as embedding
from protofission.training import encoder_choice as module
from protofission.training.embed import Images, ViewCounts, embed
from protofission.training.encoder_choice import choose_encoder


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


@given(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from(sorted(set(PACKAGED.values()))))
def test_larger_images_are_seen_larger_in_steps_of_32(one: int, other: int, largest: int) -> None:
    small, large = (size_for(side, largest) for side in sorted((one, other)))
    assert 96 <= small <= large <= largest
    assert small % 32 == large % 32 == 0
    assert (size_for(1, largest), size_for(5000, largest)) == (96, largest)


def test_names_qualities_and_options_make_the_choice(tmp_path: Path) -> None:
    for number in range(3):
        picture(tmp_path / f"{number}.png", number, side=400)

    def size(*arguments: object) -> tuple[str, int, int]:
        spec, said = choose_encoder(*arguments).for_images(tmp_path)  # type: ignore[arg-type]
        assert isinstance(spec, EfficientNetLite)
        return spec.source, spec.size, len(said)

    for quality, entry in QUALITIES.items():
        assert entry.largest <= PACKAGED[entry.encoder]
        assert size(None, quality) == (entry.encoder, entry.largest, 1)
    assert size() == size(None, "good")
    assert size("efficientnet-lite1") == ("efficientnet-lite1", 224, 1)
    assert size("efficientnet-lite2", "fast") == ("efficientnet-lite2", 128, 1)
    assert size(None, None, ["size=64"]) == (QUALITIES["good"].encoder, 64, 0)
    assert size(None, None, [" size = 64"])[1:] == (64, 0)
    _, said = choose_encoder("efficientnet-lite0").for_images("cifar10")
    assert said[0].startswith("Images are 32 px on the short side (median): the encoder sees")
    other = choose_encoder("simclr-cifar10")
    assert other.for_images(tmp_path) == (OwnBackbone("simclr-cifar10"), [])
    with pytest.raises(InputError, match="quality = best is one of the packaged encoders"):
        choose_encoder("simclr-cifar10", "best")
    with pytest.raises(InputError, match=r"Unknown quality 'worst'.* Known: best, fast, good"):
        choose_encoder(None, "worst")  # type: ignore[arg-type]


def test_a_better_encoder_is_named_to_those_who_named_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_better_encoder", lambda: "facebook/dinov2-base")
    picture(tmp_path / "a.png", 0)
    _, said = choose_encoder().for_images(tmp_path)
    assert said[1].endswith("give --encoder facebook/dinov2-base to use it.")
    assert len(choose_encoder("efficientnet-lite0").for_images(tmp_path)[1]) == 1


def test_a_store_goes_on_with_its_encoder_and_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(embedding, "MOST_IMAGES", 4)
    digits = load_digits()
    few = ImageSet(digits.pixels[:8], digits.labels[:8], digits.class_names)
    images, counts = Images("digits", ImageSets(few), "digits"), ViewCounts(1, 0, 0)
    spec = EfficientNetLite(size=32)

    def features(folder: Path) -> bytes:
        return (folder / "train-plain.npy").read_bytes()

    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    whole = {
        engine: embed(images, replace(spec, engine=engine), tmp_path / engine, counts)
        for engine in ("torch", "onnxruntime")
    }
    by_torch, by_other = whole.values()
    assert features(by_torch.folder) != features(by_other.folder)
    for engine, store in whole.items():
        begun = tmp_path / f"begun by {engine}"
        with pytest.raises(KeyboardInterrupt):
            embed(images, replace(spec, engine=engine), begun, counts, progress=stop)
        embed(images, spec, begun, counts)
        assert features(begun) == features(store.folder)
        kept, said = choose_encoder().for_store(begun, "digits")
        assert (kept, len(said)) == (replace(spec, engine=engine), 1)
        named, _ = choose_encoder("efficientnet-lite2").for_store(begun, "digits")
        assert named == EfficientNetLite("efficientnet-lite2", named.size)  # type: ignore[attr-defined]
    with pytest.raises(
        InputError, match=r"features by torch, to go on .* --set engine=torch: name"
    ):
        embed(images, replace(spec, engine="onnxruntime"), by_torch.folder, counts)
    plan = by_torch.plan
    assert "engine" not in plan.encoder  # as stores of before there were engines
    parts = {"train": [8, {"plain": 1}]}
    assert plan.identity == fingerprint(plan.fingerprints, plan.item, parts, plan.block)
    assert plan.identity != by_other.plan.identity


def test_the_command_line_says_the_size(tmp_path: Path, call: Call) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    for number in range(2):
        picture(tmp_path / "images" / f"{number}.png", number, side=20)
    views = ("--weak", 0, "--strong", 0, "--processes", 1, "--quality", "fast")
    said = call("embed", tmp_path / "images", "--out", tmp_path / "store", *views)
    assert said.code == 0, said.err
    assert "Images are 20 px on the short side (median): the encoder sees them" in said.out
    wrong = call("embed", tmp_path / "images", "--out", tmp_path / "s", "--quality", "worst")
    assert wrong.code == 2
