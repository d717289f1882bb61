"""`protofission serve` as a process: its sentences, its stop, and its next life after a kill."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from conftest import Call
from pictures import picture
from protofission.triage.predict import predict
from protofission.web.server import bind
from serving import PICTURE, model_in

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def served_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_in(tmp_path_factory)


@contextmanager
def serving(
    model: Path, *options: str, port: int = 0, token: str | None = None
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "protofission", "serve", str(model), "--port", str(port)]
    command += options
    environment = {**os.environ, **({"PROTOFISSION_TOKEN": token} if token else {})}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+): POST /predict", line)
            assert found, (line, process.stderr and process.stderr.read())
            yield process, int(found[1])
        finally:
            process.kill()


def post(port: int, body: bytes = PICTURE, **headers: str) -> tuple[int, dict[str, object]]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", "/predict", body, {"Content-Type": "image/png", **headers})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def test_a_process_answers_as_predict_does_and_stops_gracefully_under_load(
    served_model: Path, tmp_path: Path
) -> None:
    file = picture(tmp_path / "image", 5)
    with serving(served_model, "--threads", "1", token=TOKEN) as (process, port):
        assert post(port)[0] == 401
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        status, found = post(port, file.read_bytes(), **bearer)
        (row,) = predict(served_model, file)
        assert status == 200
        assert found["predictions"][0]["id_score"] == pytest.approx(row.id_score, rel=1e-4)
        statuses: list[int] = []
        errors: list[Exception] = []

        def ask_on() -> None:
            try:
                while True:
                    statuses.append(post(port, **bearer)[0])
            except (OSError, http.client.HTTPException) as error:
                errors.append(error)

        clients = [threading.Thread(target=ask_on) for _ in range(4)]
        for client in clients:
            client.start()
        while len(statuses) < 50:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
        for client in clients:
            client.join()
        assert set(statuses) <= {200, 503}
        assert len(errors) == 4
        # Nobody who was heard got half an answer: the port was closed, or a waiting call dropped.
        assert {type(error) for error in errors} <= {
            ConnectionRefusedError,
            ConnectionResetError,
            http.client.RemoteDisconnected,
        }
        assert process.stderr is not None
        assert process.stderr.read().count("\n") == 1


@pytest.mark.slow
def test_killed_under_load_clients_get_an_error_and_the_next_start_serves(
    served_model: Path,
) -> None:
    before = {file.name: file.read_bytes() for file in served_model.iterdir() if file.is_file()}
    with serving(served_model) as (process, port):
        answered: list[int] = []
        errors: list[Exception] = []

        def ask_on() -> None:
            try:
                while True:
                    answered.append(post(port)[0])
            except (OSError, http.client.HTTPException) as error:
                errors.append(error)

        clients = [threading.Thread(target=ask_on) for _ in range(4)]
        for client in clients:
            client.start()
        while len(answered) < 20:
            time.sleep(0.01)
        process.kill()
        for client in clients:
            client.join(30)
        assert len(errors) == 4
        assert set(answered) == {200}
    with serving(served_model, port=port) as (_, same_port):
        assert same_port == port
        assert post(port)[0] == 200
    after = {file.name: file.read_bytes() for file in served_model.iterdir() if file.is_file()}
    assert before == after


def test_refusals_are_a_sentence(
    served_model: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROTOFISSION_TOKEN", raising=False)
    with bind("127.0.0.1", 0) as other:
        port = other.getsockname()[1]
        wrong = {
            ("--port", port): f"127.0.0.1:{port} is in use",
            ("--host", "0.0.0.0"): "give --allow-remote",
            ("--port", "70000"): "port = 70000",
            ("--images", "999"): "999 images and 256 may wait",
            ("--megapixels", "1000"): "pixels = 1000000000",
            ("--token-file", tmp_path / "gone"): "token file",
            ("--host-name", "a/b"): "'a/b' is no host name",
        }
        for options, words in wrong.items():
            done = call("serve", served_model, *options)
            assert (done.code, done.out) == (2, "")
            assert words in done.err
            assert done.err.count("\n") == 1
    done = call("serve", tmp_path, "--port", "0")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "holds no bundle" in done.err
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = call("serve", served_model)
    assert done.code == 2
    assert 'serve needs uvicorn: pip install "protofission[web]"' in done.err
