"""SIGTERM at any moment of a worker's start or work: what does it leave behind?"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass

from benchmarks.drills.scene import END_SECONDS_MAX, PAUSE, Scene, spread
from benchmarks.drills.transitions import Account

GRACE_SECONDS = 5
# There is always so much to do that no stop finds an idle worker.
BACKLOG = 600
LONGEST_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Stopped:
    """What stops have left."""

    stops: int
    within_seconds: float
    # Exit codes; -15 is a signal that came before anything was done.
    codes: dict[int, int]
    seconds: list[float]
    leases_left: int
    jobs: int
    # Not succeeded in the end.
    lost: int
    # Stopped while at work: jobs had begun and were not over.
    at_work: int
    begun_again: int
    account: Account

    def __str__(self) -> str:
        return (
            f"{self.stops} stops within {self.within_seconds:g} s of the start, {self.at_work} of "
            f"them at work, grace {GRACE_SECONDS} s: exit codes {self.codes}, "
            f"over after {spread(self.seconds)}, leases left behind {self.leases_left}; "
            f"of {self.jobs:,} jobs lost {self.lost}, "
            f"settled twice {self.account.settled_twice}, stale {self.account.stale}, "
            f"begun more than once {self.begun_again}"
        )


def stop(
    scene: Scene, *, stops: int, within_seconds: float, backlog: int = BACKLOG, seed: int = 2
) -> Stopped:
    """Each worker gets its signal at a moment of its own; the last one finishes the work."""
    chance = random.Random(seed)
    codes: Counter[int] = Counter()
    seconds: list[float] = []
    jobs = left = at_work = 0
    for _ in range(stops):
        jobs += _fill(scene, chance, backlog)
        worker = scene.start("-p", "2", "-c", "10", "--grace", str(GRACE_SECONDS))
        PAUSE.wait(chance.uniform(0, within_seconds))
        at_work += scene.running() > 0
        worker.terminate()
        asked = time.monotonic()
        codes[worker.wait(END_SECONDS_MAX)] += 1
        seconds.append(time.monotonic() - asked)
        left += scene.running()
    with scene.worker("-p", "2"):
        scene.drain()
    starts = Counter(line[1] for line in scene.lines() if line[0] == "start")
    return Stopped(
        stops=stops,
        within_seconds=within_seconds,
        codes=dict(sorted(codes.items())),
        seconds=seconds,
        leases_left=left,
        jobs=jobs,
        lost=jobs - scene.succeeded(),
        at_work=at_work,
        begun_again=sum(count > 1 for count in starts.values()),
        account=scene.account(),
    )


def _fill(scene: Scene, chance: random.Random, backlog: int) -> int:
    """Enqueue what is missing to the backlog; how many."""
    missing = backlog - scene.live()
    scene.app.enqueue_many(
        [
            {
                "kind": ("append", "append_plainly")[number % 2],
                "payload": {
                    "journal": str(scene.journal),
                    "seconds": chance.uniform(0, LONGEST_SECONDS),
                },
            }
            for number in range(missing)
        ]
    )
    return missing
