"""Outcomes that the database does not take: in a large batch, in one row, or for a while.

A handler that returned is not run again, and one bad row holds up no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

import rowlock
from rowlock import JobState
from rowlock.config import SETTLE_BYTES
from rowlock.errors import StoreRefused
from rowlock.ids import new_id
from rowlock.job import Lease
from rowlock.lifecycle import CancelSeen, Failed, Released, Succeeded
from rowlock.store import Settlement
from rowlock.store.sqlite.file import SqliteFile
from rowlock.worker.settler import fallback, rows_within, size_of
from tests.store.jobs import made, start
from tests.store.triggers import SAID, allow, refuse, sleep_by_size
from tests.support.metrics import Asking
from tests.support.workers import children_of, runners, worker
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.owner("puts a trigger on our table")

Ran = Counter[str]


def work_app(url: str) -> tuple[rowlock.App, Ran]:
    """An app whose handler returns, or raises, what it was given; how often each name ran."""
    app, ran = rowlock.App(url), Ran()

    @app.task(retry=rowlock.retry.fixed(0))
    async def work(name: str, size: int = 0, raises: bool = False) -> str:
        ran[name] += 1
        if raises:
            raise rowlock.Fail(name)
        return name + "x" * size

    @app.task
    async def lead(ctx: rowlock.Context, name: str, key: str) -> str:
        ran[name] += 1
        ctx.enqueue_on_success(work.using(key=key), name=f"after {name}")
        return name

    return app, ran


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # what others write rings no event of ours
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def working(app: rowlock.App, *, grace: float = 25) -> AsyncIterator[None]:
    try:
        async with app.worker(concurrency=40, lease=30, grace=grace):
            yield
    finally:
        await app.aclose()


async def ended(app: rowlock.App, jobs: list[rowlock.Job]) -> list[rowlock.Job]:
    return [await app.await_(job.id, timeout=60) for job in jobs]


def many(app: rowlock.App, count: int, **payload: object) -> list[rowlock.Job]:
    return app.enqueue_many(
        [
            {"kind": "work", "payload": {"name": f"n{number}", **payload}, "max_attempts": 3}
            for number in range(count)
        ]
    )


def assert_once(found: list[rowlock.Job], ran: Ran) -> None:
    assert {(job.state, job.attempt) for job in found} == {(JobState.SUCCEEDED, 1)}
    assert set(ran.values()) == {1}


@pytest.mark.direct("the timeout is set for the session")
@pytest.mark.parametrize("limit", ["options=-c%20statement_timeout%3D400ms", "call_timeout=0.4"])
def test_a_batch_that_takes_longer_than_a_statement_may(postgres_url, limit):
    """Each row takes 40 ms, and a batch of all of them longer than the limit, however often."""
    app, ran = work_app(f"{postgres_url}?{limit}")
    jobs = many(app, 60, size=1_000)
    sleep_by_size(postgres_url, table="finished", seconds_per_byte=4e-5)

    async def main() -> list[rowlock.Job]:
        async with working(app):
            return await ended(app, jobs)

    found = asyncio.run(main())

    assert_once(found, ran)
    assert {len(job.result) for job in found} == {1_002, 1_003}


def test_a_batch_that_is_too_long_for_sqlite(sqlite_url, monkeypatch):
    """Together the rows are longer than any value may be; one is so alone."""
    app, ran = work_app(sqlite_url)
    jobs = [*many(app, 40, size=10_000), *many(app, 1, size=200_000)]
    connect = SqliteFile.connect

    def limited(self: SqliteFile, turn: object) -> sqlite3.Connection:
        connection = connect(self, turn)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        return connection

    app.close()
    monkeypatch.setattr(SqliteFile, "connect", limited)

    async def main() -> list[rowlock.Job]:
        async with working(app):
            return await ended(app, jobs)

    *found, large = asyncio.run(main())

    assert {(job.state, job.attempt, job.result is not None) for job in found} == {
        (JobState.SUCCEEDED, 1, True)
    }
    assert (large.state, large.attempt, large.result) == (JobState.SUCCEEDED, 1, None)
    assert "ResultNotStored" in large.last_error
    assert {"n0": 2} | {f"n{number}": 1 for number in range(1, 40)} == ran


def test_a_result_that_is_refused(any_url):
    """The job has succeeded, without it, and says why; its neighbours have theirs."""
    app, ran = work_app(any_url)
    jobs = many(app, 20)
    refuse(any_url, table="finished", when="NEW.result = '\"n7\"'")

    async def main() -> list[rowlock.Job]:
        async with working(app):
            return await ended(app, jobs)

    found = asyncio.run(main())

    assert_once(found, ran)
    assert [f"n{number}" if number != 7 else None for number in range(20)] == [
        job.result for job in found
    ]
    assert found[7].last_error == f"ResultNotStored: the database refused it: {SAID}"


def test_an_error_text_that_is_refused(any_url):
    """The failure is recorded with another text, and stays one for good."""
    app, ran = work_app(any_url)
    jobs = many(app, 5, raises=True)
    refuse(any_url, table="finished", when="NEW.errors LIKE '%\"n3\"%'")

    async def main() -> list[rowlock.Job]:
        async with working(app):
            return await ended(app, jobs)

    found = asyncio.run(main())

    assert {(job.state, job.attempt) for job in found} == {(JobState.DEAD, 1)}
    assert [found[at].last_error for at in (0, 3)] == ["rowlock.Fail: n0", f"Unrecordable: {SAID}"]
    assert set(ran.values()) == {1}


def test_a_follow_up_that_is_refused(any_url):
    """Its parent is dead and is not run again; neighbours and their follow-ups are well."""
    app, ran = work_app(any_url)
    jobs = [app.enqueue("lead", {"name": f"n{number}", "key": f"k{number}"}) for number in range(5)]

    refuse(any_url, table="job", when="NEW.key = 'k2'")

    async def main() -> list[rowlock.Job]:
        async with working(app):
            found = await ended(app, jobs)
            await until(lambda: sum(ran.values()) == 9)
        return found

    found = asyncio.run(main())

    states = [JobState.SUCCEEDED] * 2 + [JobState.DEAD] + [JobState.SUCCEEDED] * 2
    assert [(state, 1) for state in states] == [(job.state, job.attempt) for job in found]
    assert "result_refused" in found[2].last_error
    assert {f"n{n}": 1 for n in range(5)} | {f"after n{n}": 1 for n in (0, 1, 3, 4)} == ran


def test_a_row_that_is_refused_whatever_it_holds(any_url, caplog):
    """It stays leased while others come and go, and is stored whole once it is taken."""
    app, ran = work_app(any_url)
    jobs = many(app, 10)
    own = f"NEW.id = '{jobs[4].id}'"
    # Two, so that only the whole row is taken once the first is gone, whenever that is.
    refuse(any_url, table="finished", when=f"{own} AND NEW.result IS NOT NULL", name="whole")
    refuse(any_url, table="finished", when=f"{own} AND NEW.result IS NULL", name="without")

    async def main() -> tuple[list[rowlock.Job], rowlock.Job | None]:
        async with working(app):
            found = await ended(app, jobs[:4] + jobs[5:])
            await until(lambda: "is tried again" in caplog.text)
            found += await ended(app, [await app.aenqueue("work", {"name": "later"})])
            held = await app.aget(jobs[4].id)
            allow(any_url, table="finished", name="whole")
            found += await ended(app, [jobs[4]])
        return found, held

    found, held = asyncio.run(main())

    assert held is not None and held.state is JobState.RUNNING
    assert_once(found, ran)
    assert found[-1].result == "n4"
    assert caplog.text.count("is tried again") == 1


def test_a_refused_row_is_given_up_with_its_worker(any_url, caplog):
    """A stop waits for the grace, says which job is left, and leaves it to its lease."""
    app, ran = work_app(any_url)
    jobs = many(app, 3)
    refuse(any_url, table="finished", when=f"NEW.id = '{jobs[1].id}'")

    async def main() -> None:
        async with working(app, grace=0.5):
            await until(lambda: "is tried again" in caplog.text)

    asyncio.run(main())
    with rowlock.App(any_url) as looking:
        found = [looking.get(job.id) for job in jobs]

    expected = [JobState.SUCCEEDED, JobState.RUNNING, JobState.SUCCEEDED]
    assert [job.state for job in found] == expected
    assert f"job {jobs[1].id}: its outcome could not be stored" in caplog.text
    assert set(ran.values()) == {1}


def test_batches_are_bounded_by_bytes(any_url):
    """By results, by payloads, which are copied when a job ends, and by follow-ups."""
    with rowlock.App(any_url) as app:
        large = start(app.store, payload=f'{{"text":"{"x" * 1_000}"}}')
    by_hand = Lease(id=large.id, token=1)
    sizes = [
        size_of(Settlement(by_hand, Succeeded("r" * 100))),
        size_of(Settlement(large, Succeeded(None))),
        size_of(Settlement(by_hand, Succeeded("r"), [made(payload="{}")])),
    ]

    assert sizes == [100, 1_011, 3]
    assert rows_within([SETTLE_BYTES // 4] * 10, SETTLE_BYTES) == 4
    assert rows_within([SETTLE_BYTES + 1] * 10, SETTLE_BYTES) == 0
    assert rows_within([1] * 10, SETTLE_BYTES) == 10


def test_a_drain_stores_what_is_taken(any_url):
    """In both colours: the result is left out, not the success."""
    app, ran = work_app(any_url)
    jobs = many(app, 4)
    refuse(any_url, table="finished", when="NEW.result IN ('\"n0\"', '\"n2\"')")
    app.drain(limit=2)

    async def main() -> None:
        await app.adrain()
        await app.aclose()

    asyncio.run(main())
    with rowlock.App(any_url) as looking:
        found = [looking.get(job.id) for job in jobs]

    assert_once(found, ran)
    assert [job.result for job in found] == [None, "n1", None, "n3"]


REFUSED = StoreRefused("here", "no")


@pytest.mark.parametrize(
    ("outcome", "chain"),
    [
        (Succeeded(None), []),
        (Succeeded("1"), [Succeeded(None, "the database refused it: no")]),
        (
            Failed("E", "m", "t", permanent=True, delay=3),
            [
                Failed("Unrecordable", "no", permanent=True, delay=3),
                Failed("Unrecordable", "", permanent=True, delay=3),
            ],
        ),
        (CancelSeen("why"), [CancelSeen()]),
        (Released(5, "why"), [Released(5)]),
    ],
)
def test_what_is_stored_instead(outcome, chain):
    """Less and less of it, and it comes to an end."""
    settlement: Settlement | None = Settlement(Lease(id=new_id(), token=1), outcome)
    found = []
    while (settlement := fallback(settlement, REFUSED)) is not None:
        found.append(settlement.outcome)

    assert chain == found


def test_a_job_that_cannot_be_buried_holds_up_no_other(any_url, tmp_path, port):
    """A child is killed with at-most-once jobs; the database refuses the end of one of them."""
    with rowlock.App(any_url) as app:
        jobs = [
            app.enqueue(
                "wait_for_file",
                {"path": str(tmp_path / "never"), "note": str(tmp_path / f"note{number}")},
                max_attempts=1,
            )
            for number in range(4)
        ]
        refuse(any_url, table="finished", when=f"NEW.id = '{jobs[1].id}'")
        words = ("--lease", "60", "--metrics-port", str(port))
        asking = Asking(port)
        with worker(app, *words) as process:
            places = [tmp_path / f"note{number}" for number in range(4)]
            wait_until(lambda: all(map(runners, places)), seconds=60)
            os.kill(children_of(process)[0], signal.SIGKILL)
            found = [app.wait(job.id, timeout=60) for job in (jobs[0], jobs[2], jobs[3])]
            wait_until(lambda: asking.number("rowlock_settles_refused_total") == 1, seconds=60)

        assert {job.state for job in found} == {JobState.DEAD}
        assert not app.get(jobs[1].id).state.is_terminal
        assert [len(runners(place)) for place in places] == [1] * 4
