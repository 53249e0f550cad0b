"""A whole worker is stopped in the middle of jobs for three leases, and then goes on.

Meanwhile another worker has taken the jobs over, and each has met its fate there. Whatever the
first one then tries must be refused, and must change nothing.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import msgspec

import rowlock
from benchmarks.drills.scene import PAUSE, Scene, Worker, until
from benchmarks.drills.transitions import Account
from rowlock.testing import database
from rowlock.testing.processes import children_of

# What the second run has come to when the first one goes on. A forgotten job was not to be kept,
# and only its id is remembered; of a pruned one there is no trace.
FATES = ("running", "succeeded", "retrying", "dead", "cancelled", "forgotten", "pruned")
# How the first run then tries to end.
WAYS = ("return", "fail", "commit")
LEASES = 3
REFUSED = "lost its lease"

Case = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Resumed:
    """What the first worker found when it went on, and what it could change."""

    cases: int
    stopped_seconds: float
    # How often the first worker says that it was refused: once a job.
    refused: int
    # Jobs that are not what they were while it stood still.
    changed: list[Case]
    # Jobs in the end: state, attempt, result, and how the errors begin.
    ends: dict[Case, tuple[object, ...] | None]
    # What the first runs' transactions have left.
    effects: int
    # The first worker runs other jobs again.
    is_working: bool
    account: Account

    def __str__(self) -> str:
        account = self.account
        return (
            f"{self.cases} jobs, stopped for {self.stopped_seconds:.1f} s: refused {self.refused}, "
            f"changed {self.changed or 0}, effects left {self.effects}, "
            f"works on {self.is_working}; accepted settles {account.settled}, "
            f"settled twice {account.settled_twice}, stale {account.stale}, "
            f"held twice {account.overlapping}, claims {account.claims}"
        )


def pause(
    scene: Scene,
    *,
    fates: tuple[str, ...] = FATES,
    lease_seconds: float = 1,
    supervisor_first: bool = False,
) -> Resumed:
    """Stop a worker with a job for every fate and way, and let it go on.

    Its child goes on first, so that it surely asks the database to settle; or the supervisor,
    which then beats before the child has ended anything.
    """
    scene.execute("CREATE TABLE effect (n integer)")
    jobs = {case: _enqueue(scene, *case) for case in product(fates, WAYS)}
    words = ("-c", str(len(jobs)), "--lease", f"{lease_seconds:g}")
    with scene.worker(*words, "-q", "default,first", log="first.log") as first:
        until(lambda: all(scene.begin_of(job) for job in jobs.values()))
        with scene.worker(*words, "-q", "default", log="second.log") as second:
            until(lambda: scene.announced(second))
            stop_between_writes(scene, first)
            stopped_at = time.monotonic()
            until(lambda: all(len(scene.begin_of(job)) == 2 for job in jobs.values()), 60)
            _meet_fates(scene, jobs)
            PAUSE.wait(max(0.0, stopped_at + LEASES * lease_seconds - time.monotonic()))
            before = {case: scene.app.get(job.id) for case, job in jobs.items()}
            (scene.place / "resumed").touch()
            stopped_seconds = time.monotonic() - stopped_at
            go_on(first, supervisor_first=supervisor_first)
            until(lambda: scene.log("first.log").count(REFUSED) >= len(jobs))
            other = scene.app.wait(scene.app.enqueue("noop", queue="first").id, timeout=30)
            after = {case: scene.app.get(job.id) for case, job in jobs.items()}
            (scene.place / "end-running").touch()
            until(lambda: not scene.running())
    return Resumed(
        cases=len(jobs),
        stopped_seconds=stopped_seconds,
        refused=scene.log("first.log").count(REFUSED),
        changed=[case for case in jobs if _still(before[case]) != _still(after[case])],
        ends={case: _end_of(scene.app.get(job.id)) for case, job in jobs.items()},
        effects=scene.execute("SELECT count(*) FROM effect")[0][0],
        is_working=str(other.state) == "succeeded",
        account=scene.account(),
    )


def _enqueue(scene: Scene, fate: str, way: str) -> rowlock.Job:
    payload = {"journal": str(scene.journal), "fate": fate, "way": way}
    if fate == "forgotten":
        return scene.app.enqueue("outlive", payload, keep=0)
    return scene.app.enqueue("outlive", payload)


def _meet_fates(scene: Scene, jobs: dict[Case, rowlock.Job]) -> None:
    """Let the second runs end as they shall, and wait until they have."""
    for (fate, _), job in jobs.items():
        if fate == "cancelled":
            scene.app.cancel(job.id)
        elif fate != "running":
            (scene.place / f"end-{fate}").touch()
    for (fate, _), job in jobs.items():
        if fate == "pruned":
            scene.app.wait(job.id, timeout=60)
            finished = "rowlock_finished" if scene.is_sqlite else "rowlock.finished"
            # As if it had been finished a day ago.
            scene.execute(f"UPDATE {finished} SET expires_at = 1 WHERE id = '{job.id}'")
    scene.app.store.prune()
    until(lambda: all(_has_met(scene, fate, job) for (fate, _), job in jobs.items()), 60)


def _has_met(scene: Scene, fate: str, job: rowlock.Job) -> bool:
    found = scene.app.get(job.id)
    return (
        found is None
        if fate in ("forgotten", "pruned")
        else (found is not None and str(found.state) == fate)
    )


def _still(job: rowlock.Job | None) -> rowlock.Job | None:
    """The job without what its second owner's beats go on changing."""
    return None if job is None else msgspec.structs.replace(job, lease_expires_at=None)


def _end_of(job: rowlock.Job | None) -> tuple[object, ...] | None:
    if job is None:
        return None
    errors = [error.message for error in job.errors]
    return (str(job.state), job.attempt, job.result, errors)


def stop_between_writes(scene: Scene, worker: Worker) -> None:
    """SIGSTOP of a supervisor and its children at once, at a moment when none of them writes.

    On SQLite, one that is stopped in the middle of a write would keep everybody else from writing.
    """
    while True:
        os.killpg(worker.pid, signal.SIGSTOP)
        until(lambda: all(_is_stopped(pid) for pid in [worker.pid, *children_of(worker.pid)]))
        if not scene.is_sqlite or _can_be_written_to(scene.url):
            return
        os.killpg(worker.pid, signal.SIGCONT)
        PAUSE.wait(0.1)


def go_on(worker: Worker, *, supervisor_first: bool) -> None:
    """SIGCONT, to the supervisor and to its children in this order or the other."""
    pids = [[worker.pid], children_of(worker.pid)]
    for each in pids if supervisor_first else reversed(pids):
        for pid in each:
            os.kill(pid, signal.SIGCONT)
        # Longer than it takes to beat, or to settle.
        PAUSE.wait(0.5)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "T"


def _can_be_written_to(url: str) -> bool:
    """Whether a writer gets its turn within a second: nobody who has it stands still."""
    path = url.removeprefix("sqlite:///")
    deadline = time.monotonic() + 1
    with Path(f"{path}-rowlock").open("rb") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with closing(database.connect(url, busy_seconds=1)) as connection:
                    connection.execute("BEGIN IMMEDIATE")
                return True
            except (BlockingIOError, sqlite3.OperationalError):
                if time.monotonic() > deadline:
                    return False
                PAUSE.wait(0.01)
