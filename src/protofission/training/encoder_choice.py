"""The encoder of a fit or an embedding: by name or by quality, at the size the images ask for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from protofission.core.errors import InputError, require, unknown
from protofission.core.options import override, override_all
from protofission.data.datasets import DATASETS
from protofission.data.readers.image_lists import is_list
from protofission.data.readers.image_sizes import median_short_side
from protofission.data.store.manifest import read_store_manifest
from protofission.data.store.shards import read_shards_file
from protofission.models.encoders import EncoderSpec, find_encoder
from protofission.models.encoders.efficientnet import ENGINES, PACKAGED, EfficientNetLite
from protofission.models.encoders.hub_cache import find_better_encoder
from protofission.models.encoders.own_backbone import SIZES
from protofission.models.encoders.quality import DEFAULT_QUALITY, QUALITIES, Quality, size_for


@dataclass(frozen=True)
class EncoderChoice:
    """An encoder as a user asks for it; the size of a packaged one may be left to the images."""

    spec: EncoderSpec
    largest: int | None
    """The largest size that the images may choose; None where they have no choice."""
    by_name: bool
    """Whether the user named the encoder."""
    by_quality: bool
    """Whether the user named a quality."""

    def for_images(self, *sources: Path | str) -> tuple[EncoderSpec, list[str]]:
        """The encoder for some images, and sentences about the choice.

        Args:
            sources: folders, lists, or data sets by name.
        """
        spec, found = self.spec, list[str]()
        if isinstance(spec, EfficientNetLite) and self.largest is not None:
            side = _short_side(sources)
            if side is not None:
                spec = replace(spec, size=size_for(side, self.largest))
                found.append(
                    f"Images are {side} px on the short side (median): the encoder sees them at "
                    f"{spec.size} px."
                )
        if not self.by_name and (better := find_better_encoder()) is not None:
            found.append(
                f"{better} is on this machine, and such a model usually tells images apart "
                f"better than the packaged encoder, in more time: give --encoder {better} to use "
                "it."
            )
        return spec, found

    def for_store(self, folder: Path, source: str) -> tuple[EncoderSpec, list[str]]:
        """The encoder for a store of a source's images; a store that is begun keeps its own.

        A user who names neither the encoder nor the quality or size goes on with those of the
        store.
        """
        begun, spec = recorded_encoder(folder), self.spec
        kind, size = str(begun.get("kind")), begun.get("size")
        open_choice = self.largest is not None and not self.by_quality
        known = kind == spec.source if self.by_name else kind in PACKAGED
        if not (isinstance(spec, EfficientNetLite) and open_choice and known):
            spec, found = self.for_images(source)
            return with_engine_of(folder, spec), found
        spec = override(replace(spec, source=kind), f"size={size}")
        return with_engine_of(folder, spec), [
            f"The store is one of {kind} at {size} px, and goes on with it."
        ]


def choose_encoder(
    encoder: str | None = None, quality: Quality | None = None, options: Sequence[str] = ()
) -> EncoderChoice:
    """Choose an encoder by its name, or by a quality.

    Args:
        encoder: as `find_encoder` takes it; by default that of the quality.
        quality: of QUALITIES, "good" by default. A packaged encoder that is named keeps to the
            quality's largest size.
        options: options of the encoder, such as "size=128", which override both.
    """
    if quality is not None and quality not in QUALITIES:
        raise unknown("quality", quality, QUALITIES)
    wanted = QUALITIES[quality or DEFAULT_QUALITY]
    spec = override_all(find_encoder(encoder or wanted.encoder), options)
    packaged = isinstance(spec, EfficientNetLite)
    require(
        packaged or quality is None,
        f"quality = {quality} is one of the packaged encoders: leave it out of {encoder}.",
    )
    largest = PACKAGED.get(spec.source)
    if largest is not None and (encoder is None or quality is not None):
        largest = min(largest, wanted.largest)
    if any(option.partition("=")[0].strip() == "size" for option in options) or not packaged:
        largest = None
    return EncoderChoice(spec, largest, encoder is not None, quality is not None)


def with_engine_of(folder: Path, spec: EncoderSpec) -> EncoderSpec:
    """The encoder with the engine of the store that a folder holds, unless it names one.

    The bits of an engine are its own: a store that is continued keeps to one.
    """
    if not isinstance(spec, EfficientNetLite) or spec.engine is not None:
        return spec
    begun = recorded_encoder(folder)
    engine = next((name for name in ENGINES if name == begun.get("engine", "torch")), None)
    return replace(spec, engine=engine) if begun.get("kind") == spec.source else spec


def recorded_encoder(folder: Path) -> dict[str, Any]:
    """The encoder that the store in a folder describes; nothing if there is no sound store."""
    with suppress(InputError):  # the writer of the store says what is wrong with it
        if (sharded := read_shards_file(folder.expanduser())) is not None:
            return sharded[0].encoder
        if (found := read_store_manifest(folder.expanduser())) is not None:
            return found[0].encoder
    return {}


def _short_side(sources: Sequence[Path | str]) -> int | None:
    """The median short side of images; None where there are none, which their reader says."""
    if len(sources) == 1 and sources[0] in DATASETS:
        return SIZES.get(str(sources[0]))
    paths = [Path(source).expanduser() for source in sources]
    return median_short_side([path for path in paths if path.is_dir() or is_list(path)])
