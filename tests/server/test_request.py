"""What is no good request: refused by a problem document, whatever is wrong with it."""

from __future__ import annotations

import json
import socket
import time
from urllib.parse import urlsplit

import pytest

from rowlock import config

JSON = {"content-type": "application/json"}


def talk(api, data: bytes) -> bytes:
    """Send bytes as they are, and read until the server closes, or an answer is whole."""
    parts = urlsplit(api.address)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(data)
        return answer_on(connection)


def answer_on(connection: socket.socket) -> bytes:
    """One answer, or as much of it as comes before the end."""
    answer = b""
    while b"\r\n\r\n" not in answer or not _is_whole(answer):
        received = connection.recv(65536)
        if not received:
            break
        answer += received
    return answer


def _is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    length = next(
        (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), b":0"
    )
    return len(body) >= int(length.partition(b":")[2])


def problem_in(answer: bytes) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head.lower(), answer
    document: dict[str, object] = json.loads(body)
    return document


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("GET", "/v1/jobs/", 404, "not_found"),
        ("GET", "//v1/jobs", 404, "not_found"),
        ("GET", "/v1/jobs/a/b/c/d", 404, "not_found"),
        ("GET", "/%ff", 404, "not_found"),
        ("PUT", "/v1/jobs", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/jobs", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
    ],
)
def test_unknown_paths_and_methods(api, method, path, status, code):
    """With what the path allows; no token is needed to be told."""
    answer = api.client().request(method, path)

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (status == 405) == ("allow" in answer.headers)
    problem = answer.json()
    assert problem.keys() == {"type", "title", "status", "detail", "code"}
    assert (problem["type"], problem["status"]) == (f"urn:rowlock:problem:{code}", status)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "json_invalid"),
        (b"{", 400, "json_invalid"),
        (b"\xff\xfe", 400, "json_invalid"),
        (b"\xef\xbb\xbf{}", 400, "json_invalid"),
        (b'{"\xd4": 1}', 400, "json_invalid"),
        (b"null", 422, "option_invalid"),
        (b"[]", 422, "option_invalid"),
        (b'{"kind": "\\ud800"}', 400, "json_invalid"),
        (b'{"kind": "x", "payload": ' + b"[" * 100_000, 400, "json_invalid"),
        (b'{"kind": "x", "payload": {"a": ' + b'{"a":' * 100 + b"1" + b"}" * 102, 422,
         "payload_invalid"),
        (b'{"kind": "x", "payload": {"a": ' + b"9" * 4_301 + b"}}", 422, "payload_invalid"),
        (b'{"kind": "x", "payload": {"a": 1e999}}', 422, "payload_invalid"),
        (b'{"kind": "x", "payload": {"a": NaN}}', 400, "json_invalid"),
        (b'{"kind": "x", "delay": 1' + b"0" * 400 + b"}", 422, "option_invalid"),
        (b'{"kind": "x", "' + b"y" * 100_000 + b'": 1}', 422, "option_invalid"),
    ],
)  # fmt: skip
def test_bad_bodies(api, body, status, code):
    """Refused, with a short answer, and the connection goes on."""
    client = api()
    answer = client.post("/v1/jobs", content=body, headers=JSON)

    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert len(answer.content) < 4_096
    assert api.app.list().jobs == []


@pytest.mark.parametrize(
    "media_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"],
)
def test_only_json_is_taken(api, media_type):
    """Other types of bodies are those that any page may send."""
    headers = {} if media_type is None else {"content-type": media_type}
    answer = api().post("/v1/jobs", content=b'{"kind": "x"}', headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


def test_json_may_say_its_charset(api):
    """There is only one, but some clients name it."""
    headers = {"content-type": "Application/JSON; charset=UTF-8"}

    assert api().post("/v1/jobs", content=b'{"kind": "x"}', headers=headers).status_code == 201


def test_large_bodies_are_not_read(api):
    """Neither by what they say of their length, nor by their length."""
    token = api.tokens["admin", None]
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {2**40}\r\n\r\n"
    )
    said = problem_in(talk(api, head.encode()))

    def chunks():
        sent = b" " * 65_536
        for _ in range(config.HTTP_BODY_BYTES_MAX // len(sent) + 2):
            yield sent

    counted = api().post("/v1/jobs", content=chunks(), headers=JSON)

    assert (said["status"], said["code"]) == (413, "too_large")
    assert (counted.status_code, counted.json()["code"]) == (413, "too_large")


def test_slow_bodies_are_given_up(api, monkeypatch):
    """A body that does not come holds nothing for long."""
    monkeypatch.setattr(config, "HTTP_BODY_SECONDS", 0.2)
    monkeypatch.setattr(config, "HTTP_DRAIN_SECONDS", 0.1)
    token = api.tokens["admin", None]
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
        "content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    )
    answer = talk(api, head.encode())

    assert problem_in(answer)["code"] == "request_timeout"
    assert b"connection: close" in answer


def test_slow_heads_are_given_up(api, monkeypatch):
    """Also on a connection that was good before."""
    monkeypatch.setattr(config, "HTTP_HEADER_SECONDS", 0.2)
    first = talk(api, b"GET /healthz HTT")
    parts = urlsplit(api.address)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        good = answer_on(connection)
        connection.sendall(b"GET /healthz HTT")
        second = answer_on(connection)

    assert problem_in(first)["code"] == "request_timeout"
    assert b'{"status":"ok"}' in good
    assert problem_in(second)["code"] == "request_timeout"


def test_idle_connections_are_kept(api, monkeypatch):
    """Between requests a connection may be silent for longer than a head may take."""
    monkeypatch.setattr(config, "HTTP_HEADER_SECONDS", 0.2)
    parts = urlsplit(api.address)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        for _ in range(2):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b'{"status":"ok"}' in answer_on(connection)
            time.sleep(0.4)


def test_large_heads_are_refused(api):
    """A parser is not fed for ever."""
    answer = talk(api, b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 200_000)

    assert problem_in(answer)["code"] == "head_too_large"


@pytest.mark.parametrize(
    "data", [b"\x00\x01\x02\r\n\r\n", b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00"]
)
def test_what_is_no_http(api, data):
    """Answered in the same form as all else."""
    assert problem_in(talk(api, data))["code"] == "http_invalid"


def test_head_is_get_without_a_body(api):
    """With the same headers."""
    get, head = api().get("/healthz"), api().head("/healthz")

    assert (head.status_code, head.content) == (200, b"")
    assert get.headers["content-length"] == head.headers["content-length"]


def test_every_answer_has_security_headers(api):
    """Good ones, refused ones and pages; and none tells what serves it."""
    for answer in (
        api().get("/healthz"),
        api().get("/nowhere"),
        api().get("/docs"),
        api().get("/docs/docs.js"),
        api().get("/"),
        api.client().post("/v1/jobs", json={}),
    ):
        headers = answer.headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "server" not in headers


def test_too_many_at_once_are_sent_away(api, monkeypatch):
    """503 and when to come again, before any work; probes are answered."""
    monkeypatch.setattr(config, "HTTP_REQUESTS_MAX", 0)
    answer = api().get("/v1/jobs")

    assert api().get("/healthz").status_code == 200
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
    assert answer.headers["retry-after"] == "2"


def test_answers_are_not_held_back(api):
    """Small parts are sent at once: many requests in a row take nothing like 40 ms each."""
    accepted = api.server._socket
    began = time.monotonic()
    for _ in range(200):
        api().get("/healthz")

    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert accepted.proto == socket.IPPROTO_TCP
    assert time.monotonic() - began < 200 * 0.04


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/jobs/batch", "jobs"),
        ("/v1/leases/heartbeat", "leases"),
        ("/v1/leases/settle", "settlements"),
    ],
)
def test_a_list_that_is_too_long_is_only_counted(api, path, field):
    """Nothing is made of what is in it: to make millions of things takes seconds of everybody."""
    long = f'{{"{field}": [{"0," * config.HTTP_OUTLINE_BYTES}0]}}'
    short = f'{{"{field}": [0]}}'
    answers = [api().post(path, content=body, headers=JSON) for body in (long, short)]

    assert [answer.status_code for answer in answers] == [422, 422]
    assert [answer.json()["errors"][0]["field"] for answer in answers] == [field, f"{field}[0]"]
