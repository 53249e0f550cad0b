"""The metrics port of a worker: whatever is sent to it, the supervisor goes on and is quiet."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx
import pytest

from rowlock import config
from rowlock.observe.port import WorkerPort
from rowlock.worker.shared_memory import Snapshot, Totals
from tests.worker.waiting import wait_until


@pytest.fixture
def port() -> Iterator[WorkerPort]:
    """A port that serves."""
    with WorkerPort(lambda: Snapshot(Totals(), {}, 1, 1), host="127.0.0.1", port=0) as port:
        yield port


def connect(port: WorkerPort) -> socket.socket:
    parts = urlsplit(port.address)
    return socket.create_connection((parts.hostname, parts.port), timeout=60)


def threads() -> int:
    """How many threads answer."""
    return sum("process_request_thread" in each.name for each in threading.enumerate())


def test_connections_are_bounded(port):
    """The oldest ones end, and a new one is answered."""
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(port)) for _ in range(100)]
        status = httpx.get(f"{port.address}/healthz", trust_env=False).status_code
        wait_until(lambda: threads() <= config.METRICS_PORT_CONNECTIONS_MAX)
        first = idle[0].recv(1)
        idle[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            idle[-1].recv(1)

    assert (status, first) == (200, b"")


def test_a_request_that_never_ends(port, monkeypatch):
    """It may last for some seconds, however busy it is."""
    monkeypatch.setattr(config, "METRICS_PORT_SECONDS", 0.1)

    def is_cut(connection: socket.socket) -> bool:
        try:
            connection.sendall(b"G")
        except OSError:
            return True
        return False

    with connect(port) as connection:
        wait_until(lambda: is_cut(connection))


@pytest.mark.parametrize("head", [b"G", b"GET /metrics HTTP/1.1\r\nx: y"])
def test_large_requests_are_refused(port, head):
    """Of the request's line, or of its headers."""
    with connect(port) as connection:
        connection.sendall(head + b"z" * config.METRICS_PORT_BYTES_MAX)
        answer = b""
        try:
            while received := connection.recv(65_536):
                answer += received
        except ConnectionResetError:
            pass

    assert answer.split()[1:2] in ([], [b"431"])


def test_clients_that_go_away_are_no_news(port, capfd, caplog):
    """Nothing is logged or printed about them."""
    for sent in (b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n", b"\x00\r\n\r\n"):
        connection = connect(port)
        connection.sendall(sent)
        # A reset, not an end.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    status = httpx.get(f"{port.address}/readyz", trust_env=False).status_code
    wait_until(lambda: threads() == 0)

    assert status == 200
    assert capfd.readouterr() == ("", "")
    assert [each.getMessage() for each in caplog.records if each.name == "rowlock.worker"] == []


def test_an_error_of_ours_is_logged_once(caplog):
    """Per interval, however often it is asked."""

    def broken() -> Snapshot:
        raise ZeroDivisionError

    with WorkerPort(broken, host="127.0.0.1", port=0) as port:
        for _ in range(3):
            with pytest.raises(httpx.RemoteProtocolError):
                httpx.get(f"{port.address}/metrics", trust_env=False)

    assert [each.getMessage() for each in caplog.records if each.name == "rowlock.worker"] == [
        "the metrics port could not answer"
    ]
