"""`app.schedule` and `@app.task(cron=...)`: what they write, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

import rowlock
from rowlock.scheduler import adeclare_schedules, declare_schedules


def report(day: str = "today", *, copies: int = 1) -> None: ...


@pytest.fixture
def task(app: rowlock.App) -> rowlock.Task[..., None]:
    return app.task(report)


def test_a_task_is_scheduled(app: rowlock.App, clock: rowlock.ManualClock, task):
    """Its jobs have the task's settings and the payload."""
    schedule = app.schedule("s", task, cron="@hourly", payload={"day": "monday"})
    clock.advance(3600)
    app.store.fire_due()
    (job,) = app.list(full=True)

    assert (job.kind, job.payload, schedule.timezone) == ("report", {"day": "monday"}, "UTC")
    assert (job.max_attempts, job.keep, job.meta["schedule"]) == (20, 86_400.0, "s")
    assert app.drain() == 1


def test_an_interval(app: rowlock.App, clock: rowlock.ManualClock):
    """Its ticks are multiples of the interval, whenever the schedule is written again."""
    app.task(every=timedelta(seconds=7))(report)
    declare_schedules(app.store, app)
    ticks = list[float]()
    for _ in range(4):
        clock.advance(5)
        declare_schedules(app.store, app)
        app.store.fire_due()
        ticks = [_tick_of(job) for job in app.list(full=True)]
    (schedule,) = app.store.list_schedules()

    assert schedule.cron == "every 7s"
    assert len(ticks) >= 2
    assert {tick % 7 for tick in ticks} == {0}
    assert schedule.next_at.timestamp() % 7 == 0


def _tick_of(job: rowlock.Job) -> float:
    return datetime.fromisoformat(str(job.meta["tick"])).timestamp()


def test_an_interval_by_a_call(app: rowlock.App, task):
    """Seconds are as good as a timedelta. Without any times, nothing is written."""
    seconds = app.schedule("s", task, every=90)
    again = app.schedule("s", task, every=timedelta(seconds=90))
    with pytest.raises(rowlock.OptionInvalid, match="or every="):
        app.schedule("t", task)

    assert (again.cron, again.next_at) == ("every 90s", seconds.next_at)
    assert [schedule.name for schedule in app.store.list_schedules()] == ["s"]


def test_options_of_its_jobs(app: rowlock.App, clock: rowlock.ManualClock, task):
    """`task.using(...)` says what holds for every job."""
    call = task.using(queue="slow", priority=-5, key="one", tags=["x"], keep=60)
    schedule = app.schedule("s", call, cron="@hourly", missed="once")
    clock.advance(3600)
    app.store.fire_due()
    (job,) = app.list()

    assert (
        schedule.queue,
        schedule.priority,
        schedule.key,
        schedule.tags,
    ) == ("slow", -5, "one", ["x"])
    assert (
        job.queue,
        job.priority,
        job.key,
        job.tags,
        job.keep,
    ) == ("slow", -5, "one", ["x"], 60)


def test_a_kind_by_its_name(app: rowlock.App, task):
    """Also one that only workers elsewhere know; a known one's payload is checked."""
    app.schedule("a", "elsewhere", cron="@daily", payload={"any": "thing"})
    with pytest.raises(rowlock.PayloadInvalid, match="copies"):
        app.schedule("b", "report", cron="@daily", payload={"copies": "two"})

    assert [schedule.name for schedule in app.store.list_schedules()] == ["a"]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda task: task.using(delay=5), "for a single job"),
        (lambda task: task.using(conn=object()), "for a single job"),
        (lambda task: task.using(id="018f0000-0000-7000-8000-000000000001"), "for a single job"),
        (lambda task: report, "must be a task"),
    ],
)
def test_what_is_no_schedule(app: rowlock.App, task, make: Callable, problem: str):
    """Options of a single job, and things that are no task, are refused."""
    with pytest.raises(rowlock.OptionInvalid, match=problem):
        app.schedule("s", make(task), cron="@daily")


def test_a_wrong_payload_is_refused(app: rowlock.App, task):
    """At once, not at the first tick."""
    with pytest.raises(rowlock.PayloadInvalid, match="colour"):
        app.schedule("s", task, cron="@daily", payload={"colour": "red"})

    assert app.store.list_schedules() == []


@pytest.mark.asyncio
async def test_the_async_twin(any_url: str):
    """`aschedule` and `adeclare_schedules` do the same."""
    async with rowlock.App(any_url) as app:
        task = app.task(cron="@daily")(report)
        await app.aschedule("s", task, cron="@hourly")
        removed = await adeclare_schedules(app.store, app)
        names = [schedule.name for schedule in await app.store.alist_schedules()]

    assert (removed, names) == ([], ["report", "s"])


def test_a_task_with_a_cron(app: rowlock.App, clock: rowlock.ManualClock):
    """It is written when it is declared, under the task's name, and runs."""
    ran = list[str]()

    @app.task(cron="30 2 * * *", timezone="Asia/Kolkata", queue="night")
    def nightly(ctx: rowlock.Context, day: str = "today") -> None:
        ran.append(ctx.job.meta["tick"])

    before = app.store.list_schedules()
    declare_schedules(app.store, app)
    clock.advance(21 * 3600)
    app.store.fire_due()
    app.drain()
    (written,) = app.store.list_schedules()

    assert before == []
    assert (written.name, written.kind, written.queue) == ("nightly", "nightly", "night")
    assert (
        written.cron,
        written.timezone,
        written.source,
    ) == ("30 2 * * *", "Asia/Kolkata", "code")
    assert ran == ["2030-01-01T21:00:00+00:00"]


def test_tasks_of_a_collection(app: rowlock.App):
    """`cron` works on tasks that are included later."""
    tasks = rowlock.Tasks()
    tasks.task(cron="@daily")(report)
    app.include(tasks)
    declare_schedules(app.store, app)

    assert [schedule.name for schedule in app.store.list_schedules()] == ["report"]


def test_what_is_gone_from_the_code(any_url: str):
    """A task that lost its cron loses its schedule; one that is not here keeps it."""
    with rowlock.App(any_url) as first, rowlock.App(any_url) as second:
        first.task(cron="@daily")(report)
        first.task(cron="@daily", name="theirs")(report)
        declare_schedules(first.store, first)
        second.task(report)
        removed = declare_schedules(second.store, second)
        left = [schedule.name for schedule in second.store.list_schedules()]
        owned = declare_schedules(second.store, second, owns_all=True)

    assert (removed, left, owned) == (["report"], ["theirs"], ["theirs"])


def test_a_cron_needs_no_arguments(app: rowlock.App):
    """Parameters that nobody would give are refused where the task is defined."""

    def needy(ctx: rowlock.Context, to: str) -> None: ...

    with pytest.raises(rowlock.OptionInvalid, match=r"requires .*to; give them defaults") as caught:
        app.task(cron="@daily")(needy)

    assert caught.value.option == "cron"
    assert None is app.find("needy")


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"cron": "nightly"}, "cron"),
        ({"cron": "@daily", "timezone": "Mars"}, "timezone"),
        ({"timezone": "UTC"}, "timezone"),
        ({"every": 0}, "every"),
        ({"every": -7}, "every"),
        ({"every": 0.5}, "every"),
        ({"every": float("nan")}, "every"),
        ({"every": "7s"}, "every"),
        ({"every": timedelta(days=40_000)}, "every"),
        ({"every": 7, "cron": "@daily"}, "every"),
        ({"every": 7, "timezone": "Europe/Berlin"}, "timezone"),
        ({"cron": "every 0s"}, "cron"),
        ({"cron": "every 9999999999s"}, "cron"),
    ],
)
def test_bad_times_are_refused_at_once(app: rowlock.App, options: dict[str, Any], option: str):
    """Where the task is defined, not when a worker starts."""
    with pytest.raises(rowlock.OptionInvalid) as caught:
        app.task(**options)(report)

    assert caught.value.option == option
