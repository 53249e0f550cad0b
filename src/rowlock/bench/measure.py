"""The measurements of a bench, one after the other, each bounded in time on any database.

1. The limits: the round trip to the database, and its disk.
2. Enqueuing one by one, before a worker runs. These jobs then warm it up.
3. The time from enqueue to start on an idle worker. Then rounds: many jobs in one transaction, and
   drained. A round has as many jobs as take about a second here.
4. The same rounds while a transaction stays open.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from rowlock.app import App
from rowlock.bench.tasks import PAYLOAD, bench_app, late, noop
from rowlock.bench.worker import BenchWorker
from rowlock.clock import SystemClock
from rowlock.store.ops import health, measure
from rowlock.store.scratch import Scratch

ONE_BY_ONE_SECONDS: Final = 2.0
ONE_BY_ONE_JOBS_MAX: Final = 5_000
ROUND_SECONDS: Final = 1.0
ROUND_JOBS_MIN: Final = 500
ROUND_JOBS_MAX: Final = 50_000
ROUNDS: Final = 3
HELD_ROUNDS: Final = 5
LATENCY_JOBS: Final = 100
# Number of reads and commits: enough for a mean, and bounded on a slow line.
TRIES: Final = 40
TRY_SECONDS: Final = 2.0
BACKGROUND_SECONDS: Final = 1.0
# A worker that finishes no job for this long has a problem.
STILL_SECONDS: Final = 60.0
# Counting the ended jobs costs the server time, so it is done only as often as a bar needs it.
_LOOK_SECONDS: Final = 0.2
_SYNC_BYTES: Final = 4096
_GAP_SECONDS: Final = (0.01, 0.05)


class Show(Protocol):
    """Shows the progress of a phase, such as `rowlock.cli.progress.progress`."""

    def __call__(
        self, label: str, *, noun: str, total: int | None = None
    ) -> AbstractContextManager[Callable[[int], None]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What to measure. `jobs` per round, None for as many as take about a second."""

    jobs: int | None = None
    processes: int = 1
    held: bool = True


@dataclass(slots=True, kw_only=True)
class BenchReport:
    """The measured figures: rates per second, times in milliseconds, None if unknown.

    `sync_ms` is how long a commit waits for the disk, if it does (`is_durable`). `busy` is the
    share of its time that a worker process was on a core. What others wrote to the log meanwhile is
    reported separately, and is not part of `wal_bytes_per_job`.
    """

    version: str
    is_postgres: bool
    processes: int
    is_durable: bool = True
    round_trip_ms: float = 0.0
    sync_ms: float = 0.0
    enqueue_per_s: float = 0.0
    enqueue_many_per_s: float = 0.0
    run_per_s: float = 0.0
    run_jobs: int = 0
    busy: float | None = None
    latency_p50_ms: float = 0.0
    latency_p99_ms: float = 0.0
    wal_bytes_per_job: float | None = None
    wal_background_bytes_per_s: float | None = None
    held_per_s: list[float] = field(default_factory=list[float])

    @property
    def held_share(self) -> float | None:
        """The share of the rate that is left in the last rounds with a transaction held open."""
        if not self.held_per_s:
            return None
        return statistics.median(self.held_per_s[-2:]) / statistics.median(self.held_per_s[:2])


@dataclass(frozen=True, slots=True)
class Round:
    """One burst of jobs: how fast it was enqueued and run, and the CPU time it took."""

    jobs: int
    enqueue_seconds: float
    run_seconds: float
    cpu_seconds: float | None

    @property
    def run_per_s(self) -> float:
        return self.jobs / max(1e-6, self.run_seconds)


class Measuring:
    """Measures one scratch."""

    def __init__(self, scratch: Scratch, plan: BenchPlan, show: Show) -> None:
        self._scratch = scratch
        self._plan = plan
        self._show = show
        self._app: App = bench_app(scratch.url, schema=scratch.schema)
        self._rounds = 0
        self._jobs = plan.jobs or ROUND_JOBS_MIN

    def run(self) -> BenchReport:
        """Measure everything. This takes about half a minute."""
        with self._app as app:
            app.migrate()
            report = BenchReport(
                version=app.store.run(health.server()).version,
                is_postgres=self._scratch.directory is None,
                processes=self._plan.processes,
            )
            self._limits(report)
            enqueued = self._one_by_one(report)
            with BenchWorker(self._scratch, processes=self._plan.processes) as worker:
                self._warm_up(worker, enqueued)
                self._latency(report, worker)
                self._plain(report, worker)
                if self._plan.held:
                    self._held(report, worker)
        return report

    def _limits(self, report: BenchReport) -> None:
        """Measure the round trip, the disk at a commit, and what others write meanwhile."""
        store = self._app.store

        def look() -> object:
            return store.run(health.server())

        with self._show("round trip and disk", noun="sample", total=TRIES) as moved:
            if self._scratch.directory is not None:
                with _keeper(self._scratch.directory / "sync") as keep:
                    report.round_trip_ms, report.sync_ms = _means_ms([look, keep], moved)
                return
            report.is_durable = store.run(measure.is_durable())
            commits = [
                partial(store.run, measure.commit(lazily=lazily)) for lazily in (False, True)
            ]
            report.round_trip_ms, kept, lazy = _means_ms([look, *commits], moved)
            report.sync_ms = max(0.0, kept - lazy)
        before, start = store.run(measure.wal_position()), time.monotonic()
        threading.Event().wait(BACKGROUND_SECONDS)
        written = store.run(measure.wal_position()) - before
        report.wal_background_bytes_per_s = written / (time.monotonic() - start)

    def _one_by_one(self, report: BenchReport) -> int:
        """Enqueue jobs one by one for a while. Return how many."""
        call = noop.using(queue="one")
        end = time.monotonic() + ONE_BY_ONE_SECONDS
        most = ONE_BY_ONE_JOBS_MAX if self._plan.jobs is None else self._plan.jobs
        count, start = 0, time.monotonic()
        with self._show("enqueue one by one", noun="job", total=most) as moved:
            while count < most and time.monotonic() < end:
                call.enqueue(**PAYLOAD)
                count += 1
                moved(count)
        report.enqueue_per_s = count / (time.monotonic() - start)
        return count

    def _warm_up(self, worker: BenchWorker, enqueued: int) -> None:
        seconds = self._wait(worker, "one", enqueued, label="start a worker")
        self._size(enqueued / max(1e-3, seconds))

    def _latency(self, report: BenchReport, worker: BenchWorker) -> None:
        """Enqueue jobs at random intervals to an idle worker."""
        jobs = LATENCY_JOBS if self._plan.jobs is None else min(LATENCY_JOBS, self._plan.jobs)
        chance, clock = random.Random(7), SystemClock()
        call = late.using(queue="late")
        with self._show("enqueue to start", noun="job", total=jobs) as moved:
            for number in range(jobs):
                worker.wait(chance.uniform(*_GAP_SECONDS))
                call.enqueue(sent_at=clock.now_us())
                moved(number + 1)
        self._wait(worker, "late", jobs, label="enqueue to start")
        page = self._app.list(
            state="succeeded", kind=late.name, queue="late", limit=jobs, full=True
        )
        delays = sorted(job.result / 1000 for job in page.jobs)
        assert len(delays) == jobs
        report.latency_p50_ms = statistics.median(delays)
        report.latency_p99_ms = delays[int(0.99 * (len(delays) - 1))]

    def _plain(self, report: BenchReport, worker: BenchWorker) -> None:
        """Run rounds undisturbed, and measure the log that they write."""
        before, start = self._wal_position(), time.monotonic()
        rounds = [
            self._round(worker, f"run {number} of {ROUNDS}") for number in range(1, ROUNDS + 1)
        ]
        after, seconds = self._wal_position(), time.monotonic() - start
        report.run_jobs = sum(each.jobs for each in rounds)
        report.enqueue_many_per_s = statistics.median(
            each.jobs / each.enqueue_seconds for each in rounds
        )
        report.run_per_s = statistics.median(each.run_per_s for each in rounds)
        report.busy = _busy(rounds, self._plan.processes)
        if before is not None and after is not None:
            others = seconds * (report.wal_background_bytes_per_s or 0.0)
            report.wal_bytes_per_job = max(0.0, after - before - others) / report.run_jobs

    def _held(self, report: BenchReport, worker: BenchWorker) -> None:
        """Run rounds while a transaction stays open."""
        with self._scratch.hold():
            for number in range(1, HELD_ROUNDS + 1):
                label = f"run {number} of {HELD_ROUNDS}, transaction held open"
                report.held_per_s.append(self._round(worker, label).run_per_s)

    def _round(self, worker: BenchWorker, label: str) -> Round:
        self._rounds += 1
        queue = f"round-{self._rounds}"
        call = noop.using(queue=queue)
        made = [call.job(**PAYLOAD) for _ in range(self._jobs)]
        cpu, start = worker.cpu_seconds(), time.monotonic()
        self._app.enqueue_many(made)
        enqueued = time.monotonic() - start
        seconds = self._wait(worker, queue, len(made), label=label)
        after = worker.cpu_seconds()
        used = None if cpu is None or after is None else after - cpu
        done = Round(len(made), enqueued, seconds, used)
        self._size(done.run_per_s)
        return done

    def _size(self, rate: float) -> None:
        """Size the next round to about a second, unless the plan names a number of jobs."""
        if self._plan.jobs is None:
            wanted = round(rate * ROUND_SECONDS)
            self._jobs = min(ROUND_JOBS_MAX, max(ROUND_JOBS_MIN, wanted))

    def _wait(self, worker: BenchWorker, queue: str, jobs: int, *, label: str) -> float:
        """Wait until all jobs of a queue have ended. Return their time by the database's clock."""
        done, deadline = -1, math.inf
        with self._show(label, noun="job", total=jobs) as moved:
            while (found := self._app.store.run(measure.finished(queue))).count < jobs:
                if found.count > done:
                    done, deadline = found.count, time.monotonic() + STILL_SECONDS
                    moved(done)
                worker.wait(_LOOK_SECONDS)
                if time.monotonic() > deadline:
                    raise worker.trouble(f"has finished no job for {STILL_SECONDS:.0f} s")
            moved(found.count)
        return found.seconds

    def _wal_position(self) -> int | None:
        if self._scratch.directory is not None:
            return None
        return self._app.store.run(measure.wal_position())


def _busy(rounds: Sequence[Round], processes: int) -> float | None:
    """Return the share of its time that a worker process was on a core."""
    used = [each.cpu_seconds for each in rounds if each.cpu_seconds is not None]
    took = sum(each.run_seconds for each in rounds)
    return min(1.0, sum(used) / took / processes) if used and took else None


def _means_ms(acts: Sequence[Callable[[], object]], moved: Callable[[int], None]) -> list[float]:
    """Return how long each act takes. They run in turn, so that a busy moment affects all.

    Means, not medians: their sum bounds a rate, and a disk is slow only now and then.
    """
    taken: list[list[float]] = [[] for _ in acts]
    end = time.monotonic() + TRY_SECONDS
    # The first turn is not measured: some things are set up only once.
    for turn in range(TRIES + 1):
        for act, times in zip(acts, taken, strict=True):
            start = time.perf_counter()
            act()
            times.append(1000 * (time.perf_counter() - start))
        moved(turn)
        if time.monotonic() > end and turn:
            break
    return [statistics.fmean(times[1:]) for times in taken]


@contextmanager
def _keeper(path: Path) -> Iterator[Callable[[], object]]:
    """Yield a function that writes a page and waits until it is on disk."""
    sync = getattr(os, "fdatasync", os.fsync)
    with path.open("wb", buffering=0) as file:

        def keep() -> None:
            file.write(bytes(_SYNC_BYTES))
            sync(file.fileno())

        yield keep
