"""`rowlock worker`: real processes, killed, stopped and told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import rowlock
from rowlock import JobState
from rowlock.worker.settings import worker_settings
from rowlock.worker.supervisor import Supervisor
from tests.support.workers import (
    LEASE_SECONDS,
    children_of,
    database_held,
    is_gone,
    leaving_child,
    runners,
    stop_between_writes,
    worker,
)
from tests.worker.waiting import wait_until


@pytest.mark.one_store("how children end and are replaced")
def test_a_drain_runs_everything_and_ends(app):
    """All ready jobs are run by the children, and the supervisor ends well."""
    jobs = app.enqueue_many(
        [{"kind": "noop", "payload": {"number": n}} for n in range(300)]
        + [{"kind": "plain", "payload": {"number": n}} for n in range(100)]
    )
    with worker(app, "--drain", "-p", "2") as process:
        assert process.wait(60) == 0

    assert {app.get(job.id).state for job in jobs} == {JobState.SUCCEEDED}


def test_a_killed_childs_job_runs_again(app, tmp_path):
    """SIGKILL of a child in the middle of a job: another one runs it, and the crash is told."""
    note, go_on = tmp_path / "note", tmp_path / "go-on"
    job = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(note)})
    with worker(app, "-p", "2"):
        (first,) = wait_until(lambda: runners(note))
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(runners(note)) == 2)
        go_on.touch()
        found = app.wait(job.id, timeout=30)

    assert (found.state, found.attempt, found.crashes) == (JobState.SUCCEEDED, 2, 1)
    assert "SIGKILL" in found.errors[0].message
    assert runners(note)[1] != first


@pytest.mark.one_store("how children end and are replaced")
def test_a_name_is_never_used_again(app):
    """The child that takes a dead one's place, on the same host and of the same parent, is
    another.
    """
    with worker(app) as process:
        (first,) = wait_until(app.workers, seconds=60)
        os.kill(children_of(process)[0], signal.SIGKILL)
        (second,) = wait_until(
            lambda: [each for each in app.workers() if each.id != first.id][:1], seconds=60
        )

    assert first.id.rpartition("-")[0] == second.id.rpartition("-")[0]


@pytest.mark.one_store("how children end and are replaced")
def test_nobody_dies_of_one_who_had_settled_itself(app, tmp_path):
    """It is no proof that nothing else ran under a lease: a neighbour that goes on after its block
    may have done it, so the run isn't counted as an attempt.
    """
    note, deadly, go_on = tmp_path / "note", tmp_path / "deadly", tmp_path / "go-on"
    paths = {"path": str(go_on), "note": str(note)}
    bystander = app.enqueue("wait_for_file", paths, max_attempts=2)
    with worker(app, "-c", "2"):
        wait_until(lambda: runners(note))
        culprit = app.enqueue("settle_and_die", {"path": str(deadly)})
        app.wait(culprit.id, timeout=30)
        deadly.touch()
        wait_until(lambda: len(runners(note)) == 2)
        go_on.touch()
        found = app.wait(bystander.id, timeout=30)

    assert (found.state, found.crashes, found.attempt) == (JobState.SUCCEEDED, 1, 1)
    assert (app.get(culprit.id).state, app.get(culprit.id).crashes) == (JobState.SUCCEEDED, 0)


@pytest.mark.one_store("how children end and are replaced")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_poison_dies_alone(app, number):
    """A job that takes down its process ends dead; its neighbours all succeed."""
    poison = app.enqueue("kill_myself", {"signal_number": int(number)})
    others = app.enqueue_many([{"kind": "noop"} for _ in range(200)])
    with worker(app, "--drain", "-p", "2") as process:
        assert process.wait(60) == 0
    found = app.get(poison.id)

    assert (found.state, found.crashes) == (JobState.DEAD, 3)
    assert "Poison" in found.last_error
    assert {app.get(job.id).state for job in others} == {JobState.SUCCEEDED}


def test_a_drain_runs_also_what_a_dead_child_held_unknown(app):
    """A lease that stands in no table is given back a little later, and then still run."""
    late = app.enqueue("noop", queue="late")
    dying = app.enqueue("claim_and_die", {"queue": "late"})
    with worker(app, "--drain", "-c", "1", "-q", "default,late", "--order", "strict") as process:
        assert process.wait(60) == 0

    assert (app.get(dying.id).state, app.get(dying.id).attempt) == (JobState.SUCCEEDED, 2)
    assert (
        app.get(late.id).state,
        app.get(late.id).attempt,
        app.get(late.id).token,
    ) == (JobState.SUCCEEDED, 1, 2)


def test_sigterm_waits_for_running_jobs(app, tmp_path):
    """A running job finishes within the grace; the exit is a good one, and no lease is left."""
    note, stopped, go_on = tmp_path / "note", tmp_path / "stopped", tmp_path / "go-on"
    job = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(note)})
    app.enqueue("wait_for_stop", {"note": str(stopped)})
    with worker(app) as process:
        wait_until(lambda: runners(note))
        wait_until(lambda: len(app.list(state="running").jobs) == 2)
        process.terminate()
        wait_until(stopped.exists)
        app.enqueue("noop")
        go_on.touch()

        assert process.wait(30) == 0
    assert app.get(job.id).state == JobState.SUCCEEDED
    assert not app.list(state="running").jobs
    assert len(app.list(state="ready").jobs) == 1


def test_sigterm_gives_back_what_does_not_stop(app, tmp_path):
    """After the grace the processes are ended, and their jobs go back uncounted."""
    note = tmp_path / "note"
    job = app.enqueue("wait_for_file", {"path": str(tmp_path / "never"), "note": str(note)})
    with worker(app, "--grace", "0.2") as process:
        wait_until(lambda: runners(note))
        process.terminate()
        process.wait(30)
    found = app.get(job.id)

    assert (found.state, found.attempt) == (JobState.READY, 0)


@pytest.mark.one_store("how children end and are replaced")
def test_children_end_with_their_supervisor(app, tmp_path):
    """SIGKILL of the supervisor: its children claim nothing more, and end."""
    note = tmp_path / "note"
    app.enqueue("wait_for_file", {"path": str(tmp_path / "never"), "note": str(note)})
    with worker(app, "-p", "2", "--grace", "60") as process:
        wait_until(lambda: runners(note))
        children = children_of(process)
        process.kill()
        process.wait()

        assert len(children) == 2
        wait_until(lambda: all(map(is_gone, children)))


def test_a_stopped_child_loses_its_lease(app, tmp_path):
    """SIGSTOP longer than the lease: another runs the job, and the first can't change a thing."""
    note, go_on = tmp_path / "note", tmp_path / "go-on"
    job = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(note)})
    with worker(app):
        (stopped,) = wait_until(lambda: runners(note))
        stop_between_writes(app, stopped)
        try:
            with worker(app):
                wait_until(lambda: app.store.recover() or len(runners(note)) == 2)
                wait_until(lambda: len(runners(note)) == 2)
                go_on.touch()
                first = app.wait(job.id, timeout=30)
        finally:
            os.kill(stopped, signal.SIGCONT)
        again = app.enqueue("noop")
        app.wait(again.id, timeout=30)

    assert (first.state, first.attempt) == (JobState.SUCCEEDED, 1)
    assert [error.message for error in first.errors] == ["lease expired"]
    assert first == app.get(job.id)


def test_a_drain_looks_again_for_what_came_back_late(app):
    """Also when that came after its children had looked for the last time, before their end."""
    app.enqueue("noop")
    assert app.store.claim(worker="dead", queues=None)
    supervisor = Supervisor(app="app", processes=1, settings=worker_settings(drain=True))
    supervisor._leases._store = app.store
    supervisor._children[1] = child = leaving_child()
    supervisor._leases._give_back("dead")

    assert supervisor._next_start == {}
    del supervisor._children[1]
    supervisor._on_death(child, 0)
    assert list(supervisor._next_start) == [0]
    close(supervisor)


def test_what_a_dead_child_held_is_given_back_each_by_itself(app, caplog):
    """Neither a lease that it had lost before, nor a run that was settled, holds up the others."""
    jobs = app.enqueue_many([{"kind": "noop"} for _ in range(3)])
    stale = app.store.claim(worker="leaving", queues=None, limit=3)
    app.store.release_worker("leaving")
    leases = app.store.claim(worker="leaving", queues=None, limit=3)
    child, supervisor = (
        leaving_child(),
        Supervisor(app="app", processes=1, settings=worker_settings()),
    )
    supervisor._leases._store = app.store
    for lease in [*stale, *leases]:
        child.leases.hold(lease)
        child.leases.start(lease)
    app.store.succeed(leases[:1])
    supervisor._leases.clean_up(child, -signal.SIGKILL)
    child.close()
    close(supervisor)

    found = [app.get(job.id) for job in jobs]
    assert [job.state for job in found] == [JobState.SUCCEEDED, JobState.READY, JobState.READY]
    assert [job.crashes for job in found] == [0, 1, 1]
    said = [record.getMessage() for record in caplog.records]
    assert [
        any(f"{job.id} crashed: its process died" in line for line in said) for job in jobs
    ] == [False, True, True]


def close(supervisor: Supervisor) -> None:
    """Close what one that never ran has open."""
    supervisor._wake.close()
    supervisor._waker.close()
    supervisor._selector.close()


def test_a_job_that_comes_back_to_the_child_that_lost_it(app, tmp_path):
    """The run that lost its lease ends unheard; the other one keeps its own, and counts."""
    note, go_on = tmp_path / "note", tmp_path / "go-on"
    job = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(note)}, max_attempts=2)
    with worker(app):
        wait_until(lambda: runners(note))
        assert app.store.release_worker(app.get(job.id).worker) == 1
        wait_until(lambda: len(runners(note)) == 2)
        # Longer than a lease: that of the later run is beaten for.
        time.sleep(1.5 * LEASE_SECONDS)
        go_on.touch()
        found = app.wait(job.id, timeout=30)

    assert (found.state, found.attempt, found.token) == (JobState.SUCCEEDED, 1, 2)
    assert len(set(runners(note))) == 1


@pytest.mark.one_store("how children end and are replaced")
def test_a_plain_function_past_its_limit_is_stopped_in_its_thread(app, tmp_path):
    """Its attempts are used up as failures; a neighbour in the same child notices nothing."""
    note, go_on = tmp_path / "note", tmp_path / "go-on"
    neighbour = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(note)})
    with worker(app):
        wait_until(lambda: runners(note))
        stuck = app.enqueue("never_ends")
        found = app.wait(stuck.id, timeout=60)
        go_on.touch()
        beside = app.wait(neighbour.id, timeout=30)

    assert (found.state, found.attempt, found.crashes) == (JobState.DEAD, 2, 0)
    assert "longer than its limit" in found.last_error
    assert (beside.state, beside.attempt, beside.errors) == (JobState.SUCCEEDED, 1, [])
    assert len(runners(note)) == 1


def test_holding_the_interpreter_does_not_lose_the_lease(app, tmp_path):
    """The supervisor beats whatever a handler does: it runs once."""
    note = tmp_path / "note"
    job = app.enqueue("hold_the_interpreter", {"seconds": 5 * LEASE_SECONDS, "note": str(note)})
    with worker(app), worker(app):
        found = app.wait(job.id, timeout=60)

    assert (found.state, found.attempt) == (JobState.SUCCEEDED, 1)
    assert note.read_text().split() == ["run"]


def test_a_held_database_costs_nobody_their_lease(app, tmp_path):
    """Nobody can beat while it is held; when it is free again, beats come before the sweep."""
    note, go_on = tmp_path / "note", tmp_path / "go on"
    job = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(note)})
    with worker(app), worker(app):
        wait_until(lambda: runners(note))
        with database_held(app):
            time.sleep(3 * LEASE_SECONDS)
        # Long enough for a sweep that would take it.
        time.sleep(2 * LEASE_SECONDS)
        go_on.touch()
        found = app.wait(job.id, timeout=30)

    assert (found.state, found.attempt, found.errors) == (JobState.SUCCEEDED, 1, [])


@pytest.mark.one_store("how children end and are replaced")
def test_children_are_replaced_after_so_many_jobs(app):
    """`--max-jobs` recycles a child; nothing is lost on the way."""
    jobs = app.enqueue_many([{"kind": "where"} for _ in range(40)])
    with worker(app, "--max-jobs", "10", "-c", "2"):
        processes = {app.wait(job.id, timeout=60).result for job in jobs}

    assert len(processes) >= 3


def test_another_worker_recovers_what_a_lost_machine_held(app, tmp_path):
    """Supervisor and child gone at once: the lease expires, and another worker runs the job."""
    note, go_on = tmp_path / "note", tmp_path / "go-on"
    job = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(note)})
    with worker(app) as lost:
        wait_until(lambda: runners(note))
        for pid in [lost.pid, *children_of(lost)]:
            os.kill(pid, signal.SIGKILL)
        lost.wait()
    with worker(app):
        wait_until(lambda: len(runners(note)) == 2, seconds=40)
        go_on.touch()
        found = app.wait(job.id, timeout=30)

    assert (found.state, found.attempt) == (JobState.SUCCEEDED, 1)
    assert found.errors[0].message == "lease expired"


@pytest.mark.parametrize(("action", "state"), [("retry", "succeeded"), ("park", "dead")])
def test_orphans_are_adopted_at_the_start(app, action, state):
    """By choice a worker takes over what was not heard of, before its lease has expired."""
    job = app.enqueue("noop")
    app.store.claim(worker="gone", queues=["default"], lease=3600)
    words = ("-q", "default", "--orphans", action, "--orphans-older-than", "0")
    with worker(app, *words):
        found = app.wait(job.id, timeout=30)

    assert found.state == state
    assert "orphaned" in found.errors[0].message


def test_workers_announce_themselves(app):
    """A worker is listed with what it serves while it lives, and is gone when it ended."""
    with worker(app, "-q", "default,mail:3", "--kinds", "noop,absent"):
        (info,) = wait_until(app.workers)
    assert info.queues == ["default", "mail"]
    assert info.kinds == ["noop"]
    assert app.workers() == []


def test_schedules_in_the_code_are_fired(app):
    """A task with `cron` is enqueued by a worker, without any call."""
    with worker(app, cron=True):
        found = wait_until(lambda: app.list(kind="every_second", state="succeeded", full=True).jobs)

    assert found[0].meta["schedule"] == "every_second"


def test_without_an_app_it_says_what_it_needs():
    """The command line explains itself."""
    done = subprocess.run(
        [sys.executable, "-m", "rowlock.cli", "worker"],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "ROWLOCK_APP"},
    )

    assert done.returncode == 2
    assert "--app" in done.stderr


def test_the_supervisor_finds_the_childrens_database(tmp_path):
    """Also when the app changes its directory and names its file relative to that."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "moving_app.py").write_text(
        "import os, time\n"
        "import rowlock\n"
        "os.chdir('inside')\n"
        "app = rowlock.App('sqlite:///jobs.db')\n"
        "@app.task\n"
        "def work() -> None:\n"
        "    time.sleep(3)\n",
        "utf-8",
    )
    with rowlock.App(f"sqlite:///{tmp_path}/inside/jobs.db") as app:
        job = app.enqueue("work")
        words = ["--app", "moving_app:app", "worker", "--drain", "--lease", "1"]
        clean = {name: each for name, each in os.environ.items() if not name.startswith("ROWLOCK_")}
        done = subprocess.run(
            [sys.executable, "-m", "rowlock", *words],
            cwd=tmp_path,
            env=clean,
            timeout=60,
            check=False,
        )
        found = app.get(job.id)

    assert (done.returncode, found.state, found.attempt) == (0, JobState.SUCCEEDED, 1)
    assert not (tmp_path / "jobs.db").exists()
