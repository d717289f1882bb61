"""The command of a run: told by its folder, or found from its experiment."""

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from conftest import Call
from protofission.core.errors import InputError
from protofission.core.options import override
from protofission.methods import METHODS, Orca
from protofission.training.command import Command, command_for, command_of_run
from protofission.training.experiment import Experiment, as_json
from protofission.training.presets import PRESETS, preset
from protofission.training.run import perform
from protofission.training.run_folder import RunFolder
from runs import digits

QUICK = (
    *("backbone.width=4", "recipe.epochs=1", "recipe.steps_per_epoch=2"),
    *("recipe.labeled_batch=16", "recipe.unlabeled_batch=24"),
)
COMMAND = Command("orca+pf", "digits/literal", QUICK, seed=3)


def run(folder: RunFolder, command: Command, *, told: bool = True, resume: bool = False) -> None:
    told_command = command if told else None
    experiment = command.experiment()
    for _ in perform(experiment, digits(), folder, resume=resume, command=told_command):
        pass


def put(folder: RunFolder, experiment: Experiment, **command: Any) -> RunFolder:
    """A folder of these two files, as of a run that was just begun."""
    folder.path.mkdir(exist_ok=True)
    folder.write("experiment.json", as_json(experiment))
    if command:
        folder.write("command.json", json.dumps(command))
    return folder


def test_a_command_is_its_preset_with_its_options_and_seed() -> None:
    experiment = preset("digits/literal", "orca+pf")
    for option in QUICK:
        experiment = override(experiment, option)
    assert COMMAND.experiment() == dataclasses.replace(experiment, seed=3)


def test_a_folder_tells_the_command_before_training_and_after(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    moments = perform(COMMAND.experiment(), digits(), folder, command=COMMAND)
    next(moments)
    assert json.loads((folder.path / "command.json").read_text()) == {
        "method": "orca+pf",
        "preset": "digits/literal",
        "options": list(QUICK),
        "seed": 3,
    }
    assert command_of_run(folder) == COMMAND
    for _ in moments:
        pass
    assert command_of_run(folder) == COMMAND
    assert "command.json" in json.loads((folder.path / "finished").read_text())


def test_the_line_of_a_command_makes_the_same_run(call: Call, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "one run")
    run(folder, COMMAND)
    words = shlex.split(COMMAND.line(tmp_path / "another run"))
    done = call(*words[1:])
    assert done.code == 0, done.err
    for path in folder.path.iterdir():
        if path.name != "environment.json":
            assert (tmp_path / "another run" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("verb", "method"),
    [(("train", "orca"), "orca"), (("pretrain", "--preset", "digits"), "simclr")],
)
def test_the_folder_of_a_verb_tells_its_preset_and_options(
    verb: tuple[str, ...], method: str, call: Call, tmp_path: Path
) -> None:
    sets = [word for option in QUICK for word in ("--set", option)]
    assert call(*verb, "--out", tmp_path / "run", "--seed", "5", *sets).code == 0
    assert command_of_run(RunFolder(tmp_path / "run")) == Command(method, "digits", QUICK, 5)


def test_a_run_from_python_has_no_command_and_one_is_found(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    run(folder, COMMAND, told=False)
    assert not (folder.path / "command.json").exists()
    found = command_of_run(folder)
    assert found.preset == "digits"
    assert found.experiment() == COMMAND.experiment()


def test_a_run_of_an_earlier_version_has_no_command_and_one_is_found(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    run(folder, COMMAND)
    (folder.path / "command.json").unlink()
    assert command_of_run(folder).experiment() == COMMAND.experiment()


@pytest.mark.parametrize("told", [True, False])
def test_a_run_that_goes_on_keeps_its_command(told: bool, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    moments = perform(COMMAND.experiment(), digits(), folder, save_every=0, command=COMMAND)
    next(moments)
    moments.close()  # type: ignore[attr-defined]
    run(folder, COMMAND, told=told, resume=True)
    assert command_of_run(folder) == COMMAND


def test_a_command_that_makes_another_experiment_now_is_not_told(tmp_path: Path) -> None:
    experiment = preset("digits", "orca")
    for number, (name, options) in enumerate(
        (("digits/literal", []), ("digits", ["recipe.epochs=3"]), ("gone", []), ("digits", ["x=1"]))
    ):
        told = {"method": "orca", "preset": name, "options": options, "seed": 0}
        folder = put(RunFolder(tmp_path / str(number)), experiment, **told)
        assert command_of_run(folder) == Command("orca", "digits")


def test_a_damaged_command_is_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    run(folder, COMMAND)
    path = folder.path / "command.json"
    path.write_text(path.read_text().replace("literal", "digital"))
    with pytest.raises(InputError, match=r"command\.json is damaged: delete that file"):
        command_of_run(folder)
    for number, bad in enumerate(({"method": "orca"}, {"method": 3}, {"color": "red"})):
        begun = put(RunFolder(tmp_path / str(number)), preset("digits", "orca"), **bad)
        with pytest.raises(InputError, match=r"command\.json is damaged: delete that file"):
            command_of_run(begun)


def test_an_experiment_of_another_version_is_named_with_its_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    plain = json.loads(as_json(preset("digits", "orca")))
    folder.write("experiment.json", json.dumps({**plain, "color": "red"}))
    with pytest.raises(InputError, match=r"run: .*not one of this version \(color is not known\)"):
        command_of_run(folder)


# From an experiment to a command


@pytest.mark.parametrize("preset_name", PRESETS)
def test_a_command_is_found_for_every_preset_and_method(preset_name: str) -> None:
    """Of each preset every fourth method, another fourth each time."""
    for method in list(METHODS)[list(PRESETS).index(preset_name) % 4 :: 4]:
        experiment = dataclasses.replace(preset(preset_name, method), seed=3)
        found = command_for(experiment)
        assert found is not None, method
        assert found.experiment() == experiment, method
        assert found.preset == "digits"
        assert command_for(experiment, preset_name) == Command(method, preset_name, (), 3)


@pytest.mark.parametrize(
    ("name", "method"),
    [("features/cifar10", "orca+pf"), ("cpu/cifar100", "fixmatch"), ("digits", "simclr")],
)
@pytest.mark.parametrize("body", ["", "backbone=adapter-mlp", "backbone=resnet18"])
def test_a_command_is_found_for_any_options(name: str, method: str, body: str) -> None:
    experiment = preset(name, method)
    for option in (
        *filter(None, [body]),
        "data.split=ds3l",
        "data.split.ratio=0.4",
        "recipe.steps=100",
        "recipe.epochs=none",
        "recipe.milestones=0.5,0.6,0.7",
        "data.store=a folder",
    ):
        experiment = override(experiment, option)
    found = command_for(experiment)
    assert found is not None
    assert found.experiment() == experiment
    assert found.preset == "features"  # as it is on a store


def test_no_command_is_found_where_none_can_be() -> None:
    experiment = preset("digits", "orca")
    assert command_for(dataclasses.replace(experiment, method=METHODS["fixmatch"])) is None
    assert command_for(dataclasses.replace(experiment, name="own", method=Orca())) is None
    spaces = dataclasses.replace(experiment.data, folder=" x ")
    assert command_for(dataclasses.replace(experiment, data=spaces)) is None
