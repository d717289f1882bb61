"""Images and lists in an object store, read through a real server on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bundles import bundle_at
from pictures import picture
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


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_list_in_a_bucket_has_the_rows_of_files(bucket: object, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    bundle_at(tmp_path / "model")
    names = [f"{number:02}.png" for number in range(30)]
    for number, name in enumerate(names):
        picture(tmp_path / "photos" / name, number, side=8)
        bucket.put_file(str(tmp_path / "photos" / name), f"photos/{name}")
    urls = [*(f"s3://photos/{name}" for name in names), "s3://photos/missing.png"]
    parquet.write_table(arrow.table({"path": urls}), tmp_path / "list.parquet", row_group_size=8)
    bucket.put_file(str(tmp_path / "list.parquet"), "photos/list.parquet")
    done = predict_in_shards(
        tmp_path / "model",
        "s3://photos/list.parquet",
        tmp_path / "rows",
        launcher=LocalLauncher(1),
        shard=20,
    )
    assert (done.rows, done.errors) == (31, 1)
    predict(tmp_path / "model", tmp_path / "photos", tmp_path / "whole.csv")
    found, wanted = list(read_shards(tmp_path / "rows")), list(read_rows(tmp_path / "whole.csv"))
    assert [row.path for row in found] == urls
    assert [row[1:] for row in found[:-1]] == [row[1:] for row in wanted]
    assert found[-1].error.startswith("a file that cannot be opened (FileNotFoundError")
    with pytest.raises(RefusedError, match="cannot be opened"):
        read_remote("s3://nowhere/x.png", 10)
