"""`ctx.transaction()` in process slots, which are killed before, inside and after the block."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

import rowlock
from rowlock import JobState, config
from rowlock.worker.beats import Beats
from tests.support.bank import TABLES, execute, transfers
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.asyncio
MODULE = "tests.worker.blocks_app"
KINDS = ("work", "awork")
T = TypeVar("T")


@pytest.fixture
def app(any_url, monkeypatch):
    """An app on this test's database, imported anew here and in its slots."""
    yield from prepared(any_url, monkeypatch)


@pytest.fixture
def postgres_app(postgres_url, monkeypatch):
    yield from prepared(postgres_url, monkeypatch)


@pytest.fixture
def sqlite_app(sqlite_url, monkeypatch):
    yield from prepared(sqlite_url, monkeypatch)


def prepared(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", url)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    app = importlib.import_module(MODULE).app
    app.migrate()
    execute(app, *TABLES)
    yield app
    app.close()


def enqueue(app: rowlock.App, kind: str, number: int, **words: object) -> rowlock.Job:
    options = {"max_attempts": words.pop("max_attempts")} if "max_attempts" in words else {}
    return app.enqueue(kind, {"number": number, **words}, **options)


async def serve(app: rowlock.App, *jobs: rowlock.Job, **options) -> list[rowlock.Job]:
    """Run a worker until the jobs have ended, and their runs with them."""
    async with app.worker(**{"concurrency": 4, **options}):
        for job in jobs:
            await app.await_(job.id, timeout=60)
    found = [await app.aget(job.id) for job in jobs]
    await app.aclose()
    return found


async def until(condition: Callable[[], T]) -> T:
    return await asyncio.to_thread(wait_until, condition)


def pids(note: Path) -> list[int]:
    return [int(line) for line in note.read_text().split()] if note.exists() else []


def let_go_on(note: Path) -> None:
    Path(f"{note}.go").touch()


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def said(caplog: pytest.LogCaptureFixture, job: rowlock.Job) -> list[str]:
    """What the worker's log says of a job."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("rowlock.worker") and job.id in record.getMessage()
    ]


async def test_committed_together(app, caplog):
    """Writes, result, follow-up jobs, progress and log lines of a slot: all by its own commit."""
    caplog.set_level(logging.DEBUG, "rowlock.worker")
    words = {"before": "speak", "inside": "speak again", "after": "speak again"}
    jobs = [enqueue(app, kind, number, **words) for number, kind in enumerate(KINDS)]
    found = await serve(app, *jobs)

    assert transfers(app) == [0, 1]
    for number, job in enumerate(found):
        assert (job.state, job.attempt, tuple(job.errors)) == (JobState.SUCCEEDED, 1, ())
        assert number == job.result["number"]
        assert rowlock.Progress(0.5, "inside") == job.progress
        lines = [line.text for line in app.store.read_log(job.id)]
        assert lines == ["line before", "line inside"]
        (line,) = said(caplog, job)
        assert "succeeded after" in line
    numbers = sorted(job.payload["number"] for job in app.list(kind="follow_up", full=True))
    assert numbers == [1, 1, 2, 2, 4, 4]


async def test_errors_inside_and_after(app, caplog):
    """Inside the block an exception undoes it all; after it the job stays succeeded."""
    inside = [
        enqueue(app, kind, 1, inside="speak fail", before="speak", max_attempts=1) for kind in KINDS
    ]
    after = [enqueue(app, kind, 2, after="fail") for kind in KINDS]
    found = await serve(app, *inside, *after)

    assert transfers(app) == [2, 2]
    for job in found[:2]:
        assert (job.state, job.last_error) == (JobState.DEAD, "ValueError: made up")
        lines = [line.text for line in app.store.read_log(job.id)]
        assert lines == ["line before", "line inside"]
    for job in found[2:]:
        assert (job.state, job.attempt, job.last_error) == (JobState.SUCCEEDED, 1, None)
        assert "stays succeeded: ValueError: made up" in said(caplog, job)[0]
    assert not app.list(kind="follow_up").jobs


@pytest.mark.parametrize("kind", KINDS)
async def test_a_slot_that_dies(app, caplog, kind):
    """Before and inside the block: nothing stays, one crash. After it: succeeded, and no crash.

    Also when the worker was not told any more that the block is committed.
    """
    caplog.set_level(logging.INFO, "rowlock.worker")
    undone = [enqueue(app, kind, 1, before="SIGKILL"), enqueue(app, kind, 2, inside="SIGKILL")]
    done = [
        enqueue(app, kind, 3, after="SIGKILL"),
        enqueue(app, kind, 4, after="SIGABRT"),
        enqueue(app, kind, 5, inside="die_untold"),
    ]
    found = await serve(app, *undone, *done)

    assert transfers(app) == [1, 2, 3, 4, 5]
    for job in found[:2]:
        assert (job.state, job.attempt, job.crashes) == (JobState.SUCCEEDED, 2, 1)
        assert [error.type for error in job.errors] == ["Crashed"]
    for job in found[2:]:
        assert (job.state, job.attempt, job.crashes) == (JobState.SUCCEEDED, 1, 0)
        assert (job.result["number"], list(job.errors)) == (job.payload["number"], [])
        line, success = said(caplog, job)
        assert " succeeded after " in success
        assert "crashed after its transaction was committed, and stays succeeded: " in line
        assert "killed by SIG" in line
    assert "lost its lease" not in caplog.text


async def test_the_log_lines_of_a_killed_block(app):
    """What a run said before its slot died is kept, as of any crash."""
    job = enqueue(app, "work", 1, inside="speak SIGKILL")
    await serve(app, job)

    assert [line.text for line in app.store.read_log(job.id)] == ["line inside"] * 2


async def test_a_time_limit(app, tmp_path, caplog):
    """Inside the block it undoes it and has failed; after it the slot ends, and no more."""
    note, kinds = tmp_path / "note", ("limited", "alimited")
    async with app.worker(lease=60):
        # Not beside those that keep all others from writing, on SQLite.
        jobs = [enqueue(app, kind, 1, after="wait", note=str(note)) for kind in kinds]
        after = [await app.await_(job.id, timeout=30) for job in jobs]
        jobs = [enqueue(app, kind, 2, inside="wait", note=str(note)) for kind in kinds]
        inside = [await app.await_(job.id, timeout=30) for job in jobs]
    await app.aclose()

    assert transfers(app) == [1, 1]
    for job in after:
        assert (job.state, list(job.errors)) == (JobState.SUCCEEDED, [])
        assert "stays succeeded: TimeoutError" in said(caplog, job)[0]
    for job in inside:
        assert (job.state, job.attempt, job.crashes) == (JobState.DEAD, 1, 0)
        assert job.last_error == "TimeoutError: took longer than its limit of 3 s"
    assert all(is_gone(pid) for pid in pids(note))


@pytest.mark.parametrize(("kind", "inside"), [("work", "cancel"), ("awork", "wait")])
async def test_a_cancel_inside_the_block(postgres_app, tmp_path, kind, inside):
    """A plain function sees it, a coroutine is cancelled; the block is undone."""
    app, note = postgres_app, tmp_path / "note"
    job = enqueue(app, kind, 1, inside=inside, note=str(note))
    async with app.worker():
        await until(lambda: pids(note))
        await app.acancel(job.id)
        found = await app.await_(job.id, timeout=30)
    await app.aclose()

    assert (found.state, transfers(app)) == (JobState.CANCELLED, [])
    if kind == "work":
        assert found.last_error == "Cancelled: as you wish"


async def test_a_cancel_that_is_not_heeded_inside_the_block(postgres_app, tmp_path, monkeypatch):
    """The slot is killed after the grace: nothing of the block stays."""
    monkeypatch.setattr(config, "CANCEL_GRACE_SECONDS", 0.2)
    app, note = postgres_app, tmp_path / "note"
    job = enqueue(app, "work", 1, inside="defy", note=str(note))
    async with app.worker():
        (slot,) = await until(lambda: pids(note))
        await app.acancel(job.id)
        found = await app.await_(job.id, timeout=30)
    await app.aclose()

    assert (found.state, transfers(app)) == (JobState.CANCELLED, [])
    assert "did not stop" in found.last_error
    assert is_gone(slot)


async def test_a_cancel_that_came_before_the_commit(app, tmp_path, monkeypatch):
    """A run that commits in spite of it has succeeded, and what it does after that is its own."""
    monkeypatch.setattr(config, "CANCEL_GRACE_SECONDS", 0.5)
    note = tmp_path / "note"
    job = enqueue(app, "work", 1, before="defy see_cancel", after="linger", note=str(note))
    async with app.worker():
        await until(lambda: pids(note))
        await app.acancel(job.id)
        let_go_on(note)
        found = await app.await_(job.id, timeout=30)
    await app.aclose()

    assert (found.state, transfers(app)) == (JobState.SUCCEEDED, [1])
    assert note.read_text() == "it went on"


async def test_a_lease_lost_before_the_block(app, tmp_path):
    """The settle finds it, and nothing stays of what was written by then."""
    jobs = [
        enqueue(app, kind, number, before="lose", note=str(tmp_path / kind))
        for number, kind in enumerate(KINDS)
    ]
    found = await serve(app, *jobs, concurrency=1)

    assert transfers(app) == [0, 1]
    assert {(job.state, job.attempt) for job in found} == {(JobState.SUCCEEDED, 1)}


async def test_a_lease_lost_inside_the_block(postgres_app, tmp_path, caplog):
    """A beat finds that another has the job: the slot is killed, and its block undone."""
    app, note = postgres_app, tmp_path / "note"
    job = enqueue(app, "work", 1, inside="wait", note=str(note))
    async with app.worker(concurrency=1, lease=1) as worker:
        (slot,) = await until(lambda: pids(note))
        assert await app.store.arelease_worker(worker.id) == 1
        assert len(await app.store.aclaim(worker="another", queues=None)) == 1
        await until(lambda: is_gone(slot))
    found = await app.aget(job.id)
    await app.aclose()

    assert (found.state, found.worker, transfers(app)) == (JobState.RUNNING, "another", [])
    assert ["lost its lease" in line for line in said(caplog, job)] == [True]


@pytest.mark.parametrize("kind", KINDS)
async def test_beats_between_the_commit_and_its_word(app, tmp_path, caplog, monkeypatch, kind):
    """A beat that finds the lease gone, because it was just settled, tells nothing."""
    beats: list[object] = []
    beat = Beats._beat
    monkeypatch.setattr(Beats, "_beat", lambda *args: (beat(*args), beats.append(args)))
    note = tmp_path / "note"
    job = enqueue(app, kind, 1, inside="tell_slowly", note=str(note))
    async with app.worker(lease=1):
        await until(lambda: pids(note))
        seen = len(beats)
        assert (await app.aget(job.id)).state == JobState.SUCCEEDED
        await until(lambda: len(beats) > seen + 2)
        let_go_on(note)
    await app.aclose()

    assert transfers(app) == [1]
    assert not said(caplog, job)


async def test_an_overdue_block(sqlite_app):
    """After a third of the lease it is undone, and others can write."""
    app = sqlite_app
    job = enqueue(app, "work", 1, inside="outlast", max_attempts=1)
    (found,) = await serve(app, job, lease=1.5)

    assert (found.state, transfers(app)) == (JobState.DEAD, [])
    assert "undone after 0.5 s, a third of the lease" in found.last_error
    assert len(app.list(kind="another").jobs) == 1


async def test_no_password_in_its_arguments(postgres_url, monkeypatch):
    """A slot hears of the database by its socket: arguments can be read by every user."""
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}sslpassword=canary"
    for app in prepared(url, monkeypatch):
        (found,) = await serve(app, enqueue(app, "work", 1))

        assert "rowlock.cli.processes slot" in found.result["command"]
        assert "canary" not in found.result["command"]


async def test_the_database_is_the_workers(sqlite_app, tmp_path, monkeypatch):
    """Wherever the app would be in a slot by itself: its jobs and blocks are on the worker's."""
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", f"sqlite:///{tmp_path / 'elsewhere.db'}")
    words = {"before": "enqueue", "inside": "speak"}
    jobs = [enqueue(sqlite_app, kind, number, **words) for number, kind in enumerate(KINDS)]
    found = await serve(sqlite_app, *jobs)

    assert {job.state for job in found} == {JobState.SUCCEEDED}
    assert transfers(sqlite_app) == [0, 1]
    numbers = sorted(job.payload["number"] for job in sqlite_app.list(kind="follow_up", full=True))
    assert numbers == [2, 2, 4, 4, 5, 5]


async def test_a_relative_path_leads_to_the_same_file(tmp_path, monkeypatch):
    """A worker that has changed its directory tells its slots the whole path."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    for app in prepared("sqlite:///relative.db", monkeypatch):
        job = enqueue(app, "work", 1)
        monkeypatch.chdir(tmp_path / "elsewhere")
        (found,) = await serve(app, job)
        monkeypatch.chdir(tmp_path)

        assert (found.state, transfers(app)) == (JobState.SUCCEEDED, [1])
        assert not list((tmp_path / "elsewhere").iterdir())
