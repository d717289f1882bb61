"""Official data sets: their files with md5, their mirrors, and their folders on this machine."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from protofission.core.errors import InputError, require, unknown
from protofission.system.plain_files import read_plain

DATA_VARIABLE = "PROTOFISSION_DATA"
"""The environment variable that names the folder of data sets."""
MOST_OFFICIAL_BYTES = 2**30
"""The size limit of an official file."""


@dataclass(frozen=True)
class OfficialFile:
    """A file of a data set, recognized by its md5."""

    name: str
    md5: str
    size: int | None = None
    """Size in bytes, if known."""


@dataclass(frozen=True)
class OfficialDataset:
    """A published data set."""

    title: str
    folder: str
    """The name of its folder."""
    files: tuple[OfficialFile, ...]
    """The files in the folder."""
    mirrors: tuple[str, ...]
    """Addresses to which a file's name is appended."""
    archive: OfficialFile | None = None
    """The tar file that holds the folder; without one, the files are downloaded themselves."""
    other_folders: tuple[str, ...] = ()
    """Names of its folder in other libraries."""

    @property
    def downloads(self) -> tuple[OfficialFile, ...]:
        """The files to download: the archive, or the files themselves."""
        return (self.archive,) if self.archive else self.files


def _idx(images: str, labels: str, test_images: str, test_labels: str) -> tuple[OfficialFile, ...]:
    return (
        OfficialFile("train-images-idx3-ubyte.gz", images),
        OfficialFile("train-labels-idx1-ubyte.gz", labels),
        OfficialFile("t10k-images-idx3-ubyte.gz", test_images),
        OfficialFile("t10k-labels-idx1-ubyte.gz", test_labels),
    )


OFFICIAL_DATASETS: dict[str, OfficialDataset] = {
    "cifar10": OfficialDataset(
        title="CIFAR-10",
        folder="cifar-10-batches-py",
        files=(
            OfficialFile("data_batch_1", "c99cafc152244af753f735de768cd75f", 31_035_704),
            OfficialFile("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec", 31_035_320),
            OfficialFile("data_batch_3", "54ebc095f3ab1f0389bbae665268c751", 31_035_999),
            OfficialFile("data_batch_4", "634d18415352ddfa80567beed471001a", 31_035_696),
            OfficialFile("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb", 31_035_623),
            OfficialFile("test_batch", "40351d587109b95175f43aff81a1287e", 31_035_526),
            OfficialFile("batches.meta", "5ff9c542aee3614f3951f8cda6e48888", 158),
        ),
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        archive=OfficialFile("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
    ),
    "cifar100": OfficialDataset(
        title="CIFAR-100",
        folder="cifar-100-python",
        files=(
            OfficialFile("train", "16019d7e3df5f24257cddd939b257f8d", 155_249_918),
            OfficialFile("test", "f0ef6b0ae62326f3e7ffdfab6717acfc", 31_049_707),
            OfficialFile("meta", "7973b15100ade9c7d40fb424638fde48", 1_473),
        ),
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        archive=OfficialFile("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
    ),
    "mnist": OfficialDataset(
        title="MNIST",
        folder="mnist",
        files=_idx(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        other_folders=("MNIST/raw",),
    ),
    "fashion-mnist": OfficialDataset(
        title="Fashion-MNIST",
        folder="fashion-mnist",
        files=_idx(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
        mirrors=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        other_folders=("FashionMNIST/raw",),
    ),
}
"""Data sets that `fetch` can download."""


def official_dataset(name: str) -> OfficialDataset:
    """The official data set of a name."""
    if name not in OFFICIAL_DATASETS:
        raise unknown("data set", name, OFFICIAL_DATASETS)
    return OFFICIAL_DATASETS[name]


def cache_home() -> Path:
    """The usual cache folder: $XDG_CACHE_HOME/protofission, or ~/.cache/protofission."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "protofission"


def data_homes(folder: Path | str | None = None) -> tuple[Path, ...]:
    """Folders to search for data sets: `folder`, or else $PROTOFISSION_DATA and the cache."""
    if folder is not None:
        return (Path(folder).expanduser(),)
    named = os.environ.get(DATA_VARIABLE)
    return ((Path(named).expanduser(),) if named else ()) + (cache_home(),)


def possible_names(name: str) -> tuple[str, ...]:
    """The names a file may have: idx files also come unpacked, and with a dot for one dash."""
    plain = name.removesuffix(".gz")
    if plain == name:
        return (name,)
    dotted = plain.replace("-idx", ".idx")
    return (plain, dotted, name, f"{dotted}.gz")


def find_dataset_folder(name: str, folder: Path | str | None = None) -> Path:
    """Find the folder of a data set: in `folder`, or else $PROTOFISSION_DATA, or the cache folder.

    In each of them it may be a subfolder of a usual name, or the folder itself.
    """
    source, homes = official_dataset(name), data_homes(folder)
    for home in homes:
        for place in (source.folder, *source.other_folders, "."):
            found = home / place
            files = (found / s for file in source.files for s in possible_names(file.name))
            if any(file.is_file() for file in files):
                return found
    raise InputError(
        f"{source.title} is not in {' or '.join(map(str, homes))} "
        f"(looked for a folder {source.folder} with {source.files[0].name}): {remedy(name)}."
    )


def remedy(name: str) -> str:
    """The advice for a data set, or a file of it, that is missing."""
    source = OFFICIAL_DATASETS[name]
    address = source.mirrors[0] + (source.archive.name if source.archive else "")
    return (
        f"run `protofission data fetch {name}`, or download {address} and name its folder "
        f"or set {DATA_VARIABLE}"
    )


def official_bytes(name: str, file: OfficialFile, folder: Path) -> bytes:
    """Read a file of a data set, and check its md5."""
    path = folder / file.name
    require(
        path.is_file(),
        f"{OFFICIAL_DATASETS[name].title}'s file {file.name} is missing in {folder}: "
        f"{remedy(name)}.",
    )
    content = read_plain(path, MOST_OFFICIAL_BYTES)
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found == file.md5:
        return content
    short = file.size is not None and len(content) < file.size
    what = f"truncated ({len(content)} of {file.size} bytes)" if short else "altered"
    raise InputError(
        f"{path} is {what}: its md5 is {found}, the official one is {file.md5}; "
        f"delete it, then {remedy(name)}."
    )
