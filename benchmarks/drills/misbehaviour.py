"""Handlers that hold the interpreter for many leases, or take their process down."""

from __future__ import annotations

import signal
import time
from collections import Counter
from dataclasses import dataclass

import rowlock
from benchmarks.drills.scene import Scene
from benchmarks.drills.transitions import Account

DEATHS = (signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Held:
    """How often each job was run that held the interpreter."""

    jobs: int
    leases: int
    succeeded_first: int
    # Runs a job, and how many jobs had so many.
    runs: dict[int, int]

    def __str__(self) -> str:
        return (
            f"the interpreter held for {self.leases} leases by {self.jobs} jobs: "
            f"succeeded in their first attempt {self.succeeded_first}, runs a job {self.runs}"
        )


def interpreter(scene: Scene, *, jobs: int, lease_seconds: int = 2, leases: int = 5) -> Held:
    """Two workers, so that there is somebody who would take a job whose lease has expired."""
    payload = {"journal": str(scene.journal), "seconds": leases * lease_seconds}
    made = scene.app.enqueue_many(
        [{"kind": "hold_the_interpreter", "payload": payload} for _ in range(jobs)]
    )
    words = ("-p", "2", "-c", "1", "--lease", str(lease_seconds))
    with scene.worker(*words), scene.worker(*words):
        scene.drain()
    runs = Counter(line[1] for line in scene.lines() if line[0] == "start")
    found = [scene.app.get(job.id) for job in made]
    return Held(
        jobs=jobs,
        leases=leases,
        succeeded_first=sum(
            job is not None and (str(job.state), job.attempt) == ("succeeded", 1) for job in found
        ),
        runs=dict(sorted(Counter(runs[job.id] for job in made).items())),
    )


@dataclass(frozen=True, slots=True)
class Poisoned:
    """What became of poison and of those that ran beside it."""

    poison: list[tuple[str, int]]
    bystanders: int
    bystanders_succeeded: int
    bystanders_dead: int
    # Attempts, and how many bystanders had so many; crashes likewise.
    attempts: dict[int, int]
    crashes: dict[int, int]
    seconds: float
    account: Account

    def __str__(self) -> str:
        return (
            f"poison ends as (state, crashes) {self.poison}; of {self.bystanders:,} bystanders "
            f"succeeded {self.bystanders_succeeded:,}, dead {self.bystanders_dead}, "
            f"attempts {self.attempts}, crashes {self.crashes}, "
            f"settled twice {self.account.settled_twice}; {self.seconds:.0f} s"
        )


def poison(scene: Scene, *, bystanders: int, deaths: int = 3) -> Poisoned:
    """Jobs that abort, fault and kill their process, spread among others in the same children."""
    journal = str(scene.journal)
    beside = [{"kind": "stroll", "payload": {"journal": journal}} for _ in range(bystanders)]
    deadly = [
        {"kind": "die", "payload": {"journal": journal, "signal_number": int(number)}}
        for number in DEATHS[:deaths]
    ]
    step = max(1, bystanders // (deaths + 1))
    for place, each in enumerate(deadly, start=1):
        beside.insert(place * step, each)
    jobs = scene.app.enqueue_many(beside)
    start = time.monotonic()
    with scene.worker("-p", "2", "-c", "10"):
        scene.drain()
    seconds = time.monotonic() - start
    found = [job for each in jobs if (job := scene.app.get(each.id)) is not None]
    others = [job for job in found if job.kind == "stroll"]
    return Poisoned(
        poison=[_end_of(job) for job in found if job.kind == "die"],
        bystanders=bystanders,
        bystanders_succeeded=sum(str(job.state) == "succeeded" for job in others),
        bystanders_dead=sum(str(job.state) == "dead" for job in others),
        attempts=dict(sorted(Counter(job.attempt for job in others).items())),
        crashes=dict(sorted(Counter(job.crashes for job in others).items())),
        seconds=seconds,
        account=scene.account(),
    )


def _end_of(job: rowlock.Job) -> tuple[str, int]:
    is_poison = (job.last_error or "").startswith("Poison")
    return ("dead as poison" if is_poison else str(job.state), job.crashes)
