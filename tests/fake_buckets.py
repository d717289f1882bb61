"""A server on this machine for gs:// and hf://: it answers the calls by which files are read."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeBuckets:
    """Serves a folder as the bucket `photos`, and as the data set `some/photos` of a hub."""

    def __init__(self, folder: Path) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.answer()

            def do_GET(self) -> None:
                self.answer()

            def answer(self) -> None:
                status, content = _answer(unquote(urlsplit(self.path).path), folder)
                begin, end = 0, len(content)
                wanted = self.headers.get("Range")
                if wanted and status == 200:
                    low, _, high = wanted.removeprefix("bytes=").partition("-")
                    begin, end = int(low), min(int(high) + 1 if high else end, end)
                    status = 206
                self.send_response(status)
                self.send_header("Content-Length", str(end - begin))
                self.send_header("Content-Type", "application/json")
                self.send_header("ETag", '"0"')
                self.send_header("X-Repo-Commit", COMMIT)
                if status == 206:
                    self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(content)}")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content[begin:end])

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "FakeBuckets":
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


def _answer(path: str, folder: Path) -> tuple[int, bytes]:
    """The status and content of a call."""
    name = path.rpartition("/")[2]
    there = (folder / name).is_file()
    if "/storage/v1/b/photos/o/" in path and there:
        if path.startswith("/download/"):
            return 200, (folder / name).read_bytes()
        size = str((folder / name).stat().st_size)
        about = {"name": name, "bucket": "photos", "size": size, "kind": "storage#object"}
        return 200, json.dumps(about).encode()
    if path.startswith("/storage/v1/b/photos/o"):
        return 200, b'{"items": []}'
    if path.startswith("/api/datasets/some/photos/tree/"):
        files = [
            {"type": "file", "path": each.name, "size": each.stat().st_size, "oid": "0" * 40}
            for each in sorted(folder.iterdir())
        ]
        return 200, json.dumps(files).encode()
    if path.startswith("/api/datasets/some/photos"):
        about = {"id": "some/photos", "sha": COMMIT, "siblings": []}
        return 200, json.dumps(about).encode()
    if path.startswith("/datasets/some/photos/resolve/") and there:
        return 200, (folder / name).read_bytes()
    return 404, b"{}"
