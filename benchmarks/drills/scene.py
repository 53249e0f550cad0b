"""Where a drill takes place: a database, a journal, and real workers on it.

Every worker is a session of its own: whatever is left of it is ended with the scene.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import rowlock
from benchmarks.drills import transitions
from rowlock.testing import ThrowAwayPostgres
from rowlock.testing.database import execute, is_sqlite
from rowlock.testing.processes import children_of

ROOT = Path(__file__).parents[2]
END_SECONDS_MAX = 60.0
PAUSE = threading.Event()
DRAIN_SECONDS_MAX = 300.0
LOOK_SECONDS = 0.05

T = TypeVar("T")
Worker = subprocess.Popen[bytes]


class Scene:
    """A migrated database, a place for files, and the workers that were started here."""

    def __init__(self, url: str, place: Path, server: ThrowAwayPostgres | None = None) -> None:
        self.url = url
        self.place = place
        self.server = server
        self.is_sqlite: bool = is_sqlite(url)
        self.journal: Path = place / "journal"
        self.journal.touch()
        self.app = rowlock.App(url)
        self.app.migrate()
        # Opened, and with that migrated, before its tables are watched.
        self.app.stats()
        transitions.watch(url)
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        self.app.close()

    def start(self, *words: str, log: str = "worker.log") -> Worker:
        """Start `rowlock worker` with the drills' jobs."""
        with (self.place / log).open("a") as stream:
            worker = subprocess.Popen(
                [
                    *(sys.executable, "-m", "rowlock", "--app", "benchmarks.drills.jobs:app"),
                    *("worker", "--no-cron", "--no-log-jobs", *words),
                ],
                cwd=ROOT,
                env={**os.environ, "ROWLOCK_DATABASE_URL": self.url},
                stderr=stream,
                start_new_session=True,
            )
        self._workers.append(worker)
        return worker

    @contextmanager
    def worker(self, *words: str, log: str = "worker.log") -> Iterator[Worker]:
        """A worker that is told to end with the block."""
        worker = self.start(*words, log=log)
        yield worker
        worker.terminate()
        worker.wait(END_SECONDS_MAX)

    def begin_of(self, job: rowlock.Job) -> list[list[str]]:
        """The runs of a job, as the journal has them."""
        return [line for line in self.lines() if line[0] == "start" and line[1] == job.id]

    def lines(self) -> list[list[str]]:
        """The journal: word, job, process, time, token."""
        return [line.split() for line in self.journal.read_text().splitlines()]

    def log(self, name: str = "worker.log") -> str:
        return (self.place / name).read_text()

    def live(self) -> int:
        """How many jobs are not finished."""
        return self._count("job")

    def waiting(self) -> int:
        """How many of those nobody runs."""
        return self._count("job", "lease_expires_at IS NULL")

    def running(self) -> int:
        """How many of those somebody runs."""
        return self._count("job", "lease_expires_at IS NOT NULL")

    def succeeded(self) -> int:
        """How many jobs have succeeded."""
        return self._count("finished", "state = 'succeeded'")

    def _count(self, table: str, condition: str = "true") -> int:
        # Not by `app.stats()`, which takes several looks: a job that changes its state meanwhile
        # may be in none of them.
        name = f"rowlock_{table}" if self.is_sqlite else f"rowlock.{table}"
        rows = self.execute(f"SELECT count(*) FROM {name} WHERE {condition}")
        found: int = rows[0][0]
        return found

    def drain(self, seconds: float = DRAIN_SECONDS_MAX) -> int:
        """Wait until all jobs are finished; how many are not, after a long time."""
        end = time.monotonic() + seconds
        while (left := self.live()) and time.monotonic() < end:
            PAUSE.wait(LOOK_SECONDS)
        return left

    def account(self) -> transitions.Account:
        """What the transitions of all jobs come to."""
        return transitions.account_of(transitions.read(self.url))

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements of the drill's own in one transaction; the rows of the last one."""
        return execute(self.url, *statements)

    def announced(self, worker: Worker) -> int:
        """How many children of a worker have said that they are there."""
        children = children_of(worker.pid)
        return sum(info.pid in children for info in self.app.workers())


def until(condition: Callable[[], T], seconds: float = 30.0) -> T:
    """What a condition gives once it is true; fail if that does not come to pass."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come to pass"
        PAUSE.wait(0.005)
    return found


def spread(seconds: Sequence[float]) -> str:
    """Median, 99th percentile and maximum."""
    ordered = sorted(seconds)
    late = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"p50 {statistics.median(ordered):.2f} s, p99 {late:.2f} s, max {ordered[-1]:.2f} s"
