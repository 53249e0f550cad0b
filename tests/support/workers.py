"""Real workers as processes, and what can be seen of them."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import psycopg

import rowlock
from rowlock import config
from rowlock.store.sqlite.engine import SqliteEngine
from rowlock.store.sqlite.file import WriteLock
from rowlock.testing import ThrowAwayPostgres
from rowlock.worker.shared_memory import SharedLeases
from rowlock.worker.supervisor import Child
from tests.worker.waiting import wait_until

ROOT = Path(__file__).parents[2]
LEASE_SECONDS = 2
SLOTS_LEASE_SECONDS = 1
TROUBLE = "trying again until it works"


@contextmanager
def worker(
    app: rowlock.App,
    *words: str,
    cron: bool = False,
    start_new_session: bool = False,
    capture: bool = False,
    command: str = "rowlock",
    module: str = "tests.worker.jobs_app",
) -> Iterator[subprocess.Popen]:
    """A supervisor and its children; ended, and reaped, whatever happens."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", command, "--app", f"{module}:app", "worker"),
            *("--lease", str(LEASE_SECONDS), *([] if cron else ["--no-cron"]), *words),
        ],
        cwd=ROOT,
        env={**os.environ, "ROWLOCK_DATABASE_URL": app.url},
        stderr=subprocess.PIPE if capture else subprocess.DEVNULL,
        start_new_session=start_new_session,
    )
    try:
        yield process
    finally:
        end(process)


@contextmanager
def logged_worker(url: str, log: Path, *words: str) -> Iterator[subprocess.Popen]:
    """A supervisor and its children that write their log to a file."""
    with log.open("w") as stream:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "rowlock.cli", "--app", "tests.worker.jobs_app:app"),
                *("worker", "--no-cron", *words),
            ],
            cwd=ROOT,
            env={**os.environ, "ROWLOCK_DATABASE_URL": url},
            stderr=stream,
        )
    try:
        yield process
    finally:
        end(process)


@contextmanager
def slots_worker(
    app: rowlock.App, *words: str, module: str = "slots_app", log: Path = Path(os.devnull)
) -> Iterator[subprocess.Popen]:
    """A supervisor, its child and the child's slots; ended, and reaped, whatever happens."""
    with log.open("a") as errors:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "rowlock.cli", "--app", f"tests.worker.{module}:app"),
                *("worker", "--lease", str(SLOTS_LEASE_SECONDS), "--no-cron", *words),
            ],
            cwd=ROOT,
            env={**os.environ, "ROWLOCK_DATABASE_URL": app.url},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen) -> None:
    """Ask a worker to stop, twice if it waits for its jobs, and reap it whatever happens.

    The second signal ends the grace: a job that waits for something that never comes would
    otherwise use all of it.
    """
    for patience in (2 * config.SECOND_SIGNAL_SECONDS, 15):
        process.terminate()
        try:
            process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            continue
        return
    process.kill()
    process.communicate()


def children_of(process: subprocess.Popen) -> list[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def runners(note: Path) -> list[int]:
    """The processes that have started the job, in order."""
    return [int(line) for line in note.read_text().split()] if note.exists() else []


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def stop_between_writes(app: rowlock.App, process: int) -> None:
    """SIGSTOP: in the middle of a write to SQLite it would keep everybody else from writing."""
    engine = app.store.engine
    with WriteLock(engine.file) if isinstance(engine, SqliteEngine) else nullcontext():
        os.kill(process, signal.SIGSTOP)
        wait_until(lambda: is_stopped(process))


def is_stopped(process: int) -> bool:
    """Whether all its threads are: a signal takes a moment to reach them."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


@contextmanager
def database_held(app: rowlock.App) -> Iterator[None]:
    """Nobody else can write meanwhile: a transaction of a user's own, or a stopped process."""
    if app.url.startswith("sqlite"):
        connection = sqlite3.connect(app.url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
    else:
        connection = psycopg.connect(app.url)
        connection.execute("LOCK TABLE rowlock.job IN EXCLUSIVE MODE")
    with closing(connection):
        yield
        connection.rollback()


def leaving_child() -> Child:
    """One that has looked for jobs for the last time."""
    memory = SharedLeases.make_descriptor(6)
    leases = SharedLeases(memory, 6)
    os.close(memory)
    hear, say = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return Child(0, "leaving", process, leases, say, hear, time.monotonic())


def crash(server: ThrowAwayPostgres) -> None:
    """End the server as a crash would, and leave it so until `restart()`."""
    pid = int((server.directory / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGQUIT)
    wait_until(lambda: not server.is_running)


def is_reported(log: Path) -> bool:
    return TROUBLE in log.read_text()


def reports(log: Path) -> Counter[str]:
    """How often each kind of trouble was said to begin."""
    lines = [line for line in log.read_text().splitlines() if TROUBLE in line]
    return Counter(line.partition(", " + TROUBLE)[0].split("rowlock")[-1] for line in lines)


def begun(place: Path) -> int:
    note = place / "note"
    return len(note.read_text().split()) if note.exists() else 0
