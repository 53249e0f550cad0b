"""Recover: take jobs from workers that vanished, in bounded, ordered batches, by anyone.

Rows that another is dealing with are skipped, never waited for; each batch is a transaction.

A sweep takes only what the one before has seen expired as well. While nobody could write to the
database (it was away, or somebody's transaction held it), nobody could beat either, and whoever
comes first when that is over must not be a sweep: it would take every job from a living worker.
But where every look is held up, by many writers on a slow disk, it can't be put off for ever: what
four looks in a row have seen expired is taken as well.

After a step of the database's clock, leases that were last extended before it wait until their
workers must have sent a heartbeat (`ClockWatch`). Only `recover`, which somebody asks for, does not
wait.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Literal, NamedTuple

from rowlock import config
from rowlock.clock import duration_us
from rowlock.columns import JobRow
from rowlock.errors import OptionInvalid
from rowlock.lifecycle import Interrupted, Lost, NotBegun, Outcome, Parked, decide
from rowlock.store import options
from rowlock.store.clock_watch import ClockWatch, undoubted
from rowlock.store.ops.settle import apply, held_of
from rowlock.store.steps import Begin, Commit, Op, Row, Rows, Statement, Steps, writing

LEASE_EXPIRED = Lost("lease expired")
ORPHANED = Lost("orphaned: its worker was not heard of")
GIVEN_UP = Interrupted("its worker gave up its leases")
PARKED = Parked("orphaned: its worker was not heard of; parked for a look")
# No outcome of a recovery waits for a backoff, so that chance never plays a part.
_NO_CHANCE = random.Random(0)


def recover(*, older_than: float | timedelta = 0, queues: Sequence[str] | None = None) -> Op[int]:
    """Give back all jobs whose lease expired `older_than` ago or more; how many."""
    age = duration_us(older_than, option="older_than")
    listed = options.names(queues, option="queues")
    values = {"older_than": age, "queues": listed, **undoubted()}
    return _all_batches("recover", "lock_expired", values, LEASE_EXPIRED)


class Sight(NamedTuple):
    """When a sweep last saw a lease expired, by the database's clock, and its looks in a row."""

    at: int
    looks: int


# By id and token.
_Lease = tuple[str, int]
# The leases that a sweep saw expired.
Seen = Mapping[_Lease, Sight]


class SetAside:
    """Expired leases whose end the database refuses: sweeps leave them out for a while.

    `trying` are those that the last transaction of a sweep was about to end.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.trying: list[_Lease] = []
        self._monotonic = monotonic
        self._until: dict[_Lease, float] = {}

    @property
    def leases(self) -> Collection[_Lease]:
        now = self._monotonic()
        self._until = {lease: until for lease, until in self._until.items() if until > now}
        return self._until.keys()

    def add(self, lease: _Lease) -> None:
        """Leave it out from now on."""
        self._until[lease] = self._monotonic() + config.SWEEP_REFUSED_SECONDS


def sweep(
    seen: Seen,
    *,
    batch_rows: int = config.MAINTENANCE_BATCH_ROWS,
    watch: ClockWatch | None = None,
    aside: SetAside | None = None,
) -> Op[Seen]:
    """Give back the jobs that expired and were seen so by the sweep before; what is seen now."""
    since = None if watch is None else watch.monotonic()
    aside = SetAside() if aside is None else aside
    left_out = set(aside.leases)

    def steps() -> Steps[Seen]:
        doubt = undoubted()
        if watch is not None and since is not None:
            watch.note((yield Statement("clock"))[0][0], since=since)
            doubt = watch.doubt()
        found = yield Statement("look_expired", {"limit": config.CLAIM_LIMIT_MAX, **doubt})
        expired: dict[tuple[str, int], Sight] = {}
        for id, token, now in found:
            before = seen.get((id, token))
            expired[id, token] = Sight(now, 1 if before is None else before.looks + 1)
        ripe = {lease for lease, sight in expired.items() if _is_ripe(seen.get(lease), sight)}
        ripe -= left_out
        limit = batch_rows + len(left_out)
        values = {"older_than": 0, "queues": None, "limit": limit, **doubt}
        while ripe:
            yield Begin()
            rows = yield Statement("lock_expired", values)
            mine = [row for row in rows if _lease_of(row) in ripe][:batch_rows]
            aside.trying = [_lease_of(row) for row in mine]
            yield from _end(mine, LEASE_EXPIRED)
            if not mine:
                break
            ripe.difference_update(aside.trying)
            yield Commit()
        return expired

    return writing("sweep", steps, repeat=steps)


def _is_ripe(before: Sight | None, now: Sight) -> bool:
    """Whether the database could be written to since it was seen: the sweeps came on time.

    Or they came so often that whoever lives had the time to beat in between.
    """
    if before is None:
        return False
    is_on_time = now.at - before.at <= config.SWEEP_STALE_SECONDS * config.SECOND_US
    return is_on_time or now.looks >= config.SWEEP_LOOKS_MAX


def _lease_of(row: Row) -> tuple[str, int]:
    job = JobRow._make(row[:-2])
    return job.id, job.token


def adopt_orphans(
    queues: Sequence[str],
    *,
    action: Literal["retry", "park"] = "retry",
    older_than: float | timedelta = 300,
) -> Op[int]:
    """Take over running jobs of these queues not heard of for `older_than`; how many."""
    if action not in ("retry", "park"):
        raise OptionInvalid("action", f"must be 'retry' or 'park', not {action!r}")
    age = duration_us(older_than, option="older_than")
    values = {"older_than": age, "queues": options.names(queues, option="queues") or []}
    outcome: Outcome = ORPHANED if action == "retry" else PARKED
    return _all_batches("adopt_orphans", "lock_orphans", values, outcome)


def release_worker(worker: str) -> Op[int]:
    """Give back every lease that a worker holds; how many.

    Nothing is counted as an attempt. An at-most-once job whose run has begun ends `dead`.
    """
    values = {"worker": options.name(worker, option="worker")}
    return _all_batches("release_worker", "lock_worker", values, GIVEN_UP)


def release_unknown(worker: str, *, known: Collection[tuple[str, int]]) -> Op[int]:
    """Give back the leases that a worker holds without knowing of them; how many.

    A claim whose answer was lost leaves such leases. `known` are the ids and tokens of all others;
    the worker must not claim meanwhile.
    """
    values = {"worker": options.name(worker, option="worker")}
    # So many that the known ones alone never fill a batch.
    limit = config.MAINTENANCE_BATCH_ROWS + len(known)
    total = 0

    def steps() -> Steps[int]:
        nonlocal total
        while True:
            yield Begin()
            rows = yield Statement("lock_worker", {**values, "limit": limit})
            jobs = [(JobRow._make(row[:-2]), row) for row in rows]
            unknown = [row for job, row in jobs if (job.id, job.token) not in known]
            done = yield from _end(unknown, NotBegun())
            if len(rows) < limit:
                return total + done
            yield Commit()
            total += done

    return writing("release_unknown", steps, repeat=steps)


def recover_once(*, queues: list[str], doubt: Mapping[str, int]) -> Steps[int]:
    """One batch of expired leases, within the caller's transaction."""
    values = {"older_than": 0, "queues": queues, **doubt}
    return (yield from _one_batch("lock_expired", values, LEASE_EXPIRED))


def _all_batches(
    name: str, statement: str, values: Mapping[str, object], outcome: Outcome
) -> Op[int]:
    total = 0

    def steps() -> Steps[int]:
        nonlocal total
        while True:
            yield Begin()
            done = yield from _one_batch(statement, values, outcome)
            if done < config.MAINTENANCE_BATCH_ROWS:
                return total + done
            yield Commit()
            total += done

    return writing(name, steps, repeat=steps)


def _one_batch(statement: str, values: Mapping[str, object], outcome: Outcome) -> Steps[int]:
    rows = yield Statement(statement, {**values, "limit": config.MAINTENANCE_BATCH_ROWS})
    return (yield from _end(rows, outcome))


def _end(rows: Rows, outcome: Outcome) -> Steps[int]:
    """End the runs of rows that this transaction has locked; how many."""
    decided = [
        (job, decide(held_of(job), _for(job, outcome), now=now, chance=_NO_CHANCE))
        for job, now in ((JobRow._make(row[:-2]), row[-1]) for row in rows)
    ]
    return len((yield from apply(decided, taken=True)))


def _for(job: JobRow, outcome: Outcome) -> Outcome:
    """What giving up all its leases means for a job: an interruption, if its run was marked."""
    if outcome is not GIVEN_UP:
        return outcome
    return outcome if job.begun and held_of(job).is_marked else NotBegun()
