"""Images and lists in an object store, read through a real server on loopback."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from bundles import bundle_at
from fake_buckets import FakeBuckets
from pictures import picture
from protofission.cli import main
from protofission.data.readers.image_formats import RefusedError
from protofission.data.readers.remote_files import read_remote, remote_url
from protofission.system.launch.local_launcher import LocalLauncher
from protofission.triage.predict import predict
from protofission.triage.prediction_shards import predict_in_shards, read_shards
from protofission.triage.prediction_table import read_rows


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("s3://bucket/a b.png", "s3://bucket/a b.png"),
        (Path("s3://bucket/list.parquet"), "s3://bucket/list.parquet"),
        (Path("gs://b/x"), "gs://b/x"),
        ("hf://datasets/a/b.png", "hf://datasets/a/b.png"),
        ("s3/bucket/a.png", None),
        ("/data/s3://x", None),
        ("http://example.org/a.png", None),
    ],
)
def test_addresses_are_told_from_paths(path: Path | str, url: str | None) -> None:
    assert remote_url(path) == url


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """A bucket of moto's server, as the file system of s3fs."""
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem()
    files.mkdir("photos")
    yield files
    s3fs.S3FileSystem.clear_instance_cache()
    running.stop()


QUIET = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def quiet(test: object) -> object:
    """Ignore warnings of the libraries of object stores."""
    for mark in QUIET:
        test = mark(test)
    return test


def compare(folder: Path, place: str, put: Callable[[Path], None]) -> None:
    """Predict a list in an object store, with a file that is missing, and the same files here."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    bundle_at(folder / "model")
    names = [f"{number:02}.png" for number in range(30)]
    for number, name in enumerate(names):
        picture(folder / "photos" / name, number, side=8)
        put(folder / "photos" / name)
    urls = [f"{place}/{name}" for name in (*names, "missing.png")]
    parquet.write_table(arrow.table({"path": urls}), folder / "list.parquet", row_group_size=8)
    put(folder / "list.parquet")
    done = predict_in_shards(
        folder / "model",
        f"{place}/list.parquet",
        folder / "rows",
        launcher=LocalLauncher(1),
        shard=20,
    )
    assert (done.rows, done.errors) == (31, 1)
    predict(folder / "model", folder / "photos", folder / "whole.csv")
    found, wanted = list(read_shards(folder / "rows")), list(read_rows(folder / "whole.csv"))
    assert [row.path for row in found] == urls
    assert [row[1:] for row in found[:-1]] == [row[1:] for row in wanted]
    assert found[-1].error.startswith("a file that cannot be opened (FileNotFoundError")
    with pytest.raises(RefusedError, match="cannot be opened"):
        read_remote(f"{place}-nowhere/x.png", 10)


@quiet
def test_a_list_in_a_bucket_has_the_rows_of_files(bucket: object, tmp_path: Path) -> None:
    compare(tmp_path, "s3://photos", lambda path: bucket.put_file(str(path), f"photos/{path.name}"))


@quiet
@pytest.mark.parametrize(
    ("library", "place"),
    [("gcsfs", "gs://photos"), ("huggingface_hub", "hf://datasets/some/photos")],
)
def test_a_list_in_other_object_stores_too(
    library: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is read here, and the images in another process."""
    pytest.importorskip(library, reason=f"{library} is not installed")
    (tmp_path / "bucket").mkdir()
    with FakeBuckets(tmp_path / "bucket") as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.address)
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        if library == "huggingface_hub":  # which has read its endpoint when it was imported
            import huggingface_hub.hf_file_system as files

            monkeypatch.setattr(files.constants, "ENDPOINT", server.address)
            monkeypatch.setattr(files.constants, "HF_HUB_OFFLINE", False)
            template = f"{server.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
            monkeypatch.setattr(files.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        fsspec.get_filesystem_class(place.partition(":")[0]).clear_instance_cache()
        compare(tmp_path, place, lambda path: shutil.copy(path, tmp_path / "bucket"))


@pytest.mark.parametrize("verb", ["embed", "predict", "train"])
def test_an_output_in_an_object_store_is_refused(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = {"embed": ["digits"], "predict": ["model", "photos"], "train": ["orca"]}[verb]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["protofission", verb, *first, "--out", "s3://bucket/out"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "s3://bucket/out is in an object store: name a place in a folder" in said
    assert not list(tmp_path.iterdir())
