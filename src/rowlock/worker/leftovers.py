"""Runs that outlast a worker inside the caller's process: kept until the last one has ended.

1. What a thread still works on is beaten for until it ends, and its outcome is written then: from
   the thread itself, because the loop may be gone. So nobody else runs it meanwhile, or again.
2. A run is the worker's or is kept here, never both. Which of them, its end decides under a lock.
3. The end of the process is the end of it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from contextlib import suppress

from rowlock.errors import RowlockError, StoreUnavailable
from rowlock.job import Beat, Lease
from rowlock.lifecycle import Outcome
from rowlock.store import Settlement
from rowlock.store.ops.settle import Missed, settle
from rowlock.worker.beats import Beats
from rowlock.worker.fallback import fallback
from rowlock.worker.ledger import Ledger
from rowlock.worker.report import RunSettlement, fields_of, report, report_lost, report_settled
from rowlock.worker.run import Cause, Run
from rowlock.worker.trouble import ServiceName, Trouble

logger: logging.Logger = logging.getLogger("rowlock.worker")


class Leftovers:
    """The runs that an engine has left behind."""

    def __init__(self, beats: Beats, *, ledger: Ledger, patience: float) -> None:
        """`patience`: seconds for which an outcome is kept while the database is away."""
        self._beats = beats
        self._ledger = ledger
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._runs: dict[tuple[str, int], Run] = {}
        # A ledger is not for several threads at once.
        self._guard = threading.Lock()

    def keep(self, run: Run) -> None:
        """Take over a run that goes on; nobody on the loop settles it any more."""
        self._runs[run.key] = run
        if run.leave_to(self):
            # It ended at this moment, and the loop was about to hear of it.
            self.settle_soon(run, run.outcome)
        elif run.guard is not None and run.limit is not None:
            self._time(run)

    @property
    def leases(self) -> list[Lease]:
        """Of the runs that go on."""
        return [run.lease for run in list(self._runs.values())]

    def _time(self, run: Run) -> None:
        """Its limit was watched by the loop."""
        assert run.limit is not None
        left = max(0.0, run.started_at + run.limit - time.monotonic())
        alarm = threading.Timer(left, run.time_out)
        alarm.name, alarm.daemon = "rowlock-limit", True
        alarm.start()

    def hear(self, lease: Lease, beat: Beat) -> bool:
        """What a beat found, in the beats' thread; whether it is about a run that is kept here."""
        run = self._runs.get((lease.id, lease.token))
        if run is None:
            return False
        cause = Cause.CANCEL if beat is Beat.CANCEL_REQUESTED else Cause.LOST
        if cause is Cause.LOST:
            report_lost([lease])
            self._beats.drop(lease)
        if run.task.is_async:
            # A loop that is closed has no more tasks to end.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(run.end, cause)
        else:
            run.end(cause)
        return True

    def settle_soon(self, run: Run, outcome: Outcome | None) -> None:
        """As `settle`, from anywhere. The process waits for it."""
        threading.Thread(target=self.settle, args=(run, outcome), name="rowlock-settle").start()

    def settle(self, run: Run, outcome: Outcome | None) -> None:
        """Write the outcome of a run that has ended; blocks, in the run's own thread."""
        try:
            if run.success is not None:
                done = RunSettlement(run.lease, run.success, seconds=run.seconds)
                report_settled(done, outcome)
                self._count(done)
            elif outcome is not None:
                self._write(run.settlement(outcome))
        except RowlockError as error:
            what = "job %s waits for its lease to expire: its outcome is not written: %s"
            logger.warning(what, run.lease.id, error, extra=fields_of(run.lease))
        finally:
            self._runs.pop(run.key, None)
            self._beats.drop(run.lease)
            if not self._runs:
                # The process waits for this thread, not for that of the beats; which must not be
                # cut off in the middle of closing its connections.
                self._beats.wait_over()

    def _write(self, settlement: Settlement) -> None:
        missed: Missed | None = None
        while missed is None:
            try:
                missed = self._send(settlement)
            except StoreUnavailable:
                raise
            except RowlockError as error:
                less = fallback(settlement, error)
                if less is None:
                    raise
                settlement = less
        if missed.lost:
            report_lost(missed.lost)
        else:
            report([settlement])
            self._count(settlement)

    def _send(self, settlement: Settlement) -> Missed:
        what = "the outcome of a job that outlasted its worker can't be written"
        trouble = Trouble(what, ServiceName.SETTLE, self._ledger.errors)
        pause, end = threading.Event(), time.monotonic() + self._patience
        while True:
            try:
                missed = self._beats.store.run(settle([settlement], chance=random.Random()))
            except StoreUnavailable as error:
                if time.monotonic() > end:
                    raise
                pause.wait(trouble.pause(error))
            else:
                trouble.over()
                return missed

    def _count(self, settlement: Settlement) -> None:
        with self._guard:
            self._ledger.settled([settlement])
            try:
                self._ledger.tell(self._beats.store)
                self._ledger.write(self._beats.store)
            except Exception as error:  # noqa: BLE001  # its outcome is written all the same
                logger.info("the history of a job that outlasted its worker: %s", error)
