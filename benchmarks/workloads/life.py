"""Life: millions of jobs pass through one table. Does it grow, and do the last take longer?"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.contestants import Contestant
from benchmarks.places import Database, PostgresDatabase
from benchmarks.record import new_record
from benchmarks.workloads.watch import watch_drain
from benchmarks.workloads.weight import fill

ROUNDS = 20

_SIZE = {
    # The table of live jobs with all its indexes; on SQLite the file without its history.
    True: "SELECT pg_total_relation_size('rowlock.job')",
    False: "SELECT freelist_count * 4096 FROM pragma_freelist_count",
}


def life(bench: Bench, contestant: Contestant) -> None:
    """Fill and drain the same table, twenty times; its size and the rate after each."""
    jobs = bench.sizes.life_jobs // ROUNDS
    with (
        bench.turn("life", contestant) as figures,
        bench.fresh(contestant) as database,
        new_record(jobs * ROUNDS, bench.directory) as record,
        contestant.workers(database, record, log=bench.log) as crew,
    ):
        rates: list[float] = []
        mib: list[float] = []
        for number in range(ROUNDS):
            low, high = number * jobs, (number + 1) * jobs
            fill(database, jobs, kind="noop", offset=low)
            drained = watch_drain(contestant, database, record, crew, low=low, high=high)
            rates.append(drained["per_s"])
            mib.append(_size(database) / 2**20)
        figures.update({"jobs": jobs * ROUNDS, "rounds_per_s": rates, "rounds_mib": mib})


def _size(database: Database) -> int:
    return database.ask(_SIZE[isinstance(database, PostgresDatabase)])
