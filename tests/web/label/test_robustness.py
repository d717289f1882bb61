"""Two browsers, nasty names and paths, lost files, a full disk: a sentence, and nothing lost."""

from __future__ import annotations

import io
import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from label_servers import LabelClient, label_client
from protofission.core.errors import InputError
from protofission.triage.workbench.log import ActionLog

SCRIPT = "<script>alert(1)</script>\"'&"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LabelClient]:
    with label_client(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabelClient]:
    """One that no test changes."""
    with label_client(tmp_path_factory.mktemp("reader")) as found:
        yield found


def test_two_browsers_see_one_state_and_know_when_it_changed(client: LabelClient) -> None:
    other = client.let_in()
    seen = other.get("/api/overview")
    assert seen.headers["x-last-action"] == "0"
    client.act("label", images=[60], class_id=0, source="grid")
    assert other.get("/api/last").json()["last_action"] == 1
    assert other.get("/thumb/3").headers["x-last-action"] == "1"
    assert other.get("/api/overview").json() == client.get("/api/overview")
    found = other.get("/api/images", params={"set": "label:0", "only": "rows"})
    assert (found.headers["x-last-action"], found.json()["last_action"]) == ("1", 1)
    assert 60 in found.json()["rows"]


def test_changes_of_many_threads_are_all_kept_and_every_answer_is_of_one_state(
    client: LabelClient,
) -> None:
    wrong: list[str] = []

    def label(own: int) -> None:
        for row in range(60 + own, 140, 4):
            client.act("label", images=[row], class_id=own % 3, source="grid")

    def look() -> None:
        for _ in range(30):
            found = client.get("/api/overview")
            counts = found["counts"]
            if counts["labeled"] != 60 + found["last_action"]:
                wrong.append(str(found["last_action"]))

    threads = [threading.Thread(target=label, args=[k]) for k in range(4)]
    threads += [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert client.get("/api/last")["last_action"] == 80
    assert client.rows("unlabeled") == []


def test_names_are_data_and_never_markup(client: LabelClient, tmp_path: Path) -> None:
    client.act("add_class", name=SCRIPT)
    client.act("name_cluster", cluster=0, name=SCRIPT)
    client.act("label", images=[60], class_id=3, source="grid")
    for path in ("/api/overview", "/api/clusters", "/api/classes/3", "/api/problems"):
        found = client.http.get(path)
        assert found.headers["content-type"] == "application/json"
        assert found.headers["x-content-type-options"] == "nosniff"
    assert client.get("/api/overview")["classes"][-1]["name"] == SCRIPT
    for path in (
        f"/api/images?set={SCRIPT}",
        f"/{SCRIPT}",
        f"/static/{SCRIPT}",
        f"/thumb/{SCRIPT}",
    ):
        found = client.http.get(path)
        assert found.status_code in (400, 404)
        assert found.headers["content-type"] == "application/json"
        assert found.headers["x-content-type-options"] == "nosniff"
    assert "alert(1)" not in client.http.get("/").text  # no name is put into a page here


def test_names_of_files_are_escaped_and_shown(tmp_path: Path) -> None:
    from small_workbenches import small_model

    model = small_model(tmp_path)
    kept = json.loads((model / "images.json").read_text())
    kept["paths"][60] = "<img src=x onerror=alert(1)>.png"
    kept["paths"][61] = "two\nlines \udcff.png"
    (model / "images.json").write_text(json.dumps(kept))
    opened = LabelClient(model)
    try:
        lines = opened.post("/api/images", {"rows": [60, 61]})["images"]
        assert lines[0][1] == "<img src=x onerror=alert(1)>.png"
        assert lines[1][1] == "two\\nlines \\xff.png"
        gone = opened.http.get("/thumb/60")
        assert (gone.status_code, gone.headers["content-type"]) == (404, "application/json")
    finally:
        opened.close()


@pytest.mark.parametrize(
    "path",
    [
        *("/thumb/..%2f..%2fetc%2fpasswd", "/image/%2e%2e/%2e%2e/etc/passwd", "/thumb/-1"),
        *("/thumb/140", "/thumb/1e1", "/thumb/0x1", "/thumb/99999999999999999999", "/thumb/"),
        *("/image/1/2", "/static/..%2faccess.py", "/static/../access.py", "/static/"),
        *("/static/%2e%2e%2faccess.py", "/api/export/..%2flog.sqlite", "/api/export/%2e%2e"),
        "/api/export/.hidden",
    ],
)
def test_nothing_is_reached_by_a_path(reader: LabelClient, path: str) -> None:
    found = reader.http.get(path)
    assert found.status_code in (400, 404)
    assert found.headers["content-type"] == "application/json"
    assert "root:" not in found.text
    assert "import" not in found.text


def test_pictures_are_made_by_us_and_kept(client: LabelClient) -> None:
    found = client.http.get("/thumb/60")
    assert found.headers["content-type"] == "image/png"
    assert found.headers["cache-control"] == "private, no-cache"  # rows of other models look alike
    with Image.open(io.BytesIO(found.content)) as image:
        assert image.size == (16, 16)
    tag = {"If-None-Match": found.headers["etag"]}
    again = client.http.get("/thumb/60", headers=tag)
    assert (again.status_code, again.content) == (304, b"")
    kept = sqlite3.connect(client.model / "workbench" / "thumbnails.sqlite")
    assert kept.execute("SELECT image FROM thumbnails").fetchall() == [(60,)]
    kept.close()


def test_a_deleted_image_is_a_sentence_and_the_rest_goes_on(client: LabelClient) -> None:
    client.http.get("/thumb/60")
    client.workbench.material.file(60).unlink()
    for path in ("/thumb/60", "/image/60"):
        found = client.http.get(path)
        assert found.status_code == 404
        assert found.json()["error"].startswith("60-0.png cannot be shown")
    assert client.http.get("/thumb/61").status_code == 200
    client.act("label", images=[60], class_id=0, source="grid")


def test_images_that_were_moved_are_found_again(tmp_path: Path) -> None:
    from small_workbenches import small_model

    model = small_model(tmp_path)
    for name in ("labeled", "pool"):
        (tmp_path / name).rename(tmp_path / f"{name} elsewhere")
    model = model.rename(tmp_path / "moved model")
    lost = LabelClient(model)
    assert lost.http.get("/thumb/0").status_code == 404
    lost.act("label", images=[60], class_id=0, source="grid")
    lost.close()
    found = LabelClient(
        model, labeled=tmp_path / "labeled elsewhere", pool=tmp_path / "pool elsewhere"
    )
    assert found.http.get("/thumb/0").status_code == 200
    assert found.http.get("/thumb/139").status_code == 200
    assert found.get("/api/last")["last_action"] == 1
    found.close()


def test_a_model_that_is_moved_or_deleted_meanwhile_is_a_sentence(client: LabelClient) -> None:
    body = {"images": [61], "class_id": 0, "source": "grid"}
    client.act("label", images=[60], class_id=0, source="grid")
    away, log = client.model.with_name("away"), client.model / "workbench" / "log.sqlite"
    client.model.rename(away)
    for gone in (client.act("label", 507, **body), client.post("/api/undo", None, 507)):
        assert "was moved or deleted, and nothing was kept" in gone["error"]
    assert "put the model back" in client.post("/api/export", {"format": "csv"}, 507)["error"]
    assert not client.model.exists()  # no folder of exports, alone
    away.rename(client.model)
    assert client.act("label", **body)["last_action"] == 2
    log.rename(away)
    assert "was moved or deleted" in client.act("label", 507, **body)["error"]
    away.rename(log)
    assert client.get("/api/last")["last_action"] == 2
    assert client.rows("label:0")[-2:] == [60, 61]


def test_a_second_server_of_a_model_gets_a_sentence(client: LabelClient) -> None:
    with pytest.raises(InputError, match="is open in another workbench"):
        LabelClient(client.model)


def test_a_full_disk_is_a_sentence_and_loses_nothing(
    client: LabelClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.act("label", images=[60], class_id=0, source="grid")

    def full(self: ActionLog, *values: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(ActionLog, "_insert", full)
        body = {"images": [61], "class_id": 0, "source": "grid"}
        found = client.act("label", 507, **body)
        assert "make room" in found["error"]
        assert "was not kept" in found["error"]
        assert client.post("/api/undo", None, 507)["error"] == found["error"]
        assert client.get("/api/last")["last_action"] == 1
        assert client.rows("label:0")[-1] == 60
    client.act("label", images=[61], class_id=0, source="grid")
    assert client.rows("label:0")[-2:] == [60, 61]
