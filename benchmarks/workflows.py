"""What workflows cost, and whether a job ever starts before those that it waits for.

python -m benchmarks.workflows [exact|price|large ...] [--stores sqlite,postgres] [--jobs N]
    [--kills N] [--processes N] [--rounds N]

`exact`: processes claim, settle and are killed, for each shape of workflow. The triggers of
`rowlock chaos` record every lease and every end in the transaction that makes them.
`price`: one process runs plain jobs and workflows of each shape in turn, the same number of jobs
each time.
`large`: a workflow of 100,000 jobs: memory, the enqueue, the list and the folded graph.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psycopg

from benchmarks.limits_exact import Crew, Size, until_done
from benchmarks.processes import used_seconds
from rowlock import App
from rowlock.chaos import witness
from rowlock.chaos.witness import What
from rowlock.errors import LeaseLost
from rowlock.store import open_store
from rowlock.testing import ThrowAwayPostgres
from rowlock.workflow import Node, Workflow

MODULE = "benchmarks.workflows"
SCHEMA = "rowlock"
LEASE_SECONDS = 1.0
CLAIMED_MAX = 100
LOOK_SECONDS = 0.02
WIDTH = 100
LARGE_JOBS = 100_000
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}

Parents = Callable[[int, random.Random], Sequence[int]]


def _layers(place: int, chance: random.Random) -> Sequence[int]:
    first = (place // WIDTH - 1) * WIDTH
    return () if first < 0 else chance.sample(range(first, first + WIDTH), 2)


def _chains(place: int, chance: random.Random) -> Sequence[int]:
    return () if place < WIDTH else (place - WIDTH,)


def _graph(place: int, chance: random.Random) -> Sequence[int]:
    if place < WIDTH:
        return ()
    return sorted({chance.randrange(max(0, place - 1000), place) for _ in range(3)})


def _alone(place: int, chance: random.Random) -> Sequence[int]:
    return ()


SHAPES: dict[str, Parents] = {
    "layers": _layers,
    "chains": _chains,
    "graph": _graph,
    "callback": _alone,
}


def app_of(url: str) -> App:
    """An app with one task."""
    app = App(url)
    app.task(name="noop")(_noop)
    return app


def _noop(number: int) -> None: ...


def put(app: App, shape: str, jobs: int) -> Workflow:
    """Write a workflow of this shape."""
    task = app.find("noop")
    assert task is not None
    chance, nodes = random.Random(7), list[Node[object]]()
    flow = app.workflow(shape)
    last = jobs - 1 if shape == "callback" else jobs
    for place in range(last):
        parents = [nodes[parent] for parent in SHAPES[shape](place, chance)]
        nodes.append(flow.add(task.job(number=place), after=parents))
    if shape == "callback":
        parts = [nodes[start : start + 5_000] for start in range(0, last, 5_000)]
        joins = (
            [flow.add(task.job(number=-1), after=part) for part in parts]
            if len(parts) > 2
            else nodes
        )
        flow.add(task.job(number=last), after=joins, when="ended")
    return flow.enqueue()


def claim_and_settle(url: str, worker: str) -> None:
    """Claim, hold for a moment and settle, for ever."""
    chance = random.Random(worker)
    with closing(open_store(url)) as store:
        while True:
            limit = chance.randint(1, CLAIMED_MAX)
            leases = store.claim(
                worker=worker, limit=limit, queues=["default"], lease=LEASE_SECONDS
            )
            if not leases:
                time.sleep(chance.uniform(0.0, 2 * LOOK_SECONDS))
            elif chance.random() < 0.2:
                time.sleep(chance.uniform(0.0, 0.01))
            for start in range(0, len(leases), 20):
                with suppress(LeaseLost):
                    store.succeed(leases[start : start + 20])


class Exactness(NamedTuple):
    """What a run with kills has shown."""

    ended: int
    early: int
    left: int
    deadlocks: int
    killed: int
    seconds: float


def exactness(url: str, shape: str, size: Size) -> Exactness:
    """Run a workflow in an empty database while processes are killed."""
    with closing(app_of(url)) as app:
        app.migrate()
        witness.watch(url, schema=SCHEMA)
        flow = put(app, shape, size.jobs)
        parents = _parents(url)
    start = time.monotonic()
    with ExitStack() as stack:
        crew = Crew(url, size.processes, {}, MODULE)
        stack.callback(crew.end)
        left, killed = until_done(url, size, crew, random.Random(1))
    seconds = time.monotonic() - start
    ended: set[str] = set()
    early = 0
    for event in witness.read(url, schema=SCHEMA):
        if event.what is What.FINISHED:
            ended.add(event.job)
        elif event.what is What.CLAIMED:
            early += not ended.issuperset(parents.get(event.job, ()))
    assert flow.created
    return Exactness(len(ended), early, left, _deadlocks(url), killed, seconds)


def _parents(url: str) -> dict[str, list[str]]:
    """The jobs that each job waits for."""
    found: dict[str, list[str]] = {}
    for parent, child in _rows(url, "SELECT parent, child FROM {}edge"):
        found.setdefault(str(child), []).append(str(parent))
    return found


def _rows(url: str, sql: str) -> list[tuple[object, ...]]:
    if url.startswith("sqlite"):
        import sqlite3

        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return connection.execute(sql.format("rowlock_")).fetchall()
    with psycopg.connect(url) as connection:
        return connection.execute(sql.format("rowlock.").encode()).fetchall()


def _deadlocks(url: str) -> int:
    if url.startswith("sqlite"):
        return 0
    sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    return int(str(_rows(url, sql)[0][0]))


class Price(NamedTuple):
    """What one round has cost: jobs per second, and µs of CPU per job, ours and the server's."""

    per_second: float
    client_us: float
    server_us: float

    @property
    def cpu_us(self) -> float:
        return self.client_us + self.server_us


def price(url: str, shape: str | None, jobs: int, server: Callable[[], float]) -> Price:
    """Claim and settle jobs in one process: a workflow of this shape, or plain ones."""
    with closing(app_of(url)) as app:
        task = app.find("noop")
        assert task is not None
        if shape is None:
            app.enqueue_many([task.job(number=number) for number in range(jobs)])
        else:
            put(app, shape, jobs)
        store, done = app.store, 0
        before = time.perf_counter(), time.process_time(), server()
        while leases := store.claim(worker="w", limit=CLAIMED_MAX, queues=["default"]):
            store.succeed(leases)
            done += len(leases)
        wall = time.perf_counter() - before[0]
        client, served = time.process_time() - before[1], server() - before[2]
        assert done >= jobs, (shape, done)
    return Price(done / wall, client / done * 1e6, served / done * 1e6)


def compare(url: str, jobs: int, rounds: int, server: Callable[[], float]) -> None:
    """Print what each shape costs, by turns with plain jobs."""
    found: dict[str | None, list[Price]] = {}
    for _ in range(rounds):
        for shape in (None, *SHAPES):
            found.setdefault(shape, []).append(price(url, shape, jobs, server))
    plain = _median(found[None])
    for shape, prices in found.items():
        own = _median(prices)
        print(
            f"  {shape or 'plain':10} {own.per_second:8.0f} jobs/s"
            f" ({own.per_second / plain.per_second:.2f}), µs of CPU per job:"
            f" {own.client_us:5.1f} client + {own.server_us:5.1f} server"
            f" ({plain.cpu_us / own.cpu_us:.2f})"
        )


def _median(prices: Sequence[Price]) -> Price:
    return Price(*(statistics.median(column) for column in zip(*prices, strict=True)))


def large(url: str) -> None:
    """Print what a workflow of 100,000 jobs takes."""
    with closing(app_of(url)) as app:
        task = app.find("noop")
        assert task is not None
        tracemalloc.start()
        start = time.perf_counter()
        flow = app.workflow("large")
        pages = flow.map(task.job(number=number) for number in range(LARGE_JOBS - 11))
        parts = [pages[at : at + 10_000] for at in range(0, len(pages), 10_000)]
        joins = [flow.add(task.job(number=0), after=part) for part in parts]
        flow.add(task.job(number=0), after=joins)
        built, memory = time.perf_counter() - start, tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        start = time.perf_counter()
        flow.enqueue()
        written = time.perf_counter() - start
        looks: dict[str, Callable[[], object]] = {
            "get": lambda: app.get_workflow(flow.id),
            "list": app.workflows,
            "graph": lambda: app.workflow_graph(flow.id),
            "jobs": lambda: app.workflow_jobs(flow.id),
        }
        times = {name: _seconds(look) for name, look in looks.items()}
    print(
        f"  built in {built:.1f} s (traced), {memory / 2**20:.0f} MiB; written in {written:.1f} s",
        end="",
    )
    print(f", {LARGE_JOBS / written:,.0f} nodes/s")
    print("  " + ", ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in times.items()))
    print(f"  the process had {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def _seconds(call: Callable[[], object]) -> float:
    taken: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


@contextmanager
def place_of(store: str) -> Iterator[tuple[str, Callable[[], float]]]:
    """An empty database, and the CPU seconds of its server."""
    with ExitStack() as stack:
        if store == "sqlite":
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            url = f"sqlite:///{Path(directory) / 'workflows.db'}"
            with closing(open_store(url)) as opened:
                opened.migrate()
            yield url, lambda: 0.0
        else:
            server = stack.enter_context(ThrowAwayPostgres(durable=True))
            with closing(open_store(server.url)) as opened:
                opened.migrate()
            status = server.directory / "data" / "postmaster.pid"
            postmaster = int(status.read_text().splitlines()[0])
            yield server.url, lambda: used_seconds(postmaster)


def main() -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("parts", nargs="*", default=["exact", "price", "large"])
    parser.add_argument("--stores", type=lambda text: text.split(","), default=[*NAMES])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--kills", type=int, default=36)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--claim", nargs=2, metavar=("URL", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.claim:
        claim_and_settle(*options.claim)
    for store in options.stores:
        if "exact" in options.parts:
            for shape in SHAPES:
                with place_of(store) as (url, _):
                    found = exactness(
                        url, shape, Size(options.jobs, options.processes, options.kills)
                    )
                print(f"{NAMES[store]}, {shape}: {found}")
        if "price" in options.parts:
            print(f"{NAMES[store]}, {options.jobs:,} jobs, {options.rounds} rounds by turns")
            with place_of(store) as (url, server):
                compare(url, options.jobs, options.rounds, server)
        if "large" in options.parts:
            print(f"{NAMES[store]}, {LARGE_JOBS:,} jobs in one workflow")
            with place_of(store) as (url, _):
                large(url)


if __name__ == "__main__":
    main()
