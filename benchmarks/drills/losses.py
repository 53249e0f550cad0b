"""A process is killed in the middle of a job: how long until another one runs it?"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass

import rowlock
from benchmarks.drills.scene import PAUSE, Scene, spread, until
from rowlock.testing.processes import children_of


@dataclass(frozen=True, slots=True)
class Waits:
    """How long each job waited for its next run."""

    what: str
    seconds: list[float]

    def __str__(self) -> str:
        return f"{len(self.seconds)} {self.what}: the job runs again after {spread(self.seconds)}"


def child(scene: Scene, *, times: int) -> Waits:
    """SIGKILL of a child in the middle of a job, until the other child runs it."""
    waits: list[float] = []
    with scene.worker("-p", "2") as worker:
        for _ in range(times):
            # With both children up; otherwise it is the start of a process that is measured.
            until(lambda: scene.announced(worker) == 2)
            job = _hold(scene)
            (begin,) = until(lambda: scene.begin_of(job))  # noqa: B023  # used at once
            os.kill(int(begin[2]), signal.SIGKILL)
            waits.append(_seconds_until_it_runs_again(scene, job, since=time.time()))
            _end(scene, job)
    return Waits("children killed", waits)


def machine(scene: Scene, *, times: int, lease_seconds: int = 2) -> Waits:
    """SIGKILL of a supervisor and its children at once, until another worker runs the job."""
    waits: list[float] = []
    lease = ("--lease", str(lease_seconds))
    chance = random.Random(3)
    for _ in range(times):
        job = _hold(scene)
        lost = scene.start(*lease)
        until(lambda: scene.begin_of(job))  # noqa: B023  # used at once
        with scene.worker(*lease):
            # At any moment of the other's sweeps, and of the lease.
            PAUSE.wait(chance.uniform(1, 6))
            for pid in [lost.pid, *children_of(lost.pid)]:
                os.kill(pid, signal.SIGKILL)
            killed = time.time()
            lost.wait()
            waits.append(_seconds_until_it_runs_again(scene, job, since=killed))
            _end(scene, job)
    return Waits(f"supervisors killed with their children, lease {lease_seconds} s", waits)


def _hold(scene: Scene) -> rowlock.Job:
    return scene.app.enqueue("hold", {"journal": str(scene.journal)})


def _end(scene: Scene, job: rowlock.Job) -> None:
    """Let a held job finish, so that the next one has the slots for itself."""
    (scene.place / f"end-{job.id}").touch()
    scene.app.wait(job.id, timeout=60)


def _seconds_until_it_runs_again(scene: Scene, job: rowlock.Job, *, since: float) -> float:
    second = until(lambda: scene.begin_of(job)[1:], 60)[0]
    return float(second[3]) - since
