"""Measures what a limit costs: limited and plain jobs take turns, from their claims to their ends.

    python -m benchmarks.limited postgres --jobs 10000 --turns 5
    python -m benchmarks.limited postgres --held --turns 10
    python -m benchmarks.limited sqlite --only "plain;crowd" --crowd 1000000

No worker runs: one process claims and settles by 100, as a worker's child does. Printed for each
sort of limit: CPU microseconds per job (this process and the server), jobs a second, and both as
a share of the plain jobs of the same turns. With `--held`, a transaction is open elsewhere from the
first turn to the last, and the share of the first turn that is left at the last is printed.

`crowd`: another key's job, and a plain one, are claimed while many jobs wait at full keys, and many
keys are closed. Printed in milliseconds per claim.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg

from benchmarks.turns import Postgres, Sqlite, place
from rowlock.limits import Limit, Rate
from rowlock.store import NewJob, Store, open_store
from rowlock.store.ops.claim import ClaimRequest, View, claim_seen, look
from rowlock.store.options import LimitPlace, new_job
from rowlock.store.rotation import Rotation

BATCH = 100
QUEUE = "default"
PAYLOAD = '{"n":1}'
LEASE_US = 60_000_000


class Sort(NamedTuple):
    """A sort of limit: how many keys it has, and its rules. No keys: plain jobs."""

    keys: int
    limit: Limit | None = None


SORTS = {
    "plain": Sort(0),
    "1 key": Sort(1, Limit("one", per="k", concurrency_per_key=1_000)),
    "100 keys": Sort(100, Limit("hundred", per="k", concurrency_per_key=2)),
    "1,000 keys, limit 1": Sort(1_000, Limit("thousand", per="k", concurrency_per_key=1)),
    "100 keys, total": Sort(100, Limit("total", concurrency=150, per="k", concurrency_per_key=2)),
    "100 keys, rate": Sort(
        100, Limit("rate", per="k", rate_per_key=Rate(100_000, period=1, burst=100_000))
    ),
    "5,000 tenants, fair": Sort(5_000, Limit("fair", per="k")),
    "1,000 keys, order": Sort(1_000, Limit("order", per="k", ordered=True)),
}


def jobs_of(sort: Sort, number: int, *, kind: str) -> list[NewJob]:
    limit = sort.limit
    model = new_job(kind=kind, payload=PAYLOAD, queue=QUEUE, policy="{}", max_attempts=20)
    jobs = [model.again(PAYLOAD) for _ in range(number)]
    if limit is None:
        return jobs
    name, is_ordered = limit.name or "", limit.is_ordered
    return [
        job._replace(limit=LimitPlace(name, f"k{number % sort.keys:06d}", is_ordered))
        for number, job in enumerate(jobs)
    ]


class Spent(NamedTuple):
    """What a turn took."""

    wall: float
    client: float
    server: float


class Bench:
    """A database, and one worker's claims on it."""

    def __init__(self, where: Postgres | Sqlite) -> None:
        self.where = where
        self.url = where.url()
        self.store: Store = open_store(self.url)
        self.store.migrate()
        self.store.declare_limits([sort.limit.declared for sort in SORTS.values() if sort.limit])
        self._request = ClaimRequest(
            "worker", {QUEUE: BATCH}, None, None, BATCH, LEASE_US, rotation=Rotation()
        )

    def turn(self, name: str, number: int) -> Spent:
        """Enqueue jobs of a sort, and measure their claims and ends."""
        sort = SORTS[name]
        kind = name.replace(",", "").replace(" ", "_")
        jobs = jobs_of(sort, number, kind=kind)
        for start in range(0, number, 5_000):
            self.store.enqueue(jobs[start : start + 5_000])
        if isinstance(self.where, Postgres):
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE rowlock.job")
        before = (time.perf_counter(), time.process_time(), self.where.cpu())
        done = self.drain(number)
        after = (time.perf_counter(), time.process_time(), self.where.cpu())
        assert done == number, f"{name}: {done} of {number} jobs"
        return Spent(*(b - a for a, b in zip(before, after, strict=True)))

    def drain(self, number: int) -> int:
        done = 0
        view = View()
        while done < number:
            if not view:
                self._request.rotation.look_again()
                view = self.store.run(look(queues=[QUEUE], kinds=None))
            claimed = self.store.run(claim_seen(self._request, view))
            view = claimed.view
            if claimed.leases:
                self.store.succeed(claimed.leases)
                done += len(claimed.leases)
        return done

    def claim_ms(self, kind: str) -> float:
        """How long a look and a claim of one job of a kind take."""
        request = ClaimRequest(
            "other", {QUEUE: 1}, [kind], None, 1, LEASE_US, rotation=self._request.rotation
        )
        start = time.perf_counter()
        request.rotation.look_again()
        view = self.store.run(look(queues=[QUEUE], kinds=[kind]))
        claimed = self.store.run(claim_seen(request, view))
        # A claim visits some keys only. The next one goes on behind them.
        while claimed.view.due_in == 0.0 and not claimed.leases:
            claimed = self.store.run(claim_seen(request, claimed.view))
        spent = (time.perf_counter() - start) * 1_000
        assert len(claimed.leases) == 1, f"{kind}: {claimed}"
        self.store.succeed(claimed.leases)
        return spent


@contextmanager
def held_transaction(bench: Bench, *, is_wanted: bool) -> Iterator[None]:
    """A transaction that has written and stays open."""
    if not is_wanted:
        yield
        return
    with psycopg.connect(bench.url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT pg_current_xact_id(), count(*) FROM pg_class")
        yield


def compare(bench: Bench, names: list[str], jobs: int, turns: int, *, is_held: bool) -> None:
    spent: dict[str, list[Spent]] = {name: [] for name in names}
    with held_transaction(bench, is_wanted=is_held):
        for _ in range(turns):
            for name in names:
                spent[name].append(bench.turn(name, jobs))

    def middle(name: str, of: Callable[[Spent], float]) -> float:
        return statistics.median(map(of, spent[name]))

    for name in names:
        client, server = middle(name, lambda each: each.client), middle(name, lambda e: e.server)
        wall = middle(name, lambda each: each.wall)
        line = f"{name:>22}  {(client + server) / jobs * 1e6:6.1f} µs"
        line += f" ({client / jobs * 1e6:.1f} + {server / jobs * 1e6:.1f})"
        line += f"  {jobs / wall:8,.0f} jobs/s"
        if "plain" in spent:
            plain = middle("plain", lambda each: each.client + each.server)
            share = plain / middle(name, lambda each: each.client + each.server)
            wall_share = middle("plain", lambda each: each.wall) / wall
            line += f"  CPU {share:.2f}  wall {wall_share:.2f} of plain"
        if is_held:
            first, last = spent[name][0].wall, statistics.median(e.wall for e in spent[name][-3:])
            line += f"  kept {first / last:.2f}"
        print(line, flush=True)


def crowd(bench: Bench, waiting: int, closed: int) -> None:
    """Claims of others, beside many jobs at full keys and many keys that are closed."""
    full = Limit("full", per="k", concurrency_per_key=1)
    slow = Limit("slow", per="k", rate_per_key=Rate(1, period=86_400))
    bench.store.declare_limits([full.declared, slow.declared])
    crowded = Sort(100, full)
    for start in range(0, waiting, 5_000):
        bench.store.enqueue(jobs_of(crowded, min(5_000, waiting - start), kind="crowd"))
    held = bench.store.claim(worker="holder", queues=[QUEUE], limit=100, lease=3_600)
    print(f"{waiting:,} jobs wait at {len(held)} full keys")
    for name, job in (
        ("another key", LimitPlace("full", "zeta")),
        ("plain", None),
    ):
        times: list[float] = []
        for _ in range(50):
            made = new_job(kind="crowd", payload=PAYLOAD, queue=QUEUE, limit=job)
            bench.store.enqueue([made])
            times.append(bench.claim_ms("crowd"))
        print(f"  {name}: p50 {statistics.median(times):.2f} ms, largest {max(times):.2f} ms")
    bench.store.release_worker("holder")
    one_each = [
        new_job(
            kind="slow", payload=PAYLOAD, queue="slow", limit=LimitPlace("slow", f"k{number:06d}")
        )
        for number in range(closed)
        for _ in range(2)
    ]
    for start in range(0, len(one_each), 5_000):
        bench.store.enqueue(one_each[start : start + 5_000])
    started = 0
    while leases := bench.store.claim(worker="w", queues=["slow"], limit=1_000):
        bench.store.succeed(leases)
        started += len(leases)
    print(f"{started:,} keys are closed by their rate")
    request = ClaimRequest(
        "w", {"slow": 100}, None, None, 100, LEASE_US, rotation=bench._request.rotation
    )
    times = []
    view = View()
    for _ in range(200):
        if not view:
            view = bench.store.run(look(queues=["slow"], kinds=None))
        start_at = time.perf_counter()
        claimed = bench.store.run(claim_seen(request, view))
        times.append((time.perf_counter() - start_at) * 1_000)
        assert not claimed.leases
        view = claimed.view
    times.sort()
    print(f"  a claim there: p50 {times[100]:.2f} ms, p99 {times[198]:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limited", description=__doc__)
    parser.add_argument("store", choices=["postgres", "sqlite"])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--held", action="store_true")
    parser.add_argument("--only", help="sorts, separated by semicolons; crowd is one of them")
    parser.add_argument("--crowd", type=int, default=100_000, help="jobs at full keys")
    parser.add_argument("--closed", type=int, default=10_000, help="keys closed by their rate")
    asked = parser.parse_args()
    wanted = asked.only.split(";") if asked.only else [*SORTS, "crowd"]
    with place(asked.store) as where:
        bench = Bench(where)
        names = [name for name in wanted if name in SORTS]
        if names:
            compare(bench, names, asked.jobs, asked.turns, is_held=asked.held)
        if "crowd" in wanted:
            crowd(bench, asked.crowd, asked.closed)
        bench.store.close()


if __name__ == "__main__":
    main()
