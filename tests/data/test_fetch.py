"""Downloads: resumed, verified, unpacked safely, whole or not at all."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pictures import write
from protofission.core.errors import InputError
from protofission.data.readers import fetch as fetching
from protofission.data.readers.fetch import fetch
from protofission.data.readers.official_datasets import (
    OFFICIAL_DATASETS,
    OfficialDataset,
    OfficialFile,
)

CONTENT = {"train": bytes(range(256)) * 2000, "test": b"t" * 999, "meta": b"m"}


@dataclass
class Site:
    """The files of a server, and the faults that it has."""

    files: dict[str, bytes] = field(default_factory=dict)
    breaks_after: list[int] = field(default_factory=list)
    """The bytes of each of the next answers before the connection breaks."""
    ranges: bool = True
    says_length: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, wanted = self.path.lstrip("/"), self.headers.get("Range")
            site.asked.append((name, wanted))
            if name not in site.files:
                self.send_error(404)
                return
            content, start = site.files[name], 0
            if wanted and site.ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                if start >= len(content):
                    self.send_error(416)
                    return
            self.send_response(206 if start else 200)
            if start:
                total = len(content)
                self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
            if site.says_length:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = start + site.breaks_after.pop(0) if site.breaks_after else len(content)
            self.wfile.write(content[start:end])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}/"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(fetching, "READ_BYTES", 1000)
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


def tar(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return file.getvalue()


def archive_of(content: dict[str, bytes]) -> bytes:
    return tar({f"cifar-100-python/{name}": value for name, value in content.items()})


def official(name: str, content: bytes) -> OfficialFile:
    return OfficialFile(name, hashlib.md5(content).hexdigest(), len(content))


def publish(site: Site, monkeypatch: pytest.MonkeyPatch, archive: bytes) -> OfficialDataset:
    """CIFAR-100 of other content, from the test's server."""
    site.files["cifar-100-python.tar.gz"] = archive
    source = replace(
        OFFICIAL_DATASETS["cifar100"],
        files=tuple(official(name, content) for name, content in CONTENT.items()),
        mirrors=(site.url,),
        archive=replace(official("cifar-100-python.tar.gz", archive), size=None),
    )
    monkeypatch.setitem(OFFICIAL_DATASETS, "cifar100", source)
    return source


def everything(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


WHOLE = {f"cifar-100-python/{name}": content for name, content in CONTENT.items()}


def test_an_archive_is_downloaded_unpacked_and_removed(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = archive_of({**CONTENT, "file.txt~": b"what nobody needs"})
    publish(site, monkeypatch, archive)
    calls: list[tuple[str, int, int]] = []
    folder, done = fetch("cifar100", tmp_path, lambda *call: calls.append(call))
    assert (folder, done) == (tmp_path / "cifar-100-python", True)
    assert everything(tmp_path) == WHOLE
    assert calls[-1] == ("cifar-100-python.tar.gz", len(archive), len(archive))
    assert [c[1] for c in calls] == sorted({c[1] for c in calls})
    assert fetch("cifar100", tmp_path) == (folder, False)  # and asks nobody
    assert len(site.asked) == 1


def test_a_download_goes_on_where_it_stopped(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(site, monkeypatch, archive_of(CONTENT))
    site.breaks_after = [1500, 700]
    fetch("cifar100", tmp_path)
    assert [wanted for _, wanted in site.asked] == [None, "bytes=1500-", "bytes=2200-"]
    assert everything(tmp_path) == WHOLE


def test_a_download_that_breaks_too_often_is_left_for_the_next_call(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(site, monkeypatch, archive_of(CONTENT))
    site.breaks_after = [100, 100, 100]
    with pytest.raises(InputError, match=r"broke off after 300 bytes.*run the command again"):
        fetch("cifar100", tmp_path)
    assert list(everything(tmp_path)) == ["cifar-100-python.tar.gz.part"]
    fetch("cifar100", tmp_path)
    assert site.asked[-1][1] == "bytes=300-"
    assert everything(tmp_path) == WHOLE


def test_a_server_without_ranges_sends_it_all_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(site, monkeypatch, archive_of(CONTENT))
    site.ranges, site.breaks_after = False, [1500]
    fetch("cifar100", tmp_path)
    assert everything(tmp_path) == WHOLE


@pytest.mark.parametrize("says_length", [True, False])
@pytest.mark.parametrize("cut", [10, 0])
def test_a_part_of_another_file_is_thrown_away(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says_length: bool, cut: int
) -> None:
    archive = archive_of(CONTENT)
    publish(site, monkeypatch, archive)
    site.says_length = says_length
    write(tmp_path / "cifar-100-python.tar.gz.part", b"x" * (len(archive) - cut))
    fetch("cifar100", tmp_path)
    assert everything(tmp_path) == WHOLE


def test_a_part_that_is_whole_needs_no_more_bytes(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = archive_of(CONTENT)
    publish(site, monkeypatch, archive)
    write(tmp_path / "cifar-100-python.tar.gz.part", archive)
    fetch("cifar100", tmp_path)
    assert site.asked == [("cifar-100-python.tar.gz", f"bytes={len(archive)}-")]


def test_a_wrong_file_is_refused_and_not_kept(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(site, monkeypatch, archive_of(CONTENT))
    site.files["cifar-100-python.tar.gz"] = b"<html>Please log in to the wireless network</html>"
    with pytest.raises(InputError, match="has another file, by its md5"):
        fetch("cifar100", tmp_path)
    assert everything(tmp_path) == {}


def test_without_a_network_one_sentence_says_what_to_put_where(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = archive_of(CONTENT)
    source = publish(site, monkeypatch, archive)
    nowhere = replace(source, mirrors=("http://127.0.0.1:9/", "http://no-such-host.invalid/"))
    monkeypatch.setitem(OFFICIAL_DATASETS, "cifar100", nowhere)
    place = tmp_path / "cifar-100-python.tar.gz"
    with pytest.raises(InputError, match=f"downloaded .*put it into {tmp_path}, and run") as caught:
        fetch("cifar100", tmp_path)
    assert "\n" not in str(caught.value)
    place.write_bytes(archive)
    fetch("cifar100", tmp_path)
    assert everything(tmp_path) == {**WHOLE, place.name: archive}  # the user's file stays


def test_a_missing_page_is_said(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(site, monkeypatch, archive_of(CONTENT))
    site.files.clear()
    with pytest.raises(InputError, match="Not Found"):
        fetch("cifar100", tmp_path)


def test_members_that_lead_elsewhere_are_never_written(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    evil = {
        "../outside": b"1",
        "cifar-100-python/../../outside": b"2",
        str(tmp_path / "absolute"): b"3",
        "cifar-100-python/extra": b"4",
        "./cifar-100-python/train": CONTENT["train"],
    }
    members = {f"cifar-100-python/{name}": value for name, value in CONTENT.items()}
    publish(site, monkeypatch, tar({**evil, **members}))
    fetch("cifar100", tmp_path / "home")
    assert everything(tmp_path) == {f"home/{name}": value for name, value in WHOLE.items()}


def test_a_link_in_place_of_a_file_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    members = {f"cifar-100-python/{name}": CONTENT[name] for name in ("test", "meta")}
    publish(site, monkeypatch, tar(members, {"cifar-100-python/train": "/etc/passwd"}))
    with pytest.raises(InputError, match="lacks cifar-100-python/train"):
        fetch("cifar100", tmp_path)
    assert not (tmp_path / "cifar-100-python" / "train").exists()


@pytest.mark.parametrize("wrong", [b"t" * 998, b"u" * 999])
def test_a_member_with_other_content_is_not_written(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: bytes
) -> None:
    publish(site, monkeypatch, archive_of({**CONTENT, "test": wrong}))
    with pytest.raises(InputError, match=r"holds another test|lacks cifar-100-python/test"):
        fetch("cifar100", tmp_path)
    assert "cifar-100-python/test" not in everything(tmp_path)


@pytest.mark.parametrize("archive", [b"no archive", archive_of(CONTENT)[:-50]])
def test_a_broken_archive_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archive: bytes
) -> None:
    publish(site, monkeypatch, archive)
    with pytest.raises(InputError, match=r"cifar-100-python\.tar\.gz .*delete it"):
        fetch("cifar100", tmp_path)


def test_damaged_files_are_replaced(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(site, monkeypatch, archive_of(CONTENT))
    write(tmp_path / "cifar-100-python" / "train", CONTENT["train"][:-1] + b"?")
    assert fetch("cifar100", tmp_path)[1]
    assert everything(tmp_path) == WHOLE


def test_files_without_an_archive_come_one_by_one_from_any_mirror(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = OFFICIAL_DATASETS["mnist"]
    contents = {file.name: file.name.encode() for file in source.files}
    files = tuple(official(name, content) for name, content in contents.items())
    mirrors = (f"{site.url}gone/", site.url)
    monkeypatch.setitem(OFFICIAL_DATASETS, "mnist", replace(source, files=files, mirrors=mirrors))
    site.files = dict(contents)
    fetch("mnist", tmp_path)
    assert everything(tmp_path / "mnist") == contents
    before = len(site.asked)
    (tmp_path / "mnist" / files[2].name).unlink()
    fetch("mnist", tmp_path)  # only what is missing
    assert {name for name, _ in site.asked[before:]} == {files[2].name, f"gone/{files[2].name}"}


def test_two_at_once_download_once(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(site, monkeypatch, archive_of(CONTENT))
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(fetch("cifar100", tmp_path)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done for _, done in results) == [False, False, False, True]
    assert len(site.asked) == 1
    assert everything(tmp_path) == WHOLE


def test_a_place_that_cannot_be_written_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(site, monkeypatch, archive_of(CONTENT))
    write(tmp_path / "file", b"")
    with pytest.raises(InputError, match=r"Cannot write CIFAR-100 to .*name another folder"):
        fetch("cifar100", tmp_path / "file")
