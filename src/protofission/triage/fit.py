"""Fit a model to two folders: write its bundle, a triage of the pool and a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from protofission.core.array_types import Ints
from protofission.core.errors import printable, require
from protofission.data.image_sets import ImageSets
from protofission.data.store.manifest import fingerprint
from protofission.data.store.stored_views import StoredViews
from protofission.models.encoders import fetch
from protofission.models.encoders.quality import Quality
from protofission.system.console import print_line, progress_bar, stages
from protofission.system.launch.launcher import Launcher, find_launcher
from protofission.system.locks import folder_lock
from protofission.system.paths import path_of
from protofission.system.processors import processors
from protofission.training.embed import Images, ViewCounts, embed
from protofission.training.encoder_choice import choose_encoder
from protofission.triage.bundle import Bundle
from protofission.triage.bundle_files import MANIFEST
from protofission.triage.calibrated_model import DECISIONS
from protofission.triage.fit_data import FitData, load_fit_data
from protofission.triage.fit_files import (
    PAGE,
    bundle_of_fit,
    kept_images_of,
    write_fit_files,
)
from protofission.triage.fit_model import FitResult, check_pool, fit_features
from protofission.triage.fit_options import FitOptions
from protofission.triage.kept_images import FEATURES_FOLDER
from protofission.triage.triage_of_fit import cluster_sentence

FIT_VIEWS = ViewCounts(plain=1, weak=0, strong=0)
"""Views of each image that are embedded: the image itself, all that training reads."""


def fit(
    labeled: Path | str,
    unlabeled: Path | str,
    out: Path | str,
    options: FitOptions | None = None,
    *,
    encoder: str | None = None,
    quality: Quality | None = None,
    encoder_options: Sequence[str] = (),
    processes: int | None = None,
    on: str = "local",
    keep_features: bool = True,
    console: Console | None = None,
    command: str = "protofission.fit",
) -> Bundle:
    """Fit a model to labeled images and a pool, and sort the pool by it.

    After a stop or a kill, the same call embeds what is not embedded yet, and then trains.

    Args:
        labeled: a folder with a subfolder for each class, or a list with a column of labels.
        unlabeled: a folder of images, or a list.
        out: the folder of the model, a new one.
        encoder: as `protofission embed` takes it, with `encoder_options` such as `size=128`; one
            that is given by its name on the hub is downloaded. By default the one of `quality`.
        quality: "fast", "good" (the default) or "best": the packaged encoder and its largest size,
            by `protofission.models.encoders.quality.QUALITIES`; the images set the size.
        processes: number of processes that embed; by default one for each processor.
        on: the machines that train the models of folds, as `find_launcher` takes it.
        keep_features: keep features and the list of images in the model, for the workbench.
        console: shows progress and findings; by default nothing is shown.

    Examples:
        >>> import protofission
        >>> model = protofission.fit("labeled", "pool", "model", quality="fast")
        >>> model.class_names
        ('0', '1')
    """
    labeled, unlabeled, out = map(path_of, (labeled, unlabeled, out))
    options, console = options or FitOptions(), console or Console(quiet=True)
    _check_place(out, labeled, unlabeled)
    launcher = None if on == "local" else find_launcher(on, processes)
    choice = choose_encoder(encoder, quality, encoder_options)
    work = out.absolute().with_name(f".{out.absolute().name}.fitting")
    with _work_folder(work):
        fetch(choice.spec)
        spec, about_encoder = choice.for_images(labeled, unlabeled)
        for text in about_encoder:
            print_line(console, text)
        loaded = spec.load()
        with stages(console) as stage:
            reading = (partial(stage, f"reading {what}") for what in ("labeled images", "the pool"))
            data = load_fit_data(labeled, unlabeled, loaded.decode, *reading)
        for finding in data.findings:
            print_line(console, finding)
        check_pool(int((~data.repeated).sum()))
        known = data.fingerprint()
        place = _store_folder(work, known, fingerprint(loaded.describe()), options.seed, console)
        number = processors() if processes is None else processes
        with progress_bar(console, "embedding") as progress:
            store = embed(
                Images("fit", ImageSets(data.images), "natural", known_fingerprint=known),
                spec,
                place,
                FIT_VIEWS,
                seed=options.seed,
                processes=number,
                encoder=loaded,
                progress=progress,
            )
        fitted = _fit_store(StoredViews(store), data, options, number, launcher, console)
        bundle = bundle_of_fit(fitted, data, spec, loaded.describe(), options)
        kept = kept_images_of(bundle, fitted, data, options) if keep_features else None
        folder = work / "model"
        write_fit_files(bundle, fitted, data, folder, out.absolute(), console, command, kept)
        _finish(folder, out, place if keep_features else None)
    for text in sentences(fitted, options):
        print_line(console, text)
    print_line(console, f"The model: {printable(str(out))}, the page: {printable(str(out / PAGE))}")
    return bundle


def _check_place(out: Path, *images: Path) -> None:
    """Refuse a folder for the model that is in use, or lies among the images."""
    place = printable(str(out))
    require(
        not (out / MANIFEST).is_file(),
        f"{place} is there already, a finished model: name a new folder for another one.",
    )
    require(
        not out.exists() or (out.is_dir() and not any(out.iterdir())),
        f"{place} is there already, and is no model: name a new folder.",
    )
    for folder in images:
        inside = folder.is_dir() and out.resolve().is_relative_to(folder.resolve())
        require(not inside, f"{place} lies among the images: name one elsewhere.")


@contextmanager
def _work_folder(work: Path) -> Iterator[None]:
    """Lock a temporary folder and delete it at the end; after an error, features in it stay."""
    made = [folder for folder in work.parents if not folder.exists()]
    with folder_lock(work):
        try:
            yield
        except BaseException:
            if not any(work.glob("store-*")):
                shutil.rmtree(work, ignore_errors=True)
                for folder in made:
                    with suppress(OSError):  # others may have put something there
                        folder.rmdir()
            raise
        shutil.rmtree(work, ignore_errors=True)


def _store_folder(work: Path, images: str, encoder: str, seed: int, console: Console) -> Path:
    """The folder of the store of these images and options; stores of others are deleted."""
    key = fingerprint(images, encoder, FIT_VIEWS.counts(), seed)[:16]
    place = work / f"store-{key}"
    for other in work.glob("store-*"):
        if other != place:
            print_line(console, "What was embedded before was of other images or options: dropped.")
            shutil.rmtree(other)
    return place


def sentences(fitted: FitResult, options: FitOptions) -> list[str]:
    """The results that a user wants to know first, a sentence each."""
    decided = torch.bincount(fitted.pool.decisions, minlength=len(DECISIONS)).tolist()
    counts = ", ".join(f"{d} {n:,}" for d, n in zip(DECISIONS, decided, strict=True) if n)
    found = [fitted.guard.sentence(), fitted.promise(), fitted.strangers.sentence()]
    if fitted.novel is not None:
        found.append(cluster_sentence(fitted.novel, fitted.pool))
    clusters = fitted.calibrated_model.num_clusters
    if options.discover != "auto" and clusters < options.discover:
        found.append(f"The rejected images give {clusters} clusters, not {options.discover}.")
    return [*found, f"The pool: {counts}."]


def _fit_store(
    views: StoredViews,
    data: FitData,
    options: FitOptions,
    processes: int,
    launcher: Launcher | None,
    console: Console,
) -> FitResult:
    labeled = data.num_labeled

    def rows(numbers: Ints) -> NDArray[np.float32]:
        found: NDArray[np.float32] = views.plain(torch.from_numpy(numbers)).float().numpy()
        return found

    with stages(console) as stage:
        return fit_features(
            rows(np.arange(labeled)),
            data.labels,
            lambda numbers: rows(numbers + labeled),
            len(data.pool_paths),
            options,
            learn_from=~data.repeated,
            processes=processes,
            launcher=launcher,
            progress=stage,
        )


def _finish(folder: Path, out: Path, features: Path | None) -> None:
    """Move a written model to its place, with the store of its features if it keeps them."""
    if features is None:
        folder.replace(out)
        return
    features.replace(folder / FEATURES_FOLDER)
    try:
        folder.replace(out)
    except OSError:  # the next fit goes on with them
        (folder / FEATURES_FOLDER).replace(features)
        raise
