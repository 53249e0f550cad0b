"""What it costs: an idle worker's transactions and CPU, and the log that a job's life writes."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg

from benchmarks.bench import Bench, Unfinished
from benchmarks.contestants import AdapterFailed, Contestant
from benchmarks.places import Database, PostgresDatabase
from benchmarks.processes import Crew, used_seconds
from benchmarks.record import new_record
from benchmarks.results import Figures, Measurement
from benchmarks.workloads.watch import wait_for, wait_until_settled

WARM_UP = 10
# Connections of PostgreSQL tell of their transactions up to ten seconds late.
REST_SECONDS = 12.0
WAL_WARM_UP = 1_000


def idle(bench: Bench) -> None:
    """Workers without work, after they have had some; all at the same time, so that they can be
    watched for longer.
    """
    with ExitStack() as stack:
        lanes = [lane for each in bench.contestants if (lane := _idle_lane(bench, each, stack))]
        time.sleep(min(REST_SECONDS, bench.sizes.idle_seconds))
        before = [lane.used() for lane in lanes]
        start = time.monotonic()
        time.sleep(bench.sizes.idle_seconds)
        took = time.monotonic() - start
        for lane, then in zip(lanes, before, strict=True):
            now = lane.used()
            figures: Figures = {name: (now[name] - then[name]) / took for name in then}
            figures["mib"] = lane.crew.largest_mib()
            each = lane.contestant
            bench.note(Measurement("idle", each.name, each.store, figures))


@dataclass(frozen=True, slots=True)
class IdleLane:
    """One contestant's workers and their database."""

    contestant: Contestant
    database: Database
    crew: Crew

    def used(self) -> dict[str, float]:
        """CPU seconds on both sides, and transactions."""
        used = {"worker_core": self.crew.cpu_seconds()}
        if isinstance(self.database, PostgresDatabase):
            pids, transactions = _of_server(self.database)
            used["server_core"] = sum(map(used_seconds, pids))
            used["transactions_per_s"] = transactions
        return used


def _idle_lane(bench: Bench, contestant: Contestant, stack: ExitStack) -> IdleLane | None:
    if contestant.store == "redis":
        return None
    database = stack.enter_context(bench.fresh(contestant))
    record = stack.enter_context(new_record(WARM_UP, bench.directory))
    crew = stack.enter_context(contestant.workers(database, record, log=bench.log))
    try:
        contestant.call(database, "latency", 0, WARM_UP)
        wait_for(record.done, WARM_UP, crew)
    except (AdapterFailed, Unfinished) as error:
        if contestant.is_ours:
            raise
        figures: Figures = {"error": str(error)}
        bench.note(Measurement("idle", contestant.name, contestant.store, figures))
        return None
    return IdleLane(contestant, database, crew)


def _of_server(database: PostgresDatabase) -> tuple[list[int], int]:
    """The processes that serve a database, and how many transactions it has seen.

    Asked from another one, so that asking is not counted.
    """
    with psycopg.connect(f"{database.base}/postgres") as connection:
        pids = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = %s", [database.name]
        ).fetchall()
        row = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s",
            [database.name],
        ).fetchone()
    assert row is not None
    return [pid for (pid,) in pids], int(row[0])


def wal(bench: Bench) -> None:
    """The write-ahead log of a job's whole life: enqueued in bulk, run, settled, between two
    checkpoints.
    """
    for contestant in bench.contestants:
        if contestant.store == "postgres" and contestant.can_drain:
            _measure_wal(bench, contestant)


def _measure_wal(bench: Bench, contestant: Contestant) -> None:
    warm = min(WAL_WARM_UP, bench.sizes.wal_jobs)
    jobs = bench.sizes.wal_jobs if contestant.is_ours else max(warm, bench.sizes.wal_jobs // 5)
    with (
        bench.turn("wal", contestant) as figures,
        bench.fresh(contestant) as database,
        new_record(warm + jobs, bench.directory) as record,
        contestant.workers(database, record, log=bench.log) as crew,
    ):
        assert isinstance(database, PostgresDatabase)
        contestant.call(database, "preload", 0, warm)
        wait_for(record.done, warm, crew)
        wait_until_settled(contestant, database)
        before = database.wal_bytes()
        contestant.call(database, "preload", warm, warm + jobs)
        wait_for(record.done, warm + jobs, crew)
        wait_until_settled(contestant, database)
        figures.update({"jobs": jobs, "bytes_per_job": (database.wal_bytes() - before) / jobs})
