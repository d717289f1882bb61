"""Download the official files of a data set: resumable, verified, whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zlib
from io import BufferedWriter
from pathlib import Path

from protofission import __version__
from protofission.core.errors import InputError, require
from protofission.core.progress import StageProgress
from protofission.data.readers.official_datasets import (
    OfficialDataset,
    OfficialFile,
    data_homes,
    official_dataset,
)
from protofission.system.locks import open_locked
from protofission.system.plain_files import open_plain
from protofission.system.whole_files import whole_file

READ_BYTES = 1 << 18
"""Bytes that are read at once."""
TIMEOUT = 30.0
"""Seconds without a byte after which a connection is given up."""
TRIES = 3
"""Attempts at an interrupted download before it is left to the user."""
BYTE_LIMIT = 1 << 30
"""A download that grows larger is given up: no data set here is."""


def fetch(
    name: str, folder: Path | str | None = None, progress: StageProgress | None = None
) -> tuple[Path, bool]:
    """Download a data set's files into its folder within `folder`, unless they are there.

    An interrupted download stays as a `.part` file, and the next call resumes it.

    Args:
        folder: the folder of data sets; by default $PROTOFISSION_DATA or the cache folder.
        progress: called with a file's name, its bytes so far, and all of them (0 if unknown).

    Returns:
        The folder of the files, and whether anything was downloaded or unpacked.
    """
    source = official_dataset(name)
    home = data_homes(folder)[0]
    target = home / source.folder
    if is_complete(source, target):
        return target, False
    try:
        target.mkdir(parents=True, exist_ok=True)
        with open_locked(home / f".{source.folder}.lock", wait=True):
            if is_complete(source, target):  # another process was faster
                return target, False
            for file in source.downloads:
                _obtain(source, file, home, target, progress or (lambda *_: None))
    except OSError as error:
        raise InputError(
            f"Cannot write {source.title} to {home} ({error}): "
            "free some space, or name another folder by --folder."
        ) from None
    return target, True


def is_complete(source: OfficialDataset, folder: Path) -> bool:
    """Whether all files of a data set are in the folder, with the right md5."""
    return all(_is_official(folder / file.name, file) for file in source.files)


def _obtain(
    source: OfficialDataset,
    file: OfficialFile,
    home: Path,
    target: Path,
    progress: StageProgress,
) -> None:
    """Take one download from the disk or the network, and unpack an archive into the target."""
    place = (home if source.archive else target) / file.name
    kept = _is_official(place, file)  # by the user, or because another file is what was missing
    if not kept:
        _download(source, file, place, progress)
    if source.archive:
        _unpack(source, place, target)
        if not kept:
            place.unlink()


def _download(
    source: OfficialDataset, file: OfficialFile, place: Path, progress: StageProgress
) -> None:
    """Download a file from the first mirror that has it."""
    part = place.with_name(f"{file.name}.part")
    reasons = []
    for mirror in source.mirrors:
        try:
            for _ in range(TRIES):
                started_at = part.stat().st_size if part.exists() else 0
                whole = _transfer(mirror + file.name, part, file.name, progress)
                if whole and _is_official(part, file):
                    part.replace(place)
                    return
                if whole:
                    part.unlink()
                    if not started_at:  # a file that was resumed may have begun as another
                        reasons.append(f"{mirror} has another file, by its md5")
                        break
            else:
                size = part.stat().st_size if part.exists() else 0
                reasons.append(f"{mirror} broke off after {size} bytes")
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
            reasons.append(f"{mirror}: {getattr(error, 'reason', None) or error}")
    names = ", ".join(file.name for file in source.downloads)
    raise InputError(
        f"{source.title} could not be downloaded ({'; '.join(reasons)}): run the command again to "
        f"go on where it stopped, or download {names} from {source.mirrors[0]} where there is a "
        f"network, put it into {place.parent}, and run the command again."
    )


def _transfer(url: str, part: Path, name: str, progress: StageProgress) -> bool:
    """Append the missing bytes to a partial file.

    Returns:
        Whether the file is complete, by the length that the server states.
    """
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"protofission/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        answer = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT
        )
    except urllib.error.HTTPError as error:
        error.close()
        if have and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return True  # nothing is missing; the md5 tells whether it is right
        raise
    except urllib.error.URLError:
        raise
    except (
        OSError
    ) as error:  # not all are URLErrors: these must not be taken for errors of the disk
        raise urllib.error.URLError(error) from None
    with answer:
        resumes = (answer.headers.get("Content-Range") or "").startswith(f"bytes {have}-")
        if answer.status != http.HTTPStatus.PARTIAL_CONTENT or not resumes:
            have = 0  # the server sends all of it
        total = have + answer.length if answer.length else 0
        begun = os.O_APPEND if have else os.O_TRUNC
        with BufferedWriter(open_plain(part, os.O_WRONLY | os.O_CREAT | begun)) as file:
            while chunk := _read(answer):
                file.write(chunk)
                have += len(chunk)
                progress(name, have, total)
                require(have <= BYTE_LIMIT, f"{url} has no end: download {name} from elsewhere.")
    return have >= total


def _read(answer: http.client.HTTPResponse) -> bytes:
    """The next bytes; none at the end, or if the connection broke off."""
    try:
        return answer.read(READ_BYTES)
    except (OSError, http.client.HTTPException):
        return b""


def _unpack(source: OfficialDataset, archive: Path, target: Path) -> None:
    """Write the data set's files, and no other member of the archive, into the target."""
    wanted = {f"{source.folder}/{file.name}": file for file in source.files}
    try:
        with open_plain(archive) as packed, tarfile.open(fileobj=packed, mode="r:gz") as tar:
            for member in tar:
                file = wanted.get(member.name)
                if file is None or not member.isreg() or member.size != (file.size or member.size):
                    continue
                content = tar.extractfile(member)
                assert content is not None  # it is a regular file
                with whole_file(target / file.name) as partial:
                    with partial.open("wb") as output:
                        shutil.copyfileobj(content, output, READ_BYTES)
                    require(
                        _is_official(partial, file),
                        f"{archive} holds another {file.name}: delete it.",
                    )
                del wanted[member.name]
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise InputError(f"{archive} cannot be unpacked ({error}): delete it.") from None
    require(not wanted, f"{archive} lacks {', '.join(wanted)}: delete it and download it again.")


def _is_official(path: Path, file: OfficialFile) -> bool:
    """Whether the file at a path has the official content."""
    if not path.is_file() or (file.size is not None and path.stat().st_size != file.size):
        return False
    with open_plain(path) as content:
        digest = hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False))
    return digest.hexdigest() == file.md5
