"""The prediction server: the rows of predict, its card, metrics, description and token."""

import base64
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from asgi_client import HOST, Answered, Question, ask, ask_together, form_of
from pictures import encoded, noise, picture, write
from protofission.core.errors import InputError
from protofission.triage.predict import predict
from protofission.triage.prediction_blocks import Predictor
from protofission.triage.prediction_table import Row
from protofission.web.serve.application import PATHS
from protofission.web.serve.options import ServeOptions, read_token
from serving import PICTURE, Make, model_in, one, servers

TOKEN = "0123456789abcdef"


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


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Forty images, some of which cannot be read."""
    folder = tmp_path_factory.mktemp("files")
    found = [picture(folder / f"{n}.png", n, side=9 + n % 5) for n in range(36)]
    found.append(write(folder / "cut.jpg", encoded(noise(64, 64), "JPEG")[:900]))
    found.append(write(folder / "text.png", b"no image"))
    found.append(write(folder / "empty.png", b""))
    found.append(write(folder / "gray.png", encoded(noise(20, 30)[..., 0])))
    return found


def rows_in(answer: Answered) -> list[Row]:
    assert answer.status == 200, answer
    return [Row(*found.values()) for found in answer.json()["predictions"]]


def same(found: Sequence[Row], wanted: Sequence[Row]) -> bool:
    """Whether rows are equal; numbers may differ in the last digits by what is encoded together."""
    for a, b in zip(found, wanted, strict=True):
        if a.id_score != b.id_score:
            numbers = b.probability, b.id_score
            assert (a.probability, a.id_score) == pytest.approx(numbers, rel=1e-4, abs=1e-5)
    plain = [[r._replace(id_score=0, probability=0) for r in rows] for rows in (found, wanted)]
    return plain[0] == plain[1]


def test_rows_are_those_of_predict_however_images_are_sent(
    server_of: Make, served_model: Path, files: list[Path]
) -> None:
    wanted = [row._replace(path=Path(row.path).name) for row in predict(served_model, files)]
    assert {row.decision for row in wanted} >= {"accept", "novel", ""}
    assert sum(bool(row.error) for row in wanted) == 3
    app = server_of().application
    content = {file.name: file.read_bytes() for file in files}
    body, kind = form_of(content)
    assert same(rows_in(ask(app, Question(body=body, content_type=kind))), wanted)
    entries = [
        {"name": name, "content": base64.b64encode(held).decode()} for name, held in content.items()
    ]
    body = json.dumps({"images": entries}).encode()
    assert same(rows_in(ask(app, Question(body=body, content_type="application/json"))), wanted)
    wrong = {"name": "no base64", "content": "%%%"}
    body = json.dumps({"images": [wrong, *entries]}).encode()
    first, *others = rows_in(ask(app, Question(body=body, content_type="application/json")))
    assert first == Row("no base64", error="content that is no base64")
    assert same(others, wanted)
    names = [name for name in content if content[name]]
    single = [one(content[name], query=f"name={name}".encode()) for name in names]
    for together in (ask_together(app, single), [ask(app, question) for question in single]):
        found = [Row(*answer.json()["predictions"][0].values()) for answer in together]
        assert same(found, [row for row in wanted if row.path in names])


def test_the_name_of_an_image_is_given_back(server_of: Make) -> None:
    app = server_of().application
    assert rows_in(ask(app, one()))[0].path == "image"
    assert rows_in(ask(app, one(query=b"name=a%20%3Cb%3E.png")))[0].path == "a <b>.png"
    body = b'{"images": ["%s"]}' % base64.b64encode(PICTURE)
    assert rows_in(ask(app, one(body, content_type="application/json")))[0].path == "image 1"
    assert "1,000 characters" in ask(app, one(query=b"name=" + b"a" * 1001)).error


def test_a_server_that_stops_refuses_new_requests(server_of: Make) -> None:
    server = server_of()
    health = Question("GET", "/health")
    assert ask(server.application, health).json() == {"live": True, "ready": True}
    server.service.stopping = True
    answer = ask(server.application, one())
    assert answer.status == 503
    assert "is stopping" in answer.error
    stopping = ask(server.application, health)
    assert (stopping.status, stopping.json()["ready"]) == (503, False)


def test_a_token_is_wanted_everywhere_but_for_health(server_of: Make) -> None:
    app = server_of(token=TOKEN).application
    wrong = ["", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}"]
    for path in [*PATHS, "/nothing"]:
        question = one(method="POST" if path == "/predict" else "GET", path=path)
        for value in wrong:
            answer = ask(app, question._replace(headers=[HOST, (b"authorization", value.encode())]))
            assert answer.status == (200 if path == "/health" else 401), path
        assert ask(app, question).status == (200 if path == "/health" else 401)
    right = (b"authorization", f"bearer {TOKEN}".encode())
    assert ask(app, one(headers=[HOST, right])).status == 200
    assert ask(app, one(headers=[HOST, right, right])).status == 401
    refused = ask(app, one(b"a" * 10**6))
    assert refused.headers["www-authenticate"] == "Bearer"
    assert "Authorization: Bearer TOKEN" in refused.error


def test_tokens_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path / "token", f"{TOKEN}\n".encode())
    assert read_token(file, "of the environment") == TOKEN
    assert read_token(None, f" {TOKEN} ") == TOKEN
    assert read_token(None, None) is None
    for content in (b"", b"short", b"two words of a token", b"a\nb" * 9, b"\xff" * 20):
        with pytest.raises(InputError, match=r"16 or more printable ASCII .* openssl rand"):
            read_token(write(tmp_path / "bad", content), None)
    for gone in (tmp_path / "gone", tmp_path, write(tmp_path / "huge", b"a" * 5000)):
        with pytest.raises(InputError, match="cannot be read"):
            read_token(gone, None)
    with pytest.raises(InputError, match="in the environment"):
        read_token(None, "")


def test_another_host_or_origin_is_refused(server_of: Make) -> None:
    app = server_of().application
    assert ask(app, one(headers=[(b"host", b"evil.example")])).status == 403
    assert ask(app, one(headers=[HOST, (b"origin", b"http://evil.example")])).status == 403
    assert ask(app, one(headers=[HOST])).status == 200  # curl sends no origin


def test_the_card_has_the_model_and_no_folder_of_the_machine(
    server_of: Make, served_model: Path
) -> None:
    answer = ask(server_of().application, Question("GET", "/model"))
    card = answer.json()
    assert [entry["name"] for entry in card["classes"]] == ["cat", "=dog, 2"]
    assert card["classes"][0]["subclasses"] == ["cat / 1", "cat / 2", "cat / 3"]
    assert card["clusters"] == ["novel 1", "novel 2"]
    assert card["threshold"] == 0.0
    assert card["limits"]["images"] == 64
    assert str(served_model.parent).encode() not in answer.body


METRIC = re.compile(
    r"(# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z_]+=\"[^\"]*\"(,[a-z_]+=\"[^\"]*\")*\})? [0-9.e+-]+)"
)


def test_metrics_count_what_was_asked(server_of: Make) -> None:
    server = server_of()
    for question in (one(), one(b"no image"), one(path="/a"), one(path="/b"), one(method="GET")):
        ask(server.application, question)
    answer = ask(server.application, Question("GET", "/metrics"))
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    assert all(METRIC.fullmatch(line) for line in lines)
    assert len({line.split()[2] for line in lines if line.startswith("# TYPE")}) == 9
    for wanted in (
        'protofission_requests_total{path="/predict",code="200"} 1',
        'protofission_requests_total{path="/predict",code="405"} 1',
        'protofission_requests_total{path="/predict",code="422"} 1',
        'protofission_requests_total{path="other",code="404"} 2',
        'protofission_request_seconds_bucket{path="/predict",le="+Inf"} 3',
        'protofission_request_seconds_count{path="/predict"} 3',
        'protofission_images_total{decision="error"} 1',
        "protofission_queue_images 0",
        "protofission_requests_in_flight 1",  # this one
        'protofission_batch_images_bucket{le="1"} 1',
    ):
        assert wanted in lines


def test_the_description_names_every_address_and_its_examples_work(server_of: Make) -> None:
    app = server_of().application
    found = ask(app, Question("GET", "/openapi.json")).json()
    assert set(found["paths"]) == set(PATHS) - {"/", "/openapi.json"}
    content = found["paths"]["/predict"]["post"]["requestBody"]["content"]
    example = json.dumps(content["application/json"]["example"]).encode()
    answer = ask(app, Question(body=example, content_type="application/json"))
    row = found["components"]["schemas"]["Row"]
    assert [list(entry) for entry in answer.json()["predictions"]] == [row["required"]]
    shown = found["paths"]["/predict"]["post"]["responses"]["200"]["content"]["application/json"]
    assert list(shown["example"]["predictions"][0]) == row["required"]
    images = found["components"]["schemas"]["Images"]["properties"]["images"]
    form = content["multipart/form-data"]["schema"]
    assert form["required"] == ["image"]
    assert form["properties"]["image"]["minItems"] == images["minItems"] == 1, "none is refused"
    assert content["image/*"]["schema"]["minLength"] == 1, "an empty body is refused"
    text, entry = images["items"]["anyOf"]
    for schema in (text, entry["properties"]["content"], form["properties"]["image"]["items"]):
        assert "minLength" not in schema, "an empty image among others is a row with an error"
    places = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(found))
    assert set(places) <= set(found["components"]["schemas"])
    page = ask(app, Question("GET", "/"))
    assert page.headers["content-type"].startswith("text/html")
    assert not re.findall(rb"<script|<style|style=|https://|src=", page.body)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": 300}, "300 images and 256 may wait"),
        ({"pixels": 10**9}, "pixels = 1000000000"),
        ({"queue": 0}, "queue = 0"),
        ({"seconds": 0.0}, "seconds = 0"),
        ({"seconds": float("nan")}, "seconds = nan"),
        ({"batch": 0}, "batch = 0"),
        ({"threads": 0}, "threads = 0"),
        ({"held_bytes": 1}, "held_bytes"),
    ],
)
def test_limits_that_cannot_be_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ServeOptions(**changes)
