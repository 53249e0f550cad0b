"""Two thousand clients hold on to one server: how long does an enqueue take beside them?

python -m benchmarks.clients [CLIENTS]

Of the clients, as many as the server takes listen to events, a quarter wait for jobs by long polls,
and the rest are idle connections that were used once. They are held while one connection enqueues.
Rounds without the clients come first, in the same run. The memory of the server is read before and
after. Each client of a kind has one of a few tokens, since one token holds at most half of the
places.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.http import Client, Figures, Target, started
from benchmarks.neighbours import enqueue_for
from rowlock import App, config
from rowlock.store.ops.tokens import new_token
from rowlock.testing import ThrowAwayPostgres

CLIENTS = 2_000
TOKENS = 8
SECONDS = 6.0
SETTLE_SECONDS = 4.0
WAIT_SECONDS = 50
# Connections that are opened at once.
OPENED_AT_ONCE = 50


def memory_mebibytes(target: Target) -> float:
    """The resident memory of the server."""
    status = Path(f"/proc/{target.process.pid}/status").read_text("ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1_024


class Crowd:
    """Clients that are connected, and what the server said to each."""

    def __init__(self, target: Target, tokens: list[str]) -> None:
        self._target = target
        self._tokens = tokens
        self._gate = asyncio.Semaphore(OPENED_AT_ONCE)
        self._held: list[asyncio.StreamWriter] = []
        self._polls: list[asyncio.Task[None]] = []
        self.seen: Counter[str] = Counter()

    async def _status(self, request: bytes) -> str:
        """Send a request on a connection that is kept, and read the status of its answer."""
        async with self._gate:
            target = self._target
            reader, writer = await asyncio.open_connection(target.host, target.port)
            self._held.append(writer)
            writer.write(request)
            return (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()

    async def listen(self, number: int) -> None:
        """Listen to events for good."""
        status = await self._status(self._target.get("/v1/events", self._token(number)))
        self.seen[f"stream {status}"] += 1

    async def idle(self, number: int) -> None:
        """Ask once, and keep the connection."""
        status = await self._status(self._target.get("/v1/me", self._token(number)))
        self.seen[f"idle {status}"] += 1

    async def poll(self, number: int) -> None:
        """Wait for jobs of a kind that has none, again and again."""
        body = {"worker": f"w{number}", "kinds": ["none"], "wait": WAIT_SECONDS}
        request = self._target.request("/v1/leases", body, token=self._token(number))
        client = Client(self._target)

        async def go_on() -> None:
            async with self._gate:
                await client.open()
            while True:
                status, _ = await client.ask(request)
                self.seen[f"poll returned {status}"] += 1

        self._polls.append(asyncio.create_task(go_on()))

    def _token(self, number: int) -> str:
        return self._tokens[number % len(self._tokens)]

    async def leave(self) -> None:
        for poll in self._polls:
            poll.cancel()
        await asyncio.gather(*self._polls, return_exceptions=True)
        for writer in self._held:
            writer.close()


async def crowd_in(target: Target, tokens: list[str], count: int) -> tuple[Figures, Crowd, float]:
    """Enqueue while the clients hold on; the memory of the server then."""
    crowd = Crowd(target, tokens)
    streams, polls = config.HTTP_LISTENERS_MAX, count // 4
    numbers = range(count)
    await asyncio.gather(*(crowd.listen(number) for number in numbers[:streams]))
    await asyncio.gather(*(crowd.poll(number) for number in numbers[streams : streams + polls]))
    # Until all of them wait.
    await enqueue_for(target, target.token, SETTLE_SECONDS)
    await asyncio.gather(*(crowd.idle(number) for number in numbers[streams + polls :]))
    figures = await enqueue_for(target, target.token, SECONDS)
    memory = memory_mebibytes(target)
    await crowd.leave()
    return figures, crowd, memory


def report(name: str, url: str, count: int) -> None:
    made = [new_token(name=f"t{number}", scopes=["admin"]) for number in range(TOKENS)]
    producer = new_token(name="producer", scopes=["enqueue"])
    with App(url) as app:
        app.migrate()
        for each in (*made, producer):
            app.store.run(each.add())
    serve = [sys.executable, "-m", "rowlock.cli", "serve", "--port", "0"]
    with started(serve, token=producer.secret.text, url=url) as target:
        alone = asyncio.run(enqueue_for(target, target.token, SECONDS))
        before = memory_mebibytes(target)
        tokens = [each.secret.text for each in made]
        beside, crowd, after = asyncio.run(crowd_in(target, tokens, count))
    for share, label in ((0.5, "p50"), (0.99, "p99"), (1.0, "longest")):
        first, second = alone.percentile(share), beside.percentile(share)
        print(
            f"{name}: {label} of an enqueue: {first:.1f} ms alone, {second:.1f} ms beside "
            f"{count} clients, {second / first:.1f} times"
        )
    print(f"{name}: memory of the server: {before:.0f} MiB alone, {after:.0f} MiB beside them")
    print(f"{name}: answers to the clients: {dict(sorted(crowd.seen.items()))}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else CLIENTS
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * count + 200), hard))
    with tempfile.TemporaryDirectory() as place:
        report("sqlite", f"sqlite:///{place}/rowlock.db", count)
    with ThrowAwayPostgres(durable=True) as server:
        report("postgres", server.url, count)


if __name__ == "__main__":
    main()
