"""Predictions in shards: written by workers, read as one, with the rows of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from bundles import bundle_at
from pictures import picture
from protofission.core.errors import InputError
from protofission.data.readers.parquet_lists import count_rows, read_list_rows
from protofission.system.launch.local_launcher import LocalLauncher
from protofission.triage.predict import predict
from protofission.triage.prediction_shards import predict_in_shards, read_shards
from protofission.triage.prediction_table import read_rows

LOCAL = LocalLauncher(2)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, photographs of which one is none, a Parquet list of them, and their rows."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("shards")
    bundle_at(folder / "model")
    for number in range(70):
        picture(folder / "photos" / f"{number:03}.png", number, side=8)
    (folder / "photos" / "017.png").write_text("no image")
    names = [f"photos/{number:03}.png" for number in range(70)]
    parquet.write_table(arrow.table({"path": names}), folder / "list.parquet", row_group_size=16)
    predict(folder / "model", folder / "photos", folder / "whole.csv")
    predict(folder / "model", folder / "list.parquet", folder / "list.csv")
    return folder


@pytest.mark.slow
def test_shards_have_the_rows_of_one_file_and_are_kept(place: Path, tmp_path: Path) -> None:
    out, said = tmp_path / "rows", []

    def again(**options: object) -> object:
        return predict_in_shards(
            place / "model",
            place / "photos",
            out,
            launcher=LOCAL,
            shard=20,
            say=said.append,
            **options,
        )

    done = again()
    assert (done.rows, done.errors) == (70, 1)
    assert sorted(path.name for path in out.glob("0*")) == [f"00000{n}.parquet" for n in range(4)]
    assert list(read_shards(out)) == list(read_rows(place / "whole.csv"))
    before = {path: path.stat().st_mtime_ns for path in out.glob("0*")}
    assert again() == done
    assert "is finished: its shards are compared with their digests" in said[-1]
    assert before == {path: path.stat().st_mtime_ns for path in out.glob("0*")}
    damaged = out / "000001.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    (out / "000003.parquet").unlink()
    assert again() == done
    after = {path: path.stat().st_mtime_ns for path in out.glob("0*")}
    changed = {path.name for path in before if before[path] != after[path]}
    assert changed == {"000001.parquet", "000003.parquet"}
    assert list(read_shards(out)) == list(read_rows(place / "whole.csv"))
    with pytest.raises(InputError, match="another size of shards: name another folder, or write"):
        predict_in_shards(place / "model", place / "photos", out, launcher=LOCAL, shard=30)
    with pytest.raises(InputError, match="holds other files: name a new folder"):
        predict_in_shards(
            place / "model", place / "photos", place / "model", launcher=LOCAL, shard=30
        )


def test_a_parquet_list_joined_into_a_file_has_the_bytes_of_one_process(
    place: Path, tmp_path: Path
) -> None:
    counts: list[tuple[int, int]] = []
    done = predict_in_shards(
        place / "model",
        place / "list.parquet",
        tmp_path / "rows.csv",
        launcher=LOCAL,
        progress=lambda *seen: counts.append(seen),
    )
    assert done.rows == 70
    assert counts[-1] == (70, 70)
    assert (tmp_path / "rows.csv").read_bytes() == (place / "list.csv").read_bytes()
    assert not (tmp_path / ".rows.csv.shards").exists()


def test_only_the_row_groups_that_are_wanted_are_read(place: Path) -> None:
    assert count_rows(place / "list.parquet") == 70
    wanted = [f"photos/{n:03}.png" for n in range(15, 34)]
    assert read_list_rows(place / "list.parquet", 15, 34, "path") == wanted
    assert read_list_rows(place / "list.parquet", 70, 90, "path") == []
    with pytest.raises(InputError, match="0 columns 'label'"):
        read_list_rows(place / "list.parquet", 0, 1, "label")
    with pytest.raises(InputError, match="is not a Parquet file"):
        count_rows(place / "whole.csv")
