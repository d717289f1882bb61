"""A model hub on this machine that counts what it is asked for."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Serves the files of one folder as the model `some/model`, while it is entered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        """Each request, as METHOD /path."""
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer(body=False)

            def do_GET(self) -> None:
                self.answer(body=True)

            def answer(self, *, body: bool) -> None:
                hub.asked.append(f"{self.command} {self.path}")
                content = _content(self.path.partition("?")[0], folder)
                self.send_response(200 if content is not None else 404)
                content = content or b""
                self.send_header("Content-Length", str(len(content)))
                self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
                self.send_header("X-Repo-Commit", COMMIT)
                self.end_headers()
                if body:
                    self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "FakeHub":
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


def _content(path: str, folder: Path) -> bytes | None:
    files = sorted(file.name for file in folder.iterdir())
    if path.startswith("/api/models/some/model/revision/") or path == "/api/models/some/model":
        siblings = [{"rfilename": name} for name in files]
        return json.dumps({"id": "some/model", "sha": COMMIT, "siblings": siblings}).encode()
    if path.startswith("/api/models/some/model/tree/"):
        about = [
            {"type": "file", "path": name, "size": (folder / name).stat().st_size, "oid": "0" * 40}
            for name in files
        ]
        return json.dumps(about).encode()
    if path.startswith("/mark/"):
        return b""
    head, _, name = path.rpartition("/")
    if head.startswith("/some/model/resolve/") and name in files:
        return (folder / name).read_bytes()
    return None
