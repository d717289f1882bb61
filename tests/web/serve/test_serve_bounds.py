"""The bounds of the prediction server: whatever is sent, a sentence, and nothing kept."""

import re
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from asgi_client import Answered, Question, ask, ask_together, form_of
from protofission.triage.prediction_blocks import Predictor
from protofission.web.serve.application import PredictionServer
from serving import PICTURE, Make, model_in, one, servers

JSON, FORM = "application/json", "multipart/form-data; boundary=cut"


@pytest.fixture(scope="module")
def served_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_in(tmp_path_factory)


@pytest.fixture(scope="module")
def predictor(served_model: Path) -> Predictor:
    return Predictor(served_model, 1)


@pytest.fixture
def server_of(predictor: Predictor) -> Iterator[Make]:
    with servers(predictor) as make:
        yield make


@pytest.mark.parametrize(
    ("body", "kind", "status", "words"),
    [
        (b"", "image/png", 400, "is empty"),
        (b"no image", "image/png", 422, "The image cannot be used: not a JPEG"),
        (b"no image", "", 422, "The image cannot be used: not a JPEG"),
        (PICTURE, "text/html", 415, "holds no images"),
        (PICTURE, "application/x-www-form-urlencoded", 415, "send image/jpeg"),
        (b"{", JSON, 400, "it is no JSON"),
        (b"\xff\xfe\x00", JSON, 400, "it is no JSON"),
        (b"[]", JSON, 400, "must be an object"),
        (b'{"images": 3}', JSON, 400, "it must be {"),
        (b'{"images": []}', JSON, 400, "no image"),
        (b'{"images": [3]}', JSON, 400, "images[0] must be a text, not 3"),
        (b'{"images": [NaN]}', JSON, 400, "NaN is no number"),
        (b'{"images": [1e999]}', JSON, 400, "1e999 is no number"),
        (b'{"images": ["%%%"]}', JSON, 422, "cannot be used: content that is no base64"),
        (b'{"images": ["\xc3\xa9"]}', JSON, 422, "cannot be used: content that is no base64"),
        (b'{"images": [{"name": "a"}]}', JSON, 400, "must have a content"),
        (b'{"images": [{"content": 3}]}', JSON, 400, "must be a text"),
        (b'{"images": [], "images": []}', JSON, 400, "a key stands twice"),
        (b"[" * 10**5, JSON, 400, "it is nested too deep"),
        (b'{"images": ' + b"[" * 50 + b"]" * 50 + b"}", JSON, 400, "too deep"),
        (b'{"images": ["bm8=", "bm8="]}', JSON, 422, "None of the 2 images can"),
        (b'{"images": ["","","","","","","","",""]}', JSON, 413, "than 8 images"),
        (b"x", "multipart/form-data", 400, "names no boundary"),
        (b"x", FORM, 400, "no multipart form"),
        (b"--cut--\r\n", FORM, 400, ""),
        (form_of({"a": PICTURE})[0][:-9], FORM, 400, "cut short"),
        (form_of({str(n): b"" for n in range(9)})[0], FORM, 413, "than 8 images"),
        (b"--cut\r\n" + b"a: b\r\n" * 99 + b"\r\nx\r\n--cut--\r\n", FORM, 400, ""),
        (b"--cut\r\na: " + b"b" * 9999 + b"\r\n\r\nx\r\n--cut--\r\n", FORM, 400, ""),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(
    server_of: Make, body: bytes, kind: str, status: int, words: str
) -> None:
    answer = ask(server_of(images=8).application, Question(body=body, content_type=kind))
    assert answer.status == status, answer.body
    assert words in answer.error


def test_bodies_are_bounded_before_they_are_read(server_of: Make) -> None:
    app = server_of(body_bytes=1000).application
    for known in (True, False):
        answer = ask(app, one(b"a" * 1001, with_length=known))
        assert answer.status == 413
        assert "1,000 bytes" in answer.error
    assert ask(app, one(b"a" * 1000)).status == 422


def png_of(width: int, height: int) -> bytes:
    """A PNG file that claims a size, and has hardly any content."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + body


def test_a_bomb_is_refused_by_its_size_before_it_is_decoded(server_of: Make) -> None:
    app = server_of(pixels=1_000_000).application
    for side in (1001, 60_000):
        answer = ask(app, one(png_of(side, side)))
        assert answer.status == 422
        assert "huge" in answer.error


class HeldEncoder:
    """Holds every batch until it is let go."""

    def __init__(self, predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.begun = threading.Event(), threading.Event()
        self.compute = predictor.encode_pixels
        monkeypatch.setattr(predictor, "encode_pixels", self)

    def __call__(self, *arguments: Any) -> Tensor:
        self.begun.set()
        assert self.go.wait(20)
        return self.compute(*arguments)


class Asking(threading.Thread):
    """Asks in the background."""

    def __init__(self, server: PredictionServer, question: Question) -> None:
        super().__init__()
        self.server, self.question, self.answer = server, question, None
        self.start()

    def run(self) -> None:
        self.answer = ask(self.server.application, self.question)

    def wait(self) -> Answered:
        self.join(20)
        assert self.answer is not None
        return self.answer


def wait_for_queue(server: PredictionServer, number: int) -> None:
    end = time.monotonic() + 20
    while server.service._queue.waiting != number:
        assert time.monotonic() < end
        time.sleep(0.001)


def three_images() -> Question:
    body, kind = form_of({"a": PICTURE, "b": PICTURE, "c": PICTURE})
    return Question(body=body, content_type=kind)


def test_a_full_queue_is_429_and_empties_again(
    server_of: Make, predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = HeldEncoder(predictor, monkeypatch)
    server = server_of(queue=3, images=3, batch=1, threads=1)
    first = Asking(server, one())
    assert encoder.begun.wait(20)  # the thread that encodes is busy
    wait_for_queue(server, 0)
    second = Asking(server, three_images())
    wait_for_queue(server, 3)
    for question in (one(), three_images()):
        answer = ask(server.application, question)
        assert answer.status == 429
        assert "queue of 3 images is full" in answer.error
        assert answer.headers["retry-after"] == "1"
    encoder.go.set()
    assert first.wait().status == second.wait().status == 200
    assert ask(server.application, three_images()).status == 200


def test_a_request_of_more_images_than_places_are_left_is_429(
    server_of: Make, predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = HeldEncoder(predictor, monkeypatch)
    server = server_of(queue=3, images=3, batch=1, threads=1)
    first = Asking(server, one())
    assert encoder.begun.wait(20)
    second = Asking(server, one())
    wait_for_queue(server, 1)
    assert ask(server.application, three_images()).status == 429
    encoder.go.set()
    assert first.wait().status == second.wait().status == 200


def test_time_is_bounded_and_what_nobody_waits_for_is_dropped(
    server_of: Make, predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = HeldEncoder(predictor, monkeypatch)
    server = server_of(seconds=0.5, batch=1, threads=1)
    answers = ask_together(server.application, [one(), one()])
    assert [answer.status for answer in answers] == [504, 504]
    assert "0.5 s" in answers[0].error
    encoder.go.set()
    wait_for_queue(server, 0)
    assert "protofission_batch_images_count 1\n" in server.metrics.text()


def test_held_bytes_are_bounded_and_come_back(
    server_of: Make, predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = HeldEncoder(predictor, monkeypatch)
    size = len(PICTURE)
    server = server_of(body_bytes=size, held_bytes=size + 10)
    first = Asking(server, one())
    assert encoder.begun.wait(20)
    answer = ask(server.application, one())
    assert answer.status == 429
    assert "too many bytes" in answer.error
    encoder.go.set()
    assert first.wait().status == 200
    assert ask(server.application, one()).status == 200


def test_requests_that_come_together_are_encoded_together(
    server_of: Make, predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = HeldEncoder(predictor, monkeypatch)
    server = server_of(threads=1, batch=16)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(ask_together, server.application, [one() for _ in range(16)])
        assert encoder.begun.wait(20)  # the thread that encodes is busy
        end = time.monotonic() + 20
        while server.service._queue.waiting < 8:
            assert time.monotonic() < end
            time.sleep(0.001)
        encoder.go.set()
        assert [answer.status for answer in asked.result(20)] == [200] * 16
    text = server.metrics.text()
    assert "protofission_batch_images_sum 16\n" in text
    # At most 1, half of what waits three times, and the last one or two.
    assert int(re.findall(r"protofission_batch_images_count (\d+)", text)[0]) <= 6


@pytest.mark.parametrize("stage", ["encode_pixels", "judge"])
def test_a_failure_of_a_stage_is_a_sentence_and_the_next_request_is_answered(
    server_of: Make, predictor: Predictor, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    server = server_of()
    with monkeypatch.context() as patch:
        patch.setattr(predictor, stage, lambda *_: 1 / 0)
        answer = ask(server.application, three_images())
        assert answer.status == 500
        assert "log says why" in answer.error
    assert ask(server.application, one()).status == 200
