"""A queue is moved to another database while it is used, and the mover is killed again and again.

Two scenes of one place share a journal: whoever runs a job, on either side, writes its id there.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass

import rowlock
from benchmarks.drills.scene import ROOT, Scene

KIND = "append"
BATCH = 1_000
END_SECONDS_MAX = 900.0


@dataclass(frozen=True, slots=True)
class Removal:
    """What came of it: jobs that were acknowledged, and how often each was run."""

    jobs: int
    kills: int
    seconds: float
    lost: int
    run_twice: int
    # In the old database, and in the new one, of any state.
    left: int
    arrived: int

    def __str__(self) -> str:
        return (
            f"{self.jobs:,} jobs, the mover killed {self.kills} times, {self.seconds:.0f} s: "
            f"lost {self.lost}, run twice {self.run_twice}, left behind {self.left}, "
            f"arrived {self.arrived:,}"
        )


def move(old: Scene, new: Scene, *, jobs: int, kills: int, pause: float) -> Removal:
    """Move `jobs` and those that come meanwhile; kill the mover so often, at random."""
    payload = {"journal": str(old.journal), "seconds": 0}
    ids = _enqueue(old.app, payload, jobs)
    producer = _Producer(old.app, payload)
    began = time.monotonic()
    with old.worker("-c", "4", log="old.log"), new.worker("-c", "4", log="new.log"):
        producer.start()
        for _ in range(kills):
            mover = _start(old, new, "--follow")
            time.sleep(random.uniform(0.2, 1.0) * pause)
            mover.send_signal(signal.SIGKILL)
            mover.wait()
        producer.stop()
        code = _start(old, new).wait(END_SECONDS_MAX)
        assert code == 0, old.log("move.log")
        seconds = time.monotonic() - began
        assert new.drain() == 0
    ids += producer.ids
    runs = Counter(line[1] for line in old.lines() if line[0] == "start")
    return Removal(
        jobs=len(ids),
        kills=kills,
        seconds=seconds,
        lost=len(set(ids) - set(runs)),
        run_twice=sum(count > 1 for count in runs.values()),
        left=old.live() + old.succeeded(),
        arrived=new.live() + new.succeeded(),
    )


def _enqueue(app: rowlock.App, payload: dict[str, object], jobs: int) -> list[str]:
    ids: list[str] = []
    for start in range(0, jobs, BATCH):
        items = [{"kind": KIND, "payload": payload}] * min(BATCH, jobs - start)
        ids += [job.id for job in app.enqueue_many(items)]
    return ids


def _start(old: Scene, new: Scene, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rowlock", "--database-url", old.url, "move", new.url]
    with (old.place / "move.log").open("a") as log:
        return subprocess.Popen([*command, *words], cwd=ROOT, env=dict(os.environ), stderr=log)


class _Producer(threading.Thread):
    """Enqueues one job after another in the old database."""

    def __init__(self, app: rowlock.App, payload: dict[str, object]) -> None:
        super().__init__(daemon=True)
        self._payload = payload
        self.ids: list[str] = []
        self._app = app
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.01):
            self.ids.append(self._app.enqueue(KIND, self._payload).id)

    def stop(self) -> None:
        self._over.set()
        self.join()
