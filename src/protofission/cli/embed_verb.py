"""The verb embed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cyclopts import Parameter

from protofission.cli.arguments import (
    Accelerator,
    On,
    OptionalPath,
    OptionalQuality,
    OptionalText,
    OptionalWhole,
    Out,
    Set,
    Whole,
)
from protofission.cli.json_results import Json, gives_json


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ViewVersions:
    """Number of versions of each view of an image to embed."""

    plain: Whole = 1
    """Versions of the unchanged image: always 1."""
    weak: Whole = 3
    """Versions of the weak view; ORCA needs 2 that differ."""
    strong: Whole = 2
    """Versions of the strong view."""
    simclr: Whole = 0
    """Versions of SimCLR's view; SimCLR needs 2."""


DEFAULT_VERSIONS = ViewVersions()


@gives_json("embed")
def embed(
    data: str,
    /,
    *,
    out: Out,
    encoder: OptionalText = None,
    quality: OptionalQuality = None,
    versions: ViewVersions = DEFAULT_VERSIONS,
    views: OptionalText = None,
    folder: OptionalPath = None,
    seed: Whole = 0,
    processes: OptionalWhole = None,
    on: On = "local",
    shard: OptionalWhole = None,
    accelerator: Accelerator = "auto",
    set_: Set = (),
    json: Json = False,
) -> dict[str, Any]:
    """Compute the features of images and of their augmented views, once, into a store.

    Any method then trains on the store in minutes. Stopped or killed, it goes on with the same
    command; its bytes do not depend on the number of processes.

    For example:

        protofission embed cifar10 --out stores/cifar10
        protofission embed photos/ --encoder ~/models/clip-vit-base --out stores/clip
        protofission embed list.parquet --out stores/many --on ray://head:10001
        protofission train orca+pf --store stores/cifar10 --out runs/pf

    Parameters
    ----------
    data
        A data set by name, a folder, with class subfolders or without, or a CSV or Parquet list.
    out
        The folder of the store.
    encoder
        efficientnet-lite0, -lite1 or -lite2 (packaged); packaged weights, a checkpoint or a run of
        ours; a folder for transformers, or a name on the hub, which is downloaded; an ONNX file.
        KIND:SOURCE resolves ambiguous names. By default the one of the quality.
    quality
        fast: efficientnet-lite0 at up to 128 px. good (default): efficientnet-lite2 at up to 224.
        best: the same at up to 256. At these sizes an image takes 1, 4 and 6 units of time.
    views
        The augmentation by name, if not the data set's usual one.
    folder
        The folder of a named data set; by default in $PROTOFISSION_DATA or the cache folder.
    seed
        Seed of the random views.
    processes
        Number of processes; by default one per processor.
    on
        Machines that compute: local, ray, auto, ray://HOST:PORT, slurm or slurm:PARTITION.
    shard
        Images of each shard of a store in shards, which other machines than local make.
    accelerator
        Device to compute on; by default the best here, and processors on other machines.
    set_
        option=value of the encoder, such as size=128; by default the images set the size.
    """
    from rich.console import Console

    from protofission.system.distributed import find_device, other_device
    from protofission.training.embed import ViewCounts
    from protofission.training.encoder_choice import choose_encoder
    from protofission.training.run_console import show_embedding

    store = show_embedding(
        *(data, choose_encoder(encoder, quality, set_), out, Console()),
        ViewCounts(versions.plain, versions.weak, versions.strong, versions.simclr),
        views=views,
        folder=folder,
        seed=seed,
        processes=processes,
        device=find_device(accelerator) if on == "local" else other_device(accelerator),
        on=on,
        shard=shard,
    )
    images = sum(part.rows for part in store.plan.parts.values())
    return {"store": store.folder, "images": images, "encoder": store.plan.encoder}
