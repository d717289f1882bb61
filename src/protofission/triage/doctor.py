"""Examine an installation: versions, extras, threads, cache, disk, accelerators, speed.

Rates are measured in a few seconds. What a rate should be follows from a simpler one of the same
machine, by ratios that were measured where `benchmarks/doctor_ratios.py` prints them.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protofission import __version__
from protofission.core.errors import InputError
from protofission.core.memory_limits import free_memory
from protofission.core.threads import one_thread
from protofission.data.readers.decode import Decoding, decode
from protofission.data.readers.official_datasets import cache_home
from protofission.models.encoders.efficientnet import EfficientNetLite
from protofission.system.paths import nearest_there
from protofission.system.processors import processors

LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that limit the threads of torch."""
VARIABLES = (*LIMITS, "OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS")
UNLISTED = re.compile(r"all|dev|dev-.*|docs")
"""Extras that are not for users, and the one that is made of the others."""
DECODED_PER_HASHED = 1.2
"""JPEG files of 320 x 240 pixels decoded to 128 x 128, for each megabyte hashed by MD5."""
ENCODED_PER_GFLOP = 3.0
"""Images of 128 x 128 pixels encoded by efficientnet-lite0 with onnxruntime, for each 10^9
operations of a matrix product, all on one thread."""
SLOW = 0.4
"""Share of the expected rate below which a part is called slow."""
LEAST_DISK = 2 * 10**9
"""Bytes free below which a disk is called nearly full."""
LARGE_CACHE = 20 * 10**9
"""Bytes from which on a cache is called large."""


@dataclass(frozen=True)
class Requirement:
    """A package that is wanted, and the version that is installed."""

    name: str
    least: str
    """The lower bound; empty for any version."""
    found: str | None
    """The version; none if it is not installed."""

    @property
    def met(self) -> bool:
        """Whether it is installed in a version that is new enough."""
        return self.found is not None and _numbers(self.found) >= _numbers(self.least)


@dataclass(frozen=True)
class Rate:
    """A measured rate, and what it should be."""

    name: str
    unit: str
    value: float | None
    """None where it cannot be measured."""
    expected: float | None = None
    """None where nothing can be said."""

    @property
    def slow(self) -> bool:
        """Whether it is far below what it should be."""
        known = self.value is not None and self.expected is not None
        return known and self.value < SLOW * self.expected  # type: ignore[operator]


@dataclass(frozen=True)
class Examination:
    """The state of an installation."""

    versions: dict[str, str]
    requirements: tuple[Requirement, ...]
    extras: dict[str, tuple[Requirement, ...]]
    threads: dict[str, Any]
    memory_free: int
    cache: dict[str, Any]
    disk: dict[str, int]
    """Bytes that are free, by folder."""
    accelerators: tuple[str, ...]
    rates: tuple[Rate, ...]
    findings: tuple[str, ...]
    """Findings: a fault or a slow part, its reason, and a remedy."""

    @property
    def well(self) -> bool:
        """Whether everything that is required is installed."""
        return all(requirement.met for requirement in self.requirements)


def examine(*, measure: bool = True) -> Examination:
    """Examine this installation and machine.

    Args:
        measure: the rates too, which takes a few seconds.
    """
    required, extras = read_requirements(_declared())
    rates = measure_rates() if measure else ()
    threads = thread_facts()
    cache = cache_facts(cache_home())
    disk = {str(folder): free_bytes(folder) for folder in (Path.cwd(), cache_home(), _temporary())}
    unmet = [requirement for requirement in required if not requirement.met]
    return Examination(
        versions=version_facts(),
        requirements=required,
        extras=extras,
        threads=threads,
        memory_free=free_memory(),
        cache=cache,
        disk=disk,
        accelerators=accelerator_names(),
        rates=rates,
        findings=(
            *(_unmet_sentence(requirement) for requirement in unmet),
            *thread_findings(threads),
            *storage_findings(cache, disk),
            *rate_findings(rates, extras),
        ),
    )


def version_facts() -> dict[str, str]:
    """Versions of this package, Python, torch and the system."""
    return {
        "protofission": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "system": platform.platform(),
        "executable": sys.executable,
    }


def _declared() -> Sequence[str]:
    """Requirements as the installed package declares them; none where it is not installed."""
    try:
        return metadata.requires("protofission") or ()
    except metadata.PackageNotFoundError:
        return ()


def read_requirements(
    declared: Iterable[str],
) -> tuple[tuple[Requirement, ...], dict[str, tuple[Requirement, ...]]]:
    """Read requirements such as `numpy>=2` and `ray>=2.52; extra == "ray"`; look them up.

    Returns:
        Those of the package, and those of each extra that is listed.
    """
    required: list[Requirement] = []
    extras: dict[str, list[Requirement]] = {}
    for text in declared:
        found = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*(?:>=\s*([\w.]+))?", text)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", text)
        if found is None:
            continue
        one = Requirement(found[1], found[2] or "", _installed(found[1]))
        if extra is None:
            required.append(one)
        elif UNLISTED.fullmatch(extra[1]) is None:
            extras.setdefault(extra[1], []).append(one)
    return tuple(required), {name: tuple(own) for name, own in sorted(extras.items())}


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers at the start of a version, without zeros at the end."""
    found = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def install_line(extra: str) -> str:
    """The command that installs an extra."""
    return f'pip install "protofission[{extra}]"'


def _unmet_sentence(one: Requirement) -> str:
    have = "is missing" if one.found is None else f"is {one.found}, and {one.least} is the least"
    return f'{one.name} {have}: pip install "{one.name}>={one.least or 0}".'


def thread_facts() -> dict[str, Any]:
    """Processors, threads of torch, variables that set them, and other work on the machine."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processors": processors(),
        "processors of the machine": os.cpu_count() or 1,
        "torch threads": torch.get_num_threads(),
        "load": load,
        **{name: os.environ.get(name) for name in VARIABLES},
    }


def thread_findings(threads: Mapping[str, Any]) -> list[str]:
    """Settings of threads, and other work, that make everything slow."""
    found, own, torchs = [], threads["processors"], threads["torch threads"]
    limits = [f"{name} = {threads[name]}" for name in LIMITS if threads[name]]
    if torchs < own and limits:  # else it uses one a core, and a core may be two processors
        found.append(
            f"torch uses {torchs} of {own} processors ({', '.join(limits)}): unset it for full "
            "speed in one process."
        )
    if torchs > own:
        found.append(
            f"torch uses {torchs} threads on {own} processors, which wait for each other: set "
            f"OMP_NUM_THREADS={own}."
        )
    if (threads["OMP_WAIT_POLICY"] or "").upper() != "PASSIVE":
        found.append(
            f"OMP_WAIT_POLICY is {threads['OMP_WAIT_POLICY']}: waiting threads take processors "
            "from others; unset it, and protofission sets PASSIVE."
        )
    if threads["load"] is not None and threads["load"] > 1.5 * threads["processors of the machine"]:
        found.append(
            f"{threads['load']:.1f} processes want the {threads['processors of the machine']} "
            "processors of this machine: other work makes this one slow."
        )
    return found


def cache_facts(folder: Path) -> dict[str, Any]:
    """Size of the cache of decoded images, data sets and models, and whether it can be written."""
    files = size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(parent, name)).st_size
                files += 1
    there = nearest_there(folder)
    writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return {"folder": str(folder), "files": files, "bytes": size, "writable": writable}


def free_bytes(folder: Path) -> int:
    """Bytes that are free on the disk of a folder, or of its nearest parent that is there."""
    return shutil.disk_usage(nearest_there(folder)).free


def storage_findings(cache: Mapping[str, Any], disk: Mapping[str, int]) -> list[str]:
    """Disks that are nearly full, and a cache that is large or cannot be written."""
    found = [
        f"{folder} has {free / 1e9:.1f} GB free: make room, or work elsewhere."
        for folder, free in disk.items()
        if free < LEAST_DISK
    ]
    if cache["bytes"] > LARGE_CACHE:
        found.append(
            f"The cache has {cache['bytes'] / 1e9:.0f} GB: {cache['folder']} may be deleted; what "
            "is needed is made or downloaded again."
        )
    if not cache["writable"]:
        found.append(
            f"The cache {cache['folder']} cannot be written, and fit and embed keep images there: "
            "set XDG_CACHE_HOME to the full path of another folder."
        )
    return found


def accelerator_names() -> tuple[str, ...]:
    """Names of the accelerators that torch can use."""
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    mps = getattr(torch.backends, "mps", None)
    return (*names, *(("Apple MPS, which protofission does not use",) if _has(mps) else ()))


def _has(backend: Any) -> bool:
    return backend is not None and bool(backend.is_available())


def measure_rates() -> tuple[Rate, ...]:
    """Measure products, decoding, encoding and small files."""
    with one_thread():
        single = product_rate()
    threads = torch.get_num_threads()
    every = product_rate() if threads > 1 else single
    hashed = hash_rate()
    return (
        Rate("matrix products, one thread", "GFLOP/s", single),
        Rate(
            f"matrix products, {threads} threads",
            "GFLOP/s",
            every,
            None if threads == 1 else single * threads,
        ),
        Rate("decoding", "images/s", decode_rate(), DECODED_PER_HASHED * hashed),
        Rate("encoding by efficientnet-lite0", "images/s", *_encoding(single)),
        Rate("small files, written whole", "files/s", file_rate()),
    )


def _encoding(products: float) -> tuple[float | None, float | None]:
    return encode_rate(), ENCODED_PER_GFLOP * products


def best_rate(work: Callable[[], object], amount: float, seconds: float = 0.5) -> float:
    """The amount of work in a second, by the fastest of several calls."""
    work()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return amount / best


def product_rate(size: int = 768) -> float:
    """10^9 operations of matrix products in a second."""
    matrix = torch.ones(size, size)
    return best_rate(lambda: matrix @ matrix, 2 * size**3 / 1e9)


def hash_rate() -> float:
    """Megabytes hashed by MD5 in a second: plain work of one processor."""
    content = bytes(2**20)
    hashed = lambda: hashlib.md5(content, usedforsecurity=False).digest()  # noqa: E731
    return best_rate(hashed, len(content) / 1e6, 0.2)


def decode_rate() -> float:
    """JPEG files of 320 x 240 pixels decoded in a second, by one thread."""
    from PIL import Image

    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 256, (60, 80, 3), dtype=np.uint8))
    file = io.BytesIO()
    small.resize((320, 240), Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
    content, wanted = file.getvalue(), Decoding(128, 128)
    return best_rate(lambda: decode(content, wanted), 1)


def encode_rate(images: int = 8) -> float | None:
    """Images encoded in a second by the smallest packaged encoder, if it is installed."""
    try:
        with one_thread():
            encoder = EfficientNetLite("efficientnet-lite0", size=128).load()
            batch = torch.zeros(images, 3, 128, 128)
            return best_rate(lambda: encoder.features(batch), images, 1.0)
    except InputError:
        return None


def file_rate() -> float | None:
    """Small files written down to the disk in a second, in the folder of temporary files."""
    from protofission.system.whole_files import write_whole

    try:
        with tempfile.TemporaryDirectory() as folder:
            return best_rate(lambda: write_whole(Path(folder) / "file", b"x"), 1, 0.2)
    except (InputError, OSError):
        return None


def rate_findings(rates: Sequence[Rate], extras: Mapping[str, Sequence[Requirement]]) -> list[str]:
    """Rates that are far below what they should be, and packages that would help."""
    found = [
        f"Slow: {rate.name} at {rate.value:,.0f} {rate.unit}, where this machine should reach "
        f"{rate.expected:,.0f}: other work, a container's limit or a low power mode takes the rest."
        for rate in rates
        if rate.slow and rate.value is not None and rate.expected is not None
    ]
    missing = {one.name for own in extras.values() for one in own if one.found is None}
    if "onnxruntime" in missing:
        line = install_line("encoder")
        found.append(f"Encoders run by torch, onnxruntime takes two thirds of the time: {line}.")
    return found


def _temporary() -> Path:
    return Path(tempfile.gettempdir())
