"""Some thirty calls of a store, one after the other, that leave the same rows whenever they run.

Each reads what it needs from the store, and nothing is kept in memory between two of them: so any
process can go on after any of them.
"""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rowlock import config
from rowlock.clock import to_us
from rowlock.job import JobState, Lease, Policy
from rowlock.lifecycle import Succeeded
from rowlock.store import NewJob, Store
from rowlock.store.ops.manage import job_filter
from rowlock.store.ops.schedule import new_schedule
from rowlock.store.ops.settle import Settlement
from rowlock.store.options import new_job
from rowlock.store.sqlite.engine import SqliteEngine
from rowlock.store.sqlite.file import SqliteFile, WriteLock
from rowlock.store.sqlite.session import SqliteSession
from rowlock.store.steps import Rows, Statement, Step

# Small, so that the log is folded again and again.
FRAMES: Final = 60
MINUTE_US: Final = 60_000_000
_START_US: Final = to_us(datetime(2030, 1, 1, tzinfo=UTC), option="start")
_OUR_ID: Final = "01890000-0000-7000-8000-"
_FOREIGN_ID = re.compile(rf"(?!{_OUR_ID})[0-9a-f]{{8}}-[0-9a-f-]{{27}}")
_NOT_COMPARED: Final = ("instance", "secret", "migration")


class DeedClock:
    """Says the same time for the same deed, however often that is tried."""

    def __init__(self) -> None:
        self.deed = 0

    def now_us(self) -> int:
        # A day passes before the last ones, so that there is something to prune.
        days = 2 if self.deed >= DEEDS.index(prune) else 0
        return _START_US + self.deed * MINUTE_US + days * 24 * 60 * MINUTE_US

    def monotonic(self) -> float:
        return self.now_us() / 1_000_000


def open_for_deeds(path: Path, clock: DeedClock) -> Store:
    engine = SqliteEngine(f"sqlite:///{path}", schema="rowlock", clock=clock)
    return Store(engine, chance=random.Random(1))


def fold_often() -> None:
    """Have the log folded after a few of the deeds, in this process."""
    config.SQLITE_WAL_FRAMES = FRAMES  # type: ignore[misc]  # ten times as many checkpoints


def leave_unsynced() -> None:
    """A planted bug: commits are not synced, as with `synchronous = NORMAL`."""
    connect = SqliteFile.connect

    def careless(file: SqliteFile, turn: WriteLock) -> sqlite3.Connection:
        connection = connect(file, turn)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    SqliteFile.connect = careless  # type: ignore[method-assign,assignment]


def leave_halves() -> None:
    """A planted bug: every statement is a transaction of its own."""
    perform = SqliteSession.perform

    def careless(session: SqliteSession, step: Step) -> Rows:
        rows = perform(session, step)
        if isinstance(step, Statement) and session.connection.in_transaction:
            session.connection.execute("COMMIT")
            session.connection.execute("BEGIN IMMEDIATE")
        return rows

    SqliteSession.perform = careless  # type: ignore[method-assign,assignment]


PLANTS: Final = {"unsynced": leave_unsynced, "halves": leave_halves}


def stored(path: Path) -> str:
    """All rows of all tables, as one text that two runs have in common; the file must be sound."""
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        rows = connection.execute("PRAGMA integrity_check").fetchall()
        assert rows == [("ok",)], rows
        names = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if name.removeprefix("rowlock_") not in _NOT_COMPARED
        ]
        lines = [
            f"{name} {_FOREIGN_ID.sub('id', repr(row))}"
            for name in names
            for row in connection.execute(f"SELECT * FROM {name}")
        ]
    return "\n".join(sorted(lines))


def job(number: int, **options: Any) -> NewJob:
    payload = f'{{"number":{number},"text":"{"x" * 300}"}}'
    return new_job(kind="deed", payload=payload, id=f"{_OUR_ID}{number:012}", **options)


def running(store: Store) -> list[Lease]:
    jobs = sorted(store.list(job_filter(), state=JobState.RUNNING), key=lambda job: job.id)
    return [Lease(id=job.id, token=job.token, worker=job.worker or "") for job in jobs]


def id_in(store: Store, state: JobState) -> str:
    return min(job.id for job in store.list(job_filter(), state=state, limit=1000))


def open_and_migrate(store: Store) -> None:
    store.stats()


def enqueue_one(store: Store) -> None:
    store.enqueue([job(1, priority=5)])


def enqueue_some(store: Store) -> None:
    store.enqueue([job(number, tags=["some"]) for number in range(10, 30)])


def enqueue_with_a_key(store: Store) -> None:
    store.enqueue([job(40, key="key")])


def enqueue_with_the_same_key(store: Store) -> None:
    store.enqueue([job(41, key="key")])


def enqueue_for_later(store: Store) -> None:
    store.enqueue([job(42, delay=120)])


def enqueue_with_a_held_key(store: Store) -> None:
    store.enqueue([job(43, key="held", key_hold=600, priority=9)])


def claim_some(store: Store) -> None:
    store.claim(worker="w1", queues=["default"], limit=10, lease=3600)


def beat(store: Store) -> None:
    store.heartbeat(running(store), lease=3600)


def tell_progress(store: Store) -> None:
    store.progress(running(store)[0], fraction=0.5, text="half")


def tell_lines(store: Store) -> None:
    store.log(running(store)[0], [f"line {number}" for number in range(30)])


def succeed_two(store: Store) -> None:
    store.succeed(running(store)[:2], [{"sum": 3}, None])


def fail_for_now(store: Store) -> None:
    store.fail(running(store)[0], "boom", delay=30)


def fail_for_good(store: Store) -> None:
    store.fail(running(store)[0], "never", permanent=True)


def give_one_back(store: Store) -> None:
    store.release(running(store)[0], delay=10)


def cancel_a_waiting_one(store: Store) -> None:
    store.cancel(id_in(store, JobState.READY))


def cancel_a_running_one(store: Store) -> None:
    store.cancel(running(store)[0].id)


def end_the_cancelled_one(store: Store) -> None:
    store.finish_cancelled(running(store)[0], "asked to")


def put_a_schedule(store: Store) -> None:
    tick = new_job(kind="deed", payload="{}")
    store.put_schedule(new_schedule("each minute", tick, cron="* * * * *"))


def fire_it(store: Store) -> None:
    assert store.fire_due().job_ids


def succeed_with_followers(store: Store) -> None:
    followers = [job(number) for number in (50, 51)]
    store.settle([Settlement(running(store)[0], Succeeded(), followers)])


def crash(store: Store) -> None:
    store.crash(running(store)[:1], "signal 9")


def claim_for_a_moment(store: Store) -> None:
    store.claim(worker="w2", queues=["default"], limit=5, lease=1)


def recover_the_lost(store: Store) -> None:
    assert store.recover()


def retry_the_dead(store: Store) -> None:
    assert store.retry_dead(job_filter()).retried


def pause_a_queue(store: Store) -> None:
    store.pause("other")


def enqueue_together(store: Store) -> None:
    """Ten coroutines at once, in one commit or a few."""

    async def together() -> None:
        await asyncio.gather(*(store.aenqueue([job(number)]) for number in range(60, 70)))

    asyncio.run(together())


def enqueue_many(store: Store) -> None:
    store.enqueue([job(number, policy=Policy(keep=0)) for number in range(100, 400)])


def close_and_open(store: Store) -> None:
    """The last to close folds the log, and removes it."""
    store.close()
    store.stats()


def succeed_all(store: Store) -> None:
    store.succeed(running(store))


def claim_many(store: Store) -> None:
    store.claim(worker="w3", queues=["default"], limit=100, lease=3600)


def delete_one(store: Store) -> None:
    store.delete(id_in(store, JobState.CANCELLED))


def prune(store: Store) -> None:
    assert store.prune()


def enqueue_another(store: Store) -> None:
    store.enqueue([job(500)])


DEEDS: Final[list[Callable[[Store], None]]] = [
    open_and_migrate, enqueue_one, enqueue_some, enqueue_with_a_key, enqueue_with_the_same_key,
    enqueue_for_later, enqueue_with_a_held_key, claim_some, beat, tell_progress, tell_lines,
    succeed_two, fail_for_now, fail_for_good, give_one_back, cancel_a_waiting_one,
    cancel_a_running_one, end_the_cancelled_one, put_a_schedule, fire_it, succeed_with_followers,
    crash, claim_for_a_moment, recover_the_lost, retry_the_dead, pause_a_queue, enqueue_together,
    enqueue_many, close_and_open, claim_many, succeed_all, delete_one, prune, enqueue_another,
]  # fmt: skip
