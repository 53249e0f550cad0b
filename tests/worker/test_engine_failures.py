"""An error of the worker's own engine: no job is blamed for it, and the worker goes on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rowlock
from rowlock import JobState
from rowlock.store.statements import Dialect
from rowlock.worker.engine import WorkerEngine
from rowlock.worker.settings import EXIT_ENGINE_FAILED, EXIT_LEFT_BEHIND, EXIT_UNFIT
from tests.support.metrics import Asking
from tests.support.statements import execute
from tests.support.workers import ROOT, children_of, runners
from tests.support.workers import worker as sound_worker
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.one_store("errors of the engine's own")


@pytest.fixture
def app(any_url: str) -> Iterator[rowlock.App]:
    with rowlock.App(any_url) as app:
        app.migrate()
        yield app


@contextmanager
def failing_worker(app: rowlock.App, fail: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker whose engine fails once for each time that a file `fail` is made."""
    command = [sys.executable, "-m", "rowlock", "--app", "tests.worker.failing_app:app"]
    with fail.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            [*command, "worker", "--no-cron", *words],
            cwd=ROOT,
            env={**os.environ, "ROWLOCK_DATABASE_URL": app.url, "ROWLOCK_TEST_FAIL": str(fail)},
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()


def test_an_engine_that_fails_costs_no_job_an_attempt(app, port, tmp_path):
    """It is restarted after growing pauses; its jobs run again, and were never to blame.

    Five times, while a job has two attempts, and three crashes would make it poison.
    """
    note, go_on, fail = tmp_path / "note", tmp_path / "go-on", tmp_path / "fail"
    asking = Asking(port)
    paths = {"path": str(go_on), "note": str(note)}
    with failing_worker(app, fail, "--metrics-port", str(port)) as process:
        job = app.enqueue("wait_for_file", paths)
        for times in range(1, 6):
            wait_until(lambda times=times: len(runners(note)) == times, seconds=60)
            fail.touch()
        wait_until(lambda: len(runners(note)) == 6, seconds=60)
        errors = asking.number("rowlock_service_errors_total", service="engine")
        go_on.touch()
        found = app.wait(job.id, timeout=60)
        process.terminate()

        assert process.wait(60) == 0
    assert (found.state, found.attempt, found.crashes) == (JobState.SUCCEEDED, 1, 0)
    assert errors == 5
    log = fail.with_suffix(".log").read_text()
    assert log.count("died: its engine has failed") == 5
    assert "MistakeOfOurs: the engine has a bug" in log


# How a process ended has nothing to do with the store: each code is tried on one of them.
@pytest.mark.parametrize(
    ("any_url", "code"),
    [("sqlite", EXIT_LEFT_BEHIND), ("postgres", EXIT_UNFIT), ("sqlite", EXIT_ENGINE_FAILED)],
    indirect=["any_url"],
)
def test_a_handler_can_not_pass_for_the_engine(app, code):
    """One that ends its process with a code of ours is to blame all the same."""
    job = app.enqueue("end_process", {"code": code})
    with sound_worker(app) as process:
        found = app.wait(job.id, timeout=60)

        assert process.poll() is None
    assert (found.state, found.crashes) == (JobState.DEAD, 2)
    assert "Poison" in str(found.last_error)


@pytest.mark.owner("makes triggers")
def test_claims_that_are_refused_for_a_while(app, port):
    """By a trigger of somebody's, with an error that nobody foresaw: no child ends."""
    asking = Asking(port)
    refuse(app)
    jobs = app.enqueue_many([{"kind": "noop"} for _ in range(20)])
    with sound_worker(app, "--metrics-port", str(port)) as process:
        number = "rowlock_service_errors_total"
        wait_until(lambda: asking.status("/healthz") == 200, seconds=60)
        wait_until(lambda: asking.number(number, service="claim") >= 3, seconds=60)
        children = children_of(process)
        refuse_no_more(app)
        found = [app.wait(job.id, timeout=60) for job in jobs]

        assert children_of(process) == children
    assert {(job.state, job.attempt) for job in found} == {(JobState.SUCCEEDED, 1)}


@pytest.mark.owner("makes triggers")
def test_an_embedded_worker_goes_on_after_an_odd_error(app, caplog):
    """It is logged once, and what can be run is run; before, it ended for good."""

    @app.task
    async def noop() -> None: ...

    async def work() -> list[rowlock.Job]:
        told = "jobs can't be claimed, trying again"
        async with app.worker():
            await asyncio.to_thread(wait_until, lambda: told in caplog.text, seconds=60)
            refuse_no_more(app)
            found = [await app.await_(job.id, timeout=60) for job in jobs]
            assert caplog.text.count(told) == 1
            return found

    refuse(app)
    jobs = app.enqueue_many([{"kind": "noop"} for _ in range(20)])
    found = asyncio.run(work())

    assert {(job.state, job.attempt) for job in found} == {(JobState.SUCCEEDED, 1)}


@pytest.mark.asyncio
@pytest.mark.parametrize(("name", "options"), [("_take", {"tags": ["a"]}), ("_take_block", {})])
async def test_an_embedded_worker_outlives_a_mistake_of_ours(
    app, caplog, monkeypatch, name, options
):
    """What runs goes on, and the next jobs run, alone or in a block."""
    real, mistakes = getattr(WorkerEngine, name), iter(range(3))

    def take(self: WorkerEngine, leased: object) -> None:
        if next(mistakes, None) is not None:
            raise ZeroDivisionError
        real(self, leased)

    @app.task
    async def noop() -> None: ...

    monkeypatch.setattr(WorkerEngine, name, take)
    async with app.worker():
        job = await app.aenqueue("noop", **options)
        found = await app.await_(job.id, timeout=60)

    assert (found.state, found.attempt) == (JobState.SUCCEEDED, 1)
    assert sum("the engine has failed, trying" in text for text in caplog.messages) == 1
    await app.aclose()


def refuse(app: rowlock.App) -> None:
    """Let nobody change a job."""
    if app.store.engine.dialect is Dialect.POSTGRES:
        execute(
            app,
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql"
            " AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$",
        )
        body = "FOR EACH ROW EXECUTE FUNCTION refuse()"
    else:
        body = "BEGIN SELECT RAISE(ABORT, 'not now'); END"
    execute(app, f"CREATE TRIGGER refuse BEFORE UPDATE ON rowlock.job {body}")


def refuse_no_more(app: rowlock.App) -> None:
    is_postgres = app.store.engine.dialect is Dialect.POSTGRES
    execute(app, f"DROP TRIGGER refuse{' ON rowlock.job' if is_postgres else ''}")
