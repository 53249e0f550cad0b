"""What a worker says of itself, and of jobs that nobody would run."""

from __future__ import annotations

from pathlib import Path

import pytest

import rowlock
from rowlock import config
from rowlock.job import WorkerInfo
from rowlock.store.ops.health import DueLane
from rowlock.version import __version__
from rowlock.worker.settings import WorkerSettings
from rowlock.worker.unserved import UnservedWatch, unknown_queues, unserved, warning_of
from tests.support.workers import logged_worker
from tests.worker.waiting import wait_until

OLD = config.UNSERVED_SECONDS_MIN


@pytest.mark.parametrize(
    ("lane", "is_found"),
    [
        (DueLane("mail", "send", OLD), False),
        (DueLane("mail", "report", OLD), False),
        (DueLane("mial", "send", OLD), True),
        (DueLane("mail", "sned", OLD), True),
        (DueLane("mail", "sned", OLD / 2), False),
    ],
)
def test_lanes_that_no_worker_serves(lane, is_found):
    """One that names no queues or kinds serves all. A job that just came may be served soon."""
    workers = [
        WorkerInfo(id="a", queues=["mail"], kinds=["send"]),
        WorkerInfo(id="b", queues=[], kinds=["report"]),
    ]

    assert unserved([lane], workers) == ([lane] if is_found else [])


def test_the_warning_names_what_may_be_meant():
    """A kind that no task has, or a queue that is not served."""
    known = {"kinds": ["send", "report"], "queues": ["mail"]}

    assert warning_of(DueLane("mail", "sned", OLD), **known) == (
        "ready jobs of kind 'sned' in queue 'mail' have no worker: none has a task 'sned'; "
        "did you mean 'send'?"
    )
    assert warning_of(DueLane("mial", "send", OLD), **known) == (
        "ready jobs of kind 'send' in queue 'mial' have no worker: none that knows it serves the "
        "queue; did you mean 'mail'?"
    )
    assert warning_of(DueLane("a\x1b", "b\r", OLD), **known).isprintable()
    assert unknown_queues(["mail", "mial"], {"mail"}) == ["mial"]


@pytest.mark.asyncio
async def test_everything_is_said_once(any_url, monkeypatch):
    """A look at the database itself, and no flood, however many kinds there are."""
    monkeypatch.setattr(config, "UNSERVED_SECONDS_MIN", 0.0)
    monkeypatch.setattr(config, "LOGGED_NAMES_MAX", 2)
    app = rowlock.App(any_url)
    await app.amigrate()

    @app.task(queue="mail")
    def send() -> None: ...

    await send.aenqueue()
    for kind in ("sned", "b", "c", "d"):
        await app.aenqueue(kind, queue="mail")
    warned: list[str] = []
    settings = WorkerSettings(queues={"mail": 0, "mial": 0})
    watch = UnservedWatch(app.store, app, settings=settings, warn=warned.append)
    for _ in range(3):
        await watch.look()
    await app.aclose()

    assert [text.partition(";")[0] for text in warned] == [
        "no task and no job has the queue 'mial'",
        "ready jobs of kind 'b' in queue 'mail' have no worker: none has a task 'b'",
        "ready jobs of kind 'c' in queue 'mail' have no worker: none has a task 'c'",
        "more ready jobs have no worker: `rowlock doctor` lists them",
    ]


def test_a_worker_says_what_it_does(any_url, tmp_path: Path):
    """A banner, a line for each job, a traceback, and that nothing is left, each of them once."""
    log = tmp_path / "worker.log"
    nothing, nowhere = "nothing to do: waiting for jobs", "no job has the queue 'nowhere'"
    with rowlock.App(any_url) as app:
        app.migrate()
        app.enqueue("plain")
        dead = app.enqueue("fails", max_attempts=1)
        with logged_worker(any_url, log, "-p", "2", "-q", "default,nowhere:3"):
            wait_until(lambda: nothing in log.read_text() and nowhere in log.read_text())
            app.wait(dead.id, timeout=60)
            wait_until(lambda: "is dead" in log.read_text() and "succeeded" in log.read_text())
    lines = log.read_text().splitlines()
    banner = next(at for at, line in enumerate(lines) if "runs the jobs of" in line)
    failed = next(at for at, line in enumerate(lines) if f"job {dead.id} (fails) is dead" in line)

    assert f"rowlock {__version__} runs the jobs of tests.worker.jobs_app:app" in lines[banner]
    assert [line.split()[0] for line in lines[banner + 1 : banner + 6]] == [
        "database", "queues", "tasks", "concurrency", "processes"
    ]  # fmt: skip
    assert lines[banner + 2].split() == ["queues", "default,", "nowhere:3"]
    assert lines[failed + 1] == "    Traceback (most recent call last):"
    for once in ("(plain) succeeded after", nothing, nowhere):
        assert sum(once in line for line in lines) == 1


def test_lines_of_jobs_can_be_left_out(any_url, tmp_path: Path):
    """Those that end well. A drain also says that nothing is left."""
    log = tmp_path / "worker.log"
    with rowlock.App(any_url) as app:
        job, dead = app.enqueue("plain"), app.enqueue("fails", max_attempts=1)
        with logged_worker(any_url, log, "--drain", "--no-log-jobs") as process:
            process.wait(timeout=60)
        said = log.read_text()

        assert (app.get(job.id).state, process.returncode) == ("succeeded", 0)
    assert job.id not in said and f"job {dead.id} (fails) is dead" in said
    assert said.count("nothing to do: no job is ready") == 1
