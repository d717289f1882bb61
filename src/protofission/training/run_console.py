"""Training and embedding shown in a terminal: bars, a line an epoch, warnings in words."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from protofission.core.errors import printable, unknown
from protofission.core.rng import check_seed
from protofission.data.datasets import VIEWS, Data
from protofission.data.store.reader import Store
from protofission.data.store.shards import SHARDS
from protofission.data.store.stored_views import StoredViews
from protofission.data.store.writer import check_store_destination
from protofission.models.encoders import EncoderSpec, fetch
from protofission.system.console import print_line, print_warning, progress_bar, progress_bars
from protofission.system.distributed import ALONE, Processes
from protofission.system.launch.launcher import Launcher, find_launcher
from protofission.system.processors import processors
from protofission.training import diagnosis
from protofission.training.command import Command
from protofission.training.embed import ViewCounts, check_apart, embed, images_of
from protofission.training.embed_shards import embed_in_shards
from protofission.training.encoder_choice import EncoderChoice, with_engine_of
from protofission.training.experiment import Experiment
from protofission.training.run import SAVE_EVERY, perform
from protofission.training.run_elsewhere import RunWork, perform_elsewhere
from protofission.training.run_folder import RunFolder
from protofission.training.run_words import RunLine, tell_moments
from protofission.training.schedules import number_of_steps
from protofission.training.tracking import EpochTracker
from protofission.training.trunk_cache import cached_trunk

GPU_SHARE = 0.1
"""Part of a GPU of a Ray cluster for a process that embeds: it decodes most of the time."""


def show_run(
    experiment: Experiment,
    data: Data,
    folder: RunFolder,
    console: Console,
    *,
    resume: bool = False,
    processes: Processes = ALONE,
    save_every: float = SAVE_EVERY,
    tracker: EpochTracker | None = None,
    command: Command | None = None,
) -> None:
    """Perform a run under a bar; the first process prints for all."""
    moments = perform(
        experiment,
        data,
        folder,
        resume=resume,
        processes=processes,
        save_every=save_every,
        command=command,
    )
    if not processes.first:
        for _ in moments:
            pass
        return
    steps = number_of_steps(experiment.recipe, data.training)
    title = f"{experiment.name}, seed {experiment.seed}"
    with progress_bars(console) as progress:
        task = progress.add_task(title, total=steps)
        for done, lines in tell_moments(moments, experiment, steps, tracker):
            progress.update(task, completed=done)
            _print_lines(console, lines)
        progress.update(task, completed=steps)
    print_line(console, f"The run: {folder.path}")


def show_run_elsewhere(
    work: RunWork, launcher: Launcher, experiment: Experiment, console: Console
) -> None:
    """Perform a run by the processes of a launcher, under a bar."""
    with progress_bars(console) as progress:
        task = progress.add_task(f"{experiment.name}, seed {experiment.seed}", total=None)
        with closing(perform_elsewhere(work, launcher)) as told:
            for news in told:
                progress.update(task, completed=news.done, total=news.steps or None)
                _print_lines(console, news.lines)
    print_line(console, f"The run: {work.folder}")


def _print_lines(console: Console, lines: Iterable[RunLine]) -> None:
    for line in lines:
        (print_warning if line.warning else print_line)(console, line.text)


def show_start_warnings(experiment: Experiment, console: Console) -> None:
    """Print what is to be said about an experiment before its first step."""
    for warning in diagnosis.start_warnings(experiment):
        print_warning(console, warning)


def show_loading(experiment: Experiment, processes: Processes, console: Console) -> Data:
    """Load the data of an experiment; the maps of a frozen trunk are computed under a bar."""
    if not experiment.recipe.trunk_cache:
        return experiment.data.load()
    if processes.first:
        with progress_bar(console, "caching the trunk") as progress:
            data = cached_trunk(experiment, processors(), progress)
        if isinstance(data.augmentations, StoredViews):
            folder = data.augmentations.store.folder
            print_line(console, f"The maps: {folder}, {_megabytes(folder):,.0f} MB")
    processes.wait()
    return cached_trunk(experiment)


def show_embedding(
    source: str,
    encoder: EncoderSpec | EncoderChoice,
    out: Path,
    console: Console,
    counts: ViewCounts | None = None,
    *,
    views: str | None = None,
    folder: Path | None = None,
    seed: int = 0,
    processes: int | None = None,
    device: torch.device | None = None,
    on: str = "local",
    shard: int | None = None,
) -> Store:
    """Embed a data set, a folder or a list of images under bars.

    Args:
        source: a data set by name, a folder of images or a list.
        encoder: a choice may leave its size to the images.
        out: the folder of the store.
        views: a name of VIEWS, if not the data set's usual one.
        folder: where the files of a named data set are, if not at the usual places.
        seed: of the random views.
        processes: how many compute; by default one a processor, or one on this accelerator.
        device: where to compute, by default on the CPU.
        on: the machines that compute, as `find_launcher` takes it.
        shard: images of a shard, for a store in shards.
    """
    check_seed(seed)
    sharded = on != "local" or shard is not None or (out / SHARDS).exists()
    cuda = device is not None and device.type != "cpu"
    here = (1 if cuda else processors()) if processes is None else processes
    launcher = None
    if sharded:
        launcher = find_launcher(
            on, here if on == "local" else processes, gpus=GPU_SHARE if cuda else 0
        )
    else:
        check_store_destination(out)
    check_apart(source, out)
    if views is not None and views not in VIEWS:
        raise unknown("views", views, VIEWS)
    if isinstance(encoder, EncoderChoice):
        fetch(encoder.spec)
        encoder, sentences = encoder.for_store(out, source)
        for text in sentences:
            print_line(console, text)
    else:
        fetch(encoder)
        encoder = with_engine_of(out, encoder)
    loaded, begun = encoder.load(device if launcher is None else None), time.monotonic()
    place = None if folder is None else str(folder)
    if launcher is not None:
        shared: Any = {"launcher": launcher, "shard": shard, "views": views, "seed": seed}
        with progress_bar(console, f"embedding {printable(source)}") as progress:
            shared |= {"data_folder": place, "progress": progress, "device": device}
            shared |= {"encoder": loaded, "say": partial(print_line, console)}
            store = embed_in_shards(source, encoder, out, counts, **shared)
        _print_store(store, begun, console)
        return store
    with progress_bar(console, f"reading {printable(source)}", "files") as progress:
        images = images_of(source, loaded.decode, place, progress)
    if images.report is not None:
        for text in images.report.lines():
            print_line(console, text)
    with progress_bar(console, f"embedding {images.name}") as progress:
        store = embed(
            images,
            encoder,
            out,
            counts,
            views=views,
            seed=seed,
            processes=here,
            encoder=loaded,
            progress=progress,
        )
    _print_store(store, begun, console)
    return store


def _print_store(store: Store, begun: float, console: Console) -> None:
    rows = sum(part.rows for part in store.plan.parts.values())
    seconds = time.monotonic() - begun
    size = f"{_megabytes(store.folder):,.0f} MB"
    print_line(console, f"The store: {store.folder}, {rows:,} images, {size}, {seconds:.0f} s")


def _megabytes(store: Path) -> float:
    files = (*store.glob("*.npy"), *store.glob("shards/*/*.npy"))
    return sum(path.stat().st_size for path in files) / 1e6
