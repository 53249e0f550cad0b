"""Transfers between accounts in process slots of `rowlock worker`: each is made exactly once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import rowlock
from rowlock import JobState
from tests.support.bank import TABLES, balances, execute, expected_balances, plan, transfers
from tests.support.workers import runners
from tests.support.workers import slots_worker as worker
from tests.worker.waiting import wait_until

COUNT = 24


@pytest.fixture
def app(any_url):
    app = rowlock.App(any_url)
    app.migrate()
    execute(app, *TABLES)
    yield app
    app.close()


@pytest.mark.long
def test_slots_killed_at_random(app, tmp_path):
    """Slots that die at any moment of a handler: no transfer is lost, and none is made twice."""
    moves, log = plan(COUNT), tmp_path / "log"
    jobs = app.enqueue_many(
        [
            {
                "kind": "apay" if each["number"] % 2 else "pay",
                "payload": {**each, "deadly": each["number"] % 3 == 0},
            }
            for each in moves
        ]
    )
    # A block may take a third of the lease, which on a slow machine is soon over.
    with worker(app, "-c", "4", "--lease", "60", module="blocks_app", log=log):
        wait_until(lambda: all(app.get(job.id).state.is_terminal for job in jobs), seconds=240)

    found = [app.get(job.id) for job in jobs]
    assert {job.state for job in found} == {JobState.SUCCEEDED}
    assert transfers(app) == list(range(COUNT))
    assert expected_balances(moves) == balances(app)
    assert [job.crashes for job in found] == [job.attempt - 1 for job in found]
    assert any(job.crashes for job in found), "nothing was put to the test"
    assert "Traceback" not in log.read_text()
    assert "lost its lease" not in log.read_text()


def test_a_child_killed_while_its_slot_is_inside_a_block(app, tmp_path):
    """The slot dies with its worker, and the block with the slot; another child runs the job."""
    note = tmp_path / "note"
    payload = {"number": 1, "inside": "wait", "note": str(note)}
    job = app.enqueue("work", payload)
    # On SQLite nobody can write while the block is open: its lease must be long.
    with worker(app, "--lease", "60", module="blocks_app") as process:
        wait_until(lambda: runners(note))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        wait_until(lambda: len(runners(note)) == 2)
        Path(f"{note}.go").touch()
        found = app.wait(job.id, timeout=30)

    assert (found.state, found.attempt, found.crashes) == (JobState.SUCCEEDED, 2, 1)
    assert transfers(app) == [1]


def test_a_stop(app, tmp_path):
    """After the grace slots are killed: inside its block a job goes back, after it it is done."""
    notes = [tmp_path / "after", tmp_path / "inside"]
    done, back = (
        {"number": number, note.name: "wait", "note": str(note)}
        for number, note in enumerate(notes)
    )
    # On SQLite nobody can write while the block is open: its lease must be long.
    words = ("--lease", "60", "--grace", "0.2")
    with worker(app, *words, module="blocks_app") as process:
        done = app.enqueue("work", done)
        wait_until(lambda: runners(notes[0]))
        back = app.enqueue("work", back)
        wait_until(lambda: runners(notes[1]))
        process.terminate()

        assert process.wait(30) == 0
    done, back = app.get(done.id), app.get(back.id)
    assert (done.state, done.attempt) == (JobState.SUCCEEDED, 1)
    assert (back.state, back.attempt, back.crashes) == (JobState.READY, 0, 0)
    assert transfers(app) == [0]
