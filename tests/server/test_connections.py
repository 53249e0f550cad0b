"""Connections that are silent, never read, or too many: they end, and others are served."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from rowlock import config
from rowlock.events import Event, EventType
from rowlock.store.ops.events import write_events
from rowlock.store.ops.hold import Report, report
from tests.support.server import RawClient, Running, make_app
from tests.worker.waiting import wait_until

DOCUMENT = "GET /openapi.json HTTP/1.1\r\nhost: x\r\n"
HEALTH = "GET /healthz HTTP/1.1\r\nhost: x\r\n"


def connections(api: Running) -> int:
    """How many the server has open."""
    return len(api.server._server.server_state.connections)


def is_closed(client: RawClient) -> bool:
    """Whether the server has ended it, once all that it sent is read."""
    try:
        while client.socket.recv(65_536):
            pass
    except ConnectionResetError:
        return True
    return True


def test_answers_that_are_never_read(api: Running, monkeypatch):
    """The connection ends, however much of the answers is still unsent."""
    monkeypatch.setattr(config, "HTTP_WRITE_SECONDS", 0.1)
    api.client().get("/healthz")
    before = connections(api)
    with RawClient(api, receive_bytes=4_096) as client:
        for _ in range(100):
            client.send(DOCUMENT, token=api.tokens["read", None])
        wait_until(lambda: connections(api) == before + 1)
        wait_until(lambda: connections(api) == before)


def test_a_last_answer_that_is_never_read(api: Running, monkeypatch):
    """A connection that is to be closed after its answer ends, too."""
    monkeypatch.setattr(config, "HTTP_WRITE_SECONDS", 0.1)
    api.app.enqueue_many([{"kind": "x" * 200, "queue": "q" * 200, "tags": ["t" * 100] * 1}] * 200)
    api("read").get("/healthz")
    before = connections(api)
    head = "GET /v1/jobs?limit=200 HTTP/1.1\r\nhost: x\r\n"
    token = api.tokens["read", None]
    with RawClient(api, receive_bytes=4_096) as client:
        client.send(head, token=token)
        client.head()
        for _ in range(50):
            client.send(head, token=token)
        client.send(f"{head}connection: close\r\n", token=token)
        wait_until(lambda: connections(api) == before)


def test_a_stream_that_is_never_read(api: Running, monkeypatch):
    """It ends, and its place is free again."""
    monkeypatch.setattr(config, "HTTP_WRITE_SECONDS", 0.1)
    service = api.server._api.service
    wait_until(lambda: not service.streams)
    job = api.app.enqueue("chatty")
    (held,) = api.app.store.claim(worker="w", queues=None, kinds=["chatty"], limit=1)
    lines = ["x" * config.LOG_LINE_BYTES_MAX] * config.LOG_LINES_MAX
    api.app.store.run(report([Report(held, None, lines)], lease=300))
    with RawClient(api, receive_bytes=4_096) as client:
        head = f"GET /v1/events?job={job.id} HTTP/1.1\r\nhost: x\r\n"
        client.send(head, token=api.tokens["read", None])
        assert client.status() == 200
        wait_until(lambda: not service.streams)


def test_slow_readers_are_served(api: Running, monkeypatch):
    """Whoever reads on, however little, keeps the connection."""
    monkeypatch.setattr(config, "HTTP_WRITE_SECONDS", 0.5)
    count = 40
    with RawClient(api, receive_bytes=4_096) as client:
        for _ in range(count - 1):
            client.send(DOCUMENT, token=api.tokens["read", None])
        client.send(f"{DOCUMENT}connection: close\r\n", token=api.tokens["read", None])
        answers = b"".join(iter(lambda: client.socket.recv(65_536), b""))

    assert answers.count(b"HTTP/1.1 200 OK") == count


@pytest.fixture
def fresh(module_url: str) -> Iterator[Running]:
    """A server without connections of the tests before, and with a stream that is never idle."""
    with Running(make_app(module_url)) as fresh:
        fresh.make_tokens()
        with RawClient(fresh) as stream:
            stream.send("GET /v1/events HTTP/1.1\r\nhost: x\r\n", token=fresh.tokens["read", None])
            assert stream.status() == 200
            yield fresh
            fresh.app.store.run(write_events([Event(EventType.DEAD, "q", "k")]))
            received = b""
            while b'"dead"' not in received:
                received += stream.socket.recv(65_536)


def test_silent_connections_give_way(fresh: Running, monkeypatch):
    """The oldest first; those that are being answered stay."""
    room = fresh.server._connections
    monkeypatch.setattr(room, "most", 6)
    with ExitStack() as stack:
        silent = [stack.enter_context(RawClient(fresh)) for _ in range(10)]
        closed = [is_closed(client) for client in silent[:5]]
        silent[-1].send(HEALTH)
        newest = silent[-1].status()
        wait_until(lambda: len(room) == 6)

    assert closed == [True] * 5
    assert newest == 200


def test_kept_connections_give_way(fresh: Running, monkeypatch):
    """After those that have never sent a request."""
    room = fresh.server._connections
    with ExitStack() as stack:
        kept = [stack.enter_context(RawClient(fresh)) for _ in range(2)]
        for client in kept:
            client.send(HEALTH)
            assert client.status() == 200
        silent = stack.enter_context(RawClient(fresh))
        wait_until(lambda: len(room) == 4)
        monkeypatch.setattr(room, "most", 4)
        statuses = []
        for _ in range(2):
            client = stack.enter_context(RawClient(fresh))
            client.send(HEALTH)
            statuses.append(client.status())
        closed = [is_closed(silent), is_closed(kept[0])]
        kept[1].send(HEALTH)
        answered = b""
        while answered.count(b'"ok"') < 2:
            answered += kept[1].socket.recv(65_536)

    assert (statuses, closed) == ([200, 200], [True, True])


def test_no_room_at_all(fresh: Running, monkeypatch, caplog):
    """503 and the end of the connection; the log says so once."""
    monkeypatch.setattr(fresh.server._connections, "most", 1)
    heads = []
    for _ in range(5):
        with RawClient(fresh) as client:
            heads.append(client.head())
            assert is_closed(client)

    assert {head.split()[1] for head in heads} == {b"503"}
    assert all(b"retry-after: 2" in head and b"connection: close" in head for head in heads)
    logged = [each for each in caplog.records if "connections are in use" in each.getMessage()]
    assert len(logged) == 1


SERVE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from rowlock import config
config.HTTP_FILES_RESERVED = int(sys.argv.pop(1))
from rowlock.cli import main
main()
"""


@pytest.mark.parametrize("reserved", [config.HTTP_FILES_RESERVED, 0])
def test_more_connections_than_open_files(any_url, tmp_path, reserved):
    """The server goes on, and its log stays short, even if something else takes the files."""
    with make_app(any_url) as app:
        app.migrate()
    log = tmp_path / "log"
    environment = {**os.environ, "ROWLOCK_DATABASE_URL": any_url}
    words = [sys.executable, "-c", SERVE, str(reserved), "serve", "--open", "--port", "0"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=stderr)
    try:
        assert process.stdout is not None
        found = re.search(rb"http://([\d.]+):(\d+)", process.stdout.readline())
        assert found is not None
        address = (found[1].decode(), int(found[2]))
        with ExitStack() as stack:
            for _ in range(400):
                stack.enter_context(socket.create_connection(address, timeout=60))
            url = f"http://{address[0]}:{address[1]}"
            crowded = post(url) if reserved else None
        wait_until(lambda: post(url) == 201)
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    assert crowded in (201, None)
    assert process.returncode == 0
    written = log.read_text("utf-8")
    # Without a reserve other services complain once, too.
    assert written.count("ulimit -n") in (1, 2), written[:4_096]
    assert len(written) < 64 * 1_024


def post(url: str) -> int | None:
    """The status of an enqueue on a new connection, or None if it was cut off."""
    try:
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
            return client.post("/v1/jobs", json={"kind": "x"}).status_code
    except httpx.TransportError:
        return None


CHUNKED = "content-type: application/json\r\ntransfer-encoding: chunked\r\n"
CHUNK = b'c\r\n{"kind":"x"}\r\n'


def test_a_token_in_a_trailer_is_none(api: Running):
    """Neither alone, nor instead of another."""
    trailer = f"0\r\nauthorization: Bearer {api.tokens['enqueue', None]}\r\n\r\n".encode()
    statuses = []
    for token in (None, api.tokens["read", None]):
        with RawClient(api) as client:
            head = f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\n{CHUNKED}"
            client.send(head, token=token, body=CHUNK + trailer)
            statuses.append(client.status())

    assert statuses == [401, 403]
    assert api.app.list().jobs == []


def test_a_host_in_a_trailer_is_none(any_url):
    """An open server is asked by its own name, in the head."""
    with Running(make_app(any_url), is_open=True) as running, RawClient(running) as client:
        trailer = b"0\r\nhost: 127.0.0.1\r\n\r\n"
        client.send(f"POST /v1/jobs HTTP/1.1\r\n{CHUNKED}", body=CHUNK + trailer)
        status = client.status()

    assert status == 421


def test_trailers_are_ignored(api: Running):
    """A request that has some is served, and so is the next on its connection."""
    with RawClient(api) as client:
        statuses = []
        for _ in range(2):
            head = f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\n{CHUNKED}"
            body = CHUNK + b"0\r\nx-checksum: 1\r\n\r\n"
            client.send(head, token=api.tokens["enqueue", None], body=body)
            head = client.head()
            statuses.append(int(head.split()[1]))
            (length,) = re.findall(rb"content-length: (\d+)", head)
            assert len(client.socket.recv(int(length), socket.MSG_WAITALL)) == int(length)

    assert statuses == [201, 201]


@pytest.mark.parametrize("endless", [b"0\r\nx: ", b"c;x="])
def test_endless_trailers_and_chunks(api: Running, monkeypatch, endless):
    """Whatever is no body is bounded, as a head is."""
    monkeypatch.setattr(config, "HTTP_BODY_SECONDS", 600)
    with RawClient(api) as client:
        head = f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\n{CHUNKED}"
        client.send(head, token=api.tokens["enqueue", None], body=endless)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            client.socket.sendall(b"y" * 2**26)
