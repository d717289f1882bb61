"""Vision encoders of transformers: tiny random ones, prepared as its own processors prepare."""

import json
import logging
import logging.handlers
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from fake_hub import FakeHub
from pictures import noise, picture
from protofission.core.errors import InputError
from protofission.models.encoders import fetch
from protofission.models.encoders.huggingface import Transformers
from protofission.models.encoders.preprocessing import Preprocessing
from protofission.models.encoders.preprocessor_config import read_preprocessing
from small_bundles import bundle_of
from verbs import command, environment

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed"
)
"""Looked for and not imported: each worker imports this file, and one runs it."""

SMALL = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
SIGHT = {**SMALL, "image_size": 16, "patch_size": 8}
CLIP = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": 20},
    "crop_size": {"height": 16, "width": 16},
    "resample": 3,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders that save_pretrained wrote; all weights are away from their start."""
    import transformers as library

    library.utils.logging.disable_progress_bar()
    library.utils.logging.set_verbosity_error()
    text = {**SMALL, "vocab_size": 9, "max_position_embeddings": 4}
    text |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    home = tmp_path_factory.mktemp("models")
    made = {
        "clip": library.CLIPModel(library.CLIPConfig(text_config=text, vision_config=SIGHT)),
        "clip-vision": library.CLIPVisionModel(library.CLIPVisionConfig(**SIGHT)),
        "siglip": library.SiglipModel(library.SiglipConfig(text_config=text, vision_config=SIGHT)),
        "dinov2": library.Dinov2Model(
            library.Dinov2Config(**{**SIGHT, "image_size": 24}, mlp_ratio=2)
        ),
        "vit": library.ViTModel(library.ViTConfig(**SIGHT)),
        "vit-classifier": library.ViTForImageClassification(library.ViTConfig(**SIGHT)),
        "bert": library.BertModel(library.BertConfig(**SMALL, vocab_size=9)),
        "mae": library.ViTMAEModel(
            library.ViTMAEConfig(
                **{**SIGHT, "image_size": 64}
            )  # enough patches to mask others each time
        ),
        "convnext": library.ConvNextModel(
            library.ConvNextConfig(hidden_sizes=[4, 4, 4, 6], depths=[1, 1, 1, 1], num_channels=1)
        ),
    }
    for number, (name, model) in enumerate(made.items()):
        with torch.no_grad():
            for place, value in enumerate(model.parameters()):
                rng = torch.Generator().manual_seed(100 * number + place)
                value.add_(torch.randn(value.shape, generator=rng), alpha=0.2)
        model.save_pretrained(home / name)
    library.utils.logging.set_verbosity_warning()
    library.utils.logging.enable_progress_bar()
    for name in ("clip", "clip-vision", "dinov2", "vit-classifier"):
        (home / name / "preprocessor_config.json").write_text(json.dumps(CLIP))
    return home


def copy_model(models: Path, name: str, to: Path) -> Path:
    return Path(shutil.copytree(models / name, to / name))


def images(number: int, side: int = 16, channels: int = 3) -> Tensor:
    rng = torch.Generator().manual_seed(number)
    return torch.rand(number, channels, side, side, generator=rng)


def run_library(folder: Path, prepared: Tensor, kind: str = "AutoModel", **options: Any) -> Any:
    """The outputs of the library itself."""
    import transformers as library

    library.utils.logging.disable_progress_bar()
    model = getattr(library, kind).from_pretrained(folder).eval()
    with torch.no_grad():
        return getattr(model, "vision_model", model)(pixel_values=prepared, **options)


# networks


@pytest.mark.parametrize("name", ["clip", "clip-vision", "dinov2"])
def test_features_are_the_pooled_output(name: str, models: Path) -> None:
    folder = models / name
    encoder = Transformers(str(folder)).load()
    shapes = (encoder.kind, encoder.size, encoder.decode, encoder.channels, encoder.num_features)
    assert shapes == ("transformers", 16, 20, 3, 8)
    batch = images(encoder.chunk + 3, 20)
    twin = run_library(folder, encoder.prepare(batch)).pooler_output
    assert twin.std() > 0.1
    torch.testing.assert_close(encoder.features(batch), twin)
    assert not any(weight.requires_grad for weight in encoder.parameters())
    described = encoder.describe()
    assert json.loads(json.dumps(described)) == described
    assert (described["source"], described["output"]) == (name, "pooled")


@pytest.mark.parametrize(("name", "leading"), [("vit", 1), ("dinov2", 1), ("siglip", 0)])
def test_the_class_token_and_the_mean_over_patches(name: str, leading: int, models: Path) -> None:
    source, batch = str(models / name), images(2)
    mean = Transformers(source, "mean", "unit", 16).load()
    tokens = run_library(models / name, batch).last_hidden_state
    assert tokens.shape[1] == leading + 4
    torch.testing.assert_close(mean.features(batch), tokens[:, leading:].mean(1))
    if leading:
        cls = Transformers(source, "cls", "unit", 16).load()
        torch.testing.assert_close(cls.features(batch), tokens[:, 0])
        assert cls.fingerprint != mean.fingerprint
    else:
        with pytest.raises(InputError, match="has no class token: set output=pooled or output=me"):
            Transformers(source, "cls", "unit").load()


def test_a_network_of_maps_is_pooled_too(models: Path) -> None:
    batch = images(2, 64, 1)
    given = run_library(models / "convnext", batch)
    for output, twin in (
        ("pooled", given.pooler_output),
        ("mean", given.last_hidden_state.mean((2, 3))),
    ):
        encoder = Transformers(str(models / "convnext"), output, "unit", 64).load()  # type: ignore[arg-type]
        assert (encoder.channels, encoder.num_features) == (1, 6)
        torch.testing.assert_close(encoder.features(batch), twin)


def test_without_a_pooled_output_the_class_token_is_taken(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers as library

    forward = library.ViTModel.forward

    def unpooled(self: Any, pixel_values: Tensor, **options: Any) -> Any:
        given = forward(self, pixel_values, **options)
        given.pooler_output = None
        return given

    monkeypatch.setattr(library.ViTModel, "forward", unpooled)
    encoder = Transformers(str(models / "vit"), pixels="unit").load()
    tokens = run_library(models / "vit", images(2)).last_hidden_state
    torch.testing.assert_close(encoder.features(images(2)), tokens[:, 0])
    assert encoder.describe()["output"] == "cls"


def test_another_size_stretches_the_positions(models: Path) -> None:
    encoder, batch = Transformers(str(models / "vit"), pixels="half", size=32).load(), images(2, 32)
    prepared = (batch - 0.5) / 0.5
    twin = run_library(models / "vit", prepared, interpolate_pos_encoding=True).pooler_output
    torch.testing.assert_close(encoder.features(batch), twin)
    scaled = Transformers(str(models / "clip"), size=32).load()
    assert (scaled.size, scaled.decode) == (32, 40)


def test_a_fingerprint_is_of_weights_network_and_preprocessing(
    models: Path, tmp_path: Path
) -> None:
    first = Transformers(str(models / "clip")).load().fingerprint
    folder = copy_model(models, "clip", tmp_path)
    assert Transformers(str(folder)).load().fingerprint == first
    config = json.loads((folder / "config.json").read_text())
    changed = {**config, "_name_or_path": "elsewhere", "transformers_version": "5.99"}
    (folder / "config.json").write_text(json.dumps(changed))
    assert Transformers(str(folder)).load().fingerprint == first
    sight = {**config["vision_config"], "hidden_act": "relu"}
    (folder / "config.json").write_text(json.dumps({**config, "vision_config": sight}))
    seen = {first, Transformers(str(folder)).load().fingerprint}
    (folder / "config.json").write_text(json.dumps(config))
    seen.add(Transformers(str(folder), size=24).load().fingerprint)
    tensors = load_file(folder / "model.safetensors")
    tensors["vision_model.post_layernorm.bias"][0] += 1
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    seen.add(Transformers(str(folder)).load().fingerprint)
    assert len(seen) == 4


def test_shards_are_one_model(models: Path, tmp_path: Path) -> None:
    whole = Transformers(str(models / "clip-vision")).load()
    folder = copy_model(models, "clip-vision", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    homes = {name: f"model-{len(name) % 2 + 1}-of-2.safetensors" for name in tensors}
    for file in set(homes.values()):
        part = {name: value for name, value in tensors.items() if homes[name] == file}
        save_file(part, folder / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": homes}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found = Transformers(str(folder)).load()
    assert found.fingerprint == whole.fingerprint
    assert torch.equal(found.features(images(2)), whole.features(images(2)))


def test_loading_says_nothing_and_moves_no_generator(
    models: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import transformers as library

    log, heard = library.utils.logging, logging.handlers.BufferingHandler(99)
    log.enable_progress_bar()
    level = log.get_verbosity()
    logging.getLogger("transformers").addHandler(heard)
    capfd.readouterr()
    before = torch.get_rng_state()
    Transformers(str(models / "vit-classifier"), "cls").load()
    assert torch.equal(torch.get_rng_state(), before)
    assert capfd.readouterr() == ("", "")
    assert heard.buffer == []
    assert (log.get_verbosity(), log.is_progress_bar_enabled()) == (level, True)
    logging.getLogger("transformers").removeHandler(heard)


# refusals


def test_weights_left_at_random_are_refused(models: Path, tmp_path: Path) -> None:
    classifier = str(models / "vit-classifier")
    with pytest.raises(InputError, match=r"lacks the weights of its pooled output .* output=cls"):
        Transformers(classifier).load()
    folder = copy_model(models, "clip", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    del tensors["text_model.final_layer_norm.bias"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    Transformers(str(folder)).load()  # no part of the vision encoder
    del tensors["vision_model.post_layernorm.bias"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"lacks weights of its network \(vision_model.post_layer"):
        Transformers(str(folder)).load()


def test_models_that_are_no_encoder_are_refused(models: Path) -> None:
    with pytest.raises(InputError, match="holds a BertModel, which is no vision encoder"):
        Transformers(str(models / "bert")).load()
    with pytest.raises(InputError, match="gives other features each time"):
        Transformers(str(models / "mae"), pixels="unit").load()
    with pytest.raises(InputError, match=r"does not take images of 4 x 4 .*: set size="):
        Transformers(str(models / "vit"), pixels="unit", size=4).load()


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("model.safetensors", None, r"has no whole model.safetensors \(.+\): get it again"),
        ("model.safetensors", b"rubbish", r"has no whole model.safetensors \(.+\): get it again"),
        ("config.json", None, r"config.json cannot be read \(No such file .*\): give a"),
        ("config.json", b"{", r"config.json cannot be read \(it is no JSON: .*\): give a"),
        ("config.json", b"[]", r"config.json cannot be read \(.*\): give a"),
        ("config.json", b"{}", "is of the type '', which transformers does not know"),
        ("config.json", b'{"model_type": "nonsense"}', "is of the type 'nonsense', which transf"),
        ("config.json", b'{"model_type": "clip", "vision_config": 1}', "cannot be loaded by tra"),
        ("preprocessor_config.json", None, r"has no preprocessor_config.json: add it, .* pixels="),
        ("preprocessor_config.json", b"[1]", "preprocessing file of .* cannot be followed"),
    ],
)
def test_a_damaged_folder_is_refused(
    file: str, content: bytes | None, words: str, models: Path, tmp_path: Path
) -> None:
    folder = copy_model(models, "clip", tmp_path)
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(InputError, match=words) as refused:
        Transformers(str(folder)).load()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "part/1.safetensors"])
def test_a_pipe_in_a_folder_is_not_waited_for(file: str, models: Path, tmp_path: Path) -> None:
    folder = copy_model(models, "clip", tmp_path)
    if file != "config.json":
        (folder / "model.safetensors").unlink()
    (folder / file).unlink(missing_ok=True)
    (folder / file).parent.mkdir(exist_ok=True)
    os.mkfifo(folder / file)
    index = {"metadata": {}, "weight_map": {"a": file}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match="it is a pipe, not a plain file"):
        Transformers(str(folder)).load()


def test_pickled_weights_and_code_of_a_model_are_not_run(models: Path, tmp_path: Path) -> None:
    folder = copy_model(models, "clip", tmp_path)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"has no whole model\.safetensors"):
        Transformers(str(folder)).load()
    shutil.copy(models / "clip" / "model.safetensors", folder)
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass C: pass\n")
    config = {"model_type": "x", "auto_map": {"AutoConfig": "code.C", "AutoModel": "code.C"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="is of the type 'x', which transformers does not know"):
        Transformers(str(folder)).load()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_how_a_network_is_computed_is_not_the_files_to_say(
    key: str, models: Path, tmp_path: Path
) -> None:
    folder = copy_model(models, "clip", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    hostile = {key: "some/kernel", "experts_implementation": "some/kernel", "dtype": "float16"}
    hostile |= {"fusion_config": {"nonsense": True}, "auto_map": {"AutoModel": "code.C"}}
    sight = {**config["vision_config"], **hostile}
    (folder / "config.json").write_text(json.dumps({**config, **hostile, "vision_config": sight}))
    found = Transformers(str(folder)).load()
    wanted = Transformers(str(models / "clip")).load()
    assert found.network.config._attn_implementation == "sdpa"  # type: ignore[union-attr]
    assert torch.equal(found.features(images(3)), wanted.features(images(3)))
    quantized = {**config, "quantization_config": {"quant_method": "bitsandbytes"}}
    (folder / "config.json").write_text(json.dumps(quantized))
    with pytest.raises(InputError, match="holds quantized weights: give the model in full"):
        Transformers(str(folder)).load()


def test_a_folder_cannot_name_other_files(models: Path, tmp_path: Path) -> None:
    """An adapter, another configuration or other weights beside the model are not looked at."""
    wanted = Transformers(str(models / "vit"), pixels="unit").load()
    folder = copy_model(models, "vit", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.4.0.0.json").write_text('{"model_type": "bert"}')
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "some/model"}')
    (folder / "other.safetensors").write_bytes(b"rubbish")
    hostile = {"configuration_files": ["config.4.0.0.json"]}
    hostile |= {"transformers_weights": "other.safetensors"}
    (folder / "config.json").write_text(json.dumps({**config, **hostile}))
    found = Transformers(str(folder), pixels="unit").load()
    assert torch.equal(found.features(images(3)), wanted.features(images(3)))


@pytest.mark.parametrize("kind", ["LocalEntryNotFoundError", "OfflineModeIsEnabled", ""])
def test_a_hub_that_cannot_be_reached_is_one_sentence(
    kind: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import huggingface_hub

    error = getattr(huggingface_hub.errors, kind) if kind else TimeoutError
    asked: list[str] = []

    def unreachable(name: str, **_: object) -> str:
        asked.append(name)
        raise error("no\nnet")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(
        InputError,
        match=r"^some/model is no .* from the hub \(.*: no\): give .*transformers:FOLDER.$",
    ):
        fetch(Transformers("some/model"))
    with pytest.raises(
        InputError, match=r"^some/model is no .* was not downloaded .* --allow-down"
    ):
        Transformers("some/model").load()
    for source in ("no/such/folder", "../x", str(Path(__file__)), "a b"):
        with pytest.raises(InputError, match="is neither a folder nor a hub name"):
            Transformers(source).load()
        with pytest.raises(InputError, match="is neither a folder nor a hub name"):
            fetch(Transformers(source))
    assert asked == ["some/model", "some/model"]
    assert capfd.readouterr() == ("", "")


def test_a_network_that_wants_the_hub_while_it_is_loaded_is_offline(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub
    import transformers as library

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    forward, seen = library.ViTModel.forward, []

    def asking(self: Any, pixel_values: Tensor, **options: Any) -> Any:
        with pytest.raises(huggingface_hub.errors.OfflineModeIsEnabled) as refused:
            huggingface_hub.HfApi().model_info("some/model")
        seen.append(refused)
        return forward(self, pixel_values, **options)

    monkeypatch.setattr(library.ViTModel, "forward", asking)
    Transformers(str(models / "vit"), pixels="unit").load()
    assert seen
    assert not huggingface_hub.is_offline_mode()


def test_what_the_hub_gives_is_a_folder(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    wanted: list[Any] = []

    def fetched(name: str, **options: Any) -> str:
        wanted.append((options["local_files_only"], options["allow_patterns"]))
        return str(models / "clip")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetched)
    fetch(Transformers("some/model"))
    encoder = Transformers("some/model").load()
    assert encoder.fingerprint == Transformers(str(models / "clip")).load().fingerprint
    assert encoder.describe()["source"] == "model"
    assert [local for local, _ in wanted] == [False, True]
    for _, patterns in wanted:
        assert not any(".bin" in each or each.endswith((".py", "*")) for each in patterns)


@pytest.mark.slow
def test_a_bundle_reaches_the_network_only_where_that_is_allowed(
    models: Path, tmp_path: Path
) -> None:
    work, vit = tmp_path / "work", models / "vit"
    facts = Transformers(str(vit), pixels="unit").load().describe()
    bundle_of(spec=Transformers("some/model", pixels="unit"), facts=facts).save(work / "model")
    picture(work / "new" / "a.png", 0, side=16)
    verbs = [
        ["show", "model"],
        ["predict", "model", "new"],
        ["drift", "model", "new"],
        ["export", "model", "model.onnx"],
        ["embed", "new", "--out", "store", "--encoder", "some/other"],
        ["predict", "model", "new", "--out", "rows.csv", "--allow-download", "--processes", "1"],
        ["drift", "model", "new", "--processes", "1"],
    ]
    with FakeHub(vit) as hub:
        variables = environment(tmp_path, HF_ENDPOINT=hub.address, MARK=hub.address)
        done = subprocess.run(
            command(verbs), cwd=work, env=variables, capture_output=True, text=True, check=True
        )
    codes, said = zip(*json.loads(done.stdout), strict=True)
    asked = re.split(r"GET /mark/\d+\n", "".join(f"{each}\n" for each in hub.asked))[1:]
    assert len(asked) == len(verbs)
    assert codes == (0, 2, 2, 2, 2, 0, 0), said
    assert asked[:4] == [""] * 4
    for sentence in said[1:4]:
        assert sentence.count("\n") == 1
        assert re.search(r"encoder some/model, .* not downloaded .* by --allow-download", sentence)
    assert "/api/models/some/other" in asked[4]
    assert not (work / "store").exists()
    assert "some/model/resolve/" in asked[5]
    assert all("/some/model/" in line for line in asked[5].splitlines())
    assert len((work / "rows.csv").read_text().splitlines()) == 2
    assert asked[6] == ""  # what was downloaded is kept


# preprocessing


def read_from(
    folder: Path, content: object, name: str = "preprocessor_config.json"
) -> Preprocessing:
    (folder / name).write_text(json.dumps(content))
    return read_preprocessing(folder, 3)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("CLIP", {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 16}}),
        ("Bit", {"size": {"shortest_edge": 31}, "crop_size": {"height": 26, "width": 26}}),
        ("ViT", {"size": {"height": 24, "width": 24}}),
        ("ViT", {"size": {"height": 24, "width": 24}, "do_rescale": False}),
        ("ViT", {"size": {"height": 9, "width": 9}, "do_normalize": False, "rescale_factor": 0.01}),
        ("Siglip", {"size": {"height": 24, "width": 24}}),
        ("DeiT", {"size": {"height": 24, "width": 24}, "crop_size": {"height": 17, "width": 17}}),
        ("ConvNext", {"size": {"shortest_edge": 21}, "crop_pct": 0.8}),
        ("ConvNext", {"size": {"shortest_edge": 384}}),
        ("Beit", {"size": {"height": 24, "width": 24}, "do_center_crop": False}),
    ],
)
@pytest.mark.parametrize("sides", [(32, 32), (40, 29)])
def test_images_are_prepared_as_by_the_librarys_own_processor(
    kind: str, options: dict[str, Any], sides: tuple[int, int], tmp_path: Path
) -> None:
    import transformers as library

    names = (f"{kind}ImageProcessorPil", f"{kind}ImageProcessor")  # the second in version 5.0
    processor = next(getattr(library, name) for name in names if hasattr(library, name))(**options)
    processor.save_pretrained(tmp_path)
    ours = read_preprocessing(tmp_path, 3)
    mean, deviation = (torch.tensor(v).view(-1, 1, 1) for v in (ours.mean, ours.deviation))
    picture = noise(*sides) // 2 + 64  # see test_encoders.py
    found = ours(torch.from_numpy(picture).permute(2, 0, 1)[None] / 255, mean, deviation)
    twin = processor(Image.fromarray(picture), return_tensors="np")["pixel_values"]
    level = 1 / 255 / min(ours.deviation)
    assert found.shape == twin.shape
    assert np.abs(found.numpy() - twin).max() <= 1.3 * level


def test_old_and_new_files_state_the_same(tmp_path: Path) -> None:
    wanted = read_from(tmp_path, CLIP)
    assert (wanted.size, wanted.resized, wanted.squash, wanted.filter) == (16, 20, False, "bicubic")
    old = {
        **{k: v for k, v in CLIP.items() if k != "image_processor_type"},
        **{"feature_extractor_type": "CLIPFeatureExtractor", "size": 20, "crop_size": 16},
        **{"do_center_crop": True, "do_normalize": True, "do_resize": True},
    }
    assert read_from(tmp_path, old) == wanted
    fast = {**CLIP, "image_processor_type": "CLIPImageProcessorFast", "do_pad": None}
    fast |= {"size": {"shortest_edge": 20, "longest_edge": None}, "do_convert_rgb": True}
    assert read_from(tmp_path, fast) == wanted
    vit = read_from(tmp_path, {**CLIP, "image_processor_type": "ViTImageProcessor", "size": 16})
    assert vit.squash
    assert read_from(tmp_path, {**CLIP, "do_resize": False}).resized == 16
    assert read_from(tmp_path, {**CLIP, "do_center_crop": False}).size == 20
    (tmp_path / "preprocessor_config.json").unlink()
    content = {"processor_class": "CLIPProcessor", "image_processor": CLIP}
    assert read_from(tmp_path, content, "processor_config.json") == wanted


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image_processor_type": "LevitImageProcessor"}, "the type LevitImageProcessor is not kn"),
        ({"image_processor_type": None}, "the type None is not known"),
        ({"do_flip_channel_order": True}, "do_flip_channel_order is not known"),
        ({"resample": 1}, "resample = 1 is not known"),
        ({"size": {"longest_edge": 9}}, "longest_edge is not known"),
        ({"size": {"height": 9, "width": 8}}, "is no square"),
        ({"size": {"width": 8}}, "height is missing"),
        ({"size": None}, "size is missing"),
        ({"size": {"shortest_edge": 12}}, "a crop that fits"),
        ({"size": "large"}, "invalid literal"),
        ({"image_mean": [0.5, 0.5]}, "does not fit images of 3 channels"),
        ({"image_std": [0, 0, 0]}, "must be above 0"),
        ({"image_mean": None}, "image_mean is missing"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=rf"cannot be followed \(.*{words}.*\): state it yourself"):
        read_from(tmp_path, {**CLIP, **change})
