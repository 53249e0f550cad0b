"""The database refuses to store the end of a lost job: all others are given back all the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from rowlock import config
from rowlock.clock import ManualClock
from rowlock.errors import StoreRefused
from rowlock.job import JobState
from rowlock.store import Store, open_store
from rowlock.store.local_state import SetAside
from rowlock.store.ops.recover import release_unknown
from tests.store.jobs import claim, enqueue, enqueue_ids, state_of
from tests.store.triggers import allow, refuse

pytestmark = pytest.mark.owner("puts a trigger on our table")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(any_url: str, clock: ManualClock) -> Iterator[Store]:
    """A store on a database of the test's own: it gets triggers."""
    with closing(open_store(any_url, clock=clock)) as opened:
        opened.migrate()
        yield opened


def lose(store: Store, clock: ManualClock, count: int, *, url: str) -> list[str]:
    """Jobs whose only attempt was lost; the end of the fourth is refused."""
    ids = enqueue_ids(store, count, max_attempts=1)
    claim(store, worker="gone", limit=count)
    refuse(url, table="finished", when=f"NEW.id = '{ids[3]}'")
    clock.advance(60)
    return ids


def ends(store: Store, ids: list[str]) -> list[JobState]:
    return [state_of(store, id) for id in ids]


def one_running(count: int) -> list[JobState]:
    return [JobState.RUNNING if at == 3 else JobState.DEAD for at in range(count)]


def warnings(caplog: pytest.LogCaptureFixture, id: str) -> int:
    return sum(f"job {id} can't be given back" in message for message in caplog.messages)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_claim_goes_around_it(
    any_url: str,
    store: Store,
    clock: ManualClock,
    is_async: bool,
    caplog: pytest.LogCaptureFixture,
):
    """The claim leases what is due, buries the other lost jobs, and tells of the one it can't."""
    ids = lose(store, clock, 20, url=any_url)
    due = enqueue_ids(store, 2)

    async def aclaim() -> list[str]:
        own = open_store(any_url, clock=clock)
        try:
            return [
                lease.id
                for _ in range(20)
                for lease in await own.aclaim(worker="w", queues=["default"], limit=5)
            ]
        finally:
            await own.aclose()

    if is_async:
        claimed = asyncio.run(aclaim())
    else:
        claimed = [lease.id for _ in range(20) for lease in claim(store, limit=5)]

    assert claimed == due
    assert ends(store, ids) == one_running(20)
    assert warnings(caplog, ids[3]) == 1


@pytest.mark.parametrize("how", ["ABORT", "ROLLBACK"])
def test_concurrent_claims_on_sqlite_go_around_it(sqlite_url: str, clock: ManualClock, how: str):
    """They share transactions, and one of them may undo that of all."""

    async def main() -> tuple[list[str], list[str], list[JobState]]:
        store = open_store(sqlite_url, clock=clock)
        store.migrate()
        ids = enqueue_ids(store, 5, max_attempts=1)
        claim(store, worker="gone", limit=5)
        refuse(sqlite_url, table="finished", when=f"NEW.id = '{ids[3]}'", how=how)
        clock.advance(60)
        due = enqueue_ids(store, 8)
        leases = await asyncio.gather(
            *[store.aclaim(worker=f"w{n}", queues=["default"]) for n in range(8)]
        )
        found = ends(store, ids)
        await store.aclose()
        return sorted(due), sorted(lease.id for one in leases for lease in one), found

    due, claimed, found = asyncio.run(main())

    assert claimed == due
    assert found == one_running(5)


def _recover(store: Store) -> int:
    return store.recover()


def _adopt(store: Store) -> int:
    return store.adopt_orphans(["default"], action="park", older_than=1)


def _release(store: Store) -> int:
    return store.release_worker("gone")


@pytest.mark.parametrize("verb", [_recover, _adopt])
def test_a_recovery_goes_around_it(
    any_url: str, store: Store, clock: ManualClock, verb: Callable[[Store], int], caplog
):
    """It gives back all others, and that one too as soon as the database takes it."""
    ids = lose(store, clock, 20, url=any_url)
    first = verb(store)
    found = ends(store, ids)
    allow(any_url, table="finished")
    second = verb(store)

    assert (first, second) == (19, 1)
    assert found == one_running(20)
    assert ends(store, ids) == [JobState.DEAD] * 20
    assert warnings(caplog, ids[3]) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_releases_go_around_it(
    any_url: str, store: Store, clock: ManualClock, is_async: bool, caplog
):
    """A worker's leases are given back; one that was asked to cancel can't end."""
    ids = enqueue_ids(store, 5)
    claim(store, worker="gone", limit=5)
    store.cancel(ids[3])
    refuse(any_url, table="finished", when=f"NEW.id = '{ids[3]}'")

    async def arelease() -> int:
        own = open_store(any_url, clock=clock)
        try:
            return await own.arun(release_unknown("gone", known=()))
        finally:
            await own.aclose()

    count = asyncio.run(arelease()) if is_async else store.release_worker("gone")

    assert count == 4
    assert ends(store, ids) == [*[JobState.READY] * 3, JobState.RUNNING, JobState.READY]
    assert warnings(caplog, ids[3]) == 1


def test_many_refusals_stop_no_claim(
    any_url: str, store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    """A claim gives up on the lost jobs after some refusals; a recovery says that it did."""
    count = 2 * config.SWEEP_REFUSALS_MAX
    lost = enqueue_ids(store, count, max_attempts=1)
    claim(store, worker="gone", limit=count)
    refuse(any_url, table="finished", when="NEW.state = 'dead'")
    clock.advance(60)
    due = enqueue(store)
    claimed = [lease.id for lease in claim(store, limit=5)]
    with pytest.raises(StoreRefused):
        store.recover()

    assert claimed == [due.id]
    assert ends(store, lost) == [JobState.RUNNING] * count


def test_a_refusal_at_the_end_of_the_transaction(
    postgres_url: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    """A deferred constraint refuses the COMMIT, not the statement."""
    with closing(open_store(postgres_url, clock=clock)) as store:
        store.migrate()
        ids = enqueue_ids(store, 8, max_attempts=1)
        claim(store, worker="gone", limit=8)
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(
                "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'no'; END $$"
            )
            connection.execute(
                "CREATE CONSTRAINT TRIGGER mine AFTER INSERT ON rowlock.finished "
                f"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.id = '{ids[3]}') "
                "EXECUTE FUNCTION mine()".encode()
            )
        clock.advance(60)
        due = enqueue(store)
        claimed = [lease.id for lease in claim(store, limit=5)]
        store.recover()
        found = ends(store, ids)

    assert claimed == [due.id]
    assert found == one_running(8)


def test_a_claim_that_is_refused_itself_blames_no_lost_job(
    sqlite_url: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    """Only refusals of ends are gone around."""
    with closing(open_store(sqlite_url, clock=clock)) as store:
        store.migrate()
        (lost,) = enqueue_ids(store, 1, max_attempts=1)
        claim(store, worker="gone")
        refuse(sqlite_url, table="job", when="NEW.worker = 'w1'", event="UPDATE")
        clock.advance(60)
        enqueue(store)
        with pytest.raises(StoreRefused):
            claim(store)
        found = state_of(store, lost)

    assert found is JobState.DEAD
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_what_is_set_aside_is_tried_again_later():
    """It is left out for a minute, and known again when it is refused after that."""
    now = 1000.0
    aside = SetAside(lambda: now)
    first = aside.add(("a", 1))
    held = set(aside.leases)
    now += config.SWEEP_REFUSED_SECONDS
    later = set(aside.leases)
    again = aside.add(("a", 1))
    now += 3 * config.SWEEP_REFUSED_SECONDS
    aside.add(("b", 1))
    last = aside.add(("a", 1))

    assert (first, again, last) == (True, False, True)
    assert (held, later) == ({("a", 1)}, set())


def test_what_is_set_aside_is_bounded():
    """The oldest are tried again first."""
    aside = SetAside(lambda: 0.0)
    for number in range(config.SET_ASIDE_MAX + 5):
        aside.add((str(number), 1))

    assert len(aside.leases) == config.SET_ASIDE_MAX
    assert ("4", 1) not in aside.leases
