"""One tenant reads a lot: how long does an enqueue of another tenant take meanwhile?

python -m benchmarks.neighbours [READERS]

Sixty connections of one tenant repeat expensive reads (lists and counts by a tag that no job has,
statistics, groups of dead jobs) over 60,000 jobs, while one connection of another tenant enqueues.
Rounds with and without the readers alternate, so that the ratio holds on a noisy machine. The
clients are bare socket loops in this process, the server is a process of its own.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

from benchmarks.http import Client, Figures, Target, started
from rowlock import App
from rowlock.store.ops.tokens import new_token
from rowlock.testing import ThrowAwayPostgres

READERS = 60
JOBS = 60_000
SECONDS = 4.0
ROUNDS = 3
# So that the server is compared, not the speed of the client's loop.
PAUSE_SECONDS = 0.005
READS = (
    "/v1/jobs?tag=none&limit=200",
    "/v1/jobs/count?tag=none",
    "/v1/jobs/count?error=none",
    "/v1/stats",
    "/v1/queues",
    "/v1/dead/groups",
)


@contextmanager
def served(url: str) -> Iterator[tuple[Target, str, str]]:
    """A server on a database full of jobs, with the tokens of a reader and of a producer."""
    reader = new_token(name="reader", scopes=["read"], tenant="acme")
    producer = new_token(name="producer", scopes=["enqueue"], tenant="zoo")
    with App(url) as app:
        app.migrate()
        app.store.run(reader.add())
        app.store.run(producer.add())
        app.enqueue_many(
            [
                {"kind": "noop", "queue": f"q{number % 20}", "tenant": "acme", "tags": ["a", "b"]}
                for number in range(JOBS)
            ]
        )
    serve = [sys.executable, "-m", "rowlock.cli", "serve", "--port", "0"]
    with started(serve, url=url) as target:
        yield target, reader.secret.text, producer.secret.text


async def read_until(target: Target, token: str, end: asyncio.Event, seen: Counter[int]) -> None:
    """Repeat expensive reads, and count the statuses of the answers."""
    client = Client(target)
    for path in cycle(READS):
        if end.is_set():
            return
        status, _ = await client.ask(target.get(path, token))
        seen[status] += 1


async def enqueue_for(target: Target, token: str, seconds: float) -> Figures:
    """Enqueue one job at a time, and time each."""
    client, figures = Client(target), Figures(seconds)
    request = target.request("/v1/jobs", {"kind": "noop"}, token=token)
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end or not figures.latencies:
        status, answer = await client.ask(request)
        assert status == 201, answer
        figures.latencies.append(time.perf_counter() - began)
        await asyncio.sleep(PAUSE_SECONDS)
    return figures


async def beside(
    target: Target, reader: str, producer: str, readers: int
) -> tuple[Figures, Counter[int]]:
    """Enqueue beside the readers."""
    end, seen = asyncio.Event(), Counter[int]()
    reads = [asyncio.create_task(read_until(target, reader, end, seen)) for _ in range(readers)]
    figures = await enqueue_for(target, producer, SECONDS)
    end.set()
    await asyncio.gather(*reads)
    return figures, seen


def report(name: str, url: str, readers: int) -> None:
    alone, crowded, statuses = Figures(0.0), Figures(0.0), Counter[int]()
    with served(url) as (target, reader, producer):
        for _ in range(ROUNDS):
            alone.latencies += asyncio.run(enqueue_for(target, producer, SECONDS)).latencies
            figures, seen = asyncio.run(beside(target, reader, producer, readers))
            crowded.latencies += figures.latencies
            statuses += seen
    for share, label in ((0.5, "p50"), (0.99, "p99"), (1.0, "longest")):
        before, after = alone.percentile(share), crowded.percentile(share)
        print(
            f"{name}: {label} of an enqueue: {before:.1f} ms alone, {after:.1f} ms beside "
            f"{readers} readers, {after / before:.1f} times"
        )
    print(f"{name}: answers to the readers by status: {dict(sorted(statuses.items()))}")


def main() -> None:
    readers = int(sys.argv[1]) if len(sys.argv) > 1 else READERS
    with tempfile.TemporaryDirectory() as place:
        report("sqlite", f"sqlite:///{place}/rowlock.db", readers)
    with ThrowAwayPostgres(durable=True) as server:
        report("postgres", server.url, readers)


if __name__ == "__main__":
    main()
