"""`executor="process"` under `rowlock worker`: jobs in processes of their own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import rowlock
from rowlock import JobState
from tests.support.workers import runners
from tests.support.workers import slots_worker as worker
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.one_store("slots are processes beside the database")


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_jobs_run_in_warm_processes_of_their_own(app):
    """Plain functions and coroutines run outside the child, one after the other in one slot."""
    with worker(app):
        outside = app.wait(app.enqueue("thread_pid").id, timeout=30).result
        first = app.wait(app.enqueue("slot_pid").id, timeout=30).result
        second = app.wait(app.enqueue("slot_pid_async").id, timeout=30).result

    assert outside != first
    assert first == second
    assert is_gone(first)


@pytest.fixture
def served(app, tmp_path):
    """A job of each sort that ended in slots of one worker, by its kind."""
    text = "ä" * 500_000
    payloads = {
        "talk": {},
        "grow": {"number": 4},
        "fail": {},
        "surroundings": {},
        "large": {"text": text},
        "crash_and_leave_a_child": {"note": str(tmp_path / "left")},
    }
    jobs = {kind: app.enqueue(kind, payload) for kind, payload in payloads.items()}
    misfit = app.enqueue("slot_pid", {"extra": 1})
    with worker(app):
        found = {kind: app.wait(job.id, timeout=60) for kind, job in jobs.items()}
        found["slot_pid"] = wait_until(
            lambda: (each := app.get(misfit.id)).state is JobState.RETRYING and each
        )
        (found["follow_up"],) = wait_until(
            lambda: [
                job
                for job in app.list(kind="follow_up", state="succeeded", full=True)
                if job.workflow is None
            ]
        )
        (found["sum_up"],) = wait_until(
            lambda: app.list(kind="sum_up", state="succeeded", full=True).jobs
        )
    os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)
    return found


def test_what_comes_back_from_a_slot(app, served):
    """Results, progress, log lines, follow-ups, errors and crashes, as from any other worker."""
    talk, follow_up = served["talk"], served["follow_up"]
    # Whatever the handler prints.
    assert (talk.state, talk.result) == (JobState.SUCCEEDED, "1 talk")
    assert talk.progress == rowlock.Progress(1.0, "all")
    assert [line.text for line in app.store.read_log(talk.id)] == [
        "first",
        "odd \ufffd \ufffd line",
    ]
    assert (follow_up.result, follow_up.priority) == (7, 3)

    # Jobs that were added to a workflow, and the results of the first for the last.
    assert (served["grow"].result, served["sum_up"].result) == (4, 0 + 1 + 2 + 3)

    # A payload and a result near the limit.
    assert served["large"].result == "ä" * 500_000

    failed = served["fail"]
    assert (failed.state, failed.last_error) == (JobState.DEAD, "ValueError: no good")
    assert "in fail" in failed.errors[0].traceback

    # A payload that does not fit is retried after a minute.
    misfit = served["slot_pid"]
    assert [error.type for error in misfit.errors] == ["PayloadMisfit"]
    assert (misfit.run_at - misfit.errors[0].time).total_seconds() == 60

    # A process that the handler left behind holds the socket, and does not hide the slot's death.
    crashed = served["crash_and_leave_a_child"]
    assert (crashed.state, crashed.crashes) == (JobState.DEAD, 1)
    assert "SIGKILL" in crashed.last_error

    # Signals do not end a slot, nor do its processes ignore them. It has one socket of ours.
    assert served["surroundings"].result == {
        "sockets": 1,
        "memory": 0,
        "sigterm": int(signal.SIG_DFL),
        "name": "rowlock slot",
    }


def test_a_crash_harms_nobody_else(app, tmp_path):
    """Poison dies by its slots, after `max_crashes`; its neighbours in the child run on."""
    go_on, notes = tmp_path / "go-on", [tmp_path / "thread", tmp_path / "slot"]
    neighbours = [
        app.enqueue(kind, {"path": str(go_on), "note": str(note)})
        for kind, note in zip(["wait_in_thread", "wait_in_slot"], notes, strict=True)
    ]
    with worker(app):
        wait_until(lambda: all(map(runners, notes)))
        poison = app.wait(app.enqueue("crash").id, timeout=30)
        go_on.touch()
        beside = [app.wait(job.id, timeout=30) for job in neighbours]

    assert (poison.state, poison.crashes, poison.attempt) == (JobState.DEAD, 3, 3)
    assert [error.type for error in poison.errors] == ["Crashed", "Crashed", "Poison"]
    assert "SIGSEGV" in poison.last_error
    assert [(job.attempt, job.crashes) for job in beside] == [(1, 0)] * 2
    assert [[job.result] for job in beside] == [runners(note) for note in notes]


def test_a_time_limit_ends_the_slot_alone(app, tmp_path):
    """A plain function is killed at its limit, a coroutine cancelled; the child lives on."""
    note, go_on = tmp_path / "note", tmp_path / "go-on"
    neighbour = app.enqueue("wait_in_thread", {"path": str(go_on), "note": str(note)})
    with worker(app):
        wait_until(lambda: runners(note))
        jobs = [app.enqueue(kind) for kind in ("never_ends", "never_ends_async")]
        plain, coroutine = [app.wait(job.id, timeout=30) for job in jobs]
        go_on.touch()
        beside = app.wait(neighbour.id, timeout=30)

    assert (plain.state, plain.attempt, plain.crashes) == (JobState.DEAD, 2, 0)
    assert plain.last_error == "TimeoutError: took longer than its limit of 0.5 s"
    assert (coroutine.state, coroutine.last_error) == (JobState.DEAD, plain.last_error)
    assert (runners(note), beside.attempt) == ([beside.result], 1)


def test_a_cancel_reaches_the_handler(app, tmp_path):
    """A plain function sees the flag, a coroutine gets CancelledError, and the slot lives on."""
    ended: dict[str, rowlock.Job] = {}
    with worker(app):
        for kind in ("until_cancelled", "until_cancelled_async"):
            note = tmp_path / kind
            job = app.enqueue(kind, {"note": str(note)})
            (slot,) = wait_until(lambda note=note: runners(note))
            app.cancel(job.id)
            ended[kind] = app.wait(job.id, timeout=30)

            assert app.wait(app.enqueue("slot_pid").id, timeout=30).result == slot

    assert {job.state for job in ended.values()} == {JobState.CANCELLED}
    assert ended["until_cancelled"].last_error == "Cancelled: as you wish"
    assert (tmp_path / "until_cancelled_async").read_text() == "cleaned up"


def test_a_slot_sees_that_the_worker_stops(app, tmp_path):
    """`ctx.stopping` is true in a slot too; the job finishes within the grace."""
    note = tmp_path / "note"
    job = app.enqueue("until_stopping", {"note": str(note)})
    with worker(app) as process:
        wait_until(lambda: runners(note))
        process.terminate()

        assert process.wait(30) == 0
    assert app.get(job.id).result == "stopped"


def test_what_does_not_stop_goes_back(app, tmp_path):
    """After the grace the slot is killed, its job released uncounted, and the exit a good one."""
    note = tmp_path / "note"
    job = app.enqueue("stubborn", {"note": str(note)})
    with worker(app, "--grace", "0.2") as process:
        (slot,) = wait_until(lambda: runners(note))
        process.terminate()

        assert process.wait(30) == 0
    found = app.get(job.id)
    assert (found.state, found.attempt, found.crashes) == (JobState.READY, 0, 0)
    assert is_gone(slot)


@pytest.mark.parametrize("generation", ["child", "supervisor"])
def test_slots_end_with_their_worker(app, tmp_path, generation):
    """SIGKILL of the child, or of the supervisor: the slot ends, busy as it is."""
    note = tmp_path / "note"
    app.enqueue("stubborn", {"note": str(note)})
    with worker(app, "--grace", "60") as process:
        (slot,) = wait_until(lambda: runners(note))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(process.pid if generation == "supervisor" else int(children[0]), signal.SIGKILL)

        wait_until(lambda: is_gone(slot))


def test_a_killed_slots_job_runs_again(app, tmp_path):
    """SIGKILL of a slot from outside: its job is run again, in another one."""
    note, go_on = tmp_path / "note", tmp_path / "go-on"
    job = app.enqueue("wait_in_slot", {"path": str(go_on), "note": str(note)})
    with worker(app):
        (first,) = wait_until(lambda: runners(note))
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(runners(note)) == 2)
        go_on.touch()
        found = app.wait(job.id, timeout=30)

    assert (found.state, found.attempt, found.crashes) == (JobState.SUCCEEDED, 2, 1)
    assert "SIGKILL" in found.errors[0].message
    assert runners(note)[1] == found.result != first
