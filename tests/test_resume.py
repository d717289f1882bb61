"""Killed at any point, on a full disk too, and resumed: the same bits."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from protofission.errors import InputError
from protofission.folder import RunFolder
from protofission.run import check_folder, perform
from runs import digits, small

KILLING = Path(__file__).with_name("killing.py")
SAME = ("state.safetensors", "weights.safetensors", "history.json", "metrics.json")


def options(name: str, epochs: int) -> list[str]:
    small: dict[str, object] = {
        "backbone.width": 4,
        "recipe.epochs": epochs,
        "recipe.steps_per_epoch": 5,
        "recipe.labeled_batch": 16,
        "recipe.unlabeled_batch": 24,
        "recipe.ema": 0.9,
    }
    small["judging.every"] = 3
    if name != "simclr":
        small["judging.select"] = "oracle"  # what was best must be remembered too
    return [part for key, value in small.items() for part in ("--set", f"{key}={value}")]


def command(name: str, out: Path, epochs: int) -> list[str]:
    verb = ["pretrain", "--preset", "digits"] if name == "simclr" else ["train", name]
    return [*verb, "--out", str(out), "--save-every", "0", *options(name, epochs)]


def called(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )


@pytest.mark.parametrize(("name", "kills"), [("fixmatch-sigmoid+pf", 8), ("simclr", 4)])
def test_a_run_killed_many_times_ends_in_the_same_bits(
    name: str, kills: int, tmp_path: Path
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    epochs = kills // 2
    done = called("-m", "protofission", *command(name, whole, epochs))
    assert done.returncode == 0, done.stderr
    arguments = [*command(name, broken, epochs), "--resume"]
    done = called(str(KILLING), str(broken), str(kills), *arguments)
    assert done.returncode == 0, done.stderr
    killed, writing, full = map(int, done.stdout.splitlines()[-1].split())
    assert killed == kills
    assert writing > 0
    assert full > 0
    assert "cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    names = {path.name for path in whole.iterdir()}
    assert {path.name for path in broken.iterdir()} == names
    for file in names & {*SAME, "predictions.npz"}:
        assert (broken / file).read_bytes() == (whole / file).read_bytes(), file


def test_a_byte_that_changed_in_a_saved_state_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for _ in perform(small("orca"), digits(), folder):
        pass
    path = tmp_path / "state.safetensors"
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"state\.safetensors is missing or damaged"):
        folder.saved_state()


def test_a_saved_state_holds_the_method_s_memory(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for _ in perform(small("orca+pf", "method.diversity_scope=ema"), digits(), folder):
        pass
    saved = folder.saved_state()
    assert saved is not None
    assert saved[0].keys() >= {"memory.base.uncertainty", "memory.usage", "step"}
    assert any(name.startswith("optimizer.") for name in saved[0])


def test_a_folder_of_another_run_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    experiment, folder = small("orca"), RunFolder(tmp_path / "run")
    for _ in perform(experiment, digits(), folder):
        pass
    before = {path: path.read_bytes() for path in folder.path.iterdir()}
    for other, resume, word in (
        (small("orca", "recipe.epochs=3"), True, "where recipe.epochs is 2, not 3"),
        (small("fixmatch"), False, "where name is orca, not fixmatch"),
        (experiment, True, "nothing to resume"),
        (experiment, False, "finished"),
    ):
        with pytest.raises(InputError, match=word):
            next(perform(other, digits(), folder, resume=resume))
    assert {path: path.read_bytes() for path in folder.path.iterdir()} == before


def test_an_unfinished_run_goes_on_only_when_asked(tmp_path: Path) -> None:
    experiment, folder = small("orca"), RunFolder(tmp_path)
    moments = perform(experiment, digits(), folder, save_every=0)
    next(moments)
    next(moments)
    with pytest.raises(InputError, match="Another process is at work"):
        next(perform(experiment, digits(), folder, resume=True))
    moments.close()  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="add --resume"):
        next(perform(experiment, digits(), folder))
    steps = [moment.report.step for moment in perform(experiment, digits(), folder, resume=True)]
    assert steps == [2, 3, 4, 5]
    assert len(folder.history()) == 2


def test_a_folder_with_other_files_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for resume in (False, True):
        with pytest.raises(InputError, match=r"holds other files, such as thesis\.tex"):
            check_folder(RunFolder(tmp_path), small("orca"), resume=resume)
    (tmp_path / "thesis.tex").rename(tmp_path / "weights.safetensors")  # a name that is ours
    with pytest.raises(InputError, match="holds other files"):
        check_folder(RunFolder(tmp_path), small("orca"), resume=True)
    (tmp_path / "weights.safetensors").rename(tmp_path / "thesis.tex")
    with pytest.raises(InputError, match="is a file"):
        check_folder(RunFolder(tmp_path / "thesis.tex"), small("orca"), resume=False)


@pytest.mark.parametrize("damage", [b"", b"garbage", b"\xff" * 100])
def test_a_damaged_state_is_named(damage: bytes, tmp_path: Path) -> None:
    experiment, folder = small("orca"), RunFolder(tmp_path)
    moments = perform(experiment, digits(), folder, save_every=0)
    next(moments)
    next(moments)
    moments.close()  # type: ignore[attr-defined]
    (tmp_path / "state.safetensors").write_bytes(damage)
    with pytest.raises(InputError, match=r"state\.safetensors is missing or damaged"):
        next(perform(experiment, digits(), folder, resume=True))


@pytest.mark.parametrize("content", ["{}", '{"a": 1}', "[1, 2]", "no json"])
def test_another_experiment_file_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "experiment.json").write_text(content)
    with pytest.raises(InputError, match=r"another experiment|missing or damaged"):
        check_folder(RunFolder(tmp_path), small("orca"), resume=True)
    assert (tmp_path / "experiment.json").read_text() == content


def test_a_state_of_another_model_is_named(tmp_path: Path) -> None:
    experiment, folder = small("orca"), RunFolder(tmp_path)
    moments = perform(experiment, digits(), folder, save_every=0)
    next(moments)
    next(moments)
    moments.close()  # type: ignore[attr-defined]
    saved = folder.saved_state()
    assert saved is not None
    folder.save_state({**saved[0], "model.head.weight": torch.zeros(3, 3)}, saved[1])
    with pytest.raises(InputError, match="is not of this version's model"):
        next(perform(experiment, digits(), folder, resume=True))


def test_a_run_does_not_go_on_with_other_data(tmp_path: Path) -> None:
    experiment, folder, data = small("orca"), RunFolder(tmp_path), digits()
    moments = perform(experiment, data, folder, save_every=0)
    next(moments)
    next(moments)
    moments.close()  # type: ignore[attr-defined]
    other = replace(data, split=replace(data.split, unlabeled=data.split.unlabeled[1:]))
    with pytest.raises(InputError, match="holds a run on other images"):
        next(perform(experiment, other, folder, resume=True))


def test_the_experiment_in_the_folder_is_the_one_that_ran(tmp_path: Path) -> None:
    for _ in perform(small("orca"), digits(), RunFolder(tmp_path)):
        pass
    assert json.loads((tmp_path / "experiment.json").read_text())["recipe"]["epochs"] == 2
