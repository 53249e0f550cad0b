"""Process slots of a worker inside the caller's process, and slots by themselves."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from pathlib import Path

import pytest
import pytest_asyncio

import rowlock
from rowlock import JobState, config
from rowlock.lifecycle import (
    CancelSeen,
    Crashed,
    Failed,
    Interrupted,
    NotBegun,
    Outcome,
    Released,
    Succeeded,
)
from rowlock.store.options import new_job
from rowlock.worker import wire
from rowlock.worker.progress import AsyncProgressWriter
from rowlock.worker.run import Cause, Run
from rowlock.worker.slots import Slots, find_app, take_as_is
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.asyncio
APP = "tests.worker.slots_app:app"


@pytest.fixture
def module(sqlite_url, monkeypatch):
    """The module of an app on this test's database, imported anew here and in its slots."""
    name = APP.partition(":")[0]
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", sqlite_url)
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    yield module
    module.app.close()


@pytest.fixture
def home(sqlite_url):
    return wire.Home(url=sqlite_url, lease_seconds=30)


@pytest_asyncio.fixture
async def slots(home):
    slots = Slots(APP, home)
    yield slots
    await slots.aclose()


class Subject:
    """A claimed job of the module's app, on its way into a slot."""

    def __init__(self, module, kind: str, **payload: object) -> None:
        app = module.app
        app.enqueue(kind, payload)
        (lease,) = app.store.claim(worker="w", queues=None)
        self.run = Run(lease, app.find(kind), in_slot=True)
        self.notes = AsyncProgressWriter(app.store, lease)
        self.context = rowlock.Context(
            lease.job, state=None, notes=self.notes, signals=self.run, prepare=take_as_is
        )

    async def ran(self, slots: Slots) -> Outcome | None:
        return await slots.run(self.run, self.context, self.notes)


async def until_written(note: Path) -> int:
    return int(await asyncio.to_thread(wait_until, lambda: note.exists() and note.read_text()))


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_an_embedded_worker_uses_slots(module):
    """An app that is a module's attribute is found by its slots, without a word."""
    async with module.app.worker():
        job = await module.slot_pid.aenqueue()
        found = await module.app.await_(job.id, timeout=30)

    assert os.getpid() != found.result
    assert not is_running(found.result)
    await module.app.aclose()


async def test_an_app_without_a_module_uses_threads(sqlite_url, caplog, monkeypatch):
    """What can't be imported elsewhere runs here, and that is said once."""
    monkeypatch.delenv("ROWLOCK_APP", raising=False)
    app = rowlock.App(sqlite_url)

    @app.task(executor="process")
    def where() -> int:
        return os.getpid()

    @app.task(executor="process")
    async def where_async() -> int:
        return os.getpid()

    jobs = [await where.aenqueue(), await where_async.aenqueue()]
    async with app.worker():
        found = [await app.await_(job.id, timeout=30) for job in jobs]

    assert [job.result for job in found] == [os.getpid()] * 2
    assert sum("run in threads" in record.message for record in caplog.records) == 1
    await app.aclose()


async def test_an_app_is_found_by_its_module_or_by_name(module, sqlite_url, monkeypatch):
    """A module's attribute is found; ROWLOCK_APP counts for what is not imported here."""
    script = rowlock.App(sqlite_url)
    script.task(executor="process")(sorted_pid)
    monkeypatch.delenv("ROWLOCK_APP", raising=False)

    assert find_app(module.app) == APP
    assert find_app(rowlock.App(sqlite_url)) is None
    assert find_app(script) is None
    monkeypatch.setenv("ROWLOCK_APP", "the_script:app")
    assert find_app(script) == "the_script:app"
    monkeypatch.setenv("ROWLOCK_APP", APP)
    assert find_app(script) is None


def sorted_pid() -> int:
    return os.getpid()


async def test_a_stubborn_run_is_killed_when_cancelled(module, slots, tmp_path, monkeypatch):
    """After the grace of a cancel the slot is killed, and the next job gets another."""
    monkeypatch.setattr(config, "CANCEL_GRACE_SECONDS", 0.1)
    subject = Subject(module, "stubborn", note=str(tmp_path / "note"))
    running = asyncio.ensure_future(subject.ran(slots))
    slot = await until_written(tmp_path / "note")
    subject.run.end(Cause.CANCEL)

    assert await running == CancelSeen("it did not stop when asked to; its process was ended")
    assert not is_running(slot)
    after = await Subject(module, "slot_pid").ran(slots)
    assert isinstance(after, Succeeded)
    assert str(slot) != after.result


@pytest.mark.parametrize(("cause", "outcome"), [(Cause.STOP, Interrupted), (Cause.LOST, None)])
async def test_a_run_that_is_stopped_or_lost_is_killed(module, slots, tmp_path, cause, outcome):
    """Neither waits for a plain function; only a stop has an outcome to write."""
    subject = Subject(module, "stubborn", note=str(tmp_path / "note"))
    running = asyncio.ensure_future(subject.ran(slots))
    slot = await until_written(tmp_path / "note")
    subject.run.end(cause)

    found = await running

    assert (None if found is None else type(found)) is outcome
    assert not is_running(slot)


async def test_a_run_that_was_ended_before_its_slot_was_there_never_starts(module, slots, tmp_path):
    """A cancel while the slot starts: the handler is not called."""
    note = tmp_path / "note"
    subject = Subject(module, "stubborn", note=str(note))
    subject.run.end(Cause.CANCEL)

    assert await subject.ran(slots) == CancelSeen()
    assert not note.exists()


async def test_an_exit_is_a_crash_of_that_job_alone(module, slots):
    """The evidence names the signal."""
    subject = Subject(module, "crash", number=9)

    expected = Crashed("its process slot died: killed by SIGKILL", alone=True)
    assert await subject.ran(slots) == expected


async def test_a_slot_that_died_idle_is_nobodys_crash(module, slots):
    """The next job gets another one, or goes back uncounted if the death was not known yet."""
    first = await Subject(module, "slot_pid").ran(slots)
    os.kill(int(first.result), signal.SIGKILL)
    second = await Subject(module, "slot_pid").ran(slots)

    assert isinstance(second, Succeeded | NotBegun)
    third = await Subject(module, "slot_pid").ran(slots)
    assert isinstance(third, Succeeded)
    assert first.result != third.result


async def test_what_is_no_text_is_turned_into_text(module, slots):
    """As in a thread; and a line of any length is cut there."""
    subject = Subject(module, "log_a_number")
    outcome = await subject.ran(slots)
    await subject.notes.aflush()

    assert isinstance(outcome, Succeeded)
    long, number = module.app.store.read_log(subject.run.lease.id)
    assert len(long.text.encode()) <= config.LOG_LINE_BYTES_MAX
    assert number.text == "5"


async def test_idle_slots_end(module, slots):
    """A slot without work is ended, politely, after a while."""
    outcome = await Subject(module, "slot_pid").ran(slots)
    await slots.end_idle()
    before = is_running(int(outcome.result))
    await slots.end_idle(seconds=0)

    assert before
    assert not is_running(int(outcome.result))


async def test_a_slot_that_does_not_start(module, home, capfd, caplog):
    """The run has not begun: the job goes back for a while, and isn't counted as an attempt."""
    slots = Slots("no_such_module_anywhere:app", home)
    outcome = await Subject(module, "slot_pid").ran(slots)

    assert outcome == NotBegun(round(config.SLOT_RETRY_SECONDS * config.SECOND_US))
    assert "its process slot did not start" in caplog.text
    assert "no_such_module_anywhere" in capfd.readouterr().err


async def test_quarantine_is_not_needed_in_a_slot(module):
    """A job that took down its slot before need not keep the others waiting."""
    run = Subject(module, "slot_pid").run
    row = run.lease.row._replace(crashes=2, quarantined=True)
    run.lease.row = row

    assert not run.is_quarantined
    assert Run(run.lease, run.task).is_quarantined


async def test_words_survive_their_way():
    """What is sent is what arrives, odd text and all."""
    job = new_job(kind="task", payload='{"a":1}', tags=["x"], delay=3)
    words = [
        wire.Hello(),
        wire.Progressed(1, float("inf"), "\ud800"),
        wire.Logged(2, "a\x00\nb"),
        wire.Followed(3, job._replace(first_send=None)),
        wire.HoldProgress(4),
        wire.Conclude(4),
        wire.ResumeProgress(4),
        wire.Committed(4, None),
        *(
            wire.Finished.of(4, outcome)
            for outcome in (Succeeded("[1]"), Failed("T", "m", delay=5), Released(7), CancelSeen())
        ),
    ]
    frames = [wire.encode(word) for word in words]

    assert words == [wire.decode_word(frame[wire.LENGTH.size :]) for frame in frames]
    assert words[9].read() == Failed("T", "m", delay=5)
    orders = [
        wire.Home(url="postgresql://u:secret@h/d", lease_seconds=1.5),
        wire.Start(1, ["id", 1, None, True]),
        wire.End(1, "CANCEL"),
        wire.Stopping(1),
        wire.Gathered(1, (0.5, "half"), ["a line"]),
        wire.Gathered(1, None, []),
    ]
    assert "secret" not in repr(orders)
    assert orders == [wire.decode_order(wire.encode(order)[wire.LENGTH.size :]) for order in orders]


async def test_a_frame_that_is_too_large_is_refused():
    """A length that can't be is noticed before memory is taken."""
    with pytest.raises(ValueError, match="too large for a message"):
        wire.length_of(b"\xff\xff\xff\xff")


async def test_a_job_ends_in_the_state_that_its_slot_told(module):
    """Failures in slots are retried like any other."""
    async with module.app.worker():
        job = await module.fail.aenqueue()
        found = await module.app.await_(job.id, timeout=30)

    assert found.state == JobState.DEAD
    await module.app.aclose()
