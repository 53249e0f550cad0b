"""Settler: gathers the outcomes of runs and writes them together, every few milliseconds.

1. An outcome is kept until it is written or its lease is lost; until then the lease is held.
2. A database that is away is waited for, until that is given up. One that refuses a batch gets its
   halves, down to the one row that it does not like, and that one at last with a minimal text.
3. A run that is settled already stays as it is: by a try of ours whose answer was lost, or by its
   own block of `ctx.transaction()`, of whose COMMIT nobody could tell.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from rowlock import config
from rowlock.errors import RowlockError, StoreUnavailable
from rowlock.job import JobState, Lease
from rowlock.lifecycle import Failed, Succeeded
from rowlock.store import Settlement, Store
from rowlock.store.ops.settle import Missed, settle
from rowlock.worker.ledger import Ledger
from rowlock.worker.report import fields_of, report, report_lost, report_settled
from rowlock.worker.trouble import Trouble

logger: logging.Logger = logging.getLogger("rowlock.worker")

Settled = Callable[[list[Settlement]], None]


class Settler:
    """Takes settlements one by one, writes them in batches."""

    def __init__(self, store: Store, *, ledger: Ledger, on_settled: Settled) -> None:
        self._store = store
        self._ledger = ledger
        self._on_settled = on_settled
        self._chance = random.Random()
        self._waiting: list[Settlement] = []
        self._writing = 0
        self._news = asyncio.Event()
        self._is_closing = False
        self._is_giving_up = False
        self._trouble = Trouble("outcomes can't be written")

    def put(self, settlement: Settlement) -> None:
        """Have an outcome written soon."""
        self._waiting.append(settlement)
        self._news.set()

    @property
    def backlog(self) -> int:
        """How many outcomes are not written yet."""
        return len(self._waiting) + self._writing

    def close(self) -> None:
        """Write what is there, then end `run`."""
        self._is_closing = True
        self._news.set()

    def give_up(self) -> None:
        """Wait no longer for a database that is away."""
        self._is_giving_up = True

    async def run(self) -> None:
        """Write outcomes until closed."""
        while True:
            await self._news.wait()
            if not self._is_closing and len(self._waiting) < config.SETTLE_BATCH:
                # The longer the batch, the fewer the commits; the shorter, the sooner it is seen.
                await asyncio.sleep(config.SETTLE_SECONDS)
            batch = self._waiting[: config.SETTLE_BATCH]
            del self._waiting[: len(batch)]
            if not self._waiting:
                self._news.clear()
            self._writing = len(batch)
            if batch:
                await self._write(batch)
            if self._is_closing and not self._waiting:
                return

    async def _write(self, batch: list[Settlement]) -> None:
        while True:
            try:
                missed = await self._store.arun(settle(batch, chance=self._chance))
                by_block = await self._settled_by_block(batch, missed)
            except StoreUnavailable as error:
                if not self._is_giving_up:
                    await self._trouble.wait(error)
                    continue
                what = "the outcomes of %d jobs are not written, which wait for their leases: %s"
                logger.warning(what, len(batch), error)
                self._done(batch)
                return
            except Exception as error:  # noqa: BLE001  # one row must not hold up the others
                await self._write_apart(batch, error)
                return
            self._ledger.settled(batch, missed)
            report(self._report_missed(batch, missed, by_block))
            self._trouble.over()
            self._done(batch)
            return

    async def _settled_by_block(self, batch: Sequence[Settlement], missed: Missed) -> set[str]:
        """Of those settled before, the ids of jobs that have succeeded in spite of their outcome.

        Nothing but its own block can have done that.
        """
        found: set[str] = set()
        for settlement in _of(batch, missed.repeated):
            if not isinstance(settlement.outcome, Succeeded):
                job = await self._store.aget(settlement.lease.id)
                # A job that is not kept leaves no row when it succeeds.
                if job is None or job.state is JobState.SUCCEEDED:
                    found.add(settlement.lease.id)
        return found

    def _report_missed(
        self, batch: Sequence[Settlement], missed: Missed, by_block: set[str]
    ) -> Sequence[Settlement]:
        """Log what became otherwise than the batch says; the rest of it."""
        if not missed.lost and not missed.repeated:
            return batch
        report_lost(missed.lost)
        self._ledger.lost(missed.lost)
        gone = {lease.id for lease in missed.lost} | by_block
        for settlement in _of(batch, missed.repeated):
            lease = settlement.lease
            if lease.id in by_block:
                report_settled(replace(settlement, outcome=Succeeded()), settlement.outcome)
            elif not self._trouble.is_on:
                # In trouble it was a try of ours that was written, and only its answer lost.
                gone.add(lease.id)
                fields = fields_of(lease)
                logger.warning("job %s: this run is settled already", lease.id, extra=fields)
        return [settlement for settlement in batch if settlement.lease.id not in gone]

    def _done(self, batch: list[Settlement]) -> None:
        self._writing -= len(batch)
        self._on_settled(batch)

    async def _write_apart(self, batch: list[Settlement], error: Exception) -> None:
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._write(batch[:middle])
            await self._write(batch[middle:])
            return
        lease = batch[0].lease
        name, fields = type(error).__name__, fields_of(lease)
        logger.error("job %s: its outcome was refused: %s", lease.id, name, extra=fields)
        minimal = Settlement(lease, Failed("Unrecordable", name))
        try:
            await self._store.asettle([minimal])
        except RowlockError as last:
            logger.warning("job %s waits for its lease to expire: %s", lease.id, last, extra=fields)
        self._done(batch)


def _of(batch: Sequence[Settlement], leases: Sequence[Lease]) -> list[Settlement]:
    """The settlements of some leases; nearly always of none."""
    ids = {lease.id for lease in leases}
    return [settlement for settlement in batch if settlement.lease.id in ids] if ids else []
