"""Models on the Hugging Face hub: push a bundle with its card, download one as untrusted files.

Only `push_to_hub` and `download_model` reach the network, when a caller names hf://OWNER/NAME.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from protofission.core.errors import InputError, printable, quoted, require
from protofission.data.readers.image_formats import RefusedError
from protofission.data.readers.official_datasets import cache_home
from protofission.data.readers.remote_files import read_remote
from protofission.models.encoders.base import reason_of
from protofission.system.locks import folder_lock
from protofission.system.optional_libraries import import_optional
from protofission.system.whole_files import write_whole
from protofission.triage.bundle_files import MANIFEST
from protofission.triage.hub_card import check_license, hub_card

if TYPE_CHECKING:
    from protofission.triage.bundle import Bundle

Answer = TypeVar("Answer")

ADDRESS = re.compile(
    r"(?:hf://)?(?P<owner>\w[\w.-]{0,95})/(?P<name>\w[\w.-]{0,95})(?:@(?P<revision>\w[\w./-]{0,99}))?",
    re.ASCII,
)
COMMIT = re.compile(r"[0-9a-f]{40}")
PATIENCE = 10.0
"""Seconds to wait for an answer of the hub."""
LOG_IN = "see that you are logged in (hf auth login) and may write there"
CARD = "README.md"
"""The file that the hub shows."""
HUB_FILES = {CARD, ".gitattributes", "LICENSE"}
"""Files beside a bundle's that a repository of ours may hold."""


@dataclass(frozen=True)
class HubModel:
    """A model on the hub, at a revision."""

    owner: str
    name: str
    revision: str | None = None
    """A branch, a tag or a commit; none is the main branch."""

    @staticmethod
    def parse(address: str) -> HubModel:
        """Read hf://OWNER/NAME, hf://OWNER/NAME@REVISION, or the same without hf://."""
        found = ADDRESS.fullmatch(address)
        if found is None or ".." in address:
            raise InputError(
                f"{quoted(address)} is no address of a model: give hf://OWNER/NAME, or "
                "hf://OWNER/NAME@REVISION."
            )
        return HubModel(**found.groupdict())

    @property
    def repo(self) -> str:
        """The name that the hub knows it by."""
        return f"{self.owner}/{self.name}"

    def __str__(self) -> str:
        return f"hf://{self.repo}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True)
class PushedModel:
    """A model that was pushed."""

    address: str
    """hf://OWNER/NAME@COMMIT, which loads these files whatever is pushed later."""
    commit: str
    url: str
    private: bool


def push_to_hub(
    bundle: Bundle,
    address: str,
    *,
    public: bool = False,
    license: str | None = None,
    message: str | None = None,
) -> PushedModel:
    """Upload a bundle and a card made of its facts, as one commit.

    Uploaded are bundle.json, the tensors, the held-out scores and README.md: names of classes, the
    encoder's source and the findings of the fit, which may name files, are in them. Images,
    features and labels are not. The token is the one that `hf auth login` keeps, or $HF_TOKEN.

    Args:
        address: hf://OWNER/NAME, with a branch as @REVISION if not the main one; a repository that
            is missing is made.
        public: let everybody see it; by default a new repository is private, and one that is
            public is refused.
        license: name of a license for the card, such as apache-2.0.
        message: of the commit.

    Raises:
        InputError: the hub refuses, or the repository holds something else than a bundle.
    """
    model = HubModel.parse(address)
    require(
        COMMIT.fullmatch(model.revision or "") is None,
        f"{model} is a commit, which cannot be changed: name a branch, or none.",
    )
    check_license(license)
    hub = import_optional("huggingface_hub", "hub", "push_to_hub")
    api = hub.HfApi(library_name="protofission")
    files = {CARD: hub_card(bundle, model.repo, license).encode(), **bundle.files()}

    def push() -> Any:
        api.create_repo(model.repo, private=not public, exist_ok=True)
        about = api.model_info(model.repo, timeout=PATIENCE)
        _check_repository(about, str(model), public)
        if model.revision is not None:
            api.create_branch(model.repo, branch=model.revision, exist_ok=True)
        operations = [
            hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)
            for name, content in files.items()
        ]
        words = message or f"A model of {len(bundle.class_names)} classes, by protofission"
        done = api.create_commit(
            model.repo, operations, commit_message=words, revision=model.revision
        )
        return done, bool(about.private)

    done, private = _ask(push, f"{model} cannot be pushed", LOG_IN)
    commit = str(done.oid)
    pinned = HubModel(model.owner, model.name, commit)
    return PushedModel(str(pinned), commit, str(done.commit_url), private)


def _check_repository(about: Any, shown: str, public: bool) -> None:
    """Refuse a repository that others see unasked, or that holds something else."""
    require(
        public or bool(about.private),
        f"{shown} is public: allow that by --public, in Python public=True, or name another.",
    )
    names = {str(sibling.rfilename) for sibling in about.siblings or ()}
    others = sorted(names - HUB_FILES)
    require(
        not others or MANIFEST in names,
        f"{shown} holds something else ({printable(', '.join(others[:3]))}): name another.",
    )


def download_model(address: str) -> Path:
    """The folder of a model of the hub, in the cache; it is downloaded if it was not before.

    Each file is read up to the size that it may have, checked against the digests in bundle.json,
    and nothing in it is run. A commit that was downloaded needs no network again.

    Raises:
        InputError: it cannot be had, or is no bundle.
    """
    from protofission.triage.bundle import read_bundle

    model = HubModel.parse(address)
    if COMMIT.fullmatch(model.revision or "") and (_cache_of(model) / MANIFEST).exists():
        return _cache_of(model)
    pinned, names = _look_up(model)
    read: dict[str, bytes] = {}

    def read_file(name: str, most: int) -> bytes:
        require(name in names, f"{name} is missing.")
        content = read_remote(f"{pinned}/{name}", most)
        require(len(content) <= most, f"{name} has more than {most:,} bytes, the most.")
        read[name] = content
        return content

    folder = _cache_of(pinned)
    with folder_lock(folder, wait=True):
        if (folder / MANIFEST).exists():
            return folder
        try:
            read_bundle(read_file, printable(str(model)))
        except RefusedError as error:
            raise InputError(f"{model} cannot be had ({error}): try again.") from None
        for name in sorted(read, key=lambda name: name == MANIFEST):  # MANIFEST last
            write_whole(folder / name, read[name])
    return folder


def _cache_of(model: HubModel) -> Path:
    """The folder of a model at a commit."""
    return cache_home() / "hub" / model.owner / model.name / str(model.revision)


def _look_up(model: HubModel) -> tuple[HubModel, set[str]]:
    """Ask the hub for the commit of a model, and for the names of its files."""
    hub = import_optional("huggingface_hub", "hub", str(model))
    about = _ask(
        lambda: hub.HfApi().model_info(model.repo, revision=model.revision, timeout=PATIENCE),
        f"{model} cannot be had",
        "see that it exists and that you may read it",
    )
    commit = str(about.sha)
    require(COMMIT.fullmatch(commit) is not None, f"{model} has no commit: push a model to it.")
    pinned = HubModel(model.owner, model.name, commit)
    return pinned, {str(sibling.rfilename) for sibling in about.siblings or ()}


def _ask(question: Callable[[], Answer], failure: str, remedy: str) -> Answer:
    """Ask the hub; its refusals, and a network that is not there, are one sentence."""
    try:
        return question()
    except InputError:
        raise
    except Exception as error:  # the library raises what its parts raise
        raise InputError(f"{failure} ({reason_of(error)}): {remedy}.") from None
