"""train, pretrain, presets and weights at the command line."""

import json
from pathlib import Path

import pytest

from conftest import Call
from protofission.cli.arguments import name_tracker
from protofission.training.mlflow import MlflowTracker
from protofission.training.run_folder import RunFolder

QUICK = [
    *("--set", "recipe.epochs=2"),
    *("--set", "recipe.steps_per_epoch=2"),
    *("--set", "recipe.labeled_batch=16"),
    *("--set", "recipe.unlabeled_batch=16"),
]


@pytest.fixture
def simclr(call: Call, tmp_path: Path) -> Path:
    """The folder of a short pretraining."""
    folder = tmp_path / "simclr"
    assert call("pretrain", "--preset", "digits", "--out", folder, *QUICK).code == 0
    return folder


def test_pretraining_is_the_start_of_a_run(call: Call, simclr: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    weights = f"backbone.weights={simclr}"
    done = call("train", "orca+pf", "--out", out, "--set", weights, "--seed", 3, *QUICK)
    assert done.code == 0, done.err
    assert "epoch 2  loss" in done.out
    assert "frozen and random" not in done.out
    assert max(map(len, done.out.replace(str(out), "").splitlines())) <= 80
    run, start = RunFolder(out), RunFolder(simclr)
    assert run.finished
    assert run.plain("experiment")["seed"] == 3
    told = json.loads((out / "start.json").read_text())
    assert told["loaded"] == sum(name.startswith("backbone.") for name in start.weights())
    first = "backbone.stages.0.0.conv1.weight"  # frozen, so still SimCLR's
    assert run.weights()[first].equal(start.weights()[first])


def test_neighbours_are_judged_while_pretraining(simclr: Path) -> None:
    run = RunFolder(simclr)
    accuracies = [epoch.neighbours for epoch in run.history()]
    assert len(accuracies) == 2
    assert all(accuracy is not None and accuracy > 0.4 for accuracy in accuracies)  # chance: 0.2
    assert run.plain("metrics") == {"neighbours": accuracies[-1]}


def test_frozen_random_stages_are_warned_of(call: Call, tmp_path: Path) -> None:
    done = call("train", "orca", "--out", tmp_path / "run", *QUICK)
    assert "Warning: 2 of 3 stages are frozen and random" in done.out


def test_resuming_needs_the_word_and_an_unfinished_run(call: Call, tmp_path: Path) -> None:
    arguments = ["train", "fixmatch", "--out", tmp_path / "run", *QUICK]
    assert call(*arguments, "--resume").code == 0  # killed before it began: nothing is there yet
    before = (tmp_path / "run" / "state.safetensors").read_bytes()
    for again, word in ((["--resume"], "nothing to resume"), ([], "finished")):
        done = call(*arguments, *again)
        assert done.code == 2
        assert word in done.err
        assert done.err.count("\n") == 1
    assert (tmp_path / "run" / "state.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--preset", "paper/cifar10"], "use --preset cpu/cifar10"),
        (["--preset", "fixmatch/cifar100"], "use --preset cpu/cifar100"),
        (["--accelerator", "cuda"], "There is no cuda here"),
        (["--set", "recipe.precision=bf16"], "wants an accelerator"),
        (["--processes", "0"], "processes = 0 must be at least 1"),
        (["--processes", "5"], "cannot be shared by 5 processes"),
        (["--save-every", "nan"], "save_every = nan"),
        (["--seed", "-1"], "seed = -1 must be between 0 and 2^63 - 1."),
        (["--seed", str(2**63)], f"seed = {2**63} must be between 0 and 2^63 - 1."),
        (["--set", "seed=5"], "seed cannot be set: use --seed, or"),
        (["--nodes", "2"], "nodes = 2 wants NODE_RANK, MASTER_ADDR, MASTER_PORT"),
        (["--set", "recipe.epochs=none"], "say how long training takes"),
        (["--set", "backbone=resnet19"], "Did you mean 'resnet18'?"),
        (["--set", "backbone.blocks=1,0"], "blocks of stage 2 = 0"),
        (["--set", "backbone.pixels=cifar10"], "set backbone.pixels=unit"),
        (["--set", "backbone.weights=nothing.pth"], "nothing.pth does not exist"),
        (["--set", "recipe.milestones=2"], "must be shares of training"),
        (
            ["--set", "head.temperature=1e308"],
            "= '1e308' must be from -3.40282e+38",
        ),
        (["--set", "head.delta=1e308"], "head.delta = '1e308' must be from -3.40282e+38 to 3.4"),
        (["--set", "head.delta=-101"], "delta = -101.0 must lie between -100 and 100."),
        (["--set", "recipe.nesterov=true", "--set", "recipe.momentum=0"], "momentum above 0"),
        (["--set", "recipe.epoch=pool", "--set", "data.dataset=cifar10"], "CIFAR-10 is not in"),
    ],
)
def test_bad_input_gets_one_sentence_and_leaves_nothing(
    call: Call,
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PROTOFISSION_DATA", str(tmp_path / "no data"))
    monkeypatch.setattr("protofission.training.presets.best_accelerator", lambda: "cpu")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    done = call("train", "orca", "--out", tmp_path / "run", *arguments)
    assert done.code == 2
    assert words in done.err
    assert done.err.startswith("protofission: ")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "run" / "experiment.json").exists()


def test_a_checkpoint_of_another_net_is_refused(call: Call, simclr: Path, tmp_path: Path) -> None:
    weights = f"backbone.weights={simclr}"
    wide = ("--set", "backbone.width=8")
    done = call("train", "orca", "--out", tmp_path / "run", "--set", weights, *wide, *QUICK)
    assert done.code == 2
    assert "it was made with backbone.width=16, not 8" in done.err
    stem = ("--set", "backbone.shortcut=stride")
    done = call("train", "orca", "--out", tmp_path / "run", "--set", weights, *stem, *QUICK)
    assert "it was made with backbone.shortcut=mean, not stride" in done.err
    foreign = tmp_path / "foreign.safetensors"
    foreign.write_bytes((simclr / "weights.safetensors").read_bytes())
    weights = f"backbone.weights={foreign}"
    done = call("train", "orca", "--out", tmp_path / "run", "--set", weights, *wide, *QUICK)
    assert done.code == 2
    assert "is 16 x 1 x 3 x 3, not 8 x 1 x 3 x 3" in done.err
    assert "`protofission weights` lists them all" in done.err
    assert not (tmp_path / "run" / "experiment.json").exists()


def test_presets_and_their_needs_are_listed(call: Call) -> None:
    said = call("presets").out
    assert "paper/cifar10 (wants a GPU)" in said
    assert "cpu/cifar10 \n" in said
    assert max(map(len, said.splitlines())) <= 80


def test_a_run_s_backbone_is_packed_and_read_again(
    call: Call, simclr: Path, tmp_path: Path
) -> None:
    file = tmp_path / "packed.safetensors"
    assert "Written to" in call("weights", simclr, "--out", file).out
    whole = (simclr / "weights.safetensors").stat().st_size
    assert file.stat().st_size < 0.75 * whole  # half precision, and no projection
    for source in (file, simclr):
        said = call("weights", source, "--backbone", "digits", "--channels", 1).out
        assert said.splitlines()[-1] == "It fits digits."
    said = call("weights", file, "--backbone", "compact").out
    assert said.splitlines()[-1] == "It does not fit compact."
    assert "missing" in said
    before = file.read_bytes()
    done = call("weights", simclr, "--out", file)
    assert (done.code, file.read_bytes()) == (2, before)
    weights = f"backbone.weights={file}"
    done = call("train", "orca", "--out", tmp_path / "run", "--set", weights, *QUICK)
    assert done.code == 0, done.err


def test_curves_are_tracked(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    out = tmp_path / "run"
    assert call("train", "supervised", "--out", out, "--track", *QUICK).code == 0
    assert list((out / "tensorboard").glob("events*"))
    said = call("train", "supervised", "--out", tmp_path / "other", "--track", "wandb", *QUICK)
    assert said.code == 2
    assert "mlflow" in said.err
    assert not (tmp_path / "other").exists()


def test_track_without_a_name_is_tensorboard() -> None:
    given = ["train", "orca", "--track", "--out", "x", "--track", "mlflow", "--track"]
    assert name_tracker(given) == [
        *("train", "orca", "--track=tensorboard", "--out", "x"),
        *("--track", "mlflow", "--track=tensorboard"),
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow's own libraries
def test_mlflow_has_the_numbers_and_options_of_a_run_that_was_resumed(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a real database on this machine."""
    tracking = pytest.importorskip("mlflow.tracking")
    pytest.importorskip("alembic")
    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    out = tmp_path / "run"
    command = ("train", "supervised", "--out", out, "--track", "mlflow", "--seed", "3", *QUICK)
    done = call(*command)
    assert done.code == 0, done.err
    client = tracking.MlflowClient(address)
    (found,) = client.search_runs([client.get_experiment_by_name("protofission").experiment_id])
    history = RunFolder(out).history()
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "run"
    assert found.data.params["seed"] == "3"
    assert found.data.params["name"] == "supervised"
    tracker = MlflowTracker(RunFolder(out))  # another life: the run is found, no epoch is doubled
    for epoch in history:
        tracker.add(epoch)
    losses = client.get_metric_history(found.info.run_id, "loss")
    assert [(metric.step, metric.value) for metric in losses] == [
        (epoch.epoch, epoch.loss) for epoch in history
    ]
    assert len(client.search_runs([found.info.experiment_id])) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_mlflow_that_does_not_answer_is_refused_before_a_step(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow.tracking")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    out = tmp_path / "run"
    done = call("train", "supervised", "--out", out, "--track", "mlflow", *QUICK)
    assert done.code == 2
    assert "MLflow cannot be written to" in done.err
    assert not out.exists()
