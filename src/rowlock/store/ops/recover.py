"""Recover: take jobs from workers that crashed, in bounded, ordered batches, from any process.

Rows that another process has locked are skipped, never waited for. Each batch is a transaction.

A sweep takes only leases that the previous sweep has seen expired too. While nobody could write to
the database (it was away, or a transaction held it), no worker could send a heartbeat either. When
that is over, a sweep must not come first: it would take every job from a living worker.
But where every look is delayed, by many writers on a slow disk, this can't be postponed forever: a
lease that four looks in a row have seen expired is taken as well.

If the database refuses the end of one lease, for example by a user's own constraint, that lease is
left out and all others are given back: see `Recovery`.

After a step of the database's clock, leases that were last extended before the step wait until
their workers must have sent a heartbeat (`ClockWatch`). Only `recover`, which a user calls, does
not wait.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Literal, NamedTuple

from rowlock import config
from rowlock.clock import duration_us
from rowlock.columns import JobRow
from rowlock.errors import OptionInvalid, StoreRefused
from rowlock.lifecycle import Interrupted, Lost, NotBegun, Outcome, Parked, decide
from rowlock.store import options
from rowlock.store.local_state import LocalState, SetAside, undoubted
from rowlock.store.ops.settle import apply, held_of
from rowlock.store.steps import Begin, Commit, Op, Statement, Steps, writing

logger: logging.Logger = logging.getLogger("rowlock.store")

LEASE_EXPIRED = Lost("lease expired")
ORPHANED = Lost("orphaned: its worker was not heard of")
GIVEN_UP = Interrupted("its worker gave up its leases")
PARKED = Parked("orphaned: its worker was not heard of; parked for a look")
# No outcome of a recovery waits for a backoff, so chance plays no part.
_NO_CHANCE = random.Random(0)


def recover(older_than: float | timedelta = 0, queues: Sequence[str] | None = None) -> Op[int]:
    """Give back jobs whose lease has expired. Returns their number.

    Args:
        older_than: Only leases that expired at least this long ago, in seconds or as a timedelta.
        queues: Only jobs of these queues. None: all.
    """
    age = duration_us(older_than, option="older_than")
    listed = options.names(queues, option="queues")
    values = {"older_than": age, "queues": listed, **undoubted()}
    return _all_batches("recover", "lock_expired", values, _as_lost, Recovery())


class Sight(NamedTuple):
    """When a sweep last saw a lease expired, by the database's clock, and how often in a row."""

    at: int
    looks: int


# By id and token.
_Lease = tuple[str, int]
# The leases that a sweep saw expired.
Seen = Mapping[_Lease, Sight]


class Recovery:
    """One call that ends leases of other workers, and isolates those that the database refuses.

    1. A batch that is refused is tried again half as large, until it is a single lease.
    2. A single lease that is refused is set aside, logged and counted.
    3. The call ends after a number of refusals. The remaining leases are left for a later call.

    Args:
        aside: The leases that earlier calls found refused.
        rows: Leases to end in one transaction, at most. None: a batch of maintenance.
        on_refused: Called for each lease that is refused for the first time.
        refusals_max: Refusals after which the call ends.
    """

    def __init__(
        self,
        aside: SetAside | None = None,
        *,
        rows: int | None = None,
        on_refused: Callable[[], None] | None = None,
        refusals_max: int = config.SWEEP_REFUSALS_MAX,
    ) -> None:
        # How many leases were given back by committed transactions.
        self.done: int = 0
        # The refusal that ended the call.
        self.surrender: StoreRefused | None = None
        self._aside = SetAside() if aside is None else aside
        self._rows_max = self._rows = config.MAINTENANCE_BATCH_ROWS if rows is None else rows
        self._on_refused = on_refused
        self._trying: list[_Lease] = []
        self._refusals_left = refusals_max

    def batch(
        self,
        statement: str,
        values: Mapping[str, object],
        outcome: Callable[[JobRow], Outcome],
        *,
        wanted: Callable[[_Lease], bool] | None = None,
        others: int = 0,
    ) -> Steps[_Batch]:
        """End one batch of leases in a transaction that the caller has begun.

        Args:
            statement: Locks leases, up to a limit.
            wanted: Whether a lease is to be ended at all.
            others: How many of the locked leases may be unwanted.
        """
        self._trying = []
        left_out = self._aside.leases
        # Enough that leases that are left alone never fill a batch.
        limit = self._rows + len(left_out) + others
        rows = yield Statement(statement, {**values, "limit": limit})
        # By id: two claims that ended at the same time may both have noted a lease.
        found: dict[str, tuple[JobRow, int]] = {}
        for row in rows:
            job, now = JobRow._make(row[:-2]), row[-1]
            lease = (job.id, job.token)
            if lease not in left_out and (wanted is None or wanted(lease)):
                found[job.id] = (job, now)
        mine = list(found.values())
        is_last = len(rows) < limit and len(mine) <= self._rows
        del mine[self._rows :]
        self._trying = [(job.id, job.token) for job, _ in mine]
        decided = [
            (job, decide(held_of(job), outcome(job), now=now, chance=_NO_CHANCE))
            for job, now in mine
        ]
        applied = yield from apply(decided, taken=True)
        return _Batch(self._trying, len(applied), is_last)

    def committed(self, batch: _Batch) -> None:
        """Count a committed batch."""
        self.done += batch.ended
        self._trying = []
        self._rows = min(self._rows_max, 2 * self._rows)

    def refused(self, error: StoreRefused) -> None:
        """Take fewer leases next time, or leave out the one that was refused.

        Raises:
            StoreRefused: The error, if it is not about the end of a lease.
        """
        if not self._trying:
            raise error
        self._refusals_left -= 1
        if self._refusals_left <= 0:
            self.surrender = error
        self._rows = max(1, len(self._trying) // 2)
        if len(self._trying) == 1:
            (lease,) = self._trying
            if self._aside.add(lease):
                logger.warning("job %s can't be given back: %s", lease[0], error)
                if self._on_refused is not None:
                    self._on_refused()
        self._trying = []


class _Batch(NamedTuple):
    """A batch: its leases, how many of them have ended, and whether it was the last."""

    leases: list[_Lease]
    ended: int
    is_last: bool


def sweep(
    local: LocalState,
    seen: Seen,
    *,
    rows: int | None = None,
    on_refused: Callable[[], None] | None = None,
) -> Op[Seen]:
    """Give back the expired leases that the previous sweep has seen expired too.

    Args:
        seen: What the previous sweep returned.
        rows: Leases to end in one transaction, at most. None: a batch of maintenance.
        on_refused: Called for each lease whose end the database refuses for the first time.

    Returns:
        The leases that this sweep has seen expired.
    """
    watch = local.clock_watch
    since = watch.monotonic()
    recovery = Recovery(local.set_aside, rows=rows, on_refused=on_refused)

    def steps() -> Steps[Seen]:
        watch.note((yield Statement("clock"))[0][0], since=since)
        doubt = watch.doubt()
        found = yield Statement("look_expired", {"limit": config.CLAIM_LIMIT_MAX, **doubt})
        expired: dict[tuple[str, int], Sight] = {}
        for id, token, now in found:
            before = seen.get((id, token))
            expired[id, token] = Sight(now, 1 if before is None else before.looks + 1)
        ripe = {lease for lease, sight in expired.items() if _is_ripe(seen.get(lease), sight)}
        values = {"older_than": 0, "queues": None, **doubt}
        while ripe and recovery.surrender is None:
            yield Begin()
            batch = yield from recovery.batch(
                "lock_expired", values, _as_lost, wanted=ripe.__contains__
            )
            if not batch.leases:
                break
            yield Commit()
            recovery.committed(batch)
            ripe.difference_update(batch.leases)
        return expired

    return writing("sweep", steps, repeat=steps, on_refused=recovery.refused)


def _as_lost(job: JobRow) -> Outcome:
    return LEASE_EXPIRED


def _is_ripe(before: Sight | None, now: Sight) -> bool:
    """Whether the database was writable since the lease was seen: the sweeps came on time.

    Or there were enough sweeps that any living worker had time for a heartbeat in between.
    """
    if before is None:
        return False
    is_on_time = now.at - before.at <= config.SWEEP_STALE_SECONDS * config.SECOND_US
    return is_on_time or now.looks >= config.SWEEP_LOOKS_MAX


def adopt_orphans(
    queues: Sequence[str],
    action: Literal["retry", "park"] = "retry",
    older_than: float | timedelta = 300,
) -> Op[int]:
    """Take running jobs from workers that have gone silent. Returns the number of jobs.

    Args:
        queues: Only jobs of these queues.
        action: "retry" gives them back, "park" ends them `dead` for you to look at.
        older_than: Only jobs without a heartbeat for at least this long.
    """
    if action not in ("retry", "park"):
        raise OptionInvalid("action", f"must be 'retry' or 'park', not {action!r}")
    age = duration_us(older_than, option="older_than")
    values = {"older_than": age, "queues": options.names(queues, option="queues") or []}
    outcome: Outcome = ORPHANED if action == "retry" else PARKED
    return _all_batches("adopt_orphans", "lock_orphans", values, lambda _: outcome, Recovery())


def release_worker(worker: str) -> Op[int]:
    """Give back every lease that a worker holds. Returns their number.

    Nothing is counted as an attempt. An at-most-once job whose run has begun ends `dead`.
    """
    values = {"worker": options.name(worker, option="worker")}
    return _all_batches("release_worker", "lock_worker", values, _given_up, Recovery())


def _given_up(job: JobRow) -> Outcome:
    """The outcome when a worker gives up all its leases: interrupted, if the run was marked."""
    return GIVEN_UP if job.begun and held_of(job).is_marked else NotBegun()


def release_unknown(worker: str, *, known: Collection[tuple[str, int]]) -> Op[int]:
    """Give back the leases that a worker holds without knowing of them. Returns their number.

    A claim whose answer was lost leaves such leases. `known` are the ids and tokens of all other
    leases. The worker must not claim meanwhile.
    """
    values = {"worker": options.name(worker, option="worker")}
    return _all_batches(
        "release_unknown",
        "lock_worker",
        values,
        lambda _: NotBegun(),
        Recovery(),
        spared=known,
    )


def recover_once(*, queues: list[str], doubt: Mapping[str, int], recovery: Recovery) -> Steps[None]:
    """Give back one batch of expired leases, and commit it before the caller's work continues."""
    if recovery.surrender is not None:
        return
    yield Begin()
    values = {"older_than": 0, "queues": queues, **doubt}
    batch = yield from recovery.batch("lock_expired", values, _as_lost)
    if batch.leases:
        yield Commit()
        recovery.committed(batch)


def _all_batches(
    name: str,
    statement: str,
    values: Mapping[str, object],
    outcome: Callable[[JobRow], Outcome],
    recovery: Recovery,
    *,
    spared: Collection[_Lease] = (),
) -> Op[int]:
    def steps() -> Steps[int]:
        while True:
            if recovery.surrender is not None:
                raise recovery.surrender
            yield Begin()
            batch = yield from recovery.batch(
                statement,
                values,
                outcome,
                wanted=lambda lease: lease not in spared,
                others=len(spared),
            )
            if batch.is_last:
                return recovery.done + batch.ended
            yield Commit()
            recovery.committed(batch)

    return writing(name, steps, repeat=steps, on_refused=recovery.refused)
