"""What a child leases: it starts where it last saw jobs, and shares a claim between queues."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio

import rowlock
from rowlock import config
from rowlock.clock import from_us
from rowlock.errors import OptionInvalid
from rowlock.job import Lease
from rowlock.store.steps import News
from rowlock.worker.claims import Claimer, QueueRoom, Room, shares, weighted
from rowlock.worker.settings import worker_settings

BOUND_SECONDS = 20


@pytest_asyncio.fixture
async def app(any_url) -> AsyncIterator[rowlock.App]:
    clock = rowlock.ManualClock()
    async with rowlock.App(any_url, clock=clock) as app:
        app.task(_nothing, name="step")
        app.task(_nothing, name="other")
        yield app


def _nothing() -> None: ...


def claimer_of(app: rowlock.App, **options) -> Claimer:
    return Claimer(app.store, app, worker="w", settings=worker_settings(**options))


async def claim(claimer: Claimer, room: int = 10) -> list[Lease]:
    every = Room(room, room, lambda _: QueueRoom(room, room))
    leased = await claimer.claim(every, known=set(), sleep=asyncio.sleep)
    return leased.one_by_one()


async def claim_until(claimer: Claimer, ids: set[str]) -> list[str]:
    """Claim until these are found; all that was."""
    found: list[str] = []
    async with asyncio.timeout(BOUND_SECONDS):
        while not ids <= set(found):
            found += [lease.id for lease in await claim(claimer)]
    return found


async def enqueue(app: rowlock.App, count: int, **options) -> list[str]:
    items = [{"kind": "step", **options} for _ in range(count)]
    return [job.id for job in await app.aenqueue_many(items)]


async def idle_claimer(app: rowlock.App, **options) -> Claimer:
    """One that has found nothing, a while ago."""
    claimer = claimer_of(app, **options)
    assert await claim(claimer) == []
    claimer._looked_at = -math.inf
    return claimer


def looks_of(claimer: Claimer) -> list[None]:
    """Gets an entry for each look of the claimer."""
    looks: list[None] = []
    look = claimer._look

    async def counted() -> None:
        looks.append(None)
        await look()

    claimer._look = counted
    return looks


@pytest.mark.asyncio
async def test_a_lane_that_a_notification_names_is_claimed_without_a_look(app):
    """The claim itself makes sure that it may be."""
    claimer = await idle_claimer(app)
    looks = looks_of(claimer)
    (job,) = await enqueue(app, 1, priority=3)
    claimer.hint(News("default", -3, "step"))
    found = [lease.id for lease in await claim(claimer)]

    assert (found, looks) == ([job], [])


@pytest.mark.asyncio
async def test_other_lanes_are_looked_at_after_a_hint(app):
    """Their notifications may be coalesced with that of the lane which was named."""
    claimer = await idle_claimer(app)
    jobs = await enqueue(app, 1) + await enqueue(app, 1, queue="mail")
    claimer.hint(News("default", 0, "step"))
    found = await claim(claimer) + await claim(claimer)

    assert [lease.id for lease in found] == jobs


@pytest.mark.asyncio
async def test_a_paused_queue_is_not_claimed_on_a_hint(app):
    """Pauses count for every claim."""
    claimer = await idle_claimer(app)
    await app.apause("default")
    await enqueue(app, 1)
    claimer.hint(News("default", 0, "step"))

    assert await claim(claimer) == []


@pytest.mark.asyncio
async def test_a_queue_ordered_by_age_is_looked_at_in_spite_of_a_hint(app):
    """Its due retries have to be moved to their places first."""
    claimer = await idle_claimer(app)
    looks = looks_of(claimer)
    await app.aset_order("default", "created")
    (job,) = await enqueue(app, 1)
    claimer.hint(News("default", 0, "step"))
    found = [lease.id for lease in await claim(claimer)]

    assert (found, looks) == ([job], [None])


@pytest.mark.asyncio
async def test_what_is_more_urgent_comes_before_a_hint(app):
    """As if the notification had named no lane."""
    claimer = await idle_claimer(app)
    (urgent,) = await enqueue(app, 1, priority=9)
    await enqueue(app, 1)
    claimer.hint(News("default", 0, "step"))
    found = [lease.id for lease in await claim(claimer, room=1)]

    assert found == [urgent]


@pytest.mark.asyncio
async def test_a_later_queue_is_not_claimed_on_a_hint_in_strict_order(app):
    """All that waits in the first queue comes before it."""
    claimer = await idle_claimer(app, queues=["first", "second"], order="strict")
    (first,) = await enqueue(app, 1, queue="first")
    await enqueue(app, 1, queue="second")
    claimer.hint(News("second", 0, "step"))
    found = [lease.id for lease in await claim(claimer, room=1)]

    assert found == [first]


@pytest.mark.asyncio
async def test_a_kind_that_is_not_served_is_no_hint(app):
    """It is claimed by those who know it."""
    claimer = await idle_claimer(app, kinds=["other"])
    await enqueue(app, 1)
    claimer.hint(News("default", 0, "step"))

    assert await claim(claimer) == []


@pytest.mark.asyncio
async def test_it_goes_on_where_it_was(app):
    """Jobs of one lane come in their order, each once, with one look for many claims."""
    ids = await enqueue(app, 95)
    claimer = claimer_of(app)
    found = await claim_until(claimer, set(ids))

    assert ids == found
    assert await claim(claimer) == []


@pytest.mark.asyncio
async def test_what_was_given_back_is_found(app):
    """A release puts a job at its old place, which the claimer has passed."""
    ids = await enqueue(app, 200)
    claimer = claimer_of(app)
    first, *_ = await claim(claimer)
    await claim(claimer)
    await app.store.arelease(first)
    found = await claim_until(claimer, {first.id})

    assert len(found) <= len(ids)


@pytest.mark.asyncio
async def test_what_came_at_an_earlier_time_is_found(app):
    """The database's clock went back."""
    await enqueue(app, 200)
    claimer = claimer_of(app)
    await claim(claimer)
    before = from_us(app.store.engine.clock.now_us() - 3_600_000_000)
    async with rowlock.App(app.url, clock=rowlock.ManualClock(before)) as earlier:
        (late,) = await enqueue(earlier, 1)

    assert late in await claim_until(claimer, {late})


@pytest.mark.asyncio
async def test_what_is_more_urgent_is_found_at_the_next_look(app, monkeypatch):
    """A lane that was not there before comes first when it is seen."""
    await enqueue(app, 200)
    claimer = claimer_of(app)
    await claim(claimer)
    (urgent,) = await enqueue(app, 1, priority=9)
    monkeypatch.setattr(claimer, "_looked_at", -math.inf)

    assert urgent == (await claim(claimer))[0].id


@pytest.mark.asyncio
async def test_all_lanes_are_served(app):
    """Kinds and priorities compete as ever: by priority, then by time."""
    low = await enqueue(app, 20, priority=-1)
    high = await enqueue(app, 20, priority=1)
    other = [job.id for job in await app.aenqueue_many([{"kind": "other"} for _ in range(20)])]
    step = await enqueue(app, 20)
    found = await claim_until(claimer_of(app), {*low, *high, *other, *step})

    assert high + other + step + low == found


@pytest.mark.asyncio
@pytest.mark.parametrize("options", [{}, {"queues": ["busy", "calm"]}])
async def test_a_busy_queue_leaves_room_for_a_calm_one(app, options):
    """Every claim takes something of both."""
    await enqueue(app, 300, queue="busy")
    (calm,) = await enqueue(app, 1, queue="calm")
    leases = await claim(claimer_of(app, **options), room=50)

    assert calm in {lease.id for lease in leases}
    # What was kept free for the calm one is little.
    assert 40 <= len(leases) <= 50


@pytest.mark.asyncio
async def test_strict_order_lets_the_first_queue_have_all(app):
    """That is what it is for."""
    calm = await enqueue(app, 1, queue="calm")
    busy = await enqueue(app, 60, queue="busy")
    claimer = claimer_of(app, queues=["busy", "calm"], order="strict")

    assert busy[:50] == [lease.id for lease in await claim(claimer, room=50)]
    assert busy[50:] + calm == [lease.id for lease in await claim(claimer, room=50)]


@pytest.mark.asyncio
async def test_the_next_time_is_told(app):
    """In how many seconds a job that waits for its time will be due."""
    await app.aenqueue("step", delay=30)
    claimer = claimer_of(app)

    assert await claim(claimer) == []
    assert pytest.approx(claimer.due_in, abs=0.1) == 30


@pytest.mark.asyncio
async def test_paused_queues_and_foreign_kinds_are_left_alone(app):
    """Neither is looked at, whether queues are named or not."""
    await enqueue(app, 5, queue="paused")
    await app.aenqueue("foreign")
    await app.apause("paused")

    assert await claim(claimer_of(app)) == []
    assert await claim(claimer_of(app, queues=["paused", "default"])) == []


# What only PostgreSQL does: others' transactions end when they like.


@pytest_asyncio.fixture
async def server(postgres_url) -> AsyncIterator[rowlock.App]:
    async with rowlock.App(postgres_url) as app:
        app.task(_nothing, name="step")
        yield app


@pytest.mark.asyncio
async def test_what_was_committed_late_is_found(server):
    """Its time is that of its enqueue, long before it could be seen."""
    async with await psycopg.AsyncConnection.connect(server.url) as connection:
        late = await server.aenqueue("step", conn=connection)
        ids = await enqueue(server, 200)
        claimer = claimer_of(server)
        await claim_until(claimer, set(ids[:50]))
        await connection.commit()

        assert late.id in await claim_until(claimer, {late.id})


@pytest.mark.asyncio
async def test_what_another_had_locked_is_found(server):
    """Its claim was undone; we had passed over it."""
    ids = await enqueue(server, 200)
    claimer = claimer_of(server)
    async with await psycopg.AsyncConnection.connect(server.url) as connection:
        await connection.execute(
            "SELECT FROM rowlock.job WHERE id = ANY (%s) FOR UPDATE", [ids[:30]]
        )
        found = await claim_until(claimer, set(ids[30:60]))
        await connection.rollback()

    assert set(ids[:30]).isdisjoint(found)
    assert set(ids[:30]) <= set(await claim_until(claimer, set(ids[:30])))


@pytest.mark.asyncio
async def test_what_came_back_is_found_while_a_transaction_is_held(server):
    """Dead entries make looks dear; they are taken less often, but taken."""
    ids = await enqueue(server, 6_000)
    claimer = claimer_of(server)
    async with await psycopg.AsyncConnection.connect(server.url) as connection:
        await connection.execute("SELECT pg_current_xact_id(), count(*) FROM rowlock.job")
        first = (await claim(claimer))[0]
        while len(leases := await claim(claimer, room=500)) == 500:
            await server.store.asucceed(leases)
        await server.store.arelease(first)

        assert await claim_until(claimer, {first.id}) == [first.id]
    assert len(ids) == 6_000


def test_a_look_is_never_put_off_for_long():
    """However dear they are: that is how long something may lie below."""
    assert config.LOOK_SECONDS_MAX <= 2


@pytest.mark.asyncio
async def test_traffic_of_one_kind_is_not_mixed(app):
    """Large batches are for jobs that come before nothing else."""
    await enqueue(app, 20)
    claimer = claimer_of(app)
    await claim(claimer)

    assert not claimer.is_mixed


@pytest.mark.asyncio
@pytest.mark.parametrize("options", [{"queue": "calm"}, {"priority": 3}])
async def test_other_queues_and_priorities_make_it_mixed(app, options):
    """As soon as they are seen, so that the next of them need not wait for a large batch."""
    await enqueue(app, 20)
    await enqueue(app, 1, **options)
    claimer = claimer_of(app)
    await claim(claimer)

    assert claimer.is_mixed


QUEUES = {"mail": 20, "default": 5, "rare": 0}


def test_each_queue_comes_first_as_often_as_its_weight_says():
    """20 : 5 : 1, as an unnumbered queue weighs one."""
    chance = random.Random(1)
    firsts = Counter(weighted(QUEUES, chance=chance)[0] for _ in range(26_000))

    assert {queue: round(count / 1000) for queue, count in firsts.items()} == {
        "mail": 20,
        "default": 5,
        "rare": 1,
    }


def test_every_queue_is_in_every_order_once():
    """Nothing is left out, and nothing asked twice."""
    chance = random.Random(2)

    assert all(sorted(QUEUES) == sorted(weighted(QUEUES, chance=chance)) for _ in range(100))


def test_equal_weights_give_every_order():
    """None has a place of its own."""
    chance = random.Random(3)
    orders = Counter(tuple(weighted(dict.fromkeys("abc", 2), chance=chance)) for _ in range(6_000))

    assert len(orders) == 6
    assert all(800 < count < 1200 for count in orders.values())


def test_shares_leave_something_for_each():
    """The first takes most; together they ask for no less than there is room."""
    taken = shares(["a", "b", "c"], {"a": 0, "b": 2, "c": 1}, 100)

    assert taken == {"a": 82, "b": 94, "c": 100}
    assert {key: min(1, most) for key, most in shares("ab", {}, 1).items()} == {"a": 1, "b": 1}


def test_a_strict_order_needs_names():
    """Without queues there is no order to keep, and a misspelt one is refused."""
    with pytest.raises(OptionInvalid, match="named"):
        worker_settings(order="strict")
    with pytest.raises(OptionInvalid, match="strict or weighted"):
        worker_settings(queues=["a"], order="random")
    assert worker_settings(queues=["a"]).order == "weighted"
