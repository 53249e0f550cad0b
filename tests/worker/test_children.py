"""A handler blocks the event loop of its child: what the child has not begun runs elsewhere."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import rowlock
from rowlock import JobState, config
from rowlock.worker.children import Pulse
from tests.store.triggers import refuse
from tests.support.workers import runners, worker
from tests.worker.waiting import wait_until

BOUND_SECONDS = 60


def step(pulse: Pulse, value: int, *, times: int, seconds: float, start: float) -> None:
    for number in range(times):
        pulse.see(value, start + number * seconds)


def test_a_pulse_that_stands_still_is_a_stall() -> None:
    """After the bound, and not before the loop has run, nor if the supervisor was away."""
    waiting, still, turning, away = Pulse(), Pulse(), Pulse(), Pulse()
    times = round(2 * config.STALL_SECONDS / 0.2)
    step(waiting, 0, times=times, seconds=0.2, start=100.0)
    step(still, 5, times=times, seconds=0.2, start=100.0)
    for number in range(times):
        turning.see(1 + number % 2, 100.0 + number * 0.2)
    step(away, 5, times=2, seconds=3600.0, start=100.0)

    assert [each.is_stalled for each in (waiting, still, turning, away)] == [
        False,
        True,
        False,
        False,
    ]
    still.see(6, 200.0)
    assert not still.is_stalled


@pytest.mark.one_store("who keeps house")
def test_what_a_blocked_child_has_not_begun_runs_elsewhere(app, tmp_path):
    """Within seconds, each once, though the block goes on; and the block itself runs once."""
    block, note, go_on = tmp_path / "block", tmp_path / "note", tmp_path / "go-on"
    blocking = app.enqueue("block_loop", {"path": str(go_on), "note": str(block)}, priority=5)
    others = app.enqueue_many(
        [{"kind": "note_process", "payload": {"note": str(note)}} for _ in range(15)]
    )
    # Whichever child comes first takes all of them.
    with worker(app, "-p", "2", "-c", "20"):
        try:
            (blocked,) = wait_until(lambda: runners(block), seconds=BOUND_SECONDS)
            wait_until(lambda: len(runners(note)) == len(others), seconds=BOUND_SECONDS)
            found = [app.wait(job.id, timeout=BOUND_SECONDS) for job in others]
            during = app.get(blocking.id).state
        finally:
            go_on.touch()
        first = app.wait(blocking.id, timeout=BOUND_SECONDS)
        # The child that was blocked goes on as well.
        app.wait(app.enqueue("noop").id, timeout=BOUND_SECONDS)

    assert during is JobState.RUNNING
    assert {(job.state, job.attempt, job.crashes) for job in found} == {(JobState.SUCCEEDED, 1, 0)}
    assert all(not job.errors for job in (*found, first))
    assert len(runners(note)) == len(others)
    assert blocked not in runners(note)
    assert (first.state, first.attempt) == (JobState.SUCCEEDED, 1)


@pytest.mark.one_store("who keeps house")
def test_another_child_keeps_house_while_the_first_is_blocked(app, tmp_path):
    """Schedules go on to be fired."""
    gates: dict[str, Path] = {}

    def block(name: str) -> str:
        """Block a child; its worker's name."""
        note, gates[name] = tmp_path / name, tmp_path / f"go-on-{name}"
        payload = {"path": str(gates[name]), "note": str(note)}
        job = app.enqueue("block_loop", payload, priority=5)
        wait_until(lambda: runners(note), seconds=BOUND_SECONDS)
        worker = app.get(job.id).worker
        assert worker is not None
        return worker

    def ticks() -> int:
        page = app.list(kind="every_second", limit=1000)
        return len(page.jobs)

    with worker(app, "-p", "2", "-c", "1", cron=True):
        try:
            wait_until(ticks, seconds=BOUND_SECONDS)
            names = {block("one"): "one"}
            # The first child is the one that keeps house; the other one is to go on.
            if not any(is_first(name) for name in names):
                names[block("two")] = "two"
            (other,) = [names[name] for name in names if not is_first(name)] or [None]
            if other is not None:
                gates[other].touch()
            before = ticks()
            wait_until(lambda: ticks() > before + 3, seconds=BOUND_SECONDS)
        finally:
            for gate in gates.values():
                gate.touch()

    assert any(is_first(name) for name in names)


def is_first(worker: str) -> bool:
    """Whether it is the child with the number 0."""
    return worker.split("-")[-2] == "0"


def test_a_supervisor_whose_only_child_is_blocked_finds_expired_leases(app, tmp_path):
    """Jobs of a worker that vanished don't wait for the end of the block."""
    block, go_on = tmp_path / "block", tmp_path / "go-on"
    with worker(app, "-c", "1"):
        try:
            app.enqueue("block_loop", {"path": str(go_on), "note": str(block)})
            wait_until(lambda: runners(block), seconds=BOUND_SECONDS)
            lost = app.enqueue("noop", queue="elsewhere")
            assert app.store.claim(worker="vanished", queues=["elsewhere"], lease=1)
            wait_until(
                lambda: app.get(lost.id).state is not JobState.RUNNING, seconds=BOUND_SECONDS
            )
        finally:
            go_on.touch()
        found = app.wait(lost.id, timeout=BOUND_SECONDS)

    assert found.state is JobState.SUCCEEDED


@pytest.mark.one_store("who keeps house")
def test_schedules_are_fired_beside_an_only_child_that_is_blocked(app, tmp_path):
    """The supervisor does it on its own connection until the child is back."""
    block, go_on = tmp_path / "block", tmp_path / "go-on"

    def ticks() -> int:
        return len(app.list(kind="every_second", limit=1000).jobs)

    with worker(app, "-p", "1", "-c", "1", cron=True):
        try:
            wait_until(ticks, seconds=BOUND_SECONDS)
            app.enqueue("block_loop", {"path": str(go_on), "note": str(block)})
            wait_until(lambda: runners(block), seconds=BOUND_SECONDS)
            before = ticks()
            wait_until(lambda: ticks() > before + 3, seconds=BOUND_SECONDS)
        finally:
            go_on.touch()


@pytest.mark.owner("puts a trigger on our table")
def test_a_supervisor_goes_around_a_lost_job_that_it_cannot_bury(app, tmp_path):
    """The database refuses the end of one of two jobs: the other is given back."""
    block, go_on = tmp_path / "block", tmp_path / "go-on"
    with worker(app, "-c", "1"):
        try:
            app.enqueue("block_loop", {"path": str(go_on), "note": str(block)})
            wait_until(lambda: runners(block), seconds=BOUND_SECONDS)
            stuck = app.enqueue("noop", queue="elsewhere", max_attempts=1)
            lost = app.enqueue("noop", queue="elsewhere")
            refuse(app.url, table="finished", when=f"NEW.id = '{stuck.id}'")
            held = app.store.claim(worker="vanished", queues=["elsewhere"], lease=1, limit=2)
            wait_until(
                lambda: app.get(lost.id).state is not JobState.RUNNING, seconds=BOUND_SECONDS
            )
            left = app.get(stuck.id)
        finally:
            go_on.touch()

    assert [lease.id for lease in held] == [stuck.id, lost.id]
    assert (left.state, left.worker) == (JobState.RUNNING, "vanished")


@pytest.mark.one_store("who keeps house")
@pytest.mark.parametrize("number", [0, 1])
def test_a_dead_keeper_is_replaced(app: rowlock.App, number: int) -> None:
    """Schedules are fired again, whichever child has died."""
    with worker(app, "-p", "2", cron=True) as process:
        wait_until(
            lambda: len(app.workers()) == 2 and app.list(kind="every_second").jobs,
            seconds=BOUND_SECONDS,
        )
        (dying,) = [each for each in app.workers() if each.id.split("-")[-2] == str(number)]
        assert process.poll() is None
        os.kill(dying.pid, signal.SIGKILL)
        before = len(app.list(kind="every_second", limit=1000).jobs)
        wait_until(
            lambda: len(app.list(kind="every_second", limit=1000).jobs) > before + 3,
            seconds=BOUND_SECONDS,
        )
