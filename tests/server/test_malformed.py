"""Requests that nobody in their right mind sends: no 5xx, no crash, no growing memory.

Ten thousand of them, to a server of its own: `python -m benchmarks.malformed`.
"""

from __future__ import annotations

import random
import socket
from urllib.parse import urlsplit

import pytest

from benchmarks.malformed import (
    API,
    SEED,
    deep_body,
    memory_kib,
    nasty_body,
    nasty_path,
    noise,
    status_of,
)
from tests.support.server import Running

ROUNDS = 600
# A stream does not end by itself.
ANSWERED = [route for route in API if route.item is None]


def test_almost_right_requests(api: Running):
    """Every route, with bodies and paths of every wrong kind, is answered without a 5xx."""
    chance = random.Random(SEED)
    client = api()
    statuses: dict[int, int] = {}
    for _ in range(ROUNDS):
        route = chance.choice(ANSWERED)
        answer = client.request(
            route.method,
            nasty_path(chance, route.path),
            content=nasty_body(chance, route) if route.method == "POST" else None,
            headers={"content-type": "application/json"},
        )
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"

        assert answer.status_code < 500, (SEED, route.operation, answer.request.url, answer.text)
    assert {200, 404, 422} <= statuses.keys(), statuses


def test_random_bytes(api: Running):
    """Noise on the wire ends in an answer or a closed connection, and the server goes on."""
    chance = random.Random(SEED)
    parts = urlsplit(api.address)
    before = memory_kib()
    for _ in range(ROUNDS // 2):
        with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
            connection.sendall(noise(chance))
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: _receive(connection), b""))  # used at once

        assert not status_of(answer).startswith("5"), answer
    assert api().get("/healthz").status_code == 200
    assert memory_kib() - before < 64 * 1024


@pytest.mark.parametrize("seed", range(8))
def test_deep_bodies(api: Running, seed: int):
    """A payload that is nested too deeply is refused, however deep."""
    body = deep_body(random.Random(seed))
    answer = api().post("/v1/jobs", content=body, headers={"content-type": "application/json"})

    assert answer.status_code in (400, 422), answer.text


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65_536)
    except ConnectionResetError:
        return b""
