"""Killed at any point, on a full disk too, and resumed: the same bits."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from conftest import Killing
from protofission.core.errors import InputError
from protofission.training.run import check_folder, perform
from protofission.training.run_folder import RunFolder
from runs import digits, small
from stores import made

SMALL = {
    "recipe.steps_per_epoch": 5,
    "recipe.labeled_batch": 16,
    "recipe.unlabeled_batch": 24,
    "judging.every": 3,
}


@dataclass(frozen=True)
class Subject:
    """A training that is killed."""

    name: str
    kills: int
    options: Mapping[str, object] = field(default_factory=dict)
    processes: int = 1
    on_a_store: bool = False

    def command(self, out: Path, store: Path) -> list[str]:
        verb = ["train", self.name]
        if self.name == "simclr":
            verb = ["pretrain", "--preset", "digits"]
        elif self.on_a_store:
            verb += ["--store", str(store)]
        width = {} if self.on_a_store else {"backbone.width": 4}
        epochs = {"recipe.epochs": 2 * self.kills + 2}
        options = {**SMALL, **width, **epochs, **self.options}
        settings = [part for key, value in options.items() for part in ("--set", f"{key}={value}")]
        return [*verb, "--out", str(out), "--save-every", "0", *settings]


ALL = {"recipe.trainable_stages": "none"}
AVERAGE = {"recipe.ema": 0.9, "judging.select": "oracle"}  # the best epoch is remembered too
SUBJECTS = {
    "images, average": Subject("fixmatch-sigmoid+pf", 8, {**ALL, **AVERAGE}),
    "images, two processes": Subject("orca+pf", 6, {**ALL, "recipe.ema": 0.9}, processes=2),
    "images, two optimizers": Subject("openldn", 6, ALL),
    "SimCLR": Subject("simclr", 6),
    "SimCLR, LARS, two processes": Subject("simclr", 5, {"recipe.optimizer": "lars"}, processes=2),
    "features, average": Subject("orca+pf", 6, AVERAGE, on_a_store=True),
    "features, two processes": Subject("fixmatch-sigmoid+pf", 5, {}, processes=2, on_a_store=True),
}
QUICK = ("features, average",)


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(subject, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, subject in SUBJECTS.items()
    ],
)
def test_a_run_killed_many_times_ends_in_the_same_bits(
    subject: Subject, killing: Killing, tmp_path: Path
) -> None:
    store = made(tmp_path / "store").folder
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    count = subject.processes
    assert killing(whole, 0, subject.command(whole, store), count)["began"] == [0]
    again = [*subject.command(broken, store), "--resume"]
    found = killing(broken, subject.kills, again, count)
    said = (tmp_path / "broken.errors").read_text()
    assert "failed" not in found, (found, said)
    assert len(found["saved"]) == 1 + subject.kills  # the first life had nothing
    assert sorted(set(found["saved"])) == found["saved"]  # each life got further
    assert found["began"] == found["saved"]  # and the next went on from there
    assert found["writing"] > 0
    assert found["full"] > 0
    assert "cannot be written: File too large" in said
    assert "Traceback" not in said
    names = {path.name for path in whole.iterdir()}
    assert {path.name for path in broken.iterdir()} == names
    assert names >= {"state.safetensors", "weights.safetensors", "metrics.json", "finished"}
    for file in names - {"environment.json"}:
        assert (broken / file).read_bytes() == (whole / file).read_bytes(), file


def test_so_many_kills_are_tried() -> None:
    assert sum(subject.kills for subject in SUBJECTS.values()) >= 40  # docs/training.md says so


def test_a_byte_that_changed_in_a_saved_state_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for _ in perform(small("orca"), digits(), folder):
        pass
    path = tmp_path / "state.safetensors"
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"state\.safetensors is missing or damaged"):
        folder.load_state()


def test_a_saved_state_holds_the_method_s_memory(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for _ in perform(small("orca+pf", "method.diversity_scope=ema"), digits(), folder):
        pass
    saved = folder.load_state()
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


def test_what_does_not_matter_in_a_file_is_as_it_was_in_the_end(tmp_path: Path) -> None:
    experiment, whole, broken = small("orca"), RunFolder(tmp_path / "a"), RunFolder(tmp_path / "b")
    for _ in perform(experiment, digits(), whole):
        pass
    moments = perform(experiment, digits(), broken, save_every=0)
    next(moments)
    next(moments)
    moments.close()  # type: ignore[attr-defined]
    for name in ("experiment.json", "split.json"):
        with (broken.path / name).open("a") as file:
            file.write(" \n")
    for _ in perform(experiment, digits(), broken, resume=True):
        pass
    for path in whole.files():
        assert (broken.path / path.name).read_bytes() == path.read_bytes(), path.name


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
    saved = folder.load_state()
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
