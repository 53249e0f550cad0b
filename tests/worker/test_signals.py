"""Who hears the signals that ask to stop: real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from rowlock import JobState
from rowlock.config import SECOND_SIGNAL_SECONDS
from rowlock.worker import signals
from tests.support.workers import ROOT, children_of, runners, worker
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.one_store("signals and processes")


def test_a_signal_to_the_whole_family_is_a_good_end(app):
    """A service manager signals everybody, also a child that is still loading."""
    with worker(app, "-p", "2", start_new_session=True) as process:
        wait_until(lambda: len(children_of(process)) == 2)
        os.killpg(process.pid, signal.SIGTERM)

        assert process.wait(30) == 0


def test_a_closed_terminal_is_as_polite_as_ctrl_c(app, tmp_path):
    """SIGHUP: what runs may finish, and the exit is a good one."""
    note, go_on = tmp_path / "note", tmp_path / "go-on"
    job = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(note)})
    with worker(app, start_new_session=True) as process:
        wait_until(lambda: runners(note))
        os.killpg(process.pid, signal.SIGHUP)
        go_on.touch()

        assert process.wait(30) == 0
    assert app.get(job.id).state == JobState.SUCCEEDED


@pytest.mark.parametrize("how", ["subprocess", "fork"])
def test_handlers_can_terminate_what_they_start(app, how):
    """A child leaves signals to its supervisor; the processes of the user's code do not."""
    job = app.enqueue("start_and_terminate", {"how": how})
    with worker(app):
        found = app.wait(job.id, timeout=60)

    assert (found.state, found.result) == (JobState.SUCCEEDED, -signal.SIGTERM)


EMBEDDED = """
import asyncio, sys
from pathlib import Path
import rowlock

app = rowlock.App(sys.argv[1])

@app.task
async def endless(ctx: rowlock.Context, note: str) -> None:
    Path(note + "-running").touch()
    while not ctx.stopping:
        await asyncio.sleep(0.01)
    Path(note + "-stopping").touch()
    await asyncio.sleep(600)

app.run_worker(grace=600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_second_signal_ends_the_grace(app, tmp_path, number):
    """Also of `app.run_worker()`: the first one waits for the job, the second gives it back."""
    job = app.enqueue("endless", {"note": str(tmp_path / "note")})
    command = [sys.executable, "-c", EMBEDDED, app.url]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until((tmp_path / "note-running").exists)
            process.send_signal(number)
            wait_until((tmp_path / "note-stopping").exists)
            time.sleep(SECOND_SIGNAL_SECONDS)
            process.send_signal(number)

            assert process.wait(30) == 0
        finally:
            process.kill()
    assert (app.get(job.id).state, app.get(job.id).attempt) == (JobState.READY, 0)


def test_two_signals_within_a_moment_are_one(app, tmp_path):
    """As `timeout` of the coreutils sends them: the job has its grace, and the end is good."""
    note, go_on = tmp_path / "note", tmp_path / "go-on"
    job = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(note)})
    with worker(app, "--grace", "50") as process:
        wait_until(lambda: runners(note), seconds=60)
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            # So that they are not delivered as one.
            time.sleep(SECOND_SIGNAL_SECONDS / 20)
        go_on.touch()
        code = process.wait(60)

    assert (code, app.get(job.id).state) == (0, JobState.SUCCEEDED)


def test_two_signals_within_a_moment_to_a_worker_inside(app, tmp_path):
    """The same for `app.run_worker()`."""
    app.enqueue("endless", {"note": str(tmp_path / "note")})
    command = [sys.executable, "-c", EMBEDDED, app.url]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until((tmp_path / "note-running").exists, seconds=60)
            process.send_signal(signal.SIGTERM)
            time.sleep(SECOND_SIGNAL_SECONDS / 20)
            process.send_signal(signal.SIGTERM)
            wait_until((tmp_path / "note-stopping").exists, seconds=60)
            # It would give the job back at once, and end.
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(3 * SECOND_SIGNAL_SECONDS)
        finally:
            process.kill()


def test_what_a_signal_means(monkeypatch):
    """The first asks to stop; what follows at once is its echo; a later one means it."""
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    wishes = signals.Wishes()
    heard = []
    for pause in (0.0, 0.0, 0.9, 0.1, 5.0):
        now[0] += pause
        heard.append(wishes.hear())

    wish = signals.Wish
    assert heard == [wish.STOP, wish.ECHO, wish.ECHO, wish.STOP_AT_ONCE, wish.STOP_AT_ONCE]


def test_whom_nohup_started_goes_on_after_a_hangup():
    """An ignored SIGHUP stays ignored; the others are obeyed."""
    script = (
        "import signal\n"
        "from rowlock.worker import signals\n"
        "signals.obey(lambda *_: None)\n"
        "print([signal.getsignal(n) is signal.SIG_IGN for n in signals.STOP_SIGNALS])\n"
    )
    done = subprocess.run(
        ["nohup", sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout == f"{[n is signal.SIGHUP for n in signals.STOP_SIGNALS]}\n"


@pytest.mark.parametrize("prefix", ["exec ", ""])
def test_a_shell_in_between(app, tmp_path, prefix):
    """With `exec` a worker hears the signal itself; without, it is left alone and keeps its job."""
    note, go_on = tmp_path / "note", tmp_path / "go-on"
    job = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(note)})
    words = "-m rowlock --app tests.worker.jobs_app:app worker --lease 2 --no-cron"
    shell = subprocess.Popen(
        ["sh", "-c", f"{prefix}{sys.executable} {words}\n:"],
        cwd=ROOT,
        env={**os.environ, "ROWLOCK_DATABASE_URL": app.url},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: runners(note), seconds=60)
        shell.terminate()
        if prefix:
            go_on.touch()

        assert shell.wait(30) == (0 if prefix else -signal.SIGTERM)
        go_on.touch()
        found = app.wait(job.id, timeout=30)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    assert (found.state, found.attempt) == (JobState.SUCCEEDED, 1)
