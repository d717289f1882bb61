"""Garbage of every kind gets a sentence: never a failure of the server, never a traceback."""

import base64
import json
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asgi_client import HOST, Question, ask, form_of
from pictures import encoded, noise
from protofission.triage.prediction_blocks import Predictor
from protofission.web.asgi import Application
from serving import model_in, servers

REFUSED = {400, 401, 403, 404, 405, 408, 413, 415, 422, 429}
KINDS = [
    None,
    "",
    "image/png",
    "image/jpeg",
    "application/octet-stream",
    "application/json",
    "application/json; charset=utf-16",
    "multipart/form-data",
    "multipart/form-data; boundary=cut",
    'multipart/form-data; boundary="cu\\"t"; boundary=x',
    "text/plain",
    "\xff/\x00;;=;",
]


@cache
def pictures() -> dict[str, bytes]:
    pixels = noise(40, 30)
    kinds = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
    return {kind: encoded(pixels, kind) for kind in kinds}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    with servers(Predictor(model_in(tmp_path_factory), 1)) as make:
        yield make(body_bytes=200_000, pixels=100_000, images=4).application


@st.composite
def spoiled(draw: st.DrawFn, sound: bytes) -> bytes:
    """Bytes that are cut, overwritten or repeated somewhere."""
    content = bytearray(sound)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(content) - 1)))
        match draw(st.sampled_from(["cut", "write", "repeat", "drop"])):
            case "cut":
                del content[at:]
            case "write":
                content[at : at + 4] = draw(st.binary(min_size=1, max_size=8))
            case "repeat":
                content[at:at] = content[at : at + 50]
            case _:
                del content[at : at + draw(st.integers(1, 50))]
    return bytes(content)


def json_body(content: bytes) -> bytes:
    encoded_content = base64.b64encode(content).decode()
    return json.dumps({"images": [{"name": "a", "content": encoded_content}]}).encode()


BODIES = st.one_of(
    st.binary(max_size=300),
    st.sampled_from(sorted(pictures())).flatmap(lambda kind: spoiled(pictures()[kind])),
    st.sampled_from(sorted(pictures())).flatmap(
        lambda kind: spoiled(form_of({"a": pictures()[kind]})[0])
    ),
    spoiled(form_of({"a.png": pictures()["PNG"], "b": b"x"})[0]),
    spoiled(json_body(pictures()["GIF"])),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["images", "content", "name"]), inner, max_size=3)
        ),
    ).map(lambda value: json.dumps(value).encode()),
)


@settings(max_examples=250, suppress_health_check=list(HealthCheck))
@given(
    body=BODIES,
    kind=st.sampled_from(KINDS),
    path=st.sampled_from(["/predict", "/predict", "/predict", "/model", "/..%2f", "/\x00"]),
    method=st.sampled_from(["POST", "POST", "POST", "PUT", "GET", "X"]),
    query=st.binary(max_size=30),
    more=st.lists(st.tuples(st.just(b"x-any"), st.binary(max_size=50)), max_size=3),
    with_length=st.booleans(),
)
def test_garbage_gets_a_sentence(
    app: Application,
    body: bytes,
    kind: str | None,
    path: str,
    method: str,
    query: bytes,
    more: list[tuple[bytes, bytes]],
    with_length: bool,
) -> None:
    answer = ask(app, Question(method, path, body, kind, [HOST, *more], query, with_length))
    if answer.status == 200:
        assert answer.json()
    else:
        assert answer.status in REFUSED, answer.body
        assert answer.error


@pytest.mark.parametrize("kind", sorted(pictures()))
def test_files_cut_anywhere_get_a_sentence_or_a_row(app: Application, kind: str) -> None:
    whole = pictures()[kind]
    assert ask(app, Question(body=whole, content_type="image/x")).status == 200
    for size in range(1, len(whole), max(1, len(whole) // 12)):
        answer = ask(app, Question(body=whole[:size], content_type="image/x"))
        assert answer.status in (200, 422)
        assert answer.status == 200 or answer.error
