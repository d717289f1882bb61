"""Bundles come back as they were saved, or are refused; nothing in between, and nothing runs."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from protofission import __version__
from protofission.core.errors import InputError
from protofission.models.encoders import find_encoder
from protofission.models.encoders.onnx_network import Onnx
from protofission.models.encoders.own_backbone import OwnBackbone
from protofission.triage import bundle as module
from protofission.triage.bundle import Bundle, load
from protofission.triage.bundle_files import BUNDLE_PARTS, CALIBRATION, MANIFEST, MODEL
from protofission.triage.calibrated_model import ACCEPT, REJECT
from small_bundles import ADAPTERS, FACTS, HEADS, WIDTH, bundle_of, calibrated_model_of, features

CARD = {"data": {"labeled": 12, "pool": "photos, 2\n"}, "training": [1, 2.5], "notes": ["a", "b"]}


def saved(folder: Path, bundle: Bundle | None = None) -> Path:
    (bundle or bundle_of(card=CARD)).save(folder)
    return folder


def edited(folder: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """A bundle whose bundle.json was changed by someone who knows of the seal."""
    path = folder / MANIFEST
    content = json.loads(path.read_bytes())
    content.pop("seal", None)
    edit(content)
    plain = json.dumps(content, sort_keys=True).encode()
    path.write_text(json.dumps({**content, "seal": hashlib.sha256(plain).hexdigest()}))
    return folder


def forged(folder: Path, name: str, content: bytes) -> Path:
    """A bundle with another file, whose digest is right."""
    (folder / name).write_bytes(content)
    sha = hashlib.sha256(content).hexdigest()
    return edited(folder, lambda manifest: manifest["files"].update({name: sha}))


def with_tensor(folder: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Path:
    tensors = load_tensors((folder / MODEL).read_bytes())
    tensors[name] = change(tensors[name]).contiguous()
    return forged(folder, MODEL, save_tensors(tensors))


def refused(folder: Path, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        Bundle.load(folder)
    sentence = str(error.value)
    assert sentence.startswith(str(folder)), "it says which folder"
    assert sentence.isprintable()
    assert sentence.endswith(".")


CASES = [(head, adapter, 2 if head != "cosine" else 0) for head in HEADS for adapter in ADAPTERS]


@pytest.mark.parametrize(("head", "adapter", "novel"), CASES)
def test_a_bundle_comes_back_bit_for_bit(head: str, adapter: str, novel: int, tmp_path: Path):
    before = bundle_of(head, adapter, novel, card=CARD, spec=OwnBackbone("simclr-cifar10", size=64))
    after = load(saved(tmp_path / "b", before))
    old, new = before.calibrated_model.state_dict(), after.calibrated_model.state_dict()
    assert list(old) == list(new)
    assert all(torch.equal(old[name], new[name]) for name in old)
    rows = features(50)
    for one, other in zip(before.calibrated_model(rows), after.calibrated_model(rows), strict=True):
        assert torch.equal(one, other)
    assert not after.calibrated_model.model.training
    assert not any(p.requires_grad for p in after.calibrated_model.parameters())
    assert after.encoder_spec == before.encoder_spec
    for name in ("class_names", "subclass_names", "cluster_names", "encoder_facts", "card"):
        assert getattr(after, name) == getattr(before, name)
    assert after.calibration.dtype == np.float32
    assert np.array_equal(after.calibration, before.calibration)
    assert after.version == __version__
    assert after.fingerprint == before.fingerprint


def test_heads_that_stand_for_no_cluster_stay_so(tmp_path: Path):
    before = bundle_of(novel=2, clusters=False, threshold=0.5)
    after = load(saved(tmp_path / "b", before))
    assert after.cluster_names == ()
    assert (after.calibrated_model.num_clusters, after.calibrated_model.says_novel) == (0, False)
    rows = features(50)
    for one, other in zip(before.calibrated_model(rows), after.calibrated_model(rows), strict=True):
        assert torch.equal(one, other)
    assert set(after.calibrated_model(rows).decisions.tolist()) == {ACCEPT, REJECT}
    assert after.fingerprint == before.fingerprint


NAMES = st.text(st.characters(exclude_categories=()), max_size=8)


@settings(max_examples=25)
@given(
    st.lists(NAMES, min_size=2, max_size=2, unique=True), st.lists(NAMES, min_size=8, max_size=8)
)
def test_any_name_comes_back(tmp_path_factory: Any, names: list[str], others: list[str]):
    folder = tmp_path_factory.mktemp("names") / "b"
    calibrated_model = calibrated_model_of("fission", "none", 2, known=2)
    bundle = Bundle.of(
        calibrated_model,
        names,
        OwnBackbone("simclr-cifar10"),
        FACTS,
        subclass_names=[others[:3], others[3:6]],
        cluster_names=others[6:],
    )
    again = load(saved(folder, bundle))
    assert again.class_names == tuple(names)
    assert again.subclass_names == (tuple(others[:3]), tuple(others[3:6]))
    assert again.cluster_names == tuple(others[6:])
    (folder / MANIFEST).read_bytes().decode("ascii")
    assert all(line.isprintable() for line in again.card_lines())


def test_what_has_no_name_is_numbered():
    bundle = bundle_of("fission", novel=2)
    assert bundle.subclass_names[1] == ("dog / 1", "dog / 2", "dog / 3")
    assert bundle.cluster_names == ("novel 1", "novel 2")
    assert bundle_of("linear").subclass_names == (("cat / 1",), ("dog / 1",), ("cow / 1",))


def test_the_files_are_plain(tmp_path: Path):
    folder = saved(tmp_path / "b")
    assert {path.name for path in folder.iterdir()} == {MANIFEST, *BUNDLE_PARTS, ".lock"}
    scores = np.load(folder / CALIBRATION, allow_pickle=False)
    assert scores.dtype == np.float32
    assert scores.shape == (17,)
    tensors = load_tensors((folder / MODEL).read_bytes())
    assert {value.dtype for value in tensors.values()} == {torch.float32}
    assert {"temperature", "threshold", "model.backbone.mean", "model.head.l"} <= set(tensors)
    content = json.loads((folder / MANIFEST).read_bytes())
    assert content["format"] == 1
    assert content["encoder"]["kind"] == "own"
    assert content["files"] == {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in BUNDLE_PARTS
    }


def test_the_same_bundle_is_the_same_bytes(tmp_path: Path):
    one, other = saved(tmp_path / "a"), saved(tmp_path / "b")
    for name in (MANIFEST, *BUNDLE_PARTS):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    fingerprints = {bundle_of(seed=seed).fingerprint for seed in (0, 1)}
    fingerprints.add(bundle_of(card=CARD).fingerprint)
    assert len(fingerprints) == 3


def test_no_scores_and_a_threshold_that_lets_all_in_come_back(tmp_path: Path):
    bundle = Bundle.of(
        calibrated_model_of(threshold=-np.inf), ("a", "b", "c"), OwnBackbone("x"), FACTS
    )
    again = load(saved(tmp_path / "b", bundle))
    assert again.calibration.shape == (0,)
    assert float(again.calibrated_model.threshold) == -np.inf


@pytest.mark.parametrize("name", BUNDLE_PARTS)
def test_a_file_of_which_any_byte_is_another_is_refused(name: str, tmp_path: Path):
    folder = saved(tmp_path / "b")
    whole = (folder / name).read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 40)):
        other = bytearray(whole)
        other[place] ^= 1
        (folder / name).write_bytes(other)
        refused(folder, f"{name} is not as it was saved")
    for other in (whole[:-1], whole + b"\0", b"", whole[: len(whole) // 2]):
        (folder / name).write_bytes(other)
        refused(folder, f"{name} is not as it was saved")
    (folder / name).write_bytes(whole)
    load(folder)
    (folder / name).unlink()
    refused(folder, f"{name} is missing")


@pytest.mark.parametrize("key", ["class_names", "card", "protofission", "seal"])
def test_a_bundle_json_that_was_edited_by_hand_is_refused(key: str, tmp_path: Path):
    folder = saved(tmp_path / "b")
    content = json.loads((folder / MANIFEST).read_bytes())
    changed = {
        "class_names": ["x", *content["class_names"][1:]],
        "card": {"accuracy": 1},
        "protofission": "9",
        "seal": "0" * 64,
    }
    (folder / MANIFEST).write_text(json.dumps({**content, key: changed[key]}))
    refused(folder, "bundle.json is not as it was saved")


def test_a_cut_bundle_json_is_refused(tmp_path: Path):
    folder = saved(tmp_path / "b")
    whole = (folder / MANIFEST).read_bytes()
    for length in range(0, len(whole) - 1, 37):
        (folder / MANIFEST).write_bytes(whole[:length])
        refused(folder, "damaged")


def put(*path_and_value: Any) -> Callable[[dict[str, Any]], object]:
    *path, last, value = path_and_value

    def edit(content: dict[str, Any]) -> None:
        inner: Any = content
        for key in path:
            inner = inner[key]
        inner[last] = value

    return edit


def without(*path: str) -> Callable[[dict[str, Any]], object]:
    def edit(content: dict[str, Any]) -> None:
        inner = content
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]

    return edit


SHA = "0" * 64
EDITS = {
    "a file outside": (put("files", {"../" + MODEL: SHA, CALIBRATION: SHA}), r"names the files"),
    "an absolute file": (put("files", {"/etc/passwd": SHA, CALIBRATION: SHA}), "/etc/passwd"),
    "a file below": (put("files", {"x/" + MODEL: SHA, CALIBRATION: SHA}), "names the files"),
    "a file more": (put("files", "more.bin", SHA), "more.bin"),
    "a file less": (without("files", MODEL), "names the files"),
    "a digest that is none": (put("files", MODEL, 3), r"must be a text, not 3"),
    "another digest": (put("files", MODEL, SHA), "not as it was saved"),
    "format 0": (put("format", 0), "format = 0"),
    "format true": (put("format", True), "format must be a whole number"),
    "no format": (without("format"), "format is missing"),
    "no classes": (without("class_names"), "class_names is missing"),
    "an unknown key": (put("run", "rm -rf"), "run is not known"),
    "a name that is a number": (put("class_names", 1, 7), r"class_names\[1\] must be a text"),
    "names that are a text": (put("class_names", "cat"), "class_names must be a list"),
    "the same name": (put("class_names", ["cat", "cat", "cow"]), "same name"),
    "a class too few": (put("class_names", ["cat", "dog"]), "2 names for 3"),
    "ten million classes": (put("known", 10_000_000), "known = 10000000"),
    "ten million clusters": (put("novel", 10_000_000), "novel = 10000000"),
    "a cluster more": (put("novel", 1), "do not fit"),
    "less than none": (put("novel", -1), "novel = -1"),
    "a sub-class too few": (put("subclass_names", 0, ["a", "b"]), "9 sub-classes, and 8 are named"),
    "a cluster without a head": (put("cluster_names", ["new"]), "1 names for 0"),
    "a huge adapter": (
        put("adapter", "width", 10**30),
        "adapter.width must be a whole number of 64 bits",
    ),
    "a large adapter": (put("adapter", "width", 2**20), "do not fit"),
    "huge features": (put("encoder", "describe", "num_features", 2**40), "num_features = "),
    "large features": (put("encoder", "describe", "num_features", 2**20), "do not fit"),
    "many prototypes": (put("head", "prototypes", 2**20), "do not fit"),
    "too many prototypes": (
        put("head", "prototypes", 2**40),
        "prototypes = 1099511627776 must be at most",
    ),
    "half a prototype": (put("head", "prototypes", 2.5), "head.prototypes must be a whole"),
    "another head": (put("head", "kind", "linear"), "do not fit"),
    "an unknown head": (put("head", "kind", "evil"), "head.kind must be one of"),
    "a projection": (put("head", "kind", "projection"), "not for bundles"),
    "a head temperature of 0": (put("head", "temperature", 0.0), "temperature = 0.0"),
    "a head option less": (without("head", "offset"), "head.offset is missing"),
    "uneven prototypes": (put("head", "novel_prototypes", 2), "must divide"),
    "an unknown encoder": (put("encoder", "kind", "os.system"), "Unknown encoder"),
    "an unknown option": (put("encoder", "options", {"x": 1}), "encoder.options.backbone is miss"),
    "an option of another type": (put("encoder", "options", "size", "9"), "encoder.options.size"),
    "no fingerprint": (without("encoder", "describe", "fingerprint"), "fingerprint must be a text"),
    "a list for a card": (put("card", []), "card must be an object"),
}


@pytest.mark.parametrize(("edit", "words"), EDITS.values(), ids=EDITS)
def test_what_does_not_fit_is_refused(edit: Any, words: str, tmp_path: Path):
    refused(edited(saved(tmp_path / "b"), edit), words)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", '"x"', "null", "{", "[" * 100_000, '{"format": NaN}', '{"a": 1, "a": 2}'],
    ids=lambda text: text[:10],
)
def test_what_is_no_json_object_is_refused(text: str, tmp_path: Path):
    folder = saved(tmp_path / "b")
    (folder / MANIFEST).write_text(text)
    refused(folder, "damaged")


def test_infinity_by_another_name_is_refused(tmp_path: Path):
    folder = saved(tmp_path / "b")
    text = (folder / MANIFEST).read_text()
    assert '"temperature": 10.0' in text
    (folder / MANIFEST).write_text(text.replace('"temperature": 10.0', '"temperature": 1e999'))
    refused(folder, "1e999 is no number")


def test_a_huge_bundle_json_is_not_read(tmp_path: Path):
    folder = saved(tmp_path / "b")
    with (folder / MANIFEST).open("r+b") as file:
        file.truncate(2**40)  # a file with a hole takes no room
    refused(folder, "bytes")


def test_a_newer_format_asks_for_an_update(tmp_path: Path):
    folder = edited(
        saved(tmp_path / "b"), lambda content: (content.clear(), content.update(format=5))
    )
    with pytest.raises(InputError, match=r"made by a newer protofission \(format 5\): update\."):
        load(folder)


LEAVES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@settings(max_examples=25)
@given(st.data())
def test_whatever_stands_anywhere_it_loads_or_is_refused(tmp_path_factory: Any, data: Any):
    folder = saved(tmp_path_factory.mktemp("fuzz") / "b", bundle_of("linear", "none"))

    def edit(content: Any) -> None:
        while True:
            key = data.draw(
                st.sampled_from(
                    sorted(content) if isinstance(content, dict) else range(len(content))
                )
            )
            inner = content[key]
            if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
                content = inner
                continue
            content[key] = data.draw(LEAVES)
            return

    edited(folder, edit)
    with suppress(InputError):
        Bundle.load(folder).card_lines()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", ["model.backbone.mean", "model.head.l", "temperature"])
def test_weights_that_are_no_numbers_are_refused(name: str, value: float, tmp_path: Path):
    def spoil(tensor: torch.Tensor) -> torch.Tensor:
        tensor.view(-1)[-1] = value
        return tensor

    refused(with_tensor(saved(tmp_path / "b"), name, spoil), f"{name} hold NaN or infinity")
    calibrated_model = calibrated_model_of()
    spoil(calibrated_model.state_dict()[name])
    with pytest.raises(InputError, match="NaN or infinity"):
        Bundle.of(calibrated_model, ("a", "b", "c"), OwnBackbone("x"), FACTS)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("threshold", lambda t: t * torch.nan),
        ("temperature", lambda t: -t),
        ("model.backbone.deviation", torch.zeros_like),
    ],
)
def test_numbers_that_cannot_be_computed_with_are_refused(name: str, change: Any, tmp_path: Path):
    refused(with_tensor(saved(tmp_path / "b"), name, change), name)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t[:, :-1],
        lambda t: t.double(),
        lambda t: t.to(torch.float8_e4m3fn),
        lambda t: t.T,
        lambda t: t[0],
        lambda t: torch.zeros(0),
    ],
)
def test_tensors_of_another_form_are_refused(change: Any, tmp_path: Path):
    refused(with_tensor(saved(tmp_path / "b"), "model.head.g", change), "model.head.g do not fit")


def test_tensors_too_many_or_too_few_are_refused(tmp_path: Path):
    folder = saved(tmp_path / "b")
    tensors = load_tensors((folder / MODEL).read_bytes())
    refused(forged(folder, MODEL, save_tensors({**tensors, "more": torch.ones(1)})), "more do not")
    del tensors["threshold"]
    refused(forged(folder, MODEL, save_tensors(tensors)), "threshold do not fit")
    refused(forged(folder, MODEL, b"PK\x03\x04 and a pickle"), "no safetensors file")
    refused(forged(folder, MODEL, b"\xff" * 8), "no safetensors file")


class Evil:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("code of a file was run",))


def test_scores_that_are_none_are_refused_and_nothing_is_run(tmp_path: Path):
    folder = saved(tmp_path / "b")
    whole = (folder / CALIBRATION).read_bytes()
    arrays: dict[str, Any] = {
        "objects": np.array([Evil()], object),
        "doubles": np.ones(3),
        "a table": np.ones((2, 2), np.float32),
        "big-endian": np.ones(3, ">f4"),
    }
    for array in arrays.values():
        path = tmp_path / "other.npy"
        np.save(path, array, allow_pickle=True)
        refused(forged(folder, CALIBRATION, path.read_bytes()), "no list of float32")
    longer = whole.replace(b"(17,), }      ", b"(17000000000,)")
    assert longer != whole
    for content in (b"", b"\x93NUMPY", whole[:-1], whole + b"1234", longer):
        refused(forged(folder, CALIBRATION, content), "no list of float32")
    spoilt = whole[:-4] + np.array([np.nan], "<f4").tobytes()
    refused(forged(folder, CALIBRATION, spoilt), "finite")


def test_where_there_is_no_bundle_that_is_said(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name in ("empty", "file"):
        refused(tmp_path / name, "holds no bundle: give a folder that protofission fit wrote")
    refused(tmp_path / "nowhere", "nowhere does not exist: give a folder")
    folder = saved(tmp_path / "b")
    (folder / MANIFEST).unlink()
    refused(folder, "unfinished")
    (folder / MANIFEST).mkdir()
    refused(folder, "bundle.json cannot be read: it is a folder")


def test_what_is_not_a_bundle_is_not_written_over(tmp_path: Path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("a cat")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / MODEL).write_text("somebody's only copy")
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / MANIFEST).write_text('{"format": "of another tool"}')
    (tmp_path / "file").write_text("x")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in ("photos", "weights", "tool"):
        with pytest.raises(InputError, match="holds other things"):
            bundle_of().save(tmp_path / name)
    with pytest.raises(InputError, match="is a file"):
        bundle_of().save(tmp_path / "file")
    with pytest.raises(InputError, match="cannot be written"):
        bundle_of().save(tmp_path / "file" / "below")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_bundle_is_replaced_and_what_lies_beside_it_stays(tmp_path: Path):
    folder = saved(tmp_path / "b")
    (folder / "notes.txt").write_text("mine")
    saved(folder, bundle_of("linear", seed=1))
    assert load(folder).fingerprint == bundle_of("linear", seed=1).fingerprint
    assert (folder / "notes.txt").read_text() == "mine"
    (folder / "notes.txt").unlink()
    (folder / MANIFEST).write_text("{ damaged")
    saved(folder)
    assert load(folder).card == CARD


def test_a_bundle_that_cannot_be_saved_leaves_the_old_one(tmp_path: Path):
    folder = saved(tmp_path / "b")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for card in ({"x": object()}, {"x": np.float32(1)}, {"x": float("inf")}):
        with pytest.raises(InputError, match="plain JSON"):
            bundle_of(card=card).save(folder)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    saved(folder, bundle_of(card={"accuracy": float("nan")}))
    assert load(folder).card == {"accuracy": None}


KILLED = """
import os, shutil, sys
from pathlib import Path
from protofission.triage.bundle import load

old, new, place = map(Path, sys.argv[1:])
prints = {load(old).fingerprint: "old", load(new).fingerprint: "new"}
bundle = load(new)
for moment in range(100):
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(old, place)
    child = os.fork()
    if not child:
        left = moment
        def counted(own):
            def call(*arguments, **options):
                global left
                if not left:
                    os._exit(9)
                left -= 1
                return own(*arguments, **options)
            return call
        for name in ("write_bytes", "replace", "unlink", "open"):
            setattr(Path, name, counted(getattr(Path, name)))
        bundle.save(place)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    try:
        print(prints[load(place).fingerprint])
    except ValueError as error:
        print("unfinished" if "unfinished" in str(error) else error)
    if os.waitstatus_to_exitcode(status) == 0:
        break
    bundle.save(place)
    assert prints[load(place).fingerprint] == "new"
"""


def test_a_killed_save_leaves_the_old_bundle_or_an_unfinished_one(tmp_path: Path):
    folders = saved(tmp_path / "old"), saved(tmp_path / "new", bundle_of("linear", seed=1))
    arguments = [sys.executable, "-c", KILLED, *folders, tmp_path / "place"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split("\n")[:-1]
    assert set(said) == {"old", "unfinished", "new"}
    assert said == sorted(said, key=["old", "unfinished", "new"].index)


def test_features_are_judged_chunk_by_chunk(monkeypatch: pytest.MonkeyPatch):
    bundle, rows = bundle_of(novel=2), features(20)
    wanted = bundle.calibrated_model(rows)
    monkeypatch.setattr(module, "JUDGED_AT_ONCE", 3)
    found = bundle.predict_features(rows.numpy())
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert [len(part) for part in bundle.predict_features(np.zeros((0, WIDTH)))] == [0] * 6
    whole = np.arange(2 * WIDTH).reshape(2, WIDTH)
    assert torch.equal(
        bundle.predict_features(whole).probs, bundle.predict_features(whole.astype(float)).probs
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.zeros(WIDTH), rf"shape \({WIDTH},\)"),
        (np.zeros((2, WIDTH + 1)), rf"give \(N, {WIDTH}\) numbers"),
        (np.full((2, WIDTH), "x"), "type <U1"),
        (np.full((2, WIDTH), np.nan), "2 of 2 feature vectors hold NaN"),
        ([[object()] * WIDTH], "type object"),
    ],
)
def test_features_that_are_none_are_refused(rows: Any, words: str):
    with pytest.raises(InputError, match=words):
        bundle_of().predict_features(rows)


def test_the_encoder_is_loaded_by_its_reference_and_another_is_refused(tmp_path: Path):
    spec = find_encoder("simclr-cifar10")
    facts = spec.load().describe()
    bundle = load(saved(tmp_path / "b", bundle_of(spec=spec, facts=facts)))
    encoder = bundle.encoder()
    assert encoder.fingerprint == facts["fingerprint"]
    images = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert len(bundle.predict_features(encoder.features(images).numpy()).classes) == 4

    other = edited(tmp_path / "b", put("encoder", "source", "simclr-cifar100"))
    with pytest.raises(InputError, match=r"simclr-cifar100 is not the one .* fit again\.") as error:
        load(other).encoder()
    assert str(error.value).isprintable()
    gone = load(edited(tmp_path / "b", put("encoder", "source", "nowhere.safetensors")))
    with pytest.raises(InputError, match=r"nowhere.safetensors does not exist"):
        gone.encoder()


def test_an_encoder_s_path_stays_as_it_was_given(tmp_path: Path):
    for source in ("~/models/net.onnx", "../net.onnx", "C:\\net.onnx", "models/ n e t.onnx"):
        spec = Onnx(source, size=64, pixels="half", output="features")
        folder = tmp_path / "b"
        assert load(saved(folder, bundle_of(spec=spec))).encoder_spec == spec


def test_an_encoder_of_no_known_kind_cannot_be_referred_to(tmp_path: Path):
    class Mine:
        source = "here"

    with pytest.raises(InputError, match="A Mine is no encoder"):
        bundle_of(spec=Mine()).save(tmp_path / "b")  # type: ignore[arg-type]
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"class_names": ("a", "b")}, "2 names for 3 classes"),
        ({"class_names": ("a", "b", "b")}, "same name"),
        ({"subclass_names": [["x"]] * 3}, "9 sub-classes, and 3 are named"),
        ({"cluster_names": ["x"]}, "1 names for 2 novel clusters"),
        ({"encoder_facts": {**FACTS, "num_features": 5}}, "gives 5 features, but the model takes"),
        ({"encoder_facts": {"num_features": WIDTH}}, "fingerprint must be a text"),
        ({"calibration": [[1.0]]}, "no list of finite numbers"),
        ({"calibration": [np.nan]}, "no list of finite numbers"),
    ],
)
def test_parts_that_do_not_fit_make_no_bundle(parts: dict[str, Any], words: str):
    usual: dict[str, Any] = {
        "calibrated_model": calibrated_model_of(novel=2),
        "class_names": ("a", "b", "c"),
        "encoder_spec": OwnBackbone("x"),
        "encoder_facts": FACTS,
    }
    with pytest.raises(InputError, match=words):
        Bundle.of(**{**usual, **parts})


def test_the_card_is_lines_that_any_terminal_can_show():
    names = ("cat\n\x1b[31m", "dog, big", "cow")
    lines = bundle_of(novel=1, names=names, card=CARD).card_lines()
    assert all(line.isprintable() for line in lines)
    text = "\n".join(lines)
    assert lines[0].startswith("A model of 3 known classes and 1 novel cluster, made by")
    assert "ID score of 0.25" in text
    for group in (
        "\n\nData\n  labeled: 12\n  pool: photos, 2\\n\n",
        "\n\nTraining\n  1\n  2.5\n",
        "\n\nNotes\n  a\n  b",
        "\n  dog, big: sub-classes 1 to 3\n",
        "\n\nNovel clusters\n  novel 1\n",
    ):
        assert group in text
    assert "simclr-cifar10" in text


def test_parts_of_a_card_stand_below_it_and_what_is_not_there_is_left_out():
    card = {"a": {"b": {"c_d": 1 / 3, "e": ["f", "g"]}, "h": None, "i": {}}, "j": {}, "k": None}
    lines = bundle_of("linear", card=card, threshold=-np.inf).card_lines()
    shown = ["", "A", "  b:", "    c_d: 0.3333", "    e:", "      f", "      g"]
    assert lines[-len(shown) :] == shown
    assert "  accepted: every image" in lines
    start = lines.index("Classes")
    assert lines[start + 1 : start + 4] == ["  cat", "  dog", "  cow"]


def test_loading_moves_no_random_generator(tmp_path: Path):
    folder = saved(tmp_path / "b")
    before = torch.random.get_rng_state()
    load(folder)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_copy_of_the_folder_is_the_same_bundle(tmp_path: Path):
    folder = saved(tmp_path / "b")
    shutil.copytree(folder, tmp_path / "c")
    assert load(str(tmp_path / "c")).fingerprint == load(folder).fingerprint


def test_a_model_on_images_makes_no_bundle():
    calibrated_model = calibrated_model_of()
    calibrated_model.model.backbone = torch.nn.Identity()  # type: ignore[assignment]
    with pytest.raises(InputError, match="model on features"):
        Bundle.of(calibrated_model, ("a", "b", "c"), OwnBackbone("x"), FACTS)
