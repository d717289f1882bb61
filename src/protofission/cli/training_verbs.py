"""The verbs of training: train, pretrain, weights."""

from __future__ import annotations

import os
import signal
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from protofission.cli.arguments import (
    Accelerator,
    Flag,
    On,
    OptionalOut,
    OptionalPath,
    OptionalTracker,
    Out,
    Set,
    Whole,
)
from protofission.cli.json_results import Json, gives_json
from protofission.cli.known_names import MethodName, OptionalPreset, PresetName

if TYPE_CHECKING:
    from rich.console import Console

    from protofission.training.command import Command
    from protofission.training.run_folder import RunFolder


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of every training run."""

    out: Out
    """A new folder for the run."""
    seed: Whole = 0
    """Seed of all random numbers in training."""
    set_: Set = ()
    """key=value changes an option; `protofission methods NAME --preset P` lists them."""
    resume: Flag = False
    """Go on with the unfinished run in the folder."""
    processes: Whole = 1
    """Processes of a machine; with accelerators, one per device."""
    nodes: Whole = 1
    """Number of machines; on local each reads NODE_RANK, MASTER_ADDR and MASTER_PORT."""
    on: On = "local"
    """Machines that train: local; ray, for a Ray cluster that is started for this command; auto or
    ray://HOST:PORT, for one that runs; slurm or slurm:PARTITION."""
    accelerator: Accelerator = "auto"
    """Device to train on; by default the best available."""
    save_every: float = 60.0
    """Least seconds between two saved states."""
    track: OptionalTracker = None
    """Write curves for TensorBoard into the folder, or numbers and options to MLflow, where
    MLFLOW_TRACKING_URI says; --track alone is TensorBoard."""


@gives_json("train")
def train(
    method: MethodName,
    /,
    *,
    preset: OptionalPreset = None,
    store: OptionalPath = None,
    run_options: RunOptions,
    json: Json = False,
) -> dict[str, Any]:
    """Train a method, evaluate it, and write everything to one folder.

    A run that was stopped or killed goes on with --resume, and ends in the same bits as one that
    was not. Several processes share each batch and give the loss and gradients of one.

    For example:

        protofission pretrain --preset digits --out runs/simclr
        protofission train orca+pf --out runs/pf --set backbone.weights=runs/simclr
        protofission train orca+pf --preset cpu/cifar10 --out runs/cifar --track tensorboard
        protofission train orca+pf --preset cpu/cifar10 --out runs/cifar --track mlflow
        protofission train orca+pf --store stores/cifar10 --out runs/features
        protofission train orca+pf --preset paper/cifar10 --out runs/paper --processes 4
        protofission train orca+pf --preset paper/cifar10 --out runs/ray --on auto --processes 8
        torchrun --nproc-per-node 2 -m protofission train orca --out runs/two

    Parameters
    ----------
    method
        Name of a method; `protofission methods` lists them.
    preset
        The named experiment to start from; `protofission presets` lists them. By default
        digits, or features with a store.
    store
        A folder of features, as `protofission embed` makes it.
    """
    from protofission.training.presets import usual_preset

    named = preset or usual_preset(store)
    data = () if store is None else (f"data.store={store}",)
    return run_training(method, named, replace(run_options, set_=(*data, *run_options.set_)))


@gives_json("pretrain")
def pretrain(
    *, preset: PresetName = "cpu/cifar10", run_options: RunOptions, json: Json = False
) -> dict[str, Any]:
    """Pretrain a backbone by SimCLR, without labels; labels only measure its accuracy.

    The folder is then the start of other runs: --set backbone.weights=FOLDER. The accuracy of the
    nearest labeled neighbors is shown every few epochs (judging.every).

    For example:

        protofission pretrain --preset cpu/cifar10 --out runs/simclr
        protofission pretrain --preset cpu/cifar10 --out runs/simclr --resume
        protofission pretrain --preset digits --out runs/digits --set recipe.epochs=50
        protofission pretrain --preset cpu/cifar10 --out runs/ray --on ray://head:10001
        protofission train orca+pf --out runs/own --set backbone.weights=runs/digits

    Parameters
    ----------
    preset
        The named experiment to start from; `protofission presets` lists them.
    """
    return run_training("simclr", preset, run_options)


def run_training(method: str, preset: str, run_options: RunOptions) -> dict[str, Any]:
    """Refuse what can be refused, start the processes, train; return the run and its metrics."""
    from rich.console import Console

    from protofission.system.distributed import launch_processes
    from protofission.training.command import Command
    from protofission.training.presets import check_accelerator
    from protofission.training.run import check_folder
    from protofission.training.run_console import show_loading, show_run, show_start_warnings
    from protofission.training.run_folder import RunFolder
    from protofission.training.tracking import find_tracker

    command = Command(method, preset, run_options.set_, run_options.seed)
    experiment = command.experiment()
    experiment.check(max(1, run_options.processes * run_options.nodes))
    check_accelerator(preset, run_options.accelerator)
    folder, console = RunFolder(run_options.out), Console()
    check_folder(folder, experiment, resume=run_options.resume)
    tracker = find_tracker(run_options.track, folder)
    if run_options.on != "local":
        _train_elsewhere(command, run_options, console)
        return _run_result(folder)
    if run_options.processes * run_options.nodes > 1 or "LOCAL_RANK" in os.environ:
        # One that waits for the others' gradients would not hear of the signal.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    processes = launch_processes(
        run_options.processes,
        run_options.nodes,
        run_options.accelerator,
        experiment.recipe.precision,
    )
    data = show_loading(experiment, processes, console)
    if processes.first:
        show_start_warnings(experiment, console)
    show_run(
        experiment,
        data,
        folder,
        console,
        resume=run_options.resume,
        processes=processes,
        save_every=run_options.save_every,
        tracker=tracker,
        command=command,
    )
    return _run_result(folder) if processes.first else {}


def _run_result(folder: RunFolder) -> dict[str, Any]:
    return {"run": folder.path, "metrics": folder.plain("metrics")}


def _train_elsewhere(command: Command, options: RunOptions, console: Console) -> None:
    """Train by the processes of a launcher; where no accelerator is named, on processors."""
    from protofission.system.distributed import other_device
    from protofission.system.launch.launcher import find_launcher
    from protofission.training.run_console import show_run_elsewhere, show_start_warnings
    from protofission.training.run_elsewhere import RunWork

    device = other_device(options.accelerator).type
    gpus = int(device != "cpu")
    launcher = find_launcher(options.on, options.processes, options.nodes, gpus)
    work = RunWork(
        command,
        options.out,
        options.processes * options.nodes,
        options.resume,
        options.save_every,
        options.track,
        device,
    )
    experiment = command.experiment()
    show_start_warnings(experiment, console)
    show_run_elsewhere(work, launcher, experiment, console)


@gives_json("weights", quiet=True)
def weights(
    source: str | None = None,
    /,
    *,
    backbone: str = "compact",
    channels: Whole = 3,
    set_: Set = (),
    out: OptionalOut = None,
    json: Json = False,
) -> dict[str, Any]:
    """List the packaged weights, compare a checkpoint with a backbone, or pack a run's backbone.

    For example:

        protofission weights
        protofission weights resnet18.pth --backbone resnet18 --set stem=imagenet
        protofission weights runs/simclr --out simclr.safetensors

    Parameters
    ----------
    source
        Packaged weights by name, a checkpoint file, or the folder of a finished run.
    backbone
        The backbone that they are compared with, by name.
    channels
        Channels of the images: 3 for color, 1 for gray.
    set_
        option=value of the backbone.
    out
        Write the backbone of the run `source` to this file.
    """
    from protofission.core.options import override_all
    from protofission.core.rng import step_rng
    from protofission.models.backbones import find_backbone
    from protofission.models.checkpoints import compare
    from protofission.training.packed_backbone import cards, write_backbone
    from protofission.training.run_folder import RunFolder

    if source is None:
        for name, card in cards().items():
            print(
                f"{name}: {card['method']} on {card['dataset']}, {card['steps']} steps, "
                f"neighbors' accuracy {card['metrics']['neighbours']:.1%}"
            )
        return {"weights": [{"name": name, "card": card} for name, card in cards().items()]}
    if out is not None:
        write_backbone(RunFolder(Path(source)), out)
        print(f"Written to {out}, {out.stat().st_size / 1e6:.1f} MB.")
        return {"out": out, "bytes": out.stat().st_size}
    spec = override_all(find_backbone(backbone), set_)
    fit = compare(spec.build(channels, step_rng(0, 0, "backbone")), source)
    print("\n".join(fit.lines()))
    print(f"It {'fits' if fit.whole else 'does not fit'} {backbone}.")
    return {"backbone": backbone, "fits": fit.whole, **asdict(fit)}
