"""The bundle: a fitted model with its names and card, saved as a folder of plain files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from protofission import __version__
from protofission.core.errors import InputError, printable, require
from protofission.models.encoders import Encoder, EncoderSpec, fetch, kept_options, kind_of
from protofission.system.digests import sha256_hex
from protofission.system.json_files import as_type
from protofission.system.locks import LOCK_FILE, folder_lock
from protofission.system.paths import path_of
from protofission.system.whole_files import whole_file
from protofission.triage.bundle_card import card_lines, card_screen, numbered_subclasses
from protofission.triage.bundle_files import (
    MANIFEST,
    ReadFile,
    check_destination,
    check_numbers,
    contents,
    folder_reader,
    read_manifest,
    read_parts,
    seal_manifest,
)
from protofission.triage.bundle_manifest import (
    EncoderReference,
    Manifest,
    SingleManifest,
    manifest_of,
)
from protofission.triage.bundle_zip import is_zip, write_zip, zip_reader
from protofission.triage.calibrated_model import JUDGED_AT_ONCE, CalibratedModel, Verdicts, judge
from protofission.triage.hub import PushedModel, push_to_hub
from protofission.triage.model_source import find_model
from protofission.triage.workbench.versions import bundle_folder, current_version


@dataclass(frozen=True, eq=False)
class Bundle:
    """A calibrated model, the names of its classes, its encoder's reference, and its card.

    Examples:
        >>> from protofission import Bundle
        >>> model = Bundle.load("model")
        >>> verdicts = model.predict_features(model.encoder().features(images).numpy())
        >>> len(verdicts.classes) == len(images)  # (n, 3, h, w) floats in [0, 1]
        True
    """

    calibrated_model: CalibratedModel
    class_names: tuple[str, ...]
    subclass_names: tuple[tuple[str, ...], ...]
    """Names of the sub-classes of each class."""
    cluster_names: tuple[str, ...]
    """A name for each novel cluster."""
    encoder_spec: EncoderSpec
    """Kind, source and options of the encoder, as they were given."""
    encoder_facts: dict[str, Any]
    """The output of `Encoder.describe`."""
    calibration: NDArray[np.float32]
    """ID scores of known images that were held out."""
    card: dict[str, Any]
    """Training and accuracy, in plain JSON values."""
    version: str = __version__
    """Version of the protofission that made it."""

    @staticmethod
    def of(
        calibrated_model: CalibratedModel,
        class_names: Sequence[str],
        encoder_spec: EncoderSpec,
        encoder_facts: Mapping[str, Any],
        calibration: ArrayLike = (),
        card: Mapping[str, Any] | None = None,
        *,
        subclass_names: Sequence[Sequence[str]] | None = None,
        cluster_names: Sequence[str] | None = None,
    ) -> Bundle:
        """Make a bundle; sub-classes and clusters without names are numbered."""
        if subclass_names is None:
            counts = calibrated_model.subclass_counts
            subclass_names = list(map(numbered_subclasses, class_names, counts))
        if cluster_names is None:
            cluster_names = [f"novel {i}" for i in range(1, calibrated_model.num_clusters + 1)]
        return Bundle(
            calibrated_model,
            tuple(class_names),
            tuple(map(tuple, subclass_names)),
            tuple(cluster_names),
            encoder_spec,
            dict(encoder_facts),
            np.array(calibration, np.float32),
            dict(card or {}),
        )

    def __post_init__(self) -> None:
        known, counts = self.calibrated_model.num_seen, self.calibrated_model.subclass_counts
        novel, names = self.calibrated_model.num_clusters, self.class_names
        require(len(names) == known > 0, f"{len(names)} names for {known} classes: give one each.")
        require(len(set(names)) == known, "Two classes have the same name: rename one.")
        named = tuple(len(own) for own in self.subclass_names)
        require(
            named == counts,
            f"The {known} classes have {sum(counts)} sub-classes, and {sum(named)} are named: name "
            "them all, or none.",
        )
        require(
            len(self.cluster_names) == novel,
            f"{len(self.cluster_names)} names for {novel} novel clusters: give one each.",
        )
        as_type(self.encoder_facts.get("fingerprint"), str, "the encoder's fingerprint")
        width = as_type(self.encoder_facts.get("num_features"), int, "the encoder's num_features")
        inputs = self.calibrated_model.inputs
        require(
            width == inputs,
            f"The encoder gives {width} features, but the model takes {inputs}: give its own.",
        )
        scores = self.calibration
        require(
            scores.ndim == 1 and bool(np.isfinite(scores).all()),
            "The calibration is no list of finite numbers: give the ID scores.",
        )
        check_numbers(self.calibrated_model.state_dict())

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the whole content."""
        return sha256_hex(self.files()[MANIFEST])

    def encoder(
        self, device: torch.device | None = None, *, allow_download: bool = False
    ) -> Encoder:
        """Load the encoder that the model was fitted with.

        Args:
            allow_download: get it from the hub, if it is not on this machine.

        Raises:
            InputError: it is gone, or is another one now.
        """
        shown = printable(self.encoder_spec.source)
        try:
            if allow_download:
                fetch(self.encoder_spec)
            loaded = self.encoder_spec.load(device)
        except InputError as error:
            raise InputError(
                f"The model names the encoder {shown}, which cannot be used "
                f"({str(error).rstrip('.')}): put it back, or fit again."
            ) from None
        require(
            loaded.fingerprint == self.encoder_facts["fingerprint"],
            f"The encoder {shown} is not the one that the model was "
            "fitted with (its fingerprint differs): put that one back, or fit again.",
        )
        return loaded

    def predict_features(self, features: ArrayLike) -> Verdicts:
        """Judge N images by their (N, D) features, as the encoder gives them."""
        width, array = self.encoder_facts["num_features"], np.asarray(features)
        require(
            array.ndim == 2 and array.shape[1] == width and array.dtype.kind in "fiu",
            f"Features of the shape {array.shape} and type {array.dtype} are none of the model's "
            f"encoder: give (N, {width}) numbers.",
        )
        rows = torch.from_numpy(array.astype(np.float32))
        device = self.calibrated_model.threshold.device
        found = judge(
            self.calibrated_model, (some.to(device) for some in torch.split(rows, JUDGED_AT_ONCE))
        )
        return Verdicts(*(column.cpu() for column in found))

    def files(self) -> dict[str, bytes]:
        """The content of the bundle's files by name, bundle.json first."""
        parts = contents(self.calibrated_model, self.calibration)
        return {MANIFEST: self._manifest(parts), **parts}

    def save(self, out: Path | str) -> None:
        """Write a folder or a .zip file: a new one, or that of another bundle, which is replaced.

        The bytes of a .zip depend on the bundle alone. If this is killed, the file or folder holds
        what it did before, or the folder is refused as unfinished.
        """
        folder, files = path_of(out), self.files()
        if is_zip(folder):
            write_zip(folder, files)
            return
        check_destination(folder)
        try:
            with folder_lock(folder), ExitStack() as written:
                for name, content in files.items():
                    written.enter_context(whole_file(folder / name)).write_bytes(content)
                # Files take their names when the stack is left, the last first, MANIFEST last.
                (folder / MANIFEST).unlink(missing_ok=True)
        except OSError as error:
            raise InputError(
                f"{printable(str(folder))} cannot be written ({error.strerror or error}): make "
                "room, or name another folder."
            ) from None

    @staticmethod
    def load(source: Path | str) -> Bundle:
        """Load the bundle of a folder, a .zip file or a model of the hub.

        Args:
            source: a path, or hf://OWNER/NAME or hf://OWNER/NAME@REVISION, which is downloaded if
                it was not before.

        Raises:
            InputError: there is none, or not all of it is as it was saved.
        """
        folder = find_model(source)
        if is_zip(folder):
            with zip_reader(folder) as read:
                return read_bundle(read, printable(str(folder)))
        while True:
            found_at = bundle_folder(folder), current_version(folder)
            try:
                return _load(found_at[0], printable(str(folder)))
            except InputError:
                if found_at == (bundle_folder(folder), current_version(folder)):
                    raise  # otherwise another version took its place meanwhile

    def push_to_hub(
        self,
        address: str,
        *,
        public: bool = False,
        license: str | None = None,
        message: str | None = None,
    ) -> PushedModel:
        """Upload the bundle to the hub with a card, as `protofission.triage.hub.push_to_hub`."""
        return push_to_hub(self, address, public=public, license=license, message=message)

    def card_lines(self) -> list[str]:
        """The card as lines of text, with the facts of the model and its classes."""
        return card_lines(self)

    def card_screen(self) -> list[str]:
        """The most important facts of the card, as lines that fit one screen."""
        return card_screen(self)

    def _manifest(self, parts: Mapping[str, bytes]) -> bytes:
        spec = self.encoder_spec
        manifest = manifest_of(
            self.calibrated_model,
            {
                "protofission": self.version,
                "class_names": self.class_names,
                "subclass_names": self.subclass_names,
                "cluster_names": self.cluster_names,
                "encoder": EncoderReference(
                    kind_of(spec), spec.source, kept_options(spec), self.encoder_facts
                ),
                "files": {name: sha256_hex(content) for name, content in parts.items()},
                "card": self.card,
            },
        )
        try:
            return seal_manifest(asdict(manifest))
        except (TypeError, ValueError) as error:
            raise InputError(f"The card is not of plain JSON values ({error}): mend it.") from None


load = Bundle.load
"""Load the bundle of a folder: `Bundle.load` by a shorter name.

Examples:
    >>> import protofission
    >>> protofission.load("model").class_names
    ('0', '1')
"""


def _load(folder: Path, shown: str) -> Bundle:
    if not os.path.lexists(folder):
        raise InputError(f"{shown} does not exist: give a folder that protofission fit wrote.")
    if not (folder / MANIFEST).exists():
        begun = (folder / LOCK_FILE).exists()
        raise InputError(
            f"{shown} is unfinished, its bundle was being saved: fit the model again."
            if begun
            else f"{shown} holds no bundle: give a folder that protofission fit wrote."
        )
    return read_bundle(folder_reader(folder), shown)


def read_bundle(read: ReadFile, shown: str) -> Bundle:
    """Read a bundle by its files.

    Args:
        shown: name of their place in a refusal.
    """
    try:
        manifest = read_manifest(read)
        if not isinstance(manifest, int):
            return _read_bundle(manifest, read)
    except InputError as wrong:
        raise InputError(
            f"{shown} was edited or is damaged ({str(wrong).rstrip('.')}): fit the model "
            "again, or take another copy of it."
        ) from None
    raise InputError(f"{shown} was made by a newer protofission (format {manifest}): update.")


def _read_bundle(manifest: Manifest | SingleManifest, read: ReadFile) -> Bundle:
    calibrated_model, scores = read_parts(read, manifest)
    return Bundle(
        calibrated_model,
        manifest.class_names,
        manifest.subclass_names,
        manifest.cluster_names,
        manifest.encoder.spec(),
        manifest.encoder.describe,
        scores,
        manifest.card,
        manifest.protofission,
    )
