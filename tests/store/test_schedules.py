"""Schedules: each tick fires once, missed ones by their policy, changed ones from now on."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from rowlock.clock import ManualClock
from rowlock.errors import NotFound, OptionInvalid
from rowlock.job import Job
from rowlock.schedule import MissedTicks, Schedule, ScheduleSource
from rowlock.store import NewSchedule, Store, open_store
from rowlock.store.ops.schedule import new_schedule
from tests.store.jobs import EVERY_JOB, claim, kept_for, made, stored

# Where the clock of these tests stands at first.
START = datetime(2030, 1, 1, tzinfo=UTC)
SCHEDULERS = 3
DAY = timedelta(days=1)


def new(
    name: str = "s",
    *,
    cron: str = "0 * * * *",
    timezone: str = "UTC",
    missed: str = "skip",
    **options: Any,
) -> NewSchedule:
    return new_schedule(name, made(**options), cron=cron, timezone=timezone, missed=missed)


def find(store: Store, name: str = "s") -> Schedule:
    (found,) = (schedule for schedule in store.list_schedules() if schedule.name == name)
    return found


def jobs_of(store: Store) -> list[Job]:
    return sorted(store.list(EVERY_JOB, limit=1000, full=True).jobs, key=lambda job: job.id)


def ticks_of(store: Store) -> list[str]:
    return [job.meta["tick"] for job in jobs_of(store)]


def hours(*numbers: float) -> list[str]:
    return [(START + timedelta(hours=number)).isoformat() for number in numbers]


def test_a_tick_fires_when_it_is_due(store: Store, clock: ManualClock):
    """Nothing before, one job at its time, and nothing again until the next."""
    store.put_schedule(new())
    clock.advance(3599.999999)
    early = store.fire_due()
    clock.advance(0.000001)
    due = store.fire_due()
    again = store.fire_due()

    assert (early.job_ids, early.wait_seconds) == ([], pytest.approx(0.000001))
    assert (len(due.job_ids), due.wait_seconds) == (1, 3600)
    assert (again.job_ids, again.wait_seconds) == ([], 3600)
    assert hours(1) == ticks_of(store)


def test_a_tick_makes_a_complete_job(store: Store, clock: ManualClock):
    """What was said of the job holds for each that a tick enqueues."""
    options = {"queue": "q", "priority": 7, "tenant": "acme", "key": "k", "max_attempts": 3}
    shown = {"tags": ["a", "b"], "meta": {"trace": "x"}}
    store.put_schedule(
        new(kind="report", payload='{"n":1}', policy=kept_for(5), **options, **shown)
    )
    clock.advance(3600)
    (id,) = store.fire_due().job_ids
    job = stored(store, id)

    assert (job.kind, job.payload, job.keep) == ("report", {"n": 1}, 5.0)
    assert options == {name: getattr(job, name) for name in options}
    assert job.tags == ["a", "b"]
    assert job.meta == {"trace": "x", "schedule": "s", "tick": hours(1)[0]}
    assert [lease.id for lease in claim(store, queues=["q"])] == [id]


def test_a_schedule_can_be_read(store: Store, clock: ManualClock):
    """What was written is shown, with its next tick and its last job."""
    written = store.put_schedule(new(timezone="Asia/Kolkata", payload='{"n":1}', missed="once"))
    clock.advance(3600)
    (id,) = store.fire_due().job_ids
    read = find(store)

    assert written.next_at == START + timedelta(minutes=30)
    assert (
        read.cron,
        read.timezone,
        read.missed,
    ) == ("0 * * * *", "Asia/Kolkata", MissedTicks.ONCE)
    assert (read.payload, read.source, read.is_paused) == ({"n": 1}, ScheduleSource.USER, False)
    assert (read.last_at, read.last_job_id) == (START + timedelta(hours=1), id)


def test_schedules_are_listed_in_pages(store: Store):
    """By name, from after the last one of the page before."""
    for name in ("b", "a", "c"):
        store.put_schedule(new(name))
    first = store.list_schedules(limit=2)

    assert [schedule.name for schedule in first] == ["a", "b"]
    assert [schedule.name for schedule in store.list_schedules(after="b")] == ["c"]


@pytest.mark.parametrize(
    ("missed", "expected"),
    [("skip", []), ("once", hours(30)), ("all", hours(*range(1, 31)))],
)
def test_missed_ticks(store: Store, clock: ManualClock, missed: str, expected: list[str]):
    """After 30 hours without a scheduler: none, one for all, or each; then on as ever."""
    store.put_schedule(new(missed=missed))
    clock.advance(timedelta(hours=30, minutes=6))
    store.fire_due()
    store.fire_due()

    assert ticks_of(store) == expected
    clock.advance(timedelta(minutes=54))
    store.fire_due()
    assert ticks_of(store) == [*expected, *hours(31)]


def test_all_missed_ticks_are_bounded(store: Store, clock: ManualClock):
    """Of a year's, the last hundred."""
    store.put_schedule(new(missed="all"))
    clock.advance(365 * DAY)
    store.fire_due()

    assert hours(*range(365 * 24 - 99, 365 * 24 + 1)) == ticks_of(store)


@pytest.mark.parametrize(("late", "fired"), [(0, 1), (299, 1), (300, 1), (301, 0)])
def test_late_is_not_missed(store: Store, clock: ManualClock, late: float, fired: int):
    """A tick found within five minutes is fired, also by those that skip."""
    store.put_schedule(new(cron="0 1 * * *"))
    clock.advance(3600 + late)

    assert len(store.fire_due().job_ids) == fired


def test_several_late_ticks_that_are_skipped(store: Store, clock: ManualClock):
    """Of several ticks in those five minutes, the last one is fired alone."""
    store.put_schedule(new(cron="* * * * *"))
    clock.advance(200)
    store.fire_due()

    assert ticks_of(store) == [(START + timedelta(minutes=3)).isoformat()]


def test_a_paused_schedule_is_resumed(store: Store, clock: ManualClock):
    """What falls into the pause is over, whatever the policy; the next tick is from now on."""
    store.put_schedule(new(missed="all"))
    store.pause_schedule("s")
    clock.advance(5 * 3600)
    paused = store.fire_due()
    resumed = store.resume_schedule("s")
    store.fire_due()
    clock.advance(3600)
    store.fire_due()

    assert (paused.job_ids, paused.wait_seconds) == ([], None)
    assert (resumed.is_paused, resumed.next_at) == (False, START + timedelta(hours=6))
    assert hours(6) == ticks_of(store)


def test_pause_and_resume_can_be_repeated(store: Store, clock: ManualClock):
    """To resume what is not paused skips nothing that is due."""
    store.put_schedule(new())
    clock.advance(3600)
    store.resume_schedule("s")
    fired = store.fire_due()
    paused = [store.pause_schedule("s"), store.pause_schedule("s")]

    assert len(fired.job_ids) == 1
    assert [schedule.is_paused for schedule in paused] == [True, True]


def test_run_now(store: Store, clock: ManualClock):
    """A run by hand comes at once and belongs to no tick; the next tick stays where it was."""
    before = store.put_schedule(new())
    store.pause_schedule("s")
    clock.advance(60)
    job = store.run_schedule_now("s")
    store.resume_schedule("s")
    after = find(store)

    assert (job.meta, job.created) == ({"schedule": "s"}, True)
    assert [lease.id for lease in claim(store)] == [job.id]
    assert (before.next_at, job.id) == (after.next_at, after.last_job_id)
    assert after.last_at == START + timedelta(seconds=60)


def test_a_key_keeps_runs_from_piling_up(store: Store, clock: ManualClock):
    """While the job of one tick is in flight, the next tick is answered by it."""
    store.put_schedule(new(key="one"))
    clock.advance(3600)
    (id,) = store.fire_due().job_ids
    clock.advance(3600)
    again = store.fire_due()
    by_hand = store.run_schedule_now("s")

    assert again.job_ids == []
    assert (by_hand.id, by_hand.created) == (id, False)
    assert id == find(store).last_job_id


@pytest.mark.parametrize("act", ["pause_schedule", "resume_schedule", "run_schedule_now"])
def test_an_unknown_name(store: Store, act: str):
    """What is not there can't be paused, resumed or run, and a job is not made."""
    with pytest.raises(NotFound, match="nobody"):
        getattr(store, act)("nobody")

    assert jobs_of(store) == []


def test_delete(store: Store, clock: ManualClock):
    """A deleted schedule fires no more; to delete it again is an error."""
    store.put_schedule(new())
    store.delete_schedule("s")
    clock.advance(3600)

    assert (store.fire_due().job_ids, store.fire_due().wait_seconds) == ([], None)
    with pytest.raises(NotFound):
        store.delete_schedule("s")


def test_an_unchanged_definition_keeps_its_time(store: Store, clock: ManualClock):
    """Written again while a tick is due, as at every start of a program, it still fires."""
    store.put_schedule(new(missed="once"))
    clock.advance(3600)
    same = store.put_schedule(new(missed="once"))
    other_payload = store.put_schedule(new(missed="once", payload='{"n":2}'))
    store.fire_due()

    assert START + timedelta(hours=1) == same.next_at == other_payload.next_at
    assert [job.payload for job in jobs_of(store)] == [{"n": 2}]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"cron": "30 * * * *"}, timedelta(hours=1, minutes=30)),
        ({"timezone": "Asia/Kolkata"}, timedelta(hours=1, minutes=30)),
    ],
)
def test_a_changed_time_counts_from_now(
    store: Store, clock: ManualClock, options: dict[str, str], expected: timedelta
):
    """Another expression or zone is due at its own next tick; a pause stays."""
    store.put_schedule(new())
    store.pause_schedule("s")
    clock.advance(3600)
    changed = store.put_schedule(new(**options))

    assert (changed.next_at, changed.is_paused) == (START + expected, True)


def test_a_clock_that_steps_back_fires_nothing_again(store_url: str):
    """Steps of 90 seconds to and fro: no tick twice, none before its time, none left out."""
    clock = ManualClock()
    store = open_store(store_url, clock=clock)
    store.put_schedule(new(cron="* * * * *"))
    for step in (60, -90, 90, 60, -90, 60, 90, -90, 90, -60, 90):
        clock._now_us += step * 1_000_000
        store.fire_due()
    ticks = ticks_of(store)
    store.close()

    assert [(START + timedelta(minutes=number)).isoformat() for number in range(1, 4)] == ticks


@pytest.mark.parametrize("schedules", [1, 120])
def test_schedulers_race(store_url: str, schedules: int):
    """Of three schedulers on threads of their own, one fires each tick."""
    rounds = 30 if schedules == 1 else 3
    clock = ManualClock()
    stores = [open_store(store_url, clock=clock) for _ in range(SCHEDULERS)]
    for number in range(schedules):
        stores[0].put_schedule(new(f"s{number:03}", cron="* * * * *"))
    gate, fired = threading.Barrier(SCHEDULERS, timeout=60), list[str]()

    def serve(store: Store) -> None:
        for _ in range(rounds):
            if gate.wait() == 0:
                clock.advance(60)
            gate.wait()
            fired.extend(store.fire_due().job_ids)
        store.close()

    threads = [threading.Thread(target=serve, args=[store]) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    jobs = jobs_of(stores[0])
    stores[0].close()

    assert rounds * schedules == len(fired) == len(set(fired)) == len(jobs)
    once = Counter((job.meta["schedule"], job.meta["tick"]) for job in jobs)
    assert set(once.values()) == {1}


def test_both_clock_changes(store: Store):
    """A nightly job runs once on each day of both changes, on the first valid instant."""
    zone = "Europe/Berlin"
    cron = new("night", cron="30 2 * * *", timezone=zone).cron
    spring = list(cron.ticks(since=us(2030, 3, 30, 12), until=us(2030, 4, 1, 12)))
    autumn = list(cron.ticks(since=us(2030, 10, 26, 12), until=us(2030, 10, 28, 12)))

    assert spring == [us(2030, 3, 31, 1), us(2030, 4, 1, 0, 30)]
    assert autumn == [us(2030, 10, 27, 0, 30), us(2030, 10, 28, 1, 30)]


def us(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc]


def test_an_unreadable_schedule_is_left_for_others(store_url: str, clock: ManualClock):
    """One whose time zone is not known here keeps nobody from being fired, and is named."""
    store = open_store(store_url, clock=clock)
    for name in ("a", "b", "c"):
        store.put_schedule(new(name))
    change(store_url, "UPDATE {} SET timezone = 'Mars/Olympus' WHERE name = 'b'")
    clock.advance(3600)
    fired = store.fire_due()
    with pytest.raises(OptionInvalid, match="Mars"):
        resume(store, "b")
    listed = [schedule.timezone for schedule in store.list_schedules()]
    store.close()

    assert (len(fired.job_ids), fired.unreadable, fired.wait_seconds) == (2, ["b"], 3600)
    assert listed == ["UTC", "Mars/Olympus", "UTC"]


def test_damaged_columns_are_shown(store_url: str, clock: ManualClock):
    """A payload or meta that is no JSON keeps nobody from seeing or firing schedules."""
    store = open_store(store_url, clock=clock)
    store.put_schedule(new(tags=["a"], meta={"b": 1}))
    change(store_url, "UPDATE {} SET payload = '{{', meta = '[', tags = 'x'")
    clock.advance(3600)
    fired = store.fire_due()
    read = find(store)
    store.close()

    assert len(fired.job_ids) == 1
    assert (read.payload, read.tags) == ({"(unreadable)": "{"}, [])


def resume(store: Store, name: str) -> Schedule:
    store.pause_schedule(name)
    return store.resume_schedule(name)


def change(url: str, sql: str) -> None:
    """Change the table behind our back."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(sql.format("rowlock_schedule"))
        return
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.format("rowlock.schedule").encode())


def test_code_declares_its_schedules(store: Store, clock: ManualClock):
    """What is declared is written; what its code does not name any more goes, others stay."""
    store.put_schedule(new("by hand", kind="a"))
    store.declare_schedules([new("a", kind="a"), new("b", kind="b")], kinds=["a", "b"])
    clock.advance(3600)
    other = store.declare_schedules([new("x", kind="x")], kinds=["x"])
    same = store.declare_schedules([new("a", kind="a")], kinds=["a"])
    gone = store.declare_schedules([new("a", kind="a")], kinds=["a", "b"])
    due = {schedule.name: schedule.next_at for schedule in store.list_schedules()}
    all_gone = store.declare_schedules([], kinds=[], owns_all=True)

    assert (other, same, gone, all_gone) == ([], [], ["b"], ["a", "x"])
    assert set(due) == {"a", "by hand", "x"}
    assert due["a"] == START + timedelta(hours=1)
    assert [schedule.name for schedule in store.list_schedules()] == ["by hand"]


def test_what_a_person_wrote_stays(store: Store):
    """A schedule of the code that a call took over is not taken back by the code."""
    store.declare_schedules([new("a")], kinds=["task"])
    from_code = find(store, "a").source
    taken = store.put_schedule(new("a", cron="5 5 * * *"))
    store.declare_schedules([new("a")], kinds=["task"])
    removed = store.declare_schedules([], kinds=["task"])

    assert (from_code, taken.source) == (ScheduleSource.CODE, ScheduleSource.USER)
    assert (removed, find(store, "a").cron) == ([], "5 5 * * *")


def test_many_declare_at_once(store_url: str):
    """Workers that start together write the same schedules, and none of them fails."""
    stores = [open_store(store_url) for _ in range(4)]
    stores[0].list_schedules()
    gate = threading.Barrier(4, timeout=60)

    def declare(store: Store) -> None:
        gate.wait()
        for number in range(5):
            names = [f"s{each}" for each in range(number, number + 5)]
            store.declare_schedules([new(name) for name in names], kinds=["task"])
        store.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(declare, stores))

    stores[0].declare_schedules([new("s0")], kinds=["task"])
    assert [schedule.name for schedule in stores[0].list_schedules()] == ["s0"]
    stores[0].close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "* * *"}, "five fields"),
        ({"timezone": "Mars/Olympus"}, "IANA"),
        ({"missed": "some"}, "skip"),
        ({"name": ""}, "name"),
        ({"delay": 5}, "for a single job"),
        ({"run_at": START}, "for a single job"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], problem: str):
    """Every option is checked before anything is written, and named."""
    with pytest.raises(OptionInvalid, match=problem):
        new(**options)


@pytest.mark.parametrize("act", ["pause_schedule", "resume_schedule", "run_schedule_now"])
def test_a_bad_name_is_refused(store: Store, act: str):
    """What is no name is no schedule's."""
    with pytest.raises(OptionInvalid, match="name"):
        getattr(store, act)("a\0b")
