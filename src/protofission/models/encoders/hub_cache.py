"""Vision models in the cache of the Hugging Face hub on this machine, by the names of folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from protofission.system.optional_libraries import import_optional

FAMILIES = ("dinov3", "dinov2", "siglip2", "siglip", "clip")
"""Families of vision encoders, as they stand in the names of models; the first is preferred."""


def find_better_encoder() -> str | None:
    """The hub name of a model of FAMILIES that can be used without a download, if there is one."""
    if find_spec("transformers") is None:
        return None
    try:
        folders = sorted(cache_folder().iterdir(), key=lambda folder: folder.name)
    except OSError:
        return None
    found = []
    for folder in folders:
        name = re.fullmatch(r"models--(\w[\w.-]*?)--(\w[\w.-]*)", folder.name)
        words = re.split(r"[-_.]", name[2].lower()) if name else []
        family = next((family for family in FAMILIES if family in words), None)
        if name and family is not None and _is_whole(folder):
            found.append((FAMILIES.index(family), f"{name[1]}/{name[2]}"))
    return min(found)[1] if found else None


@contextmanager
def hub_offline(extra: str, user: str) -> Iterator[None]:
    """Keep libraries from asking the hub; what is in its cache is found.

    Args:
        extra: the extra that brings the hub's library.
        user: what needs it, as a sentence begins with it.
    """
    state = import_optional("huggingface_hub.constants", extra, user)
    before, state.HF_HUB_OFFLINE = state.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        state.HF_HUB_OFFLINE = before


def cache_folder() -> Path:
    """The folder where the hub's library keeps models."""
    for variable, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if os.environ.get(variable):
            return Path(os.environ[variable]).expanduser() / below
    return Path.home() / ".cache" / "huggingface" / "hub"


def _is_whole(folder: Path) -> bool:
    """Whether some version of a model has its configuration and weights."""
    return any(
        list(folder.glob(f"snapshots/*/{name}")) != []
        for name in ("model.safetensors", "model.safetensors.index.json")
    ) and any(folder.glob("snapshots/*/config.json"))
