"""`rowlock queues`, `workers`, `stats`, `prune`, `top`, `completion`: the state of the whole."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from rowlock import App
from rowlock.cli import main
from rowlock.job import WorkerVitals
from tests.cli.conftest import documents, kill
from tests.support.states import announce


@pytest.fixture
def filled(app):
    """Two queues, one paused; a worker that runs one job; one dead job."""
    app.enqueue("send", queue="mail")
    app.enqueue("send", queue="mail", delay=600)
    kill(app, app.enqueue("bad", queue="other", max_attempts=1).id)
    app.store.announce(worker="w1", queues=["mail"], kinds=["send"], host="box", pid=42)
    app.store.claim(worker="w1", queues=["mail"])
    app.pause("other")
    return app


def test_queues(filled, run):
    """A row a queue, with whether it is paused."""
    head, mail, other = run("queues", "list").stdout.splitlines()
    found = json.loads(run("queues", "list", "--json").stdout)

    assert head.startswith("QUEUE  STATUS  READY  SCHEDULED")
    assert mail.split() == ["mail", "open", "0", "1", "0", "0", "1", "0", "-"]
    assert other.split() == ["other", "paused", "0", "0", "0", "0", "0", "1", "-"]
    assert [(q["queue"], q["is_paused"]) for q in found] == [("mail", False), ("other", True)]


def test_pause_and_resume(app, run):
    """Several queues are paused and resumed by name."""
    paused = run("queues", "pause", "--new", "a", "b")
    before = {queue.queue: queue.is_paused for queue in app.stats()}
    run("queues", "resume", "a")
    after = {queue.queue: queue.is_paused for queue in app.stats()}

    assert paused.stdout == "paused a\npaused b\n"
    assert before == {"a": True, "b": True}
    assert after == {"a": False, "b": True}
    assert run("queues", "pause").exit_code == 2


def test_a_bad_queue_stops_nothing(app, run):
    """The others are paused and resumed all the same; then the first failure is the exit code."""
    paused = run("queues", "pause", "--new", "a", "", "b")
    before = {queue.queue: queue.is_paused for queue in app.stats()}
    resumed = run("queues", "resume", "", "b")
    after = {queue.queue: queue.is_paused for queue in app.stats()}

    assert (paused.exit_code, paused.stdout) == (4, "paused a\npaused b\n")
    assert (resumed.exit_code, resumed.stdout) == (4, "resumed b\n")
    assert before == {"a": True, "b": True}
    assert after == {"a": True, "b": False}


def test_a_misspelt_queue_is_not_paused(filled, run):
    """It would look like success. A queue that will come can be paused all the same."""
    refused = run("queues", "pause", "mial", "other")
    resumed = run("queues", "resume", "mial")
    paused = run("queues", "pause", "later", "--new")

    assert (refused.exit_code, refused.stdout) == (3, "paused other\n")
    assert refused.stderr == (
        "error: there is no queue 'mial': no job, worker or task has it; did you mean 'mail'? "
        "To pause it anyway, add --new\n"
    )
    assert (resumed.exit_code, resumed.stdout) == (3, "")
    assert (paused.exit_code, paused.stdout) == (0, "paused later\n")
    assert {queue.queue for queue in filled.stats()} == {"mail", "other", "later"}


def test_stats(filled, run):
    """Counts by state, sums for several queues, and zeros for a queue asked for by name."""
    *_, all_queues = run("stats").stdout.splitlines()
    (asked,) = json.loads(run("stats", "none", "--json").stdout)

    assert all_queues.split() == ["all", "0", "1", "0", "1", "0", "0", "1", "0", "-"]
    assert asked["counts"]["ready"] == {"value": 0, "exact": True}
    assert asked["queue"] == "none"
    assert "other (paused)" in run("stats").stdout


def test_workers(filled, run):
    """A worker, what it serves and how many jobs it runs."""
    _, row = run("workers").stdout.splitlines()
    (document,) = json.loads(run("workers", "--json").stdout)

    assert row.split()[:6] == ["w1", "box", "42", "mail", "send", "1"]
    assert (*(document["id"], document["queues"], len(document["running"])),) == ("w1", ["mail"], 1)


def test_workers_show_their_slots(app, run):
    """Those that are taken by runs that have begun, and what is claimed ahead of them."""
    vitals = WorkerVitals(slots=20, busy=20, ahead=7)
    announce(app, worker="w1", queues=["mail"], kinds=[], vitals=vitals)

    assert "20 of 20 +7" in run("workers").stdout


def test_nothing_yet(run):
    """An empty database is told as such."""
    assert run("queues", "list").stdout == "no queues yet\n"
    assert run("workers").stdout == "no workers\n"
    assert json.loads(run("stats", "--json").stdout) == []
    assert run("prune").stdout == "removed 0 jobs\n"


def test_prune(app, run):
    """What is past its retention is removed."""
    app.enqueue("send", keep=0.000001)
    app.enqueue("send", keep=0.000001)
    app.store.succeed(app.store.claim(worker="w", queues=["default"], limit=2))

    assert json.loads(run("prune", "--json").stdout) == {"removed": 2}


def test_top_once(filled, run):
    """One frame: the header, the queues, the workers and what runs."""
    result = run("top", "--once")
    (document,) = documents(run("top", "--once", "--json"))

    assert result.exit_code == 0
    assert "1 worker" in result.stdout.splitlines()[0]
    assert [
        line for line in result.stdout.splitlines() if line in ("Queues", "Workers")
        or line.startswith("Running")
    ] == ["Queues", "Workers", "Running, longest first"]  # fmt: skip
    assert (
        document["queues"][0]["queue"],
        document["workers"][0]["id"],
        document["running"][0]["kind"],
    ) == ("mail", "w1", "send")


def test_tops_interval_is_bounded(run):
    """A thread can't wait for centuries: that is a usage error."""
    done = run("top", "--interval", "9223372037")

    assert (done.exit_code, "a day or less" in done.stderr) == (2, True)


def test_top_goes_on_in_a_pipe(sqlite_url):
    """Frames follow each other, without control characters, until it is interrupted."""
    App(sqlite_url).migrate()
    command = [sys.executable, "-m", "rowlock.cli", "--database-url", sqlite_url, "top"]
    with subprocess.Popen(
        [*command, "--interval", "0.1", "--json"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        frames = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()

    assert [frame["finished_per_second"] for frame in frames] == [0.0, 0.0]
    assert process.returncode == 0


def test_top_is_live_on_a_terminal(sqlite_url):
    """On a terminal it takes the screen, draws again, and gives the screen back."""
    App(sqlite_url).migrate()
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "rowlock.cli", "--database-url", sqlite_url, "top"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        [*command, "--interval", "0.1"], stdin=theirs, stdout=theirs, stderr=theirs,
        env=environment, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(theirs)
        drawn = b""
        while drawn.count(b"out/s") < 2:
            drawn += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        try:
            while more := os.read(ours, 65536):
                drawn += more
        except OSError:  # The other end is closed.
            pass
    os.close(ours)

    assert process.returncode == 0
    assert b"\x1b[?1049h" in drawn
    assert b"\x1b[?1049l" in drawn


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    """The script of a shell asks the command itself."""
    result = CliRunner().invoke(main, ["completion", shell])

    assert result.exit_code == 0
    assert "_ROWLOCK_COMPLETE" in result.stdout
    assert CliRunner().invoke(main, ["completion", "cmd"]).exit_code == 2


def test_top_has_room_for_the_busiest_queues(app, run):
    """Of many queues those with most to do are shown; the sums are of all."""
    app.enqueue_many([{"kind": "send", "queue": f"q{n:02}"} for n in range(30)])
    app.enqueue_many([{"kind": "send", "queue": f"q{n:02}"} for n in range(20, 25)])
    shown = run("top", "--once").stdout.splitlines()
    queues = [line.split()[0] for line in shown if line.startswith("q")]

    assert {"q20", "q21", "q22", "q23", "q24"} <= set(queues)
    assert len(queues) == 10
    assert next(line.split()[:6] for line in shown if line.startswith("all ")) == [
        "all",
        "30",
        "queues",
        "0",
        "0",
        "35",
    ]


def test_top_shows_what_runs_longest(app, run):
    """Not what was enqueued last."""
    jobs = app.enqueue_many([{"kind": "send"} for _ in range(30)])
    app.store.claim(worker="w", queues=["default"], limit=30)
    app.store.release_worker("w")
    app.store.claim(worker="w", queues=["default"], limit=1)
    app.store.claim(worker="w", queues=["default"], limit=29)
    (document,) = documents(run("top", "--once", "--json"))

    assert len(document["running"]) == 10
    assert jobs[0].id == document["running"][0]["id"]
