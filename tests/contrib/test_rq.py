"""The shim for RQ gives what the real one gives, and refuses what it can't, saying why."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

import pytest

import rowlock
from rowlock import JobState, config
from rowlock.contrib import rq
from rowlock.contrib.rq import Queue, Retry, Unsupported, Worker, cancel_job, register, registry
from rowlock.contrib.rq.command import send_shutdown_command, send_stop_job_command
from rowlock.contrib.rq.decorators import job
from rowlock.contrib.rq.job import Dependency, Job, JobStatus
from rowlock.contrib.rq.timeouts import JobTimeoutException
from tests.contrib import rq_functions as functions
from tests.contrib.processes import ROOT


def run_script(*words: str) -> list[str]:
    clean = {name: each for name, each in os.environ.items() if not name.startswith("ROWLOCK_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.contrib.rq_script", *words],
        cwd=ROOT, env=clean, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@cache
def real_lines() -> tuple[str, ...]:
    """What the script prints under RQ itself, with a Redis in memory."""
    return tuple(run_script("real", "-"))


def test_one_script_under_both(postgres_url: str):
    """Results, errors, retries, statuses and ids are the same, line by line.

    On PostgreSQL: the other tests here are on SQLite.
    """
    lines = run_script("shim", postgres_url)

    assert list(real_lines()) == lines
    assert len(lines) > 20


@pytest.fixture
def app(sqlite_url: str):
    with rowlock.App(sqlite_url) as app:
        yield app


@pytest.fixture
def queue(app: rowlock.App) -> Queue:
    return Queue("mail", connection=app)


def adding(n: int) -> Any:
    """A function of a name that all of them have: the first would be run for the others."""

    def add(x: int = 0) -> int:
        return x + n

    return add


class Something:
    def method(self) -> None: ...


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda queue: Queue("mail"), r"rowlock\.App"),
        (lambda queue: Queue("mail", connection=object()), r"rowlock\.App"),
        (lambda queue: Queue("mail", queue.connection, is_async=False), r"app\.drain"),
        (lambda queue: Job.create(print, connection=queue.connection), r"queue\.enqueue"),
        (lambda queue: queue.enqueue(functions.add, 1).cancel(True), "others again"),
        (lambda queue: queue.enqueue("os.system", "true"), "names are never imported"),
        (lambda queue: queue.enqueue(Something().method), "plain function"),
        (lambda queue: [queue.enqueue(adding(n)) for n in (1, 2)], "plain function"),
        (lambda queue: Dependency("x", enqueue_at_front=True), "at_front=True"),
        (
            lambda queue: queue.enqueue(
                functions.add,
                1,
                depends_on=queue.enqueue(functions.add, 1),
                job_id="0190a5b2-0000-7000-8000-000000000002",
            ),
            "leave job_id out",
        ),
        (lambda queue: queue.enqueue(functions.add, 1, on_success=print), "end of the function"),
        (lambda queue: queue.enqueue(functions.add, 1, unique=True), "key"),
        (lambda queue: queue.enqueue(functions.add, 1, ttl=5), "cancel the job"),
        (lambda queue: Retry(1, enqueue_at_front=True), "leave it out"),
        (lambda queue: Queue("mail", queue.connection, serializer="pickle"), "leave it out"),
        (lambda queue: queue.enqueue_many([], group_id="a"), "leave it out"),
        (lambda queue: queue.delete(), "empty"),
        (lambda queue: queue.enqueue(functions.add, 1).save(), "save_meta"),
        (lambda queue: queue.enqueue(functions.add, 1).save_meta(), "meta= to enqueue"),
        (lambda queue: queue.failed_job_registry.add(None), "registry of its state"),
        (lambda queue: queue.failed_job_registry.remove("a"), "delete or requeue"),
        (lambda queue: queue.failed_job_registry.requeue("a", at_front=True), "leave it out"),
        (lambda queue: Worker(queue, job_class=object), "leave it out"),
        (lambda queue: Worker(queue, disable_default_exception_handler=True), "always stored"),
        (lambda queue: Worker(queue).work(max_jobs=3), "burst=True"),
        (lambda queue: Worker(queue).work(burst=True, max_idle_time=3), "burst=True"),
        (lambda queue: Worker(queue).work(burst=True, dequeue_strategy="random"), "--order"),
        (lambda queue: Worker.all(queue.connection), "app.workers"),
        (lambda queue: rq.Callback, "HTTP API"),
        (lambda queue: send_shutdown_command(queue.connection, "w"), "SIGTERM"),
    ],
)
def test_what_is_refused(queue: Queue, use: Any, advice: str):
    """By one class, with what to do instead."""
    with pytest.raises(Unsupported, match=advice):
        use(queue)


def test_how_things_are_shown(queue: Queue):
    """As in RQ, and queues can be sorted."""
    other = Queue("a", queue.connection)

    assert [str(each) for each in sorted([queue, other])] == ["<Queue a>", f"<Queue {queue.name}>"]
    assert repr(Retry(2, [1, 5])) == "Retry(max=2, interval=[1, 5], enqueue_at_front=False)"


def test_what_rq_refuses_too(queue: Queue):
    """With the errors that it raises."""
    main = lambda: None  # noqa: E731  # a function of no module
    main.__module__ = "__main__"

    with pytest.raises(ValueError, match="__main__"):
        queue.enqueue(main)
    with pytest.raises(ValueError, match="greater than 0"):
        Retry(max=0)
    with pytest.raises(ValueError, match="negative"):
        Retry(max=1, interval=[1, -1])


def test_what_would_change_its_type_is_refused(queue: Queue):
    """RQ pickles arguments; here one without an annotation is JSON, or it is refused."""
    for changed in (datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1), Decimal("1.5"), b"a", {1}):
        with pytest.raises(rowlock.PayloadInvalid, match=r"x: .* annotate the parameter"):
            queue.enqueue(functions.add, changed)


def test_the_count_of_a_queue_is_exact(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    """As RQ's is, also beyond what `stats` counts."""
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 3)
    for number in range(7):
        queue.enqueue(functions.add, number)

    assert (queue.count, len(queue), queue.is_empty()) == (7, 7, False)


def test_a_stored_path_runs_nothing(app: rowlock.App, queue: Queue):
    """A worker runs what its own code registered; a job of any other name waits."""
    named = app.enqueue("os.system", {"command": "true"}, queue="mail")
    unknown = app.enqueue("tests.contrib.rq_functions.add", {"x": 1}, queue="mail")
    ran_before = Worker([queue]).work(burst=True)
    register(app, functions.add)
    ran_after = Worker("mail", connection=app).work(burst=True)

    assert (ran_before, ran_after) == (False, True)
    assert JobStatus.FINISHED is Job.fetch(unknown.id, connection=app).get_status()
    assert JobStatus.QUEUED is Job.fetch(named.id, connection=app).get_status()


def test_the_job_carries_rqs_limits(app: rowlock.App, queue: Queue):
    """Its time limit, and how long it is kept; by default those of RQ."""
    plain = app.get(queue.enqueue(functions.add, 1).id)
    chosen = app.get(
        queue.enqueue(
            functions.add,
            1,
            job_timeout="2m",
            result_ttl=-1,
            failure_ttl=60,
            retry=Retry(3, [1, 2]),
        ).id
    )

    assert plain is not None and chosen is not None
    assert (plain.timeout, chosen.timeout) == (180, 120)
    assert (plain.max_attempts, chosen.max_attempts) == (1, 4)
    assert (plain.keep, chosen.keep) == (500, None)
    assert Job(chosen, connection=app).meta == {}


@pytest.mark.parametrize(
    ("most", "intervals", "waits"),
    [(3, [10, 20, 30], [10, 20, 30]), (4, [10, 20], [10, 10, 10, 20]), (2, 7, [7, 7])],
)
def test_intervals(sqlite_url: str, most: int, intervals: Any, waits: list[int]):
    """As RQ reckons them: with more retries than intervals the first one is used several times."""
    clock = rowlock.ManualClock()
    found: list[float] = []
    with rowlock.App(sqlite_url, clock=clock) as app:
        queue = Queue(connection=app)
        made = queue.enqueue(functions.never, retry=Retry(most, intervals))
        for _ in range(most):
            app.drain()
            state = app.get(made.id)
            assert state is not None and JobState.RETRYING is state.state
            found.append((state.run_at - now_of(clock)).total_seconds())
            clock.advance(found[-1])
        app.drain()
        end = app.get(made.id)

    assert waits == found
    assert end is not None and JobState.DEAD is end.state


def now_of(clock: rowlock.ManualClock) -> datetime:
    return datetime.fromtimestamp(clock.now_us() / 1_000_000, UTC)


def test_decorated_functions(app: rowlock.App):
    """They are registered when their module is imported, and stay plain functions."""

    def double(x: int) -> int:
        return 2 * x

    decorated = job("mail", connection=app, result_ttl=5, retry=Retry(1))(double)
    made = decorated.delay(4, at_front=True)
    stored = app.get(made.id)
    app.drain()

    assert decorated(3) == 6
    assert made.result == 8
    assert stored is not None and (stored.priority, stored.max_attempts) == (100, 2)


def test_a_function_without_a_name_of_its_own_may_be_given_again(queue: Queue):
    """It is the same one."""
    add = adding(1)

    first, second = queue.enqueue(add, 1), queue.enqueue(add, 2)
    queue.connection.drain(["mail"])

    assert (first.result, second.result) == (2, 3)


def test_a_list_of_ids_is_bounded(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    """Redis would give them all; `app.list` gives pages."""
    monkeypatch.setattr(registry, "JOB_IDS_MAX", 2)
    for number in range(3):
        queue.enqueue(functions.add, number)

    with pytest.raises(Unsupported, match="page through"):
        queue.get_job_ids()


def test_emptied_and_cancelled(queue: Queue):
    """`empty` deletes what is ready; the commands cancel one job."""
    later = queue.enqueue_at(datetime(2100, 1, 1, tzinfo=UTC), functions.add, 1)
    made = [queue.enqueue(functions.add, number) for number in range(3)]
    cancel_job(made[0].id, connection=queue.connection)
    send_stop_job_command(queue.connection, made[1].id)

    assert (queue.empty(), queue.count) == (1, 0)
    assert queue.canceled_job_registry.get_job_ids() == [made[0].id, made[1].id]
    assert queue.scheduled_job_registry.get_scheduled_time(later) == datetime(
        2100, 1, 1, tzinfo=UTC
    )
    queue.scheduled_job_registry.schedule(later, datetime(2000, 1, 1, tzinfo=UTC))
    assert [each.id for each in queue.jobs] == [later.id]
    assert Queue.all(queue.connection) == [queue]
    assert Worker.count(queue.connection) == 0


def test_a_saved_meta_is_the_progress(queue: Queue):
    """It is shown as a share, if it has a number for it, and must fit."""
    seen: list[Any] = []

    def saves(value: Any) -> None:
        job = rq.get_current_job()
        assert job is not None
        job.meta.update(progress=50, value=value)
        job.save_meta()

    made = [queue.enqueue(saves, "x"), queue.enqueue(saves, "x" * 2_000)]
    queue.connection.drain()
    seen = [queue.connection.get(job.id) for job in made]

    assert seen[0].progress.fraction == 0.5
    assert seen[1].state is JobState.DEAD
    assert "at most 1024 bytes" in seen[1].errors[-1].message
    assert JobTimeoutException is rowlock.TimedOut


def test_a_handler_that_raises_is_logged(queue: Queue, caplog: pytest.LogCaptureFixture):
    """The job fails by its own error; handlers are of the worker that has them."""

    # So that the level of the worker is undone.
    caplog.set_level(logging.INFO, "rowlock")

    def bad(job: Job, *error: Any) -> None:
        raise LookupError("in a handler")

    made = queue.enqueue(functions.fails, 1)
    worker = Worker(queue, exception_handlers=bad)
    worker.push_exc_handler(lambda *_: None)
    worker.work(burst=True, logging_level=logging.INFO)
    queue.enqueue(functions.fails, 2)
    Worker(queue).work(burst=True)

    assert caplog.text.count("LookupError: in a handler") == 1
    assert "ValueError: bad 1" in str(made.exc_info)
