"""Routes of the export screen: write labels in a format beside the model, and download them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedIOBase, RawIOBase
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from protofission.core.errors import printable, unknown
from protofission.system.json_files import as_type
from protofission.system.new_outputs import free_path
from protofission.system.plain_files import open_plain
from protofission.system.posix import NO_LINK
from protofission.triage.workbench.exports import EXPORTS, MissingImagesError, export_images
from protofission.triage.workbench.exports.export_format import PathStyle
from protofission.triage.workbench.exports.labeled_images import LabelChoice, labeled_images
from protofission.triage.workbench.log import WORKBENCH_FOLDER
from protofission.web.label.answers import Body, check_keys, json_answer
from protofission.web.label.desk import Desk
from protofission.web.sentences import AnswerError

EXPORT_FOLDER = "exports"
CHUNK = 2**16
"""Bytes of a download that are read at a time."""
MOST_LEFT_OUT = 100
"""Most images that were left out which an answer names."""


def export_routes(desk: Desk) -> APIRouter:
    """All routes of the export screen."""
    router = APIRouter(prefix="/api")
    folder = desk.workbench.material.model / WORKBENCH_FOLDER / EXPORT_FOLDER
    at_work = threading.Lock()

    @router.get("/export")
    def formats() -> Response:
        known = [
            {
                "name": name,
                "title": own.title,
                "about": own.about,
                "folder": not own.suffix,
                "copies": own.copies,
            }
            for name, own in EXPORTS.items()
        ]
        return json_answer({"formats": known, "done": _done(folder), "folder": str(folder)})

    @router.post("/export")
    def export(body: Body) -> Response:
        if not at_work.acquire(blocking=False):
            raise AnswerError(409, "Another export is being written: wait for it.")
        try:
            return json_answer(_export(desk, folder, body))
        except MissingImagesError as error:
            raise AnswerError(409, str(error)) from None
        finally:
            at_work.release()

    @router.get("/export/{name}")
    def download(name: str) -> Response:
        if name not in {entry["name"] for entry in _done(folder)}:
            raise AnswerError(404, "There is no such export.")
        try:
            file = open_plain(folder / name, os.O_RDONLY | NO_LINK)
        except OSError as error:
            raise AnswerError(404, f"The export cannot be read: {error.strerror}.") from None
        headers = {
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Length": str(os.fstat(file.fileno()).st_size),
        }
        return StreamingResponse(_chunks(file), 200, headers, "application/octet-stream")

    return router


def _export(desk: Desk, folder: Path, body: dict[str, Any]) -> dict[str, Any]:
    body = {"what": "labeled", "skip_missing": False, "paths": None, **body}
    check_keys(body, "format", "what", "paths", "skip_missing")
    form = as_type(body["format"], str, "format")
    if form not in EXPORTS:
        raise unknown("format", printable(form)[:60], EXPORTS)
    what: LabelChoice = as_type(body["what"], LabelChoice, "what")  # type: ignore[arg-type]
    usual = "absolute" if form == "list" else "relative"
    given = usual if body["paths"] is None else body["paths"]
    paths: PathStyle = as_type(given, PathStyle, "paths")  # type: ignore[arg-type]
    desk.workbench.check_place()  # else the folder of exports would be made anew, alone
    state, material = desk.workbench.now
    done = export_images(
        labeled_images(material, state, what),
        free_path(folder / f"{what}-{form}{EXPORTS[form].suffix}"),
        form,
        paths=paths,
        skip_missing=as_type(body["skip_missing"], bool, "skip_missing"),
    )
    is_file = bool(EXPORTS[form].suffix)
    return {
        "path": str(done.path).encode(errors="backslashreplace").decode(),
        "name": done.path.name,
        "rows": done.images,
        "sentence": done.sentence(),
        "notes": done.notes(),
        "number_left_out": len(done.left_out),
        "left_out": dict(list(done.left_out.items())[:MOST_LEFT_OUT]),
        "download": f"/api/export/{done.path.name}" if is_file else None,
    }


def _done(folder: Path) -> list[dict[str, Any]]:
    """Exports that are there, with sizes of those that are files; names are as we give them."""
    found = []
    with suppress(OSError):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            plain = entry.is_file(follow_symlinks=False)
            if _is_ours(entry.name) and (plain or entry.is_dir(follow_symlinks=False)):
                size = entry.stat(follow_symlinks=False).st_size if plain else None
                found.append({"name": entry.name, "size": size})
    return found


def _is_ours(name: str) -> bool:
    return name.isascii() and all(c.isalnum() or c in "-." for c in name) and name[0] != "."


def _chunks(file: RawIOBase | BufferedIOBase) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK):
            yield chunk
