"""Workers and schemas of different releases."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import closing

import pytest

import rowlock
from rowlock import config
from rowlock.store import open_store
from tests.store.upgrades import ADDS, APART, NEWEST, compatible, migrate_by
from tests.support.workers import worker
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.owner("migrates")


def test_a_new_worker_refuses_an_old_schema(postgres_url):
    """It says which command is missing, and claims nothing; once that was run, it works."""
    with rowlock.App(postgres_url) as app:
        job = app.enqueue("noop")
        next_one = "tests.worker.next_release"
        with worker(app, capture=True, command=next_one, module=next_one) as process:
            said = _said_until(process, "run `rowlock migrate`")
            waiting = app.get(job.id)
            applied = migrate_by(postgres_url, compatible(ADDS))
            done = app.wait(job.id, timeout=100)

    assert f"the database is at {NEWEST}, but this version needs {NEWEST + 1}" in said
    assert "Traceback" not in said
    assert (waiting.state, waiting.attempt) == ("ready", 0)
    assert (applied, done.state, done.attempt) == ([NEWEST + 1], "succeeded", 1)


def _said_until(process: subprocess.Popen[bytes], words: str) -> str:
    """What a worker logs until it says something; pytest's own limit bounds it."""
    assert process.stderr is not None
    said: list[str] = []
    while not said or words not in said[-1]:
        line = process.stderr.readline().decode()
        assert line, "".join(said)
        said.append(line)
    return "".join(said)


def test_a_worker_of_the_last_release_works_on_the_new_schema(any_url):
    """A process that was started before the migration goes on; no run is lost or repeated."""
    with rowlock.App(any_url) as app:
        app.migrate()
        with worker(app):
            jobs = [app.enqueue("noop", {"number": number}) for number in range(20)]
            wait_until(lambda: app.get(jobs[0].id).state.is_terminal, seconds=60)
            applied = migrate_by(any_url, compatible(ADDS))
            jobs += [app.enqueue("noop", {"number": number}) for number in range(20, 40)]
            found = [app.wait(job.id, timeout=60) for job in jobs]

    assert applied == [NEWEST + 1]
    assert [job.result for job in found] == list(range(40))
    assert {(job.state, job.attempt) for job in found} == {("succeeded", 1)}


def test_a_running_worker_leaves_a_schema_that_needs_more(any_url, monkeypatch, caplog):
    """It looks as often as it announces itself, and ends with the error that says why."""
    ended = "the worker in this process has ended"
    monkeypatch.setattr(config, "ANNOUNCE_SECONDS", 0.1)

    async def work(app: rowlock.App) -> None:
        try:
            async with app.worker():
                await app.await_((await app.aenqueue("noop")).id, timeout=30)
                await asyncio.to_thread(migrate_by, any_url, APART)
                await asyncio.to_thread(wait_until, lambda: ended in caplog.text, seconds=60)
        finally:
            await app.aclose()

    with rowlock.App(any_url) as app:
        app.migrate()

        @app.task
        async def noop() -> None: ...

        with pytest.raises(rowlock.MigrationNeeded, match="upgrade rowlock here"):
            asyncio.run(work(app))

    with closing(open_store(any_url)) as store, pytest.raises(rowlock.MigrationNeeded):
        store.stats()
