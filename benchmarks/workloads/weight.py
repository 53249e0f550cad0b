"""Weight: does what lies in the tables slow down what is to be done? And does a child grow?

A backlog, a long history, a history that is being dropped, a million jobs of a kind that nobody
here serves, a million of a higher priority that are not due. Each is compared with the same drain
without it, by turns. The rows are written by SQL: a million of them are only there to lie there.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from benchmarks.bench import Bench
from benchmarks.contestants import Contestant
from benchmarks.limits import DAY_US, POLICY
from benchmarks.places import Database, PostgresDatabase
from benchmarks.record import new_record
from benchmarks.results import Figures
from benchmarks.workloads.watch import wait_for, watch_drain, watch_first
from rowlock import App

FEW = 5_000
KINDS = ("noop", "foreign", "later", "old", "gone")
# A peer's backlog is filled by its own bulk call; one that is slower would take too long.
BULK_PER_SECOND_MIN = 20_000.0
# Rows of one INSERT: a transaction of ten million would be one long commit.
FILL_ROWS = 1_000_000

_READY = """
INSERT INTO {schema}job (id, kind, queue, rank, payload, run_at, created_at, policy)
SELECT {id}, {kind}, 'default', {rank}, {payload}, {now} + {delay} + number / 1000, {now}, {policy}
FROM {numbers}"""
_FINISHED = """
INSERT INTO {schema}finished (
    id, run_at, created_at, started_at, finished_at, expires_at, token, attempt, crashes,
    log_lines, rank, cancel_requested, lease_taken, state, kind, queue, payload, policy
)
SELECT {id}, {now}, {now}, {now}, {now}, {now} + {delay}, 1, 1, 0, 0, 0, false, false, 'succeeded',
    {kind}, 'default', {payload}, {policy}
FROM {numbers}"""
_POSTGRES = {
    "schema": "rowlock.",
    # In their order, as ids that begin with a time are.
    "id": "lpad(to_hex({first} + number), 32, '0')::uuid",
    "now": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    "payload": (
        'format(\'{{"i":%s,"t":0.0,"to":"someone@example.com","template":"welcome",'
        '"lang":"en"}}\', {offset} + number)'
    ),
    "numbers": "generate_series(0, {rows} - 1) AS number",
}
_SQLITE = {
    "schema": "rowlock_",
    "id": "printf('00000000-0000-0000-0000-%012x', {first} + number)",
    "now": "(strftime('%s', 'now') * 1000000)",
    "payload": (
        'printf(\'{{"i":%d,"t":0.0,"to":"someone@example.com","template":"welcome",'
        '"lang":"en"}}\', {offset} + number)'
    ),
    "numbers": (
        "(WITH RECURSIVE counted (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM counted"
        " WHERE number < {rows} - 1) SELECT number FROM counted)"
    ),
}


def fill(
    database: Database,
    count: int,
    *,
    kind: str,
    offset: int = 0,
    is_finished: bool = False,
    delay: int = -60_000_000,
    rank: int = 0,
) -> None:
    """Write jobs with the numbers from `offset` on; finished ones, or such as are ready.

    `delay` is in how many microseconds they are due, or have been kept for long enough.
    """
    words = _POSTGRES if isinstance(database, PostgresDatabase) else _SQLITE
    template = _FINISHED if is_finished else _READY
    for start in range(0, count, FILL_ROWS):
        places = {
            # Apart from the ids of other fills.
            "first": (1 << 40) * (1 + KINDS.index(kind)) + offset + start,
            "offset": offset + start,
            "rows": min(FILL_ROWS, count - start),
        }
        filled = {name: text.format(**places) for name, text in words.items()}
        filled |= {"kind": f"'{kind}'", "policy": f"'{POLICY.encoded()}'"}
        filled |= {"delay": str(delay), "rank": str(rank)}
        database.execute(template.format(**filled))


def history_and_foreign(bench: Bench, contestant: Contestant) -> None:
    """The same drain on four databases; then looks at the fullest, and its retention at work."""
    sizes = bench.sizes
    with ExitStack() as stack:
        databases = {
            variant: stack.enter_context(bench.fresh(contestant))
            for variant in ("nothing", "finished", "foreign", "scheduled")
        }
        bench.say(f"weight: filling {sizes.finished:,} finished, {contestant.store}")
        fill(databases["finished"], sizes.finished, kind="old", is_finished=True, delay=DAY_US)
        fill(databases["foreign"], sizes.foreign, kind="foreign")
        fill(databases["scheduled"], sizes.foreign, kind="later", delay=DAY_US, rank=-5)
        for database in databases.values():
            database.settle()
        for _ in range(sizes.side_repeats):
            for variant, database in databases.items():
                with bench.turn("weight", contestant, variant) as figures:
                    figures.update(_drain_on(bench, contestant, database))
        for variant in ("finished", "foreign"):
            with bench.turn("looks", contestant, variant) as figures:
                figures.update(look_around(databases[variant].url))
        fill(databases["nothing"], sizes.foreign, kind="gone", is_finished=True)
        databases["nothing"].settle()
        with bench.turn("weight", contestant, "retention") as figures:
            figures.update(_drain_beside_retention(bench, contestant, databases["nothing"]))


def look_around(url: str) -> Figures:
    """What a dashboard asks for, in milliseconds, the median of a few times."""
    with App(url) as app:
        looks: dict[str, Callable[[], object]] = {
            "stats": app.stats,
            "newest page": app.list,
            "page of a state": lambda: app.list(state="succeeded"),
            "page of the dead": lambda: app.list(state="dead"),
            "page of a rare kind": lambda: app.list(kind="nowhere"),
            "workers": app.workers,
        }
        return {name: statistics.median(_milliseconds(look, 5)) for name, look in looks.items()}


def _milliseconds(look: Callable[[], object], times: int) -> list[float]:
    taken: list[float] = []
    for _ in range(times):
        start = time.perf_counter()
        look()
        taken.append(1_000 * (time.perf_counter() - start))
    return taken


def _drain_beside_retention(bench: Bench, contestant: Contestant, database: Database) -> Figures:
    with App(database.url) as app, ThreadPoolExecutor(1) as thread:
        start = time.perf_counter()
        pruning = thread.submit(app.store.prune)
        figures = _drain_on(bench, contestant, database)
        pruned = pruning.result()
        return figures | {"pruned": pruned, "prune_s": time.perf_counter() - start}


def _drain_on(bench: Bench, contestant: Contestant, database: Database) -> Figures:
    jobs = bench.sizes.drain_jobs
    contestant.call(database, "preload", 0, jobs)
    with (
        new_record(jobs, bench.directory) as record,
        contestant.workers(database, record, log=bench.log) as crew,
    ):
        return watch_drain(contestant, database, record, crew, until_settled=False)


def backlog(bench: Bench, contestant: Contestant) -> None:
    """The first 5,000 of few and of many that wait; then ours drains a million, and is weighed."""
    sizes = bench.sizes
    if not contestant.is_ours and not _is_quick_to_fill(bench, contestant):
        return
    few = min(FEW, sizes.backlog // 2)
    # Each repeat takes some, and the number must stay a million.
    many = sizes.backlog + sizes.backlog_repeats * 4 * few
    with bench.fresh(contestant) as database:
        bench.say(f"backlog: filling {many:,}, {contestant.name} {contestant.store}")
        if contestant.is_ours:
            fill(database, many, kind="noop")
        else:
            contestant.call(database, "preload", 0, many)
        database.settle()
        for _ in range(sizes.backlog_repeats):
            with bench.turn("backlog", contestant, "few") as figures:
                figures["per_s"] = _first_of_few(bench, contestant, few)
            with bench.turn("backlog", contestant, "many") as figures:
                figures["per_s"] = _first(bench, contestant, database, waiting=many, need=few)
        if contestant.is_ours:
            _memory(bench, contestant, database, offset=many)


def _is_quick_to_fill(bench: Bench, contestant: Contestant) -> bool:
    rate = bench.results.median("enqueue_bulk", contestant.name, contestant.store, "per_s")
    return rate is not None and rate >= BULK_PER_SECOND_MIN


def _first_of_few(bench: Bench, contestant: Contestant, few: int) -> float:
    with bench.fresh(contestant) as database:
        contestant.call(database, "preload", 0, few)
        database.settle()
        return _first(bench, contestant, database, waiting=few, need=few)


def _first(
    bench: Bench, contestant: Contestant, database: Database, *, waiting: int, need: int
) -> float:
    with (
        new_record(waiting, bench.directory) as record,
        contestant.workers(database, record, log=bench.log) as crew,
    ):
        return watch_first(record, crew, need)


def _memory(bench: Bench, contestant: Contestant, database: Database, *, offset: int) -> None:
    """The memory of a child after some jobs, and after many."""
    sizes = bench.sizes
    assert contestant.left is not None
    missing = max(0, sizes.memory_last - database.ask(contestant.left))
    fill(database, missing, kind="noop", offset=offset)
    with (
        bench.turn("memory", contestant) as figures,
        new_record(offset + missing, bench.directory) as record,
        contestant.workers(database, record, log=bench.log) as crew,
    ):
        wait_for(record.done, sizes.memory_first, crew)
        figures["first_mib"] = crew.largest_mib()
        wait_for(record.done, sizes.memory_last, crew)
        figures["last_mib"] = crew.largest_mib()
        figures.update({"first": sizes.memory_first, "last": sizes.memory_last})
