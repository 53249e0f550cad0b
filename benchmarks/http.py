"""The HTTP API against its limits: a bare answer by the same server, and the bare store.

python -m benchmarks.http

`POST /v1/jobs` with a token, over connections that are kept; then workers that lease and settle 100
jobs a call; then both at once. The rounds are interleaved, so that ratios hold on a noisy machine.
The client is a bare socket loop in this process, the server a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rowlock import App
from rowlock.store.ops.tokens import new_token
from rowlock.testing import ThrowAwayPostgres

CONNECTIONS = 32
SECONDS = 4.0
ROUNDS = 3
BATCH = 100
JOBS = 10_000
WORKERS = 4
PAYLOAD = {"i": 1, "t": 0.0, "to": "someone@example.com", "template": "welcome", "lang": "en"}

# The same server with nothing behind it.
BARE = """
import sys
from rowlock.server.serve import BoundedProtocol
import uvicorn
ANSWER = b"x" * 230
async def app(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 201,
                "headers": [(b"content-length", b"230")]})
    await send({"type": "http.response.body", "body": ANSWER})
from functools import partial
from rowlock.server.connections import Connections
from rowlock.server.serve import listening
room = Connections(1_000)
protocol = partial(BoundedProtocol, connections=room)
config = uvicorn.Config(app, http=protocol, log_config=None, lifespan="off")
sock = listening("127.0.0.1", 0, room)
print(f"http://127.0.0.1:{sock.getsockname()[1]}/", flush=True)
uvicorn.Server(config).run(sockets=[sock])
"""


@dataclass
class Figures:
    """What a round of requests took."""

    seconds: float
    latencies: list[float] = field(default_factory=list[float])
    cpu_seconds: float = 0.0

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        return sorted(self.latencies)[int(share * (len(self.latencies) - 1))] * 1_000

    def __str__(self) -> str:
        each = self.cpu_seconds / max(1, len(self.latencies)) * 1e6
        return (
            f"{self.rate:,.0f}/s, p50 {self.percentile(0.5):.1f} ms, "
            f"p99 {self.percentile(0.99):.1f} ms, {each:.0f} µs of the server's processor each"
        )


@dataclass(frozen=True)
class Target:
    """A server that runs, and the token that it takes."""

    process: subprocess.Popen[str]
    host: str
    port: int
    token: str

    def get(self, path: str, token: str) -> bytes:
        head = f"GET {path} HTTP/1.1\r\nhost: {self.host}\r\nauthorization: Bearer {token}\r\n\r\n"
        return head.encode()

    def request(self, path: str, body: object, *, token: str | None = None) -> bytes:
        content = json.dumps(body).encode()
        token = token or self.token
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {self.host}\r\nauthorization: Bearer {token}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content

    def cpu_seconds(self) -> float:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def started(words: list[str], *, token: str = "", url: str = "") -> Iterator[Target]:
    environment = {**os.environ, "ROWLOCK_LOG_LEVEL": "error", "ROWLOCK_DATABASE_URL": url}
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"http://([\d.]+):(\d+)", process.stdout.readline())
    assert found is not None
    try:
        yield Target(process, found[1], int(found[2]), token)
    finally:
        process.terminate()
        process.wait()


class Client:
    """One connection that is kept; a bare loop over its socket."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, unless that was done before."""
        if self._streams is None:
            target = self._target
            self._streams = await asyncio.open_connection(
                target.host, target.port, limit=64 * 2**20
            )
        return self._streams

    async def send(self, request: bytes) -> bytes:
        """The body of a good answer."""
        status, body = await self.ask(request)
        assert status // 100 == 2, (status, body)
        return body

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        reader, writer = await self.open()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else b""
        return int(head.split()[1]), body


async def post_for(target: Target, request: bytes, seconds: float) -> Figures:
    """Send the same request over and over, by all connections."""
    figures = Figures(seconds)
    end = time.perf_counter() + seconds
    before = target.cpu_seconds()

    async def one() -> None:
        client = Client(target)
        while (began := time.perf_counter()) < end:
            await client.send(request)
            figures.latencies.append(time.perf_counter() - began)

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    figures.cpu_seconds = target.cpu_seconds() - before
    return figures


async def enqueue_for(url: str, seconds: float) -> float:
    """The bare store, in this process: as many at once, by the async twin."""
    count, end = 0, time.perf_counter() + seconds
    async with App(url) as app:

        async def one() -> None:
            nonlocal count
            while time.perf_counter() < end:
                await app.aenqueue("noop", PAYLOAD)
                count += 1

        await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return count / seconds


async def work(target: Target, name: str) -> int:
    """Lease and settle until nothing is left; how many jobs."""
    client, done = Client(target), 0
    asked = {"worker": name, "kinds": ["noop"], "limit": BATCH}
    lease = target.request("/v1/leases", asked)
    while True:
        leases = json.loads(await client.send(lease))["leases"]
        if not leases:
            return done
        settlements = [
            {"id": each["id"], "token": each["token"], "outcome": "succeeded"} for each in leases
        ]
        answer = await client.send(
            target.request("/v1/leases/settle", {"settlements": settlements})
        )
        done += json.loads(answer)["settled"]


async def drain(target: Target, workers: int) -> float:
    """Jobs a second, by so many workers at once."""
    began = time.perf_counter()
    done = await asyncio.gather(*(work(target, f"w{number}") for number in range(workers)))
    return sum(done) / (time.perf_counter() - began)


def fill(url: str) -> None:
    with App(url) as app:
        app.enqueue_many([{"kind": "noop", "payload": PAYLOAD}] * JOBS)


async def both(target: Target, url: str, request: bytes) -> Figures:
    """Enqueue while workers drain."""
    await asyncio.to_thread(fill, url)
    posting = asyncio.create_task(post_for(target, request, SECONDS))
    draining = asyncio.create_task(drain(target, 1))
    figures = await posting
    await draining
    return figures


def report(name: str, url: str) -> None:
    new = new_token(name="benchmark", scopes=["enqueue", "work"])
    with App(url) as app:
        app.migrate()
        app.store.run(new.add())
    serve = [sys.executable, "-m", "rowlock.cli", "serve", "--port", "0"]
    bare = [sys.executable, "-c", BARE]
    with started(serve, token=new.secret.text, url=url) as target, started(bare) as limit:
        request = target.request("/v1/jobs", {"kind": "noop", "payload": PAYLOAD})
        rounds: list[tuple[Figures, Figures, float]] = []
        for _ in range(ROUNDS):
            answered = asyncio.run(post_for(limit, request, SECONDS))
            posted = asyncio.run(post_for(target, request, SECONDS))
            rounds.append((posted, answered, asyncio.run(enqueue_for(url, SECONDS))))
        posted = sorted((each[0] for each in rounds), key=lambda each: each.rate)[ROUNDS // 2]
        answered = sorted((each[1] for each in rounds), key=lambda each: each.rate)[ROUNDS // 2]
        stored = statistics.median(each[2] for each in rounds)
        print(f"{name}: POST /v1/jobs, {CONNECTIONS} connections: {posted}")
        print(f"{name}: a bare answer by the same server: {answered}")
        print(f"{name}: the bare store, {CONNECTIONS} at once: {stored:,.0f}/s")
        asyncio.run(drain(target, WORKERS))
        for workers in (1, WORKERS):
            rates: list[tuple[float, float]] = []
            for _ in range(ROUNDS):
                fill(url)
                before = target.cpu_seconds()
                rate = asyncio.run(drain(target, workers))
                rates.append((rate, (target.cpu_seconds() - before) / JOBS * 1e6))
            rate, each = sorted(rates)[ROUNDS // 2]
            print(
                f"{name}: lease and settle {BATCH} a call, {workers} workers: {rate:,.0f} jobs/s, "
                f"{each:.0f} µs of the server's processor each"
            )
        mixed = asyncio.run(both(target, url, request))
        print(f"{name}: POST /v1/jobs while a worker drains: {mixed}")


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        report("sqlite", f"sqlite:///{place}/rowlock.db")
    with ThrowAwayPostgres(durable=True) as server:
        report("postgres", server.url)


if __name__ == "__main__":
    main()
