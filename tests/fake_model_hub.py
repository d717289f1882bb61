"""A model hub on this machine that takes commits, as the Hugging Face hub's API does.

Repositories are in memory. Files of tensors are uploaded by Git LFS, others inside the commit.
"""

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_token_of_a_test"


@dataclass
class Repository:
    """Commits, each with all of its files, and branches that name them."""

    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def add(self, files: dict[str, bytes], branch: str = "main", message: str = "") -> str:
        """A commit with the files of the branch and these; its digest."""
        before = self.commits.get(self.branches.get(branch, ""), {})
        told = [*before, *files.values(), str(len(self.commits))]
        commit = hashlib.sha1(repr(told).encode()).hexdigest()
        self.commits[commit] = {**before, **files}
        self.branches[branch] = commit
        self.messages.append(message)
        return commit

    def files(self, revision: str) -> dict[str, bytes] | None:
        return self.commits.get(self.branches.get(revision, revision))


class FakeModelHub:
    """Serves repositories while it is entered; counts what it is asked for."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.stored: dict[str, bytes] = {}
        """Objects of Git LFS by digest."""
        self.asked: list[str] = []
        """Each request, as METHOD /path."""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "FakeModelHub":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, method: str, path: str, body: bytes, known: bool) -> tuple[int, bytes]:
        if method == "PUT" and (found := re.fullmatch("/lfs/(.*)", path)):
            self.stored[found[1]] = body
            return 200, b""
        if method == "POST":
            if not known:
                return 401, b'{"error": "Invalid credentials"}'
            return _json(self.post(path, json_of(body), body))
        return self.get(path, known)

    def post(self, path: str, given: Any, body: bytes) -> tuple[int, Any]:
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            name = f"{given['organization']}/{given['name']}"
            if name in self.repositories:
                return 409, {"error": "You already created it", "url": f"{self.address}/{name}"}
            private = given.get("private") or given.get("visibility") == "private"
            self.repositories[name] = Repository(bool(private))
            self.repositories[name].add({".gitattributes": b""})
            return 200, {"url": f"{self.address}/{name}"}
        if found := re.fullmatch(r"/(.*)\.git/info/lfs/objects/batch", path):
            return 200, {"objects": [self.upload_of(each) for each in given["objects"]]}
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)/([\w-]+)/(.*)", path)
        if found is None or found[1] not in self.repositories:
            return 404, {"error": "Repository not found"}
        repository, verb, revision = self.repositories[found[1]], found[2], found[3]
        if verb == "branch":
            if revision in repository.branches:
                return 409, {"error": "Reference already exists"}
            repository.branches[revision] = repository.branches["main"]
            return 200, {}
        if verb == "preupload":
            return 200, {"files": [_mode(each["path"]) for each in given["files"]]}
        if verb == "paths-info":
            files = repository.files(revision) or {}
            return 200, [_about(p, files[p]) for p in given["paths"] if p in files]
        assert verb == "commit", path
        commit = self.commit(repository, revision, body)
        return 200, {
            "commitUrl": f"{self.address}/{found[1]}/commit/{commit}",
            "commitOid": commit,
            "success": True,
        }

    def upload_of(self, given: dict[str, Any]) -> dict[str, Any]:
        upload = {"href": f"{self.address}/lfs/{given['oid']}"}
        return {**given, "authenticated": True, "actions": {"upload": upload}}

    def commit(self, repository: Repository, revision: str, body: bytes) -> str:
        files, message = {}, ""
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                message = value["summary"]
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                assert line["key"] == "lfsFile", line
                files[value["path"]] = self.stored[value["oid"]]
        return repository.add(files, revision, message)

    def get(self, path: str, known: bool) -> tuple[int, bytes]:
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+)(/.*)?)?", path)
        if found is None:
            found = re.fullmatch(r"/([^/]+/[^/]+)/(resolve)/([^/]+)/(.*)", path)
        repository = None if found is None else self.repositories.get(found[1])
        if found is None or repository is None or (repository.private and not known):
            return 404, b'{"error": "Repository not found"}'
        revision = found[3] or "main"
        files = repository.files(revision)
        if files is None:
            return 404, b'{"error": "Revision not found"}'
        if found[2] == "resolve":
            return (200, files[found[4]]) if found[4] in files else (404, b"")
        if found[2] == "tree":
            return _json((200, [_about(name, content) for name, content in files.items()]))
        about = {
            "id": found[1],
            "sha": repository.branches.get(revision, revision),
            "private": repository.private,
            "siblings": [{"rfilename": name} for name in files],
        }
        return _json((200, about))


def json_of(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:  # lines of a commit
        return None


def _json(answer: tuple[int, Any]) -> tuple[int, bytes]:
    return answer[0], json.dumps(answer[1]).encode()


def _mode(path: str) -> dict[str, Any]:
    large = path.endswith((".safetensors", ".npy"))
    return {"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}


def _about(path: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": path, "size": len(content), "oid": "0" * 40}


def _handler_of(hub: FakeModelHub) -> type[BaseHTTPRequestHandler]:
    """The class that answers requests for a hub."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(f"{self.command} {path}")
            known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            status, content = hub.answer(self.command, path, _body(self), known)
            status, headers, content = _part(status, content, self.headers.get("Range"))
            self.send_response(status)
            for name, value in {**headers, **ERRORS.get(status, {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    for method in ("GET", "HEAD", "POST", "PUT"):
        setattr(Handler, f"do_{method}", Handler.answer)
    return Handler


ERRORS = {
    401: {"X-Error-Message": "Invalid credentials"},
    404: {"X-Error-Code": "RepoNotFound"},
}


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding") != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))
    found = b""
    while size := int(request.rfile.readline(), 16):
        found += request.rfile.read(size)
        request.rfile.readline()
    request.rfile.readline()
    return found


def _part(status: int, content: bytes, wanted: str | None) -> tuple[int, dict[str, str], bytes]:
    """The range of a content that is asked for."""
    headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
    if wanted and status == 200:
        low, _, high = wanted.removeprefix("bytes=").partition("-")
        begin, end = int(low), min(int(high) + 1 if high else len(content), len(content))
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
        status, content = 206, content[begin:end]
    return status, {**headers, "Content-Length": str(len(content))}, content
