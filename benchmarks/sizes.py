"""How much is measured: every number of a run, in three sizes to start from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The numbers of a run; each can be given as an option of the command.

    Args:
        repeats: How often each contestant is measured, all of them by turns.
        side_repeats: The same for several processes, and for what lies in the tables.
        drain_jobs: Jobs in a drain of ours and of the bare loops.
        peer_share: The same for peers, as a share of what they say themselves.
        processes: The largest number of worker processes; doubled up to it.
        enqueue_one: Jobs enqueued one by one.
        enqueue_bulk: Jobs enqueued by 1,000 a call.
        latencies: Jobs whose delay is taken, on an idle worker.
        held_jobs: Jobs in a round while a transaction is held open.
        held_rounds: How many such rounds.
        held_seconds: How long the transaction is open before the first one.
        held_peer_seconds: A peer whose rounds have taken so long together is left out of the rest.
        backlog: Jobs that wait while some are drained.
        backlog_repeats: How often that is measured.
        finished: Finished jobs that lie in the history during a drain.
        foreign: Jobs of a kind that nobody serves, ahead of those of a drain.
        memory_first: After so many jobs the memory of a child is taken, and
        memory_last: after so many again.
        life_jobs: Jobs that pass through one table, in rounds.
        wal_jobs: Jobs over whose lives the write-ahead log is measured.
        idle_seconds: How long an idle worker is watched.
        burst_jobs: Jobs in a burst.
        bursts: How many bursts, one after the other.
    """

    repeats: int
    side_repeats: int
    drain_jobs: int
    peer_share: float
    processes: int
    enqueue_one: int
    enqueue_bulk: int
    latencies: int
    held_jobs: int
    held_rounds: int
    held_seconds: float
    held_peer_seconds: float
    backlog: int
    backlog_repeats: int
    finished: int
    foreign: int
    memory_first: int
    memory_last: int
    life_jobs: int
    wal_jobs: int
    idle_seconds: float
    burst_jobs: int
    bursts: int


PRESETS = {
    # Only to see that every part still works.
    "smoke": Sizes(
        repeats=1,
        side_repeats=1,
        drain_jobs=300,
        peer_share=0.01,
        processes=1,
        enqueue_one=20,
        enqueue_bulk=200,
        latencies=5,
        held_jobs=100,
        held_rounds=1,
        held_seconds=0.0,
        held_peer_seconds=10.0,
        backlog=2_000,
        backlog_repeats=1,
        finished=500,
        foreign=500,
        memory_first=200,
        memory_last=1_000,
        life_jobs=400,
        wal_jobs=200,
        idle_seconds=0.5,
        burst_jobs=500,
        bursts=1,
    ),
    # A few minutes: enough to see whether a change has helped.
    "quick": Sizes(
        repeats=2,
        side_repeats=2,
        drain_jobs=30_000,
        peer_share=0.3,
        processes=4,
        enqueue_one=1_000,
        enqueue_bulk=20_000,
        latencies=60,
        held_jobs=10_000,
        held_rounds=5,
        held_seconds=10.0,
        held_peer_seconds=20.0,
        backlog=200_000,
        backlog_repeats=2,
        finished=300_000,
        foreign=200_000,
        memory_first=30_000,
        memory_last=150_000,
        life_jobs=200_000,
        wal_jobs=5_000,
        idle_seconds=12.0,
        burst_jobs=50_000,
        bursts=1,
    ),
    # What docs/performance.md is made from.
    "full": Sizes(
        repeats=3,
        side_repeats=2,
        drain_jobs=60_000,
        peer_share=0.5,
        processes=8,
        enqueue_one=2_000,
        enqueue_bulk=20_000,
        latencies=150,
        held_jobs=10_000,
        held_rounds=10,
        held_seconds=100.0,
        held_peer_seconds=30.0,
        backlog=1_000_000,
        backlog_repeats=3,
        finished=10_000_000,
        foreign=1_000_000,
        memory_first=100_000,
        memory_last=1_000_000,
        life_jobs=5_000_000,
        wal_jobs=10_000,
        idle_seconds=20.0,
        burst_jobs=50_000,
        bursts=3,
    ),
}
