"""Settler: gathers the outcomes of runs and writes them together, every few milliseconds.

1. An outcome is kept until it is written or its lease is lost; until then the lease is held.
2. A batch is bounded by rows and by bytes. It waits for a database that is away, until `give_up`.
   If a batch fails twice and the database takes a small write in between, the batch is halved, down
   to one row. A batch that the database refuses is halved at once.
3. A row that is refused alone is stored without the part that may be to blame: see `fallback`. If
   even that is refused, it is set aside: its lease is held, it is tried again with growing pauses,
   and it holds up no other.
4. A run that is settled already stays as it is: by a try of ours whose answer was lost, or by its
   own block of `ctx.transaction()`, whose COMMIT had no answer.
5. Plain successes of blocks are written by their ids, in batches of their own. If that fails for
   any reason, they become ordinary outcomes, and rules 1 to 4 hold for each.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from rowlock import config
from rowlock.errors import Forbidden, MigrationNeeded, StoreRefused
from rowlock.job import JobState, Lease
from rowlock.lifecycle import CancelSeen, Failed, Outcome, Released, Succeeded, Throttle
from rowlock.store import Settlement, Store
from rowlock.store.ops.claim import ID
from rowlock.store.ops.settle import Bare, Settled, settle, settle_bare
from rowlock.worker.counts import ProcessCounts
from rowlock.worker.job_blocks import BareSuccesses
from rowlock.worker.report import (
    RevokedSettlement,
    fields_of,
    report,
    report_less,
    report_lost,
    report_settled,
    shows_successes,
)
from rowlock.worker.trouble import ServiceName, Trouble, pause_after, pause_for

logger: logging.Logger = logging.getLogger("rowlock.worker")

# The types of errors that an outcome gets whose own text or follow-ups the database refuses.
RESULT_REFUSED = "ResultRefused"
UNRECORDABLE = "Unrecordable"
_REASON = "result_refused"


@dataclass(slots=True)
class _Aside:
    """A row that failed alone, and when it is tried again. The first time is at once."""

    settlement: Settlement
    due: float = 0.0
    tries: int = 0
    failure: Exception | None = None
    is_refused: bool = False
    is_reported: bool = False


class Settler:
    """Takes settlements one by one, writes them in batches."""

    def __init__(
        self,
        store: Store,
        *,
        counts: ProcessCounts,
        lease: float,
        on_settled: Callable[[list[Settlement]], None],
        on_settled_bare: Callable[[BareSuccesses], None],
    ) -> None:
        self._store = store
        self._counts = counts
        self._lease_seconds = lease
        self._on_settled = on_settled
        self._on_settled_bare = on_settled_bare
        self._chance = random.Random()
        self._waiting: list[Settlement] = []
        # The approximate bytes of each that waits, and their sum.
        self._sizes: list[int] = []
        self._bytes = 0
        # Those of blocks that wait, and how many jobs they are, with those being written.
        self._bare: list[BareSuccesses] = []
        self._bare_jobs = 0
        self._writing = 0
        self._rows_max = config.SETTLE_BATCH
        self._aside: list[_Aside] = []
        self._aside_news = asyncio.Event()
        self._aside_until = 0.0
        self._news = asyncio.Event()
        self._is_closing = False
        self._has_ended = False
        self._is_giving_up = False
        self._trouble = Trouble("outcomes can't be written", ServiceName.SETTLE, counts.errors)
        # The leases of outcomes that were given up: they are left to expire.
        self.given_up: set[tuple[str, int]] = set()

    def put(self, settlement: Settlement) -> None:
        """Have an outcome written soon."""
        size = size_of(settlement)
        self._waiting.append(settlement)
        self._sizes.append(size)
        self._bytes += size
        self._news.set()

    def put_bare(self, done: BareSuccesses) -> None:
        """Have plain successes of a block written soon. Those of two turns are joined."""
        last = self._bare[-1] if self._bare else None
        if last is None or not last.join(done):
            self._bare.append(done)
        self._bare_jobs += len(done.seconds)
        self._news.set()

    @property
    def backlog(self) -> int:
        """How many outcomes are not written yet, without those that are refused."""
        return self._unwritten - self.refused

    @property
    def _unwritten(self) -> int:
        return len(self._waiting) + self._bare_jobs + self._writing + len(self._aside)

    @property
    def refused(self) -> int:
        """How many outcomes the database refuses."""
        return sum(aside.is_refused for aside in self._aside)

    @property
    def is_behind(self) -> bool:
        """Whether too much is unwritten to run more jobs."""
        is_long = self._unwritten > config.SETTLE_BACKLOG_MAX
        return is_long or self._bytes > config.SETTLE_BACKLOG_BYTES

    def close(self, patience_seconds: float = 0.0) -> None:
        """Write the rest, then end `run`. Refused rows are tried for `patience_seconds`."""
        self._is_closing = True
        self._aside_until = time.monotonic() + patience_seconds
        self._news.set()

    def give_up(self) -> None:
        """Stop waiting for a database that is away, or that refuses a row."""
        self._is_giving_up = True
        self._aside_news.set()

    async def run(self) -> None:
        """Write outcomes until closed."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_aside())
            await self._write_waiting()
            self._has_ended = True
            for aside in self._aside:
                aside.due = 0.0
            self._aside_news.set()

    async def _write_waiting(self) -> None:
        while True:
            await self._news.wait()
            waiting = len(self._waiting) + self._bare_jobs
            if not self._is_closing and waiting < config.SETTLE_BATCH:
                # The longer the batch, the fewer the commits; the shorter, the sooner it is seen.
                await asyncio.sleep(config.SETTLE_SECONDS)
            batch, bare = self._next(), self._next_bare()
            if not self._waiting and not self._bare:
                self._news.clear()
            self._writing = len(batch)
            for those in bare:
                await self._write_bare(those)
            if batch:
                await self._write(batch)
                self._rows_max = min(config.SETTLE_BATCH, 2 * self._rows_max)
            if self._is_closing and not self._waiting and not self._bare:
                return

    def _next(self) -> list[Settlement]:
        """The next batch, within the bounds of rows and bytes, with one run of each job."""
        count = min(len(self._waiting), self._rows_max)
        if self._bytes > config.SETTLE_BYTES:
            count = max(1, rows_within(self._sizes[:count], config.SETTLE_BYTES))
        count = _distinct(self._waiting[:count])
        batch = self._waiting[:count]
        self._bytes -= sum(self._sizes[:count])
        del self._waiting[:count]
        del self._sizes[:count]
        return batch

    def _next_bare(self) -> Collection[list[BareSuccesses]]:
        """The next successes of blocks, in groups that can be written by one statement."""
        groups: dict[tuple[int, int], list[BareSuccesses]] = {}
        jobs = count = 0
        for done in self._bare:
            jobs += len(done.seconds)
            if count and jobs > config.SETTLE_BLOCK_ROWS:
                break
            count += 1
            claimed = done.block.claimed
            groups.setdefault((claimed.token, claimed.keep), []).append(done)
        del self._bare[:count]
        return groups.values()

    async def _write_bare(self, group: list[BareSuccesses]) -> None:
        claimed = group[0].block.claimed
        ids = [row[ID] for done in group for row in done.rows]
        noted = {done.block.claimed.claim for done in group}
        notes = [note for note in noted if note is not None]
        try:
            bare = Bare(claimed.token, claimed.keep, ids)
            settled = await self._store.arun(settle_bare(bare, notes))
        except Exception as error:  # noqa: BLE001  # whatever it is, outcomes are not lost
            logger.debug("plain successes are written one by one: %s", error)
            await self._write_parted(group)
            return
        self._trouble.over()
        for note in notes:
            note.open.difference_update(ids)
        self._count_bare(group, settled)
        self._bare_jobs -= len(ids)
        for done in group:
            self._on_settled_bare(done)

    async def _write_parted(self, group: list[BareSuccesses]) -> None:
        """Write successes of blocks as ordinary outcomes. A try that failed may have written some.

        The next batches are as large as any: the rows are seldom to blame.
        """
        for done in group:
            settlements = done.settlements()
            done.part(each.lease for each in settlements)
            self._bare_jobs -= len(settlements)
            self._writing += len(settlements)
            await self._write([*settlements], tries=1)

    def _count_bare(self, group: list[BareSuccesses], settled: Settled) -> None:
        """Count and log plain successes, and those whose leases were lost."""
        if not settled.lost and not settled.repeated and not shows_successes():
            for done in group:
                self._counts.succeeded(done)
            return
        batch = [each for done in group for each in done.settlements()]
        whole = {each.lease.id: each.lease for each in batch}
        settled = Settled(
            lost=[whole[lease.id] for lease in settled.lost],
            repeated=[whole[lease.id] for lease in settled.repeated],
        )
        self._counts.settled(batch, settled)
        report(self._report_missed(batch, settled, set(), is_again=False))

    async def _write(self, batch: list[Settlement], *, tries: int = 0) -> None:
        """Write a batch. `tries` counts those before, alone or within a larger batch."""
        while True:
            try:
                await self._settle(batch, is_again=tries > 0)
            except StoreRefused:
                await self._write_apart(batch)
                return
            except Exception as error:  # noqa: BLE001  # whatever it is, outcomes are not lost
                if self._is_giving_up:
                    self._give_up(batch, error)
                    return
                tries += 1
                if tries > 1 and await self._answers(batch[0].lease):
                    # The next batches are smaller too, until one of them works.
                    self._rows_max = max(1, len(batch) // 4)
                    await self._write_apart(batch)
                    return
                await self._trouble.wait(error)
                continue
            self._writing -= len(batch)
            self._on_settled(batch)
            return

    async def _settle(self, batch: Sequence[Settlement], *, is_again: bool) -> None:
        settled = await self._store.arun(settle(batch, chance=self._chance))
        for settlement in batch:
            lease = settlement.lease
            if lease.claim is not None:
                lease.claim.open.discard(lease.id)
        by_block = await self._settled_by_block(batch, settled)
        self._counts.settled(batch, settled)
        known = self._report_missed(batch, settled, by_block, is_again=is_again)
        report(known, settled.ended)
        self._trouble.over()

    async def _settled_by_block(self, batch: Sequence[Settlement], settled: Settled) -> set[str]:
        """Of runs that were settled before, the jobs that succeeded in spite of their outcome.

        Only a run's own block can have done that.
        """
        found: set[str] = set()
        for settlement in _of(batch, settled.repeated):
            if not isinstance(settlement, RevokedSettlement) and not isinstance(
                settlement.outcome, Succeeded
            ):
                job = await self._store.aget(settlement.lease.id)
                # A job that is not kept leaves no row when it succeeds.
                if job is None or job.state is JobState.SUCCEEDED:
                    found.add(settlement.lease.id)
        return found

    def _report_missed(
        self, batch: Sequence[Settlement], settled: Settled, by_block: set[str], *, is_again: bool
    ) -> Sequence[Settlement]:
        """Log the runs that ended differently from their settlements. Returns the others."""
        if not settled.lost and not settled.repeated:
            return batch
        # A lease that the supervisor has given back is not lost.
        revoked = {each.lease.id for each in batch if isinstance(each, RevokedSettlement)}
        lost = [lease for lease in settled.lost if lease.id not in revoked]
        report_lost(lost)
        self._counts.lost(lost)
        gone = {lease.id for lease in settled.lost} | by_block
        gone |= {lease.id for lease in settled.repeated if lease.id in revoked}
        for settlement in _of(batch, settled.repeated):
            lease = settlement.lease
            if lease.id in by_block:
                report_settled(replace(settlement, outcome=Succeeded()), settlement.outcome)
            elif lease.id not in revoked and not is_again:
                # If this is not the first try, an earlier one was written and its answer lost.
                gone.add(lease.id)
                fields = fields_of(lease)
                logger.warning("job %s: this run is settled already", lease.id, extra=fields)
        return [settlement for settlement in batch if settlement.lease.id not in gone]

    def _give_up(self, batch: list[Settlement], error: Exception) -> None:
        what = "the outcomes of %d jobs are not written, and their leases are left to expire: %s"
        logger.warning(what, len(batch), error)
        self._writing -= len(batch)
        self._abandon(batch)

    def _abandon(self, batch: list[Settlement]) -> None:
        self.given_up.update((each.lease.id, each.lease.token) for each in batch)
        if batch:
            self._on_settled(batch)

    # Rows that fail while the database is there

    async def _write_apart(self, batch: list[Settlement]) -> None:
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._write(batch[:middle], tries=1)
            await self._write(batch[middle:], tries=1)
            return
        self._writing -= 1
        self._aside.append(_Aside(batch[0]))
        self._aside_news.set()

    async def _write_aside(self) -> None:
        """Try rows that failed alone, until closed and out of patience."""
        while True:
            now = time.monotonic()
            for aside in [each for each in self._aside if each.due <= now]:
                await self._try_aside(aside)
            if self._is_over():
                break
            await pause_for(self._aside_news, self._aside_wait())
            self._aside_news.clear()
        for aside in self._aside:
            lease = aside.settlement.lease
            what = "job %s: its outcome could not be stored, its lease is left to expire: %s"
            logger.error(what, lease.id, aside.failure, extra=fields_of(lease))
        left = [aside.settlement for aside in self._aside]
        self._aside.clear()
        self._abandon(left)

    def _is_over(self) -> bool:
        if not self._has_ended or not self._aside:
            return self._has_ended
        return self._is_giving_up or time.monotonic() >= self._aside_until

    def _aside_wait(self) -> float | None:
        """How many seconds until a row is due. None: no row is."""
        times = [aside.due for aside in self._aside]
        if self._has_ended:
            times.append(self._aside_until)
        return max(0.0, min(times) - time.monotonic()) if times else None

    async def _try_aside(self, aside: _Aside) -> None:
        failure = await self._write_row(aside)
        if failure is None:
            self._aside.remove(aside)
            self._on_settled([aside.settlement])
            return
        aside.failure = failure
        aside.tries += 1
        aside.due = time.monotonic() + pause_after(aside.tries)

    async def _write_row(self, aside: _Aside) -> Exception | None:
        """Write a row, or the part of it that the database accepts. Returns why that failed.

        Any write fails if the database is away or somebody holds a lock. So the row is to blame
        only if a small write for the same job works before and after a failure.
        """
        settlement = aside.settlement
        failure = await self._try(settlement)
        if failure is not None and not isinstance(failure, StoreRefused):
            if not await self._answers(settlement.lease):
                return failure
            failure = await self._try(settlement)
            if failure is not None and not await self._answers(settlement.lease):
                return failure
        if failure is None:
            return None
        if not aside.is_refused:
            aside.is_refused = True
            self._counts.refused()
        # Tables or rights that are missing are missing for all of it.
        is_of_row = not isinstance(failure, MigrationNeeded | Forbidden)
        if is_of_row and await self._write_less(settlement, failure):
            return None
        if not aside.is_reported:
            aside.is_reported = True
            lease = settlement.lease
            what = "job %s stays leased and is tried again: the database refuses its outcome: %s"
            logger.error(what, lease.id, failure, extra=fields_of(lease))
        return failure

    async def _write_less(self, settlement: Settlement, failure: Exception) -> bool:
        """Write the part of an outcome that the database accepts. False if it accepts none."""
        less = fallback(settlement, failure)
        while less is not None:
            if await self._try(less) is None:
                report_less(less, failure)
                return True
            less = fallback(less, failure)
        return False

    async def _try(self, settlement: Settlement) -> Exception | None:
        """Write one row. Returns why that failed."""
        try:
            await self._settle([settlement], is_again=True)
        except Exception as error:  # noqa: BLE001  # whatever it is, the outcome is not lost
            return error
        return None

    async def _answers(self, lease: Lease) -> bool:
        """Whether the database takes a small write for this job."""
        try:
            await self._store.aheartbeat([lease], lease=self._lease_seconds)
        except Exception as error:  # noqa: BLE001  # any error is the answer
            logger.debug("a beat fails as well: %s", error)
            return False
        return True


def size_of(settlement: Settlement) -> int:
    """The approximate bytes that it writes. The payload is copied when a job ends."""
    row, outcome = settlement.lease.row, settlement.outcome
    size = 0 if row is None else len(row.payload)
    if isinstance(outcome, Succeeded) and outcome.result is not None:
        size += len(outcome.result)
    if isinstance(outcome, Failed):
        size += len(outcome.message) + len(outcome.traceback)
    if settlement.follow_ups:
        size += sum(len(job.payload) for job in settlement.follow_ups)
    if settlement.growth is not None:
        size += sum(len(job.payload) for job in settlement.growth.nodes)
    return size


def batches(settlements: Sequence[Settlement], *, bytes_max: int) -> Iterator[Sequence[Settlement]]:
    """Parts that are each written in one transaction, bounded by rows and by bytes."""
    while settlements:
        sizes = [size_of(each) for each in settlements[: config.SETTLE_BATCH]]
        rows = max(1, rows_within(sizes, bytes_max))
        yield settlements[:rows]
        settlements = settlements[rows:]


def rows_within(sizes: Sequence[int], bytes_max: int) -> int:
    """How many of the first rows fit into `bytes_max` together."""
    total = 0
    for rows, size in enumerate(sizes):
        total += size
        if total > bytes_max:
            return rows
    return len(sizes)


def _distinct(settlements: Sequence[Settlement]) -> int:
    """How many of the first settlements are of different jobs, nearly always all.

    A run that has lost its lease unnoticed may end together with the next run of its job.
    """
    ids: set[str] = set()
    for count, settlement in enumerate(settlements):
        if settlement.lease.id in ids:
            return count
        ids.add(settlement.lease.id)
    return len(settlements)


def _of(batch: Sequence[Settlement], leases: Sequence[Lease]) -> list[Settlement]:
    """The settlements of some leases, which are nearly always none."""
    ids = {lease.id for lease in leases}
    return [settlement for settlement in batch if settlement.lease.id in ids] if ids else []


def fallback(settlement: Settlement, error: Exception) -> Settlement | None:
    """What to store instead of a settlement that was refused. None: nothing can be left out.

    A success stays a success, so that its job does not run again; only its result is left out. If
    its follow-ups are refused, it can't be a success, since they belong to it: its job is dead.
    Every other outcome loses its text.
    """
    reason = error.reason if isinstance(error, StoreRefused) else type(error).__name__
    outcome = _less(settlement, reason)
    if outcome is None:
        return None
    if isinstance(outcome, Succeeded):
        return replace(settlement, outcome=outcome)
    return replace(settlement, outcome=outcome, follow_ups=(), growth=None)


def _less(settlement: Settlement, reason: str) -> Outcome | None:
    match outcome := settlement.outcome:
        case Succeeded() if outcome.result is not None:
            return Succeeded(None, f"the database refused it: {reason}")
        case Succeeded() if settlement.follow_ups or settlement.growth is not None:
            said = f"{_REASON}: it returned, and the database refused its follow-ups: {reason}"
            return Failed(RESULT_REFUSED, said, permanent=True)
        # The database may refuse its own words.
        case Failed(type=type) if type == RESULT_REFUSED:
            return None if outcome.message == _REASON else replace(outcome, message=_REASON)
        case Failed(type=type) if type == UNRECORDABLE:
            return replace(outcome, message="") if outcome.message else None
        case Failed():
            return replace(outcome, type=UNRECORDABLE, message=reason, traceback="")
        case CancelSeen() if outcome.reason is not None:
            return CancelSeen()
        case Released() | Throttle() if outcome.reason is not None:
            return replace(outcome, reason=None)
        case _:
            return None
