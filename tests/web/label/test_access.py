"""The door of the workbench: each line of the design's Safety section, attacked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from label_servers import CLOSED, ORIGIN, LabelClient, label_client
from protofission.web.label.access import MOST_SESSIONS, Access
from protofission.web.label.label import rules_for

PATHS = [
    *("/", "/api/overview", "/api/images?set=all", "/api/nothing", "/thumb/0", "/thumb/999999"),
    *("/static/workbench.js", "/image/../../etc/passwd", "/docs", "/openapi.json", "/api/actions"),
    *("/?token=", "/?token=wrong", "/api/overview?token=wrong", "/%00", "/api/export/labels.csv"),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabelClient]:
    with label_client(tmp_path_factory.mktemp("label")) as found:
        yield found


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_without_the_cookie_every_path_and_method_gets_the_same_answer(
    client: LabelClient, method: str
) -> None:
    answers = set()
    for path in PATHS:
        found = client.stranger.request(method, path, headers={"Origin": ORIGIN})
        assert found.status_code == 403
        assert method == "HEAD" or found.json() == CLOSED
        assert "set-cookie" not in found.headers
        answers.add(json.dumps(dict(found.headers), sort_keys=True))
    assert len(answers) == 1  # not a header tells one from the other, x-last-action included


def test_the_answer_without_a_cookie_is_the_same_for_every_model(tmp_path: Path) -> None:
    with label_client(tmp_path / "other") as other:
        other.act("add_class", name="new")
        with label_client(tmp_path / "own") as own:
            one, two = (c.stranger.get("/api/overview") for c in (own, other))
            assert (one.status_code, one.content, one.headers) == (
                two.status_code,
                two.content,
                two.headers,
            )


@pytest.mark.parametrize("cookie", ["", "wrong", "\u00e9" * 40, "a" * 4000, '"', "; ;=;"])
def test_a_wrong_cookie_is_none(client: LabelClient, cookie: str) -> None:
    name = client.access.cookie_name
    for text in (f"{name}={cookie}", cookie, f"other={_cookie(client)}"):
        sent = {b"cookie": text.encode()}
        found = client.stranger.get("/api/overview", headers=sent)  # type: ignore[arg-type]
        assert (found.status_code, found.json()) == (403, CLOSED)


def _cookie(client: LabelClient) -> str:
    return str(client.http.cookies[client.access.cookie_name])


def test_the_token_is_exchanged_once_for_a_strict_cookie(client: LabelClient) -> None:
    token, browser = client.access.token, client.browser()
    found = browser.get("/", params={"token": token})
    header = found.headers["set-cookie"]
    name, _, rest = header.partition("=")
    value, *flags = rest.split("; ")
    assert (name, flags) == ("protofission_80", ["Path=/", "HttpOnly", "SameSite=Strict"])
    assert len(value) >= 43  # 256 bits
    assert token not in found.text + header
    assert browser.get("/api/overview").status_code == 200
    again = client.browser().get("/", params={"token": token})
    assert (again.status_code, again.json()) == (403, CLOSED)
    assert "set-cookie" not in again.headers
    assert client.tokens[-1] == client.access.token != token  # the next browser's was announced


def test_a_token_is_taken_at_the_entrance_by_get_alone(client: LabelClient) -> None:
    token = {"token": client.access.token}
    for method, path in [("POST", "/"), ("HEAD", "/"), ("GET", "/api/overview")]:
        found = client.stranger.request(method, path, params=token, headers={"Origin": ORIGIN})
        assert found.status_code == 403
        assert "set-cookie" not in found.headers
    assert client.access.token == token["token"]  # not spent by that


def test_the_browser_that_came_first_is_let_out_when_there_are_too_many() -> None:
    access = Access(80)
    cookies = [access.exchange(access.token) for _ in range(MOST_SESSIONS + 1)]
    assert [access.knows(cookie) for cookie in cookies] == [False] + [True] * MOST_SESSIONS
    assert access.exchange("") is None
    assert not access.knows("")
    assert not access.knows(None)
    assert Access(81).cookie_name != access.cookie_name  # two servers on a machine


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr("secrets.compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    access = Access(80)
    assert access.exchange("wrong") is None
    first, _ = (access.exchange(access.token) for _ in range(2))
    compared.clear()
    assert access.knows(first)
    assert len(compared) == 2  # also after the one that fits


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "192.168.1.7",
        "127.0.0.1@evil.example",
        "127.0.0.1:80:80",
        "[::1].evil.example",
        "",
    ],
)
def test_another_host_is_refused_with_the_cookie_too(client: LabelClient, host: str) -> None:
    """DNS rebinding: a name of another site that leads to this machine."""
    for method in ("GET", "POST"):
        sent = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        found = client.http.request(method, "/api/overview", headers=sent)
        assert found.status_code == 403
        assert "error" in found.json()
    browser = client.browser()
    found = browser.get("/", params={"token": client.access.token}, headers={"Host": host})
    assert (found.status_code, "set-cookie" in found.headers) == (403, False)


def test_names_of_this_machine_are_let_through(client: LabelClient) -> None:
    for host in ("127.0.0.1:80", "localhost:80", "[::1]:80", "LOCALHOST"):
        assert client.http.get("/api/last", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "",
        "http://evil.example",
        "http://127.0.0.1:9999",
        "http://127.0.0.1.evil.example",
        "http://localhost",
        "ftp://127.0.0.1",
        "http://127.0.0.1/",
    ],
)
def test_a_change_without_our_origin_is_refused(client: LabelClient, origin: str | None) -> None:
    before = client.get("/api/last")["last_action"]
    sent = {"Content-Type": "application/json"} | ({} if origin is None else {"Origin": origin})
    for path, body in [
        ("/api/actions", {"kind": "add_class", "content": {"name": "x"}}),
        ("/api/undo", {}),
        ("/api/random", {"n": 3}),
        ("/api/export", {"format": "csv", "what": "labeled"}),
    ]:
        found = client.http.post(path, content=json.dumps(body), headers=sent)
        assert found.status_code == 403, path
    assert client.get("/api/last")["last_action"] == before


def test_a_form_of_another_site_cannot_change_anything(client: LabelClient) -> None:
    """A form needs no CORS, and can send text that is JSON; it cannot say that it is."""
    body = json.dumps({"kind": "add_class", "content": {"name": "x"}})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        sent = {"Origin": ORIGIN, "Content-Type": kind}
        assert client.http.post("/api/actions", content=body, headers=sent).status_code == 415


def test_a_page_on_another_port_of_this_machine_reads_nothing(client: LabelClient) -> None:
    """SameSite lets its cookie through: ports are one site."""
    for site in ("same-site", "cross-site"):
        for path in ("/api/overview", "/thumb/0", "/static/workbench.js"):
            assert client.http.get(path, headers={"Sec-Fetch-Site": site}).status_code == 403
    for site in ("same-origin", "none"):
        sent = {"Sec-Fetch-Site": site}
        assert client.http.get("/api/overview", headers=sent).status_code == 200


def test_there_is_no_cors(client: LabelClient) -> None:
    sent = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    for method in ("GET", "OPTIONS"):
        found = client.http.request(method, "/api/overview", headers=sent)
        assert not [name for name in found.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "path", ["/", "/api/overview", "/thumb/0", "/nothing", "/api/images?set=x", "/static/x"]
)
def test_every_answer_has_the_headers_for_browsers(client: LabelClient, path: str) -> None:
    for browser in (client.http, client.stranger):
        headers = browser.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers


def test_other_machines_only_by_name_or_address_of_this_one() -> None:
    local, remote = rules_for("127.0.0.1"), rules_for("0.0.0.0")
    assert local.wants_origin
    assert remote.wants_origin
    assert (local.any_address, remote.any_address) == (False, True)
    assert "evil.example" not in remote.names
