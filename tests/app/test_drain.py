"""`app.drain()`: jobs run end to end, and every way a handler can end."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

import rowlock
from rowlock import JobState, config
from rowlock.job import Beat, Lease
from rowlock.lifecycle import Released
from rowlock.store.ops.look import related
from rowlock.worker.drain import Drain
from tests.support.states import settle


def run(app: rowlock.App, task: rowlock.Task, **payload) -> rowlock.Job:
    """Enqueue, drain, and read the job again."""
    job = task.enqueue(**payload)
    app.drain()
    found = app.get(job.id)
    assert found is not None
    return found


def test_plain_function_runs(app):
    """A plain function runs with the payload's arguments, and its result is kept."""

    @app.task
    def add(first: int, second: int = 2) -> int:
        return first + second

    job = run(app, add, first=1)

    assert (job.state, job.result) == (JobState.SUCCEEDED, 3)


def test_coroutine_runs(app):
    """A coroutine function runs on a loop."""

    @app.task
    async def shout(text: str) -> str:
        await asyncio.sleep(0)
        return text.upper()

    job = run(app, shout, text="ahoy")

    assert (job.state, job.result) == (JobState.SUCCEEDED, "AHOY")


@pytest.mark.asyncio
async def test_adrain_runs_both_kinds(app):
    """On a running loop, coroutines and plain functions are run as well."""

    @app.task
    async def soft() -> str:
        return "soft"

    @app.task
    def hard() -> str:
        return "hard"

    jobs = [await soft.aenqueue(), await hard.aenqueue()]

    assert await app.adrain() == 2
    assert [(await app.aget(job.id)).result for job in jobs] == ["soft", "hard"]
    await app.aclose()


def test_drain_counts_and_limits(app):
    """`drain` tells how many runs there were, and stops at its limit."""

    @app.task
    def noop() -> None: ...

    app.enqueue_many([noop.job() for _ in range(50)])

    assert app.drain(limit=5) == 5
    assert app.drain() == 45
    assert app.drain() == 0


def test_only_known_kinds_are_claimed(app):
    """A job of a kind that this app does not have is left for others."""

    @app.task
    def known() -> None: ...

    stranger = app.enqueue("stranger")
    known.enqueue()

    assert app.drain() == 1
    assert app.get(stranger.id).state == JobState.READY
    assert app.get(stranger.id).attempt == 0


def test_queues_are_respected(app):
    """Only the queues asked for are drained."""

    @app.task(queue="mail")
    def mail() -> None: ...

    job = mail.enqueue()

    assert app.drain(["other"]) == 0
    assert app.get(job.id).state == JobState.READY
    assert app.drain(["mail"]) == 1


def test_exception_is_a_failed_attempt(app, clock):
    """An exception is recorded, and the job is tried again after the policy's backoff."""

    @app.task(retry=rowlock.retry.fixed(60), max_attempts=2)
    def broken() -> None:
        raise ValueError("boom")

    job = run(app, broken)
    assert (job.state, job.attempt, job.last_error) == (JobState.RETRYING, 1, "ValueError: boom")
    assert "raise ValueError" in job.errors[0].traceback
    assert (job.run_at - job.errors[0].time).total_seconds() == 60

    assert app.drain() == 0
    clock.advance(60)
    assert app.drain() == 1

    assert (app.get(job.id).state, app.get(job.id).attempt) == (JobState.DEAD, 2)


def test_callable_policy_is_asked_where_the_handler_ran(app):
    """A callable policy gets the attempt and the error, and decides the delay."""
    asked = []

    def policy(attempt: int, error: BaseException | None) -> float:
        asked.append((attempt, str(error)))
        return 7

    @app.task(retry=policy)
    def broken() -> None:
        raise KeyError("gone")

    job = run(app, broken)

    assert asked == [(1, "'gone'")]
    assert (job.run_at - job.errors[0].time).total_seconds() == 7


def test_fail_gives_up(app):
    """`Fail` ends the job at once, whatever attempts are left."""

    @app.task
    def hopeless() -> None:
        raise rowlock.Fail("no such customer")

    job = run(app, hopeless)

    assert (job.state, job.attempt) == (JobState.DEAD, 1)
    assert job.last_error.endswith("Fail: no such customer")


def test_release_is_not_counted(app, clock):
    """`Release` gives the job back without counting the attempt, after its delay."""

    @app.task
    def later(ctx: rowlock.Context) -> int:
        if ctx.token == 1:
            raise rowlock.Release(delay=30, reason="not yet")
        return ctx.attempt

    job = run(app, later)
    assert (job.state, job.attempt, job.errors) == (JobState.SCHEDULED, 0, [])
    assert app.drain() == 0
    clock.advance(30)
    assert app.drain() == 1

    assert (app.get(job.id).state, app.get(job.id).result) == (JobState.SUCCEEDED, 1)


def test_release_without_delay_waits_a_second(app, clock):
    """A `Release` without a delay does not spin."""

    @app.task
    def later() -> None:
        raise rowlock.Release

    run(app, later)

    assert app.drain() == 0
    clock.advance(1)
    assert app.drain() == 1


def test_cancel_ends_cancelled(app):
    """`Cancel` ends the job as cancelled, with its reason."""

    @app.task
    def stop() -> None:
        raise rowlock.Cancel("not needed any more")

    job = run(app, stop)

    assert (job.state, job.last_error) == (JobState.CANCELLED, "Cancelled: not needed any more")


def test_time_limit_counts_as_failure(app):
    """A coroutine that takes longer than its limit is ended, and has failed."""

    @app.task(timeout=0.05)
    async def slow() -> None:
        await asyncio.sleep(30)

    job = run(app, slow)

    assert (job.state, job.attempt) == (JobState.RETRYING, 1)
    assert "longer than its limit of 0.05 s" in job.last_error


def test_handlers_own_timeout_error_is_told_apart(app):
    """A TimeoutError that the handler raises itself is an error like any other."""

    @app.task(timeout=30)
    async def impatient() -> None:
        raise TimeoutError("the other side")

    assert run(app, impatient).last_error == "TimeoutError: the other side"


def test_context_shows_the_run(app):
    """A parameter annotated with Context gets the running job; it is not part of the payload."""
    seen = {}

    @app.task
    def look(ctx: rowlock.Context, name: str) -> None:
        seen.update(
            id=ctx.job.id,
            attempt=ctx.attempt,
            token=ctx.token,
            state=ctx.state,
            cancel=ctx.cancel_requested,
            stopping=ctx.stopping,
            payload=ctx.job.payload,
        )

    job = run(app, look, name="Ada")

    assert seen == {
        "id": job.id,
        "attempt": 1,
        "token": 1,
        "state": {"greeting": "hello"},
        "cancel": False,
        "stopping": False,
        "payload": {"name": "Ada"},
    }


@pytest.mark.parametrize("is_async", [False, True])
def test_progress_and_log_are_stored(app, is_async):
    """What a handler says of its progress, and its log lines, are stored with the job."""

    def say(ctx: rowlock.Context) -> None:
        ctx.progress(0.25, "a quarter")
        ctx.progress(0.5, "half")
        ctx.log("one")
        ctx.log("two")

    async def asay(ctx: rowlock.Context) -> None:
        say(ctx)

    task = app.task(asay if is_async else say)
    job = run(app, task)

    assert (job.progress.fraction, job.progress.text) == (0.5, "half")
    assert [line.text for line in app.store.read_log(job.id)] == ["one", "two"]


@pytest.mark.parametrize("succeeds", [True, False])
def test_follow_ups_appear_only_on_success(app, succeeds):
    """Jobs enqueued "on success" exist if, and only if, the job succeeds."""

    @app.task
    def child(number: int) -> None: ...

    @app.task(max_attempts=1)
    def parent(ctx: rowlock.Context) -> None:
        ctx.enqueue_on_success(child, number=1)
        ctx.enqueue_on_success(child.using(priority=3), number=2)
        assert not app.list(kind="child").jobs
        if not succeeds:
            raise RuntimeError

    parent.enqueue()
    app.drain(limit=1)
    children = sorted(
        (job.payload["number"], job.priority) for job in app.list(kind="child", full=True)
    )

    assert children == ([(1, 0), (2, 3)] if succeeds else [])


def test_a_parent_deeper_in_meta_is_the_users_own(any_url):
    """A follow-up is linked to its parent, whatever its `meta` holds below the top."""
    with rowlock.App(any_url) as app:

        @app.task
        def child() -> None: ...

        @app.task
        def parent(ctx: rowlock.Context) -> None:
            inner = {"parent": ctx.job.id}
            ctx.enqueue_on_success(child.using(tags=["followed"], meta={"a": inner}))
            ctx.enqueue_on_success(child.using(tags=["own"], meta={"parent": "x", "a": inner}))

        job = run(app, parent)
        (followed,) = app.list(tag="followed", full=True)
        (own,) = app.list(tag="own", full=True)
        found = app.store.run(related(job)).follow_ups

    assert followed.meta == {"parent": job.id, "a": {"parent": job.id}}
    assert own.meta == {"parent": "x", "a": {"parent": job.id}}
    assert [each.id for each in found] == [followed.id]


def test_bad_follow_up_fails_the_handler(app):
    """A follow-up that does not fit is refused where it is asked for."""

    @app.task
    def child(number: int) -> None: ...

    @app.task
    def parent(ctx: rowlock.Context) -> None:
        ctx.enqueue_on_success(child, numbr=1)

    assert "PayloadInvalid" in run(app, parent).last_error


def test_stored_payload_that_no_longer_fits_is_a_failure(app):
    """A payload that the task has outgrown fails with a clear error, and the others run."""
    old = app.enqueue("grown", {"name": "Ada", "age": "old"})

    @app.task
    def grown(name: str, age: int, email: str) -> None: ...

    good = grown.enqueue(name="Bob", age=3, email="b@c.d")

    assert app.drain() == 2
    job = app.get(old.id)
    assert job.state == JobState.RETRYING
    assert "email: required" in job.last_error
    assert "age:" in job.last_error
    assert app.get(good.id).state == JobState.SUCCEEDED


def test_payload_that_does_not_fit_is_retried_for_a_deployments_time(app, clock):
    """Three more attempts within a quarter of an hour, then dead; a manual retry begins anew."""
    job = app.enqueue("grown", {"name": "Ada"})

    @app.task(retry=rowlock.retry.fixed(5))
    def grown(name: str, email: str) -> None: ...

    def run_until_dead() -> list[float]:
        waits = []
        while app.drain() and (found := app.get(job.id)).state is JobState.RETRYING:
            waits.append((found.run_at - found.errors[-1].time).total_seconds())
            clock.advance(waits[-1])
        return waits

    waits = run_until_dead()
    dead = app.get(job.id)
    app.retry(job.id)

    assert [60, 240, 600] == waits == run_until_dead()
    assert (dead.state, dead.attempt, dead.max_attempts) == (JobState.DEAD, 4, 20)
    assert {error.type for error in dead.errors} == {"PayloadMisfit"}
    assert [error.attempt for error in app.get(job.id).errors] == [1, 2, 3, 4] * 2


def test_other_failures_between_do_not_hide_misfits(app, clock):
    """Workers of two versions take turns: the misfits are counted, whatever lies between."""
    asked = app.enqueue("grown", {"name": "Ada"})
    old, new = rowlock.Tasks(), rowlock.Tasks()

    @old.task(name="grown")
    def fails(name: str) -> None:
        raise ValueError("boom")

    @new.task(name="grown")
    def misfits(email: str) -> None: ...

    for number in range(7):
        with rowlock.App(app.url, clock=clock) as other:
            other.include(old if number % 2 else new)
            assert other.drain() == 1
        clock.advance(86_400)

    types = [error.type for error in app.get(asked.id).errors]
    assert types == ["PayloadMisfit", "ValueError"] * 3 + ["PayloadMisfit"]
    assert JobState.DEAD is app.get(asked.id).state


def test_payloads_that_a_handler_gets_wrong_are_its_own_failures(app, clock):
    """Only the job's own payload is meant: one that the handler enqueues is like any error."""

    @app.task
    def child(number: int) -> None: ...

    @app.task(retry=rowlock.retry.fixed(5))
    def parent() -> None:
        child.enqueue("one")

    job = run(app, parent)

    assert job.errors[0].type == "rowlock.errors.PayloadInvalid"
    assert (job.run_at - job.errors[0].time).total_seconds() == 5


def test_damaged_payload_is_a_failure(app, any_url):
    """A row whose payload is garbage fails like any other; nothing else is held up."""

    @app.task
    def fine(number: int) -> None: ...

    broken, good = fine.enqueue(number=1), fine.enqueue(number=2)
    damage(any_url, broken.id)

    assert app.drain() == 2
    assert "payload" in app.get(broken.id).last_error
    assert app.get(good.id).state == JobState.SUCCEEDED


def damage(url: str, id: str) -> None:
    if url.startswith("sqlite"):
        import sqlite3

        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.execute("UPDATE rowlock_job SET payload = '{\"num' WHERE id = ?", [id])
        connection.commit()
        connection.close()
        return
    import psycopg

    with psycopg.connect(url) as other:
        other.execute("UPDATE rowlock.job SET payload = '{\"num' WHERE id = %s", [id])


def test_result_that_cannot_be_stored_is_noted(app):
    """The job has succeeded all the same; its result is null, and the reason is told."""

    @app.task
    def odd() -> object:
        return object()

    job = run(app, odd)

    assert (job.state, job.result) == (JobState.SUCCEEDED, None)
    assert "ResultNotStored" in job.last_error


@pytest.mark.parametrize("text", ["NUL \0 here", "lone \ud800 surrogate", "x" * 3_000_000])
def test_any_error_text_is_recorded(app, text):
    """A failure can always be recorded, whatever its text holds."""

    @app.task
    def broken() -> None:
        raise RuntimeError(text)

    job = run(app, broken)

    assert job.state == JobState.RETRYING
    assert job.last_error.startswith("RuntimeError: ")
    assert len(job.errors[0].message.encode()) <= 65_536


def test_policy_of_a_job_enqueued_by_name_comes_from_the_first_worker(app, clock):
    """A kind that was not known at enqueue is run by the rules of the task that knows it."""
    job = app.enqueue("late")

    @app.task(max_attempts=2, retry=rowlock.retry.fixed(5), keep=3)
    def late() -> None:
        raise RuntimeError

    app.drain()
    found = app.get(job.id)

    assert (found.max_attempts, found.retry, found.keep) == (2, ["fixed", 5.0], 3.0)
    assert (found.run_at - found.errors[0].time).total_seconds() == 5


def test_keep_of_a_job_enqueued_by_name_leaves_the_rest_to_the_first_worker(app):
    """What was chosen at enqueue is all that was: the task's other rules hold."""
    job = app.enqueue("late", keep=7)

    @app.task(max_attempts=2, retry=rowlock.retry.fixed(5), keep=3, timeout=60, max_crashes=1)
    def late() -> None:
        raise RuntimeError

    app.drain()
    found = app.get(job.id)

    assert (found.keep, found.timeout, found.max_crashes) == (7.0, 60.0, 1)
    assert (found.max_attempts, found.retry) == (2, ["fixed", 5.0])


@pytest.fixture(params=["blocking", "async"])
def drain(request, app):
    """Drains the app."""

    async def adrain() -> int:
        try:
            return await app.adrain()
        finally:
            await app.aclose()

    return app.drain if request.param == "blocking" else lambda: asyncio.run(adrain())


def test_what_is_cancelled_by_a_job_before_it_is_not_run(app, drain):
    """Though it was leased already, together with that one."""
    seen: list[str] = []

    @app.task(priority=1)
    def regret(id: str) -> None:
        seen.append(app.cancel(id).outcome)

    @app.task
    def regretted() -> None:
        seen.append("run")

    job = regretted.enqueue()
    regret.enqueue(job.id)

    assert (drain(), seen) == (1, ["pending_on_worker"])
    assert app.get(job.id).state == JobState.CANCELLED


def test_what_was_taken_over_while_it_waited_is_not_run(app, drain, monkeypatch):
    """A beat has told that another has it now."""
    monkeypatch.setattr(config, "LEASE_SECONDS_DEFAULT", 0.5)
    seen: list[str] = []
    told = threading.Event()
    hear = Drain._on_beat

    def overhear(self: Drain, lease: Lease, beat: Beat) -> None:
        hear(self, lease, beat)
        told.set()

    monkeypatch.setattr(Drain, "_on_beat", overhear)

    @app.task(priority=1)
    def slow(id: str) -> None:
        seen.append("slow")
        job = app.get(id)
        lease = Lease(id=id, token=job.token, worker=job.worker)
        settle(app, lease, Released())
        assert app.store.claim(worker="another", queues=None, kinds=["late"])
        assert told.wait(30)

    @app.task
    def late() -> None:
        seen.append("late")

    job = late.enqueue()
    slow.enqueue(job.id)

    assert (drain(), seen) == (1, ["slow"])
    assert app.get(job.id).worker == "another"


def test_interrupt_gives_back_what_did_not_run(app):
    """Ctrl-C in a handler ends the drain; all that was claimed goes back uncounted."""

    @app.task
    def interrupted(number: int) -> None:
        if number == 1:
            raise KeyboardInterrupt

    app.enqueue_many([interrupted.job(number=number) for number in range(4)])
    with pytest.raises(KeyboardInterrupt):
        app.drain()
    left = app.list(state="ready").jobs

    assert [job.attempt for job in left] == [0, 0, 0]
    assert not app.list(state="running").jobs


def test_a_flood_of_log_lines_is_bounded(app, monkeypatch):
    """What a job says beyond its bound is dropped without asking the database."""
    calls = []
    log = app.store.log
    monkeypatch.setattr(app.store, "log", lambda *given: calls.append(given) or log(*given))

    @app.task
    def talk(ctx: rowlock.Context) -> None:
        for number in range(5 * config.LOG_LINES_MAX):
            ctx.log(f"line {number}")

    job = talk.enqueue()
    app.drain()

    assert config.LOG_LINES_MAX == len(app.store.read_log(job.id)) == len(calls)


def test_a_traceback_begins_with_the_handler(app):
    """Frames of the worker are no use to whoever reads it."""

    @app.task(max_attempts=1)
    def plain() -> None:
        raise ValueError("plain")

    @app.task(max_attempts=1)
    async def coroutine() -> None:
        raise ValueError("coroutine")

    jobs = [plain.enqueue(), coroutine.enqueue()]
    app.drain()

    for job in jobs:
        text = app.get(job.id).errors[0].traceback
        assert "rowlock/worker" not in text
        assert f"in {job.kind}" in text


@pytest.mark.parametrize("kind", ["os.system", "builtins.exec", "subprocess:run", "__import__"])
def test_a_kind_is_never_imported(app, kind, monkeypatch):
    """A name that leads somewhere in Python is a name like any other: nobody has such a task."""
    called = []
    monkeypatch.setattr(os, "system", called.append)
    job = app.enqueue(kind, {"command": "true"})

    assert app.drain() == 0
    assert called == []
    assert app.get(job.id).state == JobState.READY
    assert app.why(job.id).code == "no_worker"


def test_a_stored_error_is_text(app):
    """An error whose type names something callable is read as text, by whoever reads it."""

    @app.task(max_attempts=1)
    def fail() -> None:
        raise type("system", (Exception,), {"__module__": "os"})("touch /tmp/owned")

    job = fail.enqueue()
    app.drain()
    (error,) = app.get(job.id).errors

    assert (error.type, error.message) == ("os.system", "touch /tmp/owned")
    assert {type(error.type), type(error.message), type(error.traceback)} == {str}


@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
def test_a_change_during_a_run_is_run_after_it(app, clock, fails):
    """The last change of a debounced job is never missed, however the run before it ended."""
    runs: list[int] = []

    @app.task(retry=rowlock.retry.fixed(5))
    def index(version: int) -> None:
        runs.append(version)
        if version == 1:
            index.using(key="doc", quiet=5).enqueue(version=2)
            index.using(key="doc", quiet=5).enqueue(version=3)
            if fails:
                raise ValueError("boom")

    first = index.using(key="doc", quiet=5).enqueue(version=1)
    for _ in range(4):
        clock.advance(5)
        app.drain()
    ended = app.get(first.id)

    assert runs == [1, 3]
    assert ended.state == (JobState.CANCELLED if fails else JobState.SUCCEEDED)


class Teapot(ConnectionError):
    """An error of a class below another."""


@pytest.mark.parametrize(
    ("options", "error", "state"),
    [
        ({"retry_for": ConnectionError}, Teapot(), "retrying"),
        ({"retry_for": [ConnectionError, KeyError]}, ValueError(), "dead"),
        ({"no_retry_for": (ConnectionError,)}, Teapot(), "dead"),
        ({"no_retry_for": ConnectionError}, ValueError(), "retrying"),
        ({"retry_for": OSError, "no_retry_for": Teapot}, Teapot(), "dead"),
        ({"retry_for": KeyError, "timeout": 0.01}, None, "dead"),
        ({"no_retry_for": KeyError, "timeout": 0.01}, None, "retrying"),
    ],
)
def test_retries_by_exception_class(app, options: dict[str, Any], error, state: str):
    """A class counts with those below it. A run past its limit is a TimeoutError."""

    async def fail() -> None:
        if error is not None:
            raise error
        await asyncio.Event().wait()

    job = app.task(**options)(fail).enqueue()
    app.drain()

    assert app.get(job.id).state == state


@pytest.mark.parametrize(
    "options",
    [
        {"retry_for": ()},
        {"retry_for": "ConnectionError"},
        {"retry_for": [ConnectionError, "x"]},
        {"no_retry_for": ValueError("x")},
        {"no_retry_for": int},
    ],
)
def test_what_is_no_exception_class(app, options: dict[str, Any]):
    """Where the task is defined."""
    with pytest.raises(rowlock.OptionInvalid) as caught:
        app.task(name="x", **options)(lambda: None)

    assert caught.value.option in options


def test_a_job_that_expired_does_not_run(any_url: str):
    """It is cancelled, and says when it expired. Each run looks at the time, retries included."""
    clock = rowlock.ManualClock()
    app = rowlock.App(any_url, clock=clock)
    ran: list[str] = []

    @app.task(expires=60, retry=rowlock.retry.fixed(50))
    def work(name: str) -> None:
        ran.append(name)
        raise ValueError

    soon = datetime(2030, 1, 1, 0, 0, 10, tzinfo=UTC)
    jobs = [
        work.enqueue("a minute"),
        work.using(expires=30).enqueue("half a minute"),
        work.using(expires=soon).enqueue("a time"),
        work.using(expires=None).enqueue("never"),
    ]
    clock.advance(30)
    app.drain()
    clock.advance(51)
    app.drain()
    found = [app.get(job.id) for job in jobs]
    app.close()

    assert ran == ["a minute", "never", "never"]
    assert [job.state for job in found] == ["cancelled", "cancelled", "cancelled", "retrying"]
    assert "expired at 2030-01-01 00:01:00 UTC" in str(found[0].last_error)


def test_a_time_limit_for_one_job(app):
    """`using(timeout=...)` counts instead of the task's."""

    @app.task(timeout=600)
    async def wait() -> None:
        await asyncio.Event().wait()

    job = wait.using(timeout=0.01, max_attempts=1).enqueue()
    app.drain()
    found = app.get(job.id)

    assert (found.state, found.timeout) == (JobState.DEAD, 0.01)
    assert wait.using(timeout=None).enqueue().timeout is None


@pytest.mark.parametrize(
    ("option", "value"),
    [("expires", 0), ("expires", "1h"), ("expires", datetime(2030, 1, 1)), ("timeout", 0)],  # noqa: DTZ001  # that is the mistake
)
def test_limits_that_are_refused(app, option: str, value: Any):
    """With the option's name, and so are those of a kind that is not known here."""

    @app.task
    def work() -> None: ...

    for enqueue in (
        lambda: work.using(**{option: value}).enqueue(),
        lambda: app.enqueue("unknown", {}, **{option: 5}),
    ):
        with pytest.raises(rowlock.OptionInvalid) as caught:
            enqueue()
        assert caught.value.option == option
    assert app.list().jobs == []
