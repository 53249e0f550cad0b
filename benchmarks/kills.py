"""Processes are killed, and PostgreSQL crashed, while jobs run: what is lost, and for how long?

python -m benchmarks.kills [sqlite|postgres] [child|machine|storm|stop ...]
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import rowlock
from rowlock.testing import ThrowAwayPostgres

CHILD_KILLS = 50
MACHINE_KILLS = 10
MACHINE_LEASE_SECONDS = 2
STORM_JOBS = 20_000
STORM_KILL_SECONDS = 0.5
STORM_CRASHES = 5
STOPS = 100
STOP_GRACE_SECONDS = 5
PAUSE = threading.Event()

T = TypeVar("T")


def main() -> None:
    stores = [word for word in sys.argv[1:] if word in ("sqlite", "postgres")]
    drills = [word for word in sys.argv[1:] if word in DRILLS]
    for store in stores or ["sqlite", "postgres"]:
        with tempfile.TemporaryDirectory() as directory:
            run(store, drills or list(DRILLS), Path(directory))


def run(store: str, drills: list[str], place: Path) -> None:
    for drill in drills:
        room = place / drill
        room.mkdir()
        if store == "sqlite":
            DRILLS[drill](Scene(f"sqlite:///{room / 'jobs.db'}", room, None))
        else:
            with ThrowAwayPostgres(durable=True) as server:
                DRILLS[drill](Scene(server.url, room, server))


class Scene:
    """A database, a place for journals, and workers on it."""

    def __init__(self, url: str, place: Path, server: ThrowAwayPostgres | None) -> None:
        self.name: str = "SQLite" if server is None else "PostgreSQL"
        self.place = place
        self.server = server
        self.journal: Path = place / "journal"
        self.journal.touch()
        self.app = rowlock.App(url)
        self.app.migrate()

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        log = (self.place / "worker.log").open("a")
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "rowlock.cli", "--app", "benchmarks.kills_app:app"),
                *("worker", "--no-cron", *words),
            ],
            env={**os.environ, "ROWLOCK_DATABASE_URL": self.app.url},
            stderr=log,
        )

    @contextmanager
    def worker(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        process = self.start(*words)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.journal.read_text().splitlines()]

    def runs_of(self, job: str) -> list[list[str]]:
        return [line for line in self.lines() if line[1] == job]

    def hold(self) -> rowlock.Job:
        return self.app.enqueue("hold", {"journal": str(self.journal)})

    def end(self, job: rowlock.Job) -> None:
        """Let a held job finish, so that the next one has the slots for itself."""
        (self.place / f"end-{job.id}").touch()
        self.app.wait(job.id, timeout=60)

    def say(self, text: str) -> None:
        print(f"{self.name}: {text}", flush=True)


def kill_children(scene: Scene) -> None:
    """SIGKILL of a child in the middle of a job, until the job runs again."""
    waits: list[float] = []
    with scene.worker("-p", "2") as process:
        for _ in range(CHILD_KILLS):
            # With both children up; otherwise it is the start of a process that is measured.
            until(lambda: announced(scene, children_of(process.pid)) == 2)
            job = scene.hold()
            ((_, _, pid, _, _),) = until(lambda: scene.runs_of(job.id))  # noqa: B023  # used at once
            os.kill(int(pid), signal.SIGKILL)
            killed = time.time()
            second = until(lambda: scene.runs_of(job.id)[1:])[0]  # noqa: B023  # used at once
            waits.append(float(second[3]) - killed)
            scene.end(job)
    scene.say(f"{CHILD_KILLS} children killed, job runs again after {spread(waits)}")


def kill_machines(scene: Scene) -> None:
    """SIGKILL of a supervisor and its children at once, until another worker runs the job."""
    waits: list[float] = []
    lease = ("--lease", str(MACHINE_LEASE_SECONDS))
    chance = random.Random(3)
    for _ in range(MACHINE_KILLS):
        job = scene.hold()
        lost = scene.start(*lease)
        until(lambda: scene.runs_of(job.id))  # noqa: B023  # used at once
        with scene.worker(*lease):
            PAUSE.wait(chance.uniform(1, 6))
            for pid in [lost.pid, *children_of(lost.pid)]:
                os.kill(pid, signal.SIGKILL)
            killed = time.time()
            lost.wait()
            second = until(lambda: scene.runs_of(job.id)[1:], 60)[0]  # noqa: B023  # used at once
            waits.append(float(second[3]) - killed)
            scene.end(job)
    scene.say(
        f"{MACHINE_KILLS} supervisors killed with their children, lease "
        f"{MACHINE_LEASE_SECONDS} s: another worker runs the job after {spread(waits)}"
    )


def storm(scene: Scene) -> None:
    """Thousands of jobs while children are killed and the server crashes."""
    jobs = scene.app.enqueue_many(
        [{"kind": "append", "payload": {"journal": str(scene.journal)}} for _ in range(STORM_JOBS)]
    )
    kills = crashes = 0
    chance = random.Random(1)
    start = time.monotonic()
    with scene.worker("-p", "2", "-c", "10", "--lease", "5") as process:
        while live_of(scene):
            PAUSE.wait(STORM_KILL_SECONDS)
            children = children_of(process.pid)
            if children:
                kills += kill(chance.choice(children))
            if scene.server is not None and crashes < STORM_CRASHES and kills % 3 == 2:
                scene.server.restart(immediate=True)
                crashes += 1
            assert process.poll() is None, "the supervisor ended"
    took = time.monotonic() - start
    report_storm(scene, jobs, f"{kills} children killed, {crashes} crashes, {took:.0f} s")


def report_storm(scene: Scene, jobs: Sequence[rowlock.Job], what: str) -> None:
    lines = scene.lines()
    starts = Counter(line[1] for line in lines if line[0] == "start")
    latest = {line[1]: float(line[3]) for line in lines if line[0] == "start"}
    ends = {line[1] for line in lines if line[0] == "end"}
    found = [scene.app.get(job.id) for job in jobs]
    succeeded = [job for job in found if job is not None and job.state == "succeeded"]
    # The database's clock and the journal's are one machine's.
    late = sum(job.finished_at.timestamp() < latest[job.id] for job in succeeded if job.finished_at)
    again = sum(count > 1 for count in starts.values())
    scene.say(
        f"{STORM_JOBS:,} jobs, {what}: lost {len(jobs) - len(succeeded)}, never run to the end "
        f"{len(jobs) - len(ends)}, run again after they were settled {late}; begun more than once "
        f"{again}, at most {max(starts.values())} times, two whole runs at once {overlaps(lines)}"
    )


def overlaps(lines: list[list[str]]) -> int:
    """Jobs of which two processes that both came to their end ran at the same time."""
    spans: dict[str, list[tuple[float, float]]] = {}
    begun: dict[tuple[str, str, str], float] = {}
    for line in lines:
        word, job, pid, at, token = line[0], line[1], line[2], float(line[3]), line[4]
        if word == "start":
            begun[job, pid, token] = at
        elif (job, pid, token) in begun:
            spans.setdefault(job, []).append((begun[job, pid, token], at))
    found = 0
    for runs in spans.values():
        ordered = sorted(runs)
        pairs = itertools.pairwise(ordered)
        found += any(later[0] < earlier[1] for earlier, later in pairs)
    return found


def stop_at_any_moment(scene: Scene) -> None:
    """SIGTERM at a random moment of start-up or work."""
    chance = random.Random(2)
    codes: Counter[int] = Counter()
    took: list[float] = []
    left = 0
    total = 0
    for _ in range(STOPS):
        scene.app.enqueue_many(
            [{"kind": "append", "payload": {"journal": str(scene.journal)}} for _ in range(50)]
        )
        total += 50
        process = scene.start("-p", "2", "--grace", str(STOP_GRACE_SECONDS), "--lease", "30")
        PAUSE.wait(chance.uniform(0, 1))
        process.terminate()
        asked = time.monotonic()
        codes[process.wait(60)] += 1
        took.append(time.monotonic() - asked)
        left += len(scene.app.list(state="running").jobs)
    with scene.worker("-p", "2"):
        until(lambda: not live_of(scene), 120)
    starts = Counter(line[1] for line in scene.lines() if line[0] == "start")
    ends = Counter(line[1] for line in scene.lines() if line[0] == "end")
    scene.say(
        f"{STOPS} stops within a second of the start: exit codes {dict(codes)}, "
        f"leases left behind {left}, end after {spread(took)}"
    )
    scene.say(
        f"of {total:,} jobs lost {total - len(ends)}, "
        f"run twice {sum(count > 1 for count in starts.values())}"
    )


DRILLS: dict[str, Callable[[Scene], None]] = {
    "child": kill_children,
    "machine": kill_machines,
    "storm": storm,
    "stop": stop_at_any_moment,
}


def until(condition: Callable[[], T], seconds: float = 30.0) -> T:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come to pass"
        PAUSE.wait(0.005)
    return found


def announced(scene: Scene, pids: list[int]) -> int:
    return sum(worker.pid in pids for worker in scene.app.workers())


def live_of(scene: Scene) -> int:
    try:
        counts = [queue.counts for queue in scene.app.stats()]
    except rowlock.StoreUnavailable:
        return 1
    states = ("scheduled", "ready", "running", "retrying")
    return sum(
        count.value for each in counts for state, count in each.items() if str(state) in states
    )


def children_of(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def kill(pid: int) -> int:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    late = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    median = statistics.median(ordered)
    return f"p50 {median:.2f} s, p99 {late:.2f} s, max {ordered[-1]:.2f} s"


if __name__ == "__main__":
    main()
