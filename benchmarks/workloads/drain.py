"""Drain: jobs that wait are run by workers, one process or several; and by the bare loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from benchmarks import limits
from benchmarks.bench import Bench
from benchmarks.contestants import Contestant
from benchmarks.places import Database
from benchmarks.record import new_record
from benchmarks.results import Measurement
from benchmarks.workloads.watch import watch_drain
from rowlock.store import open_store

BARE = "bare loop"
OWN_LOOP = "own loop"


def drain(bench: Bench) -> None:
    """One process of each, by turns with the limits."""
    for _ in range(bench.sizes.repeats):
        for contestant in bench.contestants:
            if contestant.is_ours:
                drain_loop(bench, contestant, BARE, limits.drain_bare)
            if contestant.can_drain and contestant.store != "redis":
                drain_by_workers(bench, contestant, processes=1)
            if contestant.is_ours:
                drain_loop(bench, contestant, OWN_LOOP, limits.drain_by_store)


def drain_by_two(bench: Bench) -> None:
    """Two processes of each."""
    for _ in range(bench.sizes.side_repeats if bench.sizes.processes > 1 else 0):
        for contestant in bench.contestants:
            if contestant.can_drain and contestant.store != "redis":
                drain_by_workers(bench, contestant, processes=2)


def drain_by_many(bench: Bench) -> None:
    """Four processes of ours, eight, and so on; there is one for each of few cores."""
    for _ in range(bench.sizes.side_repeats):
        processes = 4
        while processes <= bench.sizes.processes:
            for contestant in bench.ours():
                drain_by_workers(bench, contestant, processes=processes)
            processes *= 2


def drain_by_workers(bench: Bench, contestant: Contestant, *, processes: int) -> None:
    jobs = drain_jobs(bench, contestant)
    with (
        bench.turn("drain", contestant, str(processes)) as figures,
        bench.fresh(contestant) as database,
        new_record(jobs, bench.directory) as record,
    ):
        contestant.call(database, "preload", 0, jobs)
        database.settle()
        with contestant.workers(database, record, processes=processes, log=bench.log) as crew:
            figures.update(watch_drain(contestant, database, record, crew))
        figures["doubles"] = record.doubles()


def drain_jobs(bench: Bench, contestant: Contestant) -> int:
    """How many jobs a drain of this contestant has."""
    if contestant.is_ours:
        return contestant.drain_jobs
    return max(20, round(contestant.drain_jobs * bench.sizes.peer_share))


def drain_loop(
    bench: Bench, contestant: Contestant, name: str, loop: Callable[[Database], int]
) -> None:
    """A loop in this process, on our tables."""
    jobs = contestant.drain_jobs
    with bench.fresh(contestant) as database:
        with closing(open_store(database.url)) as store:
            limits.fill(store, jobs)
        database.settle()
        server, cpu = database.server_cpu_seconds(), time.process_time()
        start = time.perf_counter()
        done = loop(database)
        seconds = time.perf_counter() - start
        cpu, server = time.process_time() - cpu, database.server_cpu_seconds() - server
        assert done == jobs, f"{done} of {jobs}"
    figures = {
        "jobs": jobs,
        "per_s": jobs / seconds,
        "worker_cpu_us": 1e6 * cpu / jobs,
        "server_cpu_us": 1e6 * server / jobs,
    }
    bench.note(Measurement("drain", name, contestant.store, figures, "1"))
