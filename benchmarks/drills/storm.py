"""Thousands of jobs while children, supervisors and the server are killed: what is lost?"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import rowlock
from benchmarks.drills.nemesis import Nemesis
from benchmarks.drills.scene import PAUSE, Scene
from benchmarks.drills.transitions import Account

WORDS = ("-p", "2", "-c", "10", "--lease", "5")


@dataclass(frozen=True, slots=True)
class Weathered:
    """What is left after a storm."""

    jobs: int
    struck: str
    seconds: float
    account: Account
    # Not succeeded, or gone.
    lost: int
    # Succeeded, but no run of them came to its end.
    never_ended: int
    begun_again: int
    begun_at_most: int
    # A run began after another one's success was recorded.
    begun_after_success: int
    # Two runs at once of which each came to its end.
    two_at_once: int

    def __str__(self) -> str:
        account = self.account
        return (
            f"{self.jobs:,} jobs, killed {self.struck}, {self.seconds:.0f} s: lost {self.lost}, "
            f"accepted settles {account.settled:,}, settled twice {account.settled_twice}, "
            f"stale {account.stale}, held twice {account.overlapping}, claims {account.claims:,}; "
            f"never run to the end {self.never_ended}, "
            f"begun after their success {self.begun_after_success}; begun more than once "
            f"{self.begun_again}, at most {self.begun_at_most} times, "
            f"two whole runs at once {self.two_at_once}"
        )


def storm(
    scene: Scene,
    *,
    jobs: int,
    every_seconds: float,
    crashes: int,
    workers: int = 2,
    job_seconds: float = 0.005,
    strikes_max: int | None = None,
) -> Weathered:
    """Strike for as long as jobs wait; then let the rest come to its end."""
    payload = {"journal": str(scene.journal), "seconds": job_seconds}
    made = scene.app.enqueue_many([{"kind": "append", "payload": payload} for _ in range(jobs)])
    start = time.monotonic()
    with Nemesis(scene, *WORDS, workers=workers, crashes=crashes, seed=1) as nemesis:
        while scene.waiting() and (strikes_max is None or nemesis.strikes < strikes_max):
            PAUSE.wait(every_seconds)
            nemesis.strike()
        scene.drain()
    return _weathered(scene, made, struck=str(nemesis), seconds=time.monotonic() - start)


def _weathered(
    scene: Scene, jobs: Sequence[rowlock.Job], *, struck: str, seconds: float
) -> Weathered:
    lines = scene.lines()
    starts = Counter(line[1] for line in lines if line[0] == "start")
    ends = {line[1] for line in lines if line[0] == "end"}
    found = [scene.app.get(job.id) for job in jobs]
    succeeded = [job for job in found if job is not None and job.state == "succeeded"]
    return Weathered(
        jobs=len(jobs),
        struck=struck,
        seconds=seconds,
        account=scene.account(),
        lost=len(jobs) - len(succeeded),
        never_ended=len({job.id for job in succeeded} - ends),
        begun_again=sum(count > 1 for count in starts.values()),
        begun_at_most=max(starts.values()),
        begun_after_success=_begun_after(lines, succeeded),
        two_at_once=_two_at_once(lines),
    )


def _begun_after(lines: list[list[str]], succeeded: list[rowlock.Job]) -> int:
    latest = {line[1]: float(line[3]) for line in lines if line[0] == "start"}
    # The database's clock and the journal's are one machine's.
    return sum(
        job.finished_at.timestamp() < latest[job.id]
        for job in succeeded
        if job.finished_at is not None and job.id in latest
    )


def _two_at_once(lines: list[list[str]]) -> int:
    spans: dict[str, list[tuple[float, float]]] = {}
    begun: dict[tuple[str, str, str], float] = {}
    for word, job, pid, at, token in lines:
        if word == "start":
            begun[job, pid, token] = float(at)
        elif (job, pid, token) in begun:
            spans.setdefault(job, []).append((begun[job, pid, token], float(at)))
    return sum(
        any(later[0] < earlier[1] for earlier, later in itertools.pairwise(sorted(runs)))
        for runs in spans.values()
    )
