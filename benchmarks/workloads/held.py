"""Held: drain, round after round, while somebody else's transaction is open on the same database.

Nothing that a queue deletes or changes can be cleaned away meanwhile, so whatever walks over its
own dead rows gets slower from round to round. The transaction has written, as the worst ones have,
and is open long before the first round, so that leases of that time have expired.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import psycopg

from benchmarks.bench import Bench, Unfinished
from benchmarks.contestants import AdapterFailed, Contestant
from benchmarks.places import PostgresDatabase
from benchmarks.record import Record, new_record
from benchmarks.results import Figures, Measurement
from benchmarks.workloads.watch import watch_drain


class Lane:
    """One contestant under a held transaction, round by round."""

    def __init__(self, bench: Bench, contestant: Contestant, stack: ExitStack) -> None:
        self.contestant = contestant
        self._bench = bench
        database = stack.enter_context(bench.fresh(contestant))
        assert isinstance(database, PostgresDatabase)
        self._database = database
        jobs = bench.sizes.held_jobs * (bench.sizes.held_rounds + 1)
        self._record: Record = stack.enter_context(new_record(jobs, bench.directory))
        self._rounds = 0
        self.seconds = 0.0
        self.rounds: list[Figures] = []
        self.error: str | None = None
        self._holder: psycopg.Connection[Any] = stack.enter_context(psycopg.connect(database.url))
        self._holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._holder.execute("SELECT pg_current_xact_id(), count(*) FROM pg_class")

    def drain(self) -> Figures:
        """Drain one round."""
        jobs = self._bench.sizes.held_jobs
        low = self._rounds * jobs
        self._rounds += 1
        start = time.monotonic()
        contestant, database = self.contestant, self._database
        contestant.call(database, "preload", low, low + jobs)
        # As autovacuum would do; what the transaction may still see it could not remove either.
        database.execute("ANALYZE")
        with contestant.workers(database, self._record, log=self._bench.log) as crew:
            figures = watch_drain(
                contestant, database, self._record, crew, low=low, high=low + jobs
            )
        self.seconds += time.monotonic() - start
        return figures

    def try_round(self) -> bool:
        """Drain one round more, unless it takes too long or fails; whether it did."""
        is_slow = self.seconds > self._bench.sizes.held_peer_seconds
        if self.error is not None or (is_slow and not self.contestant.is_ours):
            return False
        try:
            self.rounds.append(self.drain())
        except (AdapterFailed, Unfinished) as error:
            if self.contestant.is_ours:
                raise
            self.error = str(error)
            return False
        return True

    def measurement(self) -> Measurement:
        figures: Figures = {
            "jobs": self._bench.sizes.held_jobs,
            "rounds_per_s": [each["per_s"] for each in self.rounds],
            "rounds_worker_cpu_us": [each["worker_cpu_us"] for each in self.rounds],
            "rounds_server_cpu_us": [each["server_cpu_us"] for each in self.rounds],
        }
        if not self.rounds:
            figures["error"] = self.error or "no round was finished"
        return Measurement("held", self.contestant.name, self.contestant.store, figures)


class Held:
    """The whole workload: `begin`, other work meanwhile, then `finish`."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._stack = ExitStack()
        self._lanes: list[Lane] = []
        self._since = 0.0

    def begin(self) -> None:
        """Open the transactions; ours gets a round of jobs whose leases will have expired."""
        for contestant in self._bench.contestants:
            if contestant.store == "postgres" and contestant.can_drain:
                self._lanes.append(Lane(self._bench, contestant, self._stack))
        for lane in self._lanes:
            if lane.contestant.is_ours and self._bench.sizes.held_seconds > 0:
                lane.drain()
        self._since = time.monotonic()

    def finish(self) -> None:
        """The rounds, by turns."""
        left = self._since + self._bench.sizes.held_seconds - time.monotonic()
        if left > 0:
            self._bench.say(f"held: another {left:.0f} s until leases have aged")
            time.sleep(left)
        with self._stack:
            for number in range(self._bench.sizes.held_rounds):
                for lane in self._lanes:
                    if lane.try_round():
                        rate = lane.rounds[-1]["per_s"]
                        self._bench.say(
                            f"held: {lane.contestant.name}, round {number + 1}: {rate:,.0f}/s"
                        )
        for lane in self._lanes:
            self._bench.note(lane.measurement())

    def close(self) -> None:
        """Let go, whatever was reached."""
        self._stack.close()
