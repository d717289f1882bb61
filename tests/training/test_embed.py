"""Embedding: the same bytes however it is done, and nothing lost when it is killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import Killing
from protofission.cli import main
from protofission.core.errors import InputError
from protofission.core.rng import step_rng
from protofission.data.datasets import VIEWS
from protofission.data.image_sets import ImageSet, ImageSets
from protofission.data.readers.digits import load_digits
from protofission.data.store.manifest import Block
from protofission.data.store.reader import Store
from protofission.models.encoders import find_encoder
from protofission.training.embed import Images, ViewCounts, embed, images_of

module = sys.modules[embed.__module__]
ENCODER = "simclr-cifar10"


def few(number: int = 300) -> Images:
    """Some digits, the last thirty as a test set: two blocks, and one."""
    digits = load_digits()
    train, test = (
        ImageSet(digits.pixels[rows], digits.labels[rows], digits.class_names)
        for rows in (slice(number), slice(number, number + 30))
    )
    return Images("digits", ImageSets(train, test), "digits")


def arrays(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.npy"))}


def called(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "protofission", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("stores") / "digits"
    return embed(few(), find_encoder(ENCODER), folder, ViewCounts(weak=2, strong=1))


def test_features_are_those_of_the_encoder_on_the_views(store: Store):
    images, encoder = few(), find_encoder(ENCODER).load()
    views, block = VIEWS["digits"], slice(256, 300)
    pixels = torch.from_numpy(np.array(images.sets.train.pixels[block]))
    plain = encoder.features(views.plain(pixels)).half().numpy()
    assert np.array_equal(store.map_verified_view("train", "plain")[block, 0], plain)
    drawn = step_rng(0, 256, "weak 1 of train")
    weak = encoder.features(views.view("weak", pixels, drawn)).half().numpy()
    assert np.array_equal(store.map_verified_view("train", "weak")[block, 1], weak)
    assert store.plan.parts["test"].views == {"plain": 1}
    assert store.labeling().train.tolist() == images.sets.train.labels.tolist()
    versions = store.map_verified_view("train", "weak").astype(np.float32)
    assert np.abs(versions[:, 0] - versions[:, 1]).max(1).min() > 1e-3


@pytest.mark.parametrize("threads", [1, 2])
def test_several_processes_and_any_threads_give_the_same_bytes(
    threads: int, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "protofission.training.embed.SHORT", -1.0
    )  # other processes, however little it is
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    counts = ViewCounts(weak=2, strong=1)
    try:
        again = embed(few(), find_encoder(ENCODER), tmp_path / "s", counts, processes=threads)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert arrays(again.folder) == arrays(store.folder)
    assert (again.folder / "manifest.json").read_bytes() == (
        store.folder / "manifest.json"
    ).read_bytes()


def test_a_finished_store_is_kept_and_another_is_refused(store: Store, tmp_path: Path):
    spec, counts = find_encoder(ENCODER), ViewCounts(weak=2, strong=1)
    before = {p: p.stat().st_mtime_ns for p in store.folder.rglob("*")}
    embed(few(), spec, store.folder, counts, progress=lambda done, total: pytest.fail("work"))
    assert {p: p.stat().st_mtime_ns for p in store.folder.rglob("*")} == before
    other = {
        "other images or labels": (few(299), spec, counts, {}),
        "another encoder": (few(), find_encoder("simclr-cifar100"), counts, {}),
        "other views": (few(), spec, ViewCounts(weak=3, strong=1), {}),
    }
    other |= {
        f"{word} ": (few(), spec, counts, change)
        for word, change in (("other views", {"seed": 1}), ("other  views", {"views": "natural"}))
    }
    for words, (images, encoder, wanted, change) in other.items():
        with pytest.raises(InputError, match=f"holds a store of {' '.join(words.split())}: name"):
            embed(images, encoder, store.folder, wanted, **change)


def test_relabeled_images_are_other_data(store: Store):
    images = few()
    train = images.sets.train
    wrong = ImageSet(train.pixels, np.roll(train.labels, 1), train.class_names)
    relabeled = Images("digits", ImageSets(wrong, images.sets.test), "digits")
    with pytest.raises(InputError, match="other images or labels"):
        embed(relabeled, find_encoder(ENCODER), store.folder, ViewCounts(weak=2, strong=1))


@pytest.mark.slow
def test_killed_again_and_again_it_ends_in_the_same_bytes(tmp_path: Path, killing: Killing):
    def command(folder: str) -> list[str]:
        views = ["--weak", "3", "--strong", "2", "--processes", "1"]
        return ["embed", "digits", "--encoder", ENCODER, *views, "--out", str(tmp_path / folder)]

    assert killing(tmp_path / "whole", 0, command("whole"))["began"] == [0]
    found = killing(tmp_path / "broken", 3, command("broken"))
    said = (tmp_path / "broken.errors").read_text()
    assert "failed" not in found, (found, said)
    assert len(found["saved"]) == 4
    assert sorted(set(found["saved"])) == found["saved"]  # each life added blocks
    assert found["began"] == found["saved"]  # and the next went on after them
    assert found["full"] > 0
    assert "Traceback" not in said
    assert arrays(tmp_path / "broken") == arrays(tmp_path / "whole")
    manifests = [(tmp_path / f / "manifest.json").read_bytes() for f in ("broken", "whole")]
    assert manifests[0] == manifests[1]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    draw = np.random.default_rng(0)
    for name in ("cat", 'a "dog", one'):
        (folder / name).mkdir()
        for number in range(3):
            pixels = draw.integers(0, 256, (40, 50, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    (folder / "cat" / "broken.png").write_bytes(b"\x89PNG")
    return folder


def test_a_folder_keeps_its_names_and_paths(photos: Path, tmp_path: Path):
    images = images_of(str(photos), 32)
    assert images.report is not None
    assert "broken.png" in "\n".join(images.report.lines())
    counts = ViewCounts(weak=0, strong=0)
    store = embed(images, find_encoder(ENCODER), tmp_path / "s", counts)
    assert store.plan.class_names == ('a "dog", one', "cat")
    assert store.paths()["train"] == [
        f"{name}/{n}.png" for name in ('a "dog", one', "cat") for n in range(3)
    ]
    assert store.labeling().train.tolist() == [0, 0, 0, 1, 1, 1]
    manifest = json.loads((store.folder / "manifest.json").read_bytes())
    assert manifest["encoder"]["kind"] == "own"
    assert set(manifest["digests"]) == {"train-plain.npy", "labels/train.npy", "paths.json"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing-here"], "Unknown data set 'nothing-here'"),
        (["digits", "--encoder", "effnet"], "Unknown encoder 'effnet'"),
        (["digits", "--weak", "-1"], "weak = -1 must be between"),
        (["digits", "--plain", "2"], "plain = 2"),
        (["digits", "--views", "natrual"], "Did you mean 'natural'?"),
        (["digits", "--processes", "0"], "processes = 0"),
        (["digits", "--set", "size=33", "--encoder", "efficientnet-lite0"], "size = 33"),
        (["digits", "--set", "sizes=32"], "Unknown key 'sizes'. Did you mean 'size'?"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    encoder = [] if "--encoder" in arguments else ["--encoder", ENCODER]
    out = ["--out", str(tmp_path / "s")]
    monkeypatch.setattr(sys, "argv", ["protofission", "embed", *arguments, *encoder, *out])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "s").exists()


def test_an_encoder_that_changed_before_another_process_read_it_is_refused() -> None:
    spec = find_encoder(ENCODER)
    pixels = np.array(few().sets.train.pixels[:2])
    work = module._Work("digits", 0, {"train": {"plain": 1}}, {"train": 0})
    known = spec.load().describe()
    begun = module._begin(work, spec, known)
    found = module._carry_out(begun, (Block("train", 0, 2), pixels), print)
    assert found["plain"].shape[:2] == (2, 1)
    with pytest.raises(InputError, match=f"The encoder {ENCODER} changed while it was in use"):
        module._begin(work, spec, {**known, "fingerprint": "another"})
