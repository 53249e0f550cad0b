"""Watch workers at work: how fast, by whose CPU, and when the queue itself calls it done."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.bench import Unfinished
from benchmarks.contestants import Contestant
from benchmarks.places import Database
from benchmarks.processes import Crew
from benchmarks.record import Record
from benchmarks.results import Figures

# Without any progress for so long, a drain is given up.
STILL_SECONDS = 60.0
LOOK_SECONDS = 0.01


def wait_for(count: Callable[[], int], need: int, crew: Crew) -> None:
    """Wait until so many are done; raises `Unfinished` when nothing moves any more."""
    last, moved_at = -1, time.monotonic()
    while (done := count()) < need:
        if done != last:
            last, moved_at = done, time.monotonic()
        if time.monotonic() - moved_at > STILL_SECONDS or crew.has_ended():
            raise Unfinished(f"{done} of {need} were done")
        time.sleep(LOOK_SECONDS)


def wait_until_settled(contestant: Contestant, database: Database) -> float:
    """When the queue's own tables say that no job waits or runs any more."""
    assert contestant.left is not None
    deadline = time.monotonic() + STILL_SECONDS
    while database.ask(contestant.left):
        if time.monotonic() > deadline:
            raise Unfinished("jobs that have run are never settled")
        time.sleep(LOOK_SECONDS / 2)
    return time.time()


def watch_drain(
    contestant: Contestant,
    database: Database,
    record: Record,
    crew: Crew,
    *,
    low: int = 0,
    high: int | None = None,
    until_settled: bool = True,
) -> Figures:
    """From the first start until all is settled: jobs a second, and CPU a job on both sides.

    The start of the workers is not part of it, neither its time nor its CPU. Where counting what
    is left would take too long, it ends with the last start.
    """
    jobs = (record.jobs if high is None else high) - low
    wait_for(lambda: record.done(low, high), 1, crew)
    server, worker = database.server_cpu_seconds(), crew.cpu_seconds()
    before = record.done(low, high)
    wait_for(lambda: record.done(low, high), jobs, crew)
    end = wait_until_settled(contestant, database) if until_settled else None
    worker, server = crew.cpu_seconds() - worker, database.server_cpu_seconds() - server
    starts = record.starts(low, high)
    after = max(1, jobs - before)
    return {
        "jobs": jobs,
        "per_s": jobs / ((end or starts[-1]) - starts[0]),
        "handlers_per_s": (jobs - 1) / max(1e-6, starts[-1] - starts[0]),
        "worker_cpu_us": 1e6 * worker / after,
        "server_cpu_us": 1e6 * server / after,
    }


def watch_first(record: Record, crew: Crew, need: int) -> float:
    """Jobs a second among the first so many starts."""
    wait_for(record.done, need, crew)
    starts = record.starts()
    return (need - 1) / (starts[need - 1] - starts[0])
