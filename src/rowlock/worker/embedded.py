"""A worker inside the caller's process: the same engine, without a supervisor's protection.

Runs that outlast it (`Leftovers`) are kept until the last one has ended:

1. A run in a thread keeps its heartbeat until it ends, and then its outcome is written: by the
   thread itself, because the loop may be gone. So no other worker runs the job, now or later.
2. A run belongs to the worker or to `Leftovers`, never to both. Its end decides, under a lock.
3. The end of the process ends them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from rowlock import config
from rowlock.chance import CHANCE
from rowlock.errors import RowlockError, StoreUnavailable
from rowlock.ids import new_id
from rowlock.job import Beat, Lease
from rowlock.lifecycle import Outcome
from rowlock.store import Settlement, Store
from rowlock.store.ops.settle import Settled, settle
from rowlock.task import Tasks
from rowlock.worker import signals
from rowlock.worker.beats import Beats
from rowlock.worker.counts import ProcessCounts, names_of
from rowlock.worker.engine import WorkerEngine
from rowlock.worker.report import RunSettlement, fields_of, report, report_lost, report_settled
from rowlock.worker.run import Cause, Run
from rowlock.worker.runner import Prepare
from rowlock.worker.services import Services, is_ready
from rowlock.worker.settings import WorkerSettings
from rowlock.worker.settler import fallback
from rowlock.worker.slots import find_app
from rowlock.worker.trouble import ServiceName, Trouble, insist

logger: logging.Logger = logging.getLogger("rowlock.worker")


class EmbeddedWorker:
    """An engine on the running loop, with heartbeats from a thread."""

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        *,
        state: Any,
        prepare: Prepare,
        settings: WorkerSettings,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        # How long jobs may continue, and their outcomes be written. If the database is away, their
        # leases are lost by then.
        self._patience = settings.grace_seconds + settings.lease_seconds + 2 * config.STOP_SECONDS
        counts = ProcessCounts(names_of(tasks, settings.queues))
        self._beats = Beats(
            store,
            lease_seconds=settings.lease_seconds,
            on_beat=self._on_beat,
            errors=counts.errors,
        )
        self.id: str = f"{socket.gethostname()[:60]}-{os.getpid()}-{new_id()[-12:]}"
        self._services = Services(store, tasks, worker=self.id, settings=settings, counts=counts)
        self._leftovers = Leftovers(
            self._beats, counts=counts, patience=settings.lease_seconds + config.STOP_SECONDS
        )
        self._start_seconds = settings.start_seconds
        self._is_ready = partial(is_ready, store, errors=counts.errors)
        self._engine = WorkerEngine(
            store,
            tasks,
            worker=self.id,
            settings=settings,
            leases=self._beats,
            state=state,
            prepare=prepare,
            on_news=self._services.wake,
            counts=counts,
            app=find_app(tasks),
            leftovers=self._leftovers,
        )
        self._services.watch(self._engine.load)
        self._services.on_unfit = self._engine.leave

    async def run(self) -> None:
        """Serve until stopped.

        If cancelled, even repeatedly, it still stops gracefully: running jobs have their grace,
        and are settled.

        Raises:
            RowlockError: It can't work on the database in its present state. The message says why.
        """
        serving = asyncio.ensure_future(self._serve())
        cancelled: asyncio.CancelledError | None = None
        while not serving.done():
            try:
                with _calm():
                    await asyncio.wait({serving})
            except asyncio.CancelledError as error:
                if cancelled is None:
                    self.stop()
                cancelled = error
        if cancelled is not None:
            raise cancelled from (None if serving.cancelled() else serving.exception())
        serving.result()

    async def _serve(self) -> None:
        logger.info("worker %s runs in this process, without a supervisor", self.id)
        if not await self._is_ready(
            stopping=self._engine.stopping, tell=_log_waiting, start_seconds=self._start_seconds
        ):
            return
        async with self._beats, self._services.running():
            try:
                await self._engine.run()
            finally:
                self._leave()
        if self._engine.unfit is not None:
            raise self._engine.unfit

    def _leave(self) -> None:
        """Hand over the runs that did not stop. This worker is over."""
        self._engine.leave_behind()
        left = self._leftovers.leases
        self._beats.outlive(left)
        if left:
            what = "%d jobs did not stop: they continue, and are settled when they end"
            logger.warning(what, len(left))

    def stop(self) -> None:
        """Claim nothing more. `run` ends when the running jobs have, or when the grace is over."""
        self._engine.stop()
        self._loop.call_later(self._patience, self._engine.settler.give_up)

    def stop_at_once(self) -> None:
        """As `stop`, without any grace, also when it is stopping already.

        It does not wait for a database that is away.
        """
        self._engine.stop_at_once()
        self._engine.settler.give_up()

    def _on_beat(self, lease: Lease, beat: Beat) -> None:
        if self._leftovers.hear(lease, beat):
            return
        # A loop that is closed has no more runs to end.
        with suppress(RuntimeError):
            if beat is Beat.CANCEL_REQUESTED:
                self._loop.call_soon_threadsafe(self._engine.cancel, lease.id)
            else:
                self._loop.call_soon_threadsafe(self._engine.lose, lease.id, lease.token)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[EmbeddedWorker]:
        """Serve beside the block. Its end stops the worker and waits for it.

        It waits forever for a database that can be used: nothing would start the worker again.
        """
        self._start_seconds = math.inf
        service = asyncio.create_task(self.run())
        service.add_done_callback(_log_failure)
        try:
            yield self
        finally:
            self.stop()
            with _calm():
                await service

    async def run_until_signalled(self) -> None:
        """Serve until a signal. The second one ends the grace, the third one the process."""
        heeded, wishes = signals.heeded(), signals.Wishes()

        def let_go() -> None:
            for number in heeded:
                self._loop.remove_signal_handler(number)

        def hear() -> None:
            match wishes.hear():
                case signals.Wish.STOP:
                    self.stop()
                case signals.Wish.STOP_AT_ONCE:
                    self.stop_at_once()
                    # A third one has its usual effect.
                    let_go()
                case signals.Wish.ECHO:
                    pass

        for number in heeded:
            self._loop.add_signal_handler(number, hear)
        try:
            await self.run()
        finally:
            let_go()


def _calm() -> AbstractContextManager[object]:
    """A block that anyio does not cancel.

    Its scopes cancel a task in every turn of the loop until it ends. Without this, a worker would
    spend its grace in a busy loop.
    """
    anyio: Any = sys.modules.get("anyio")
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)


def _log_waiting(error: RowlockError) -> None:
    logger.error("the worker in this process waits: %s", error)


def _log_failure(service: asyncio.Task[None]) -> None:
    """Log it immediately, not only when the block ends: until then nobody would know."""
    if not service.cancelled() and (error := service.exception()) is not None:
        logger.error("the worker in this process has ended", exc_info=error)


class Leftovers:
    """The runs that an engine has left behind."""

    def __init__(self, beats: Beats, *, counts: ProcessCounts, patience: float) -> None:
        """`patience`: seconds for which an outcome is kept while the database is away."""
        self._beats = beats
        self._counts = counts
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._runs: dict[tuple[str, int], Run] = {}
        # A counts is not for several threads at once.
        self._guard = threading.Lock()

    def keep(self, run: Run) -> None:
        """Take over a run that continues. The loop does not settle it any more."""
        self._runs[run.key] = run
        if run.leave_to(self):
            # It ended at this moment, before the loop could settle it.
            self.settle_soon(run, run.outcome)
        elif run.guard is not None and run.limit is not None:
            self._time(run)

    @property
    def leases(self) -> list[Lease]:
        """The leases of the runs that continue."""
        return [run.lease for run in list(self._runs.values())]

    def _time(self, run: Run) -> None:
        """Watch its time limit, which the loop did before."""
        assert run.limit is not None
        left = max(0.0, run.started_at + run.limit - time.monotonic())
        alarm = threading.Timer(left, run.time_out)
        alarm.name, alarm.daemon = "rowlock-limit", True
        alarm.start()

    def hear(self, lease: Lease, beat: Beat) -> bool:
        """Act on a heartbeat, in the beats' thread. Returns whether the run is kept here."""
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
        """As `settle`, from any thread. The process waits for it."""
        threading.Thread(target=self.settle, args=(run, outcome), name="rowlock-settle").start()

    def settle(self, run: Run, outcome: Outcome | None) -> None:
        """Write the outcome of a run that has ended. Blocks, in the run's own thread."""
        try:
            if run.success is not None:
                done = RunSettlement(run.lease, run.success, seconds=run.seconds)
                report_settled(done, outcome)
                self._count(done)
            elif outcome is not None:
                self._write(run.settlement(outcome))
        except RowlockError as error:
            what = "job %s: its outcome is not written, its lease is left to expire: %s"
            logger.warning(what, run.lease.id, error, extra=fields_of(run.lease))
        finally:
            self._runs.pop(run.key, None)
            self._beats.drop(run.lease)
            if not self._runs:
                # The process waits for this thread, but not for that of the beats, which must not
                # be cut off while it closes its connections.
                self._beats.wait_over()

    def _write(self, settlement: Settlement) -> None:
        settled: Settled | None = None
        while settled is None:
            try:
                settled = self._send(settlement)
            except StoreUnavailable:
                raise
            except RowlockError as error:
                less = fallback(settlement, error)
                if less is None:
                    raise
                settlement = less
        if settled.lost:
            report_lost(settled.lost)
        else:
            report([settlement], settled.ended)
            self._count(settlement, settled)

    def _send(self, settlement: Settlement) -> Settled:
        what = "the outcome of a job that outlasted its worker can't be written"
        return insist(
            lambda: self._beats.store.run(settle([settlement], chance=CHANCE)),
            Trouble(what, ServiceName.SETTLE, self._counts.errors),
            patience_seconds=self._patience,
            rest=threading.Event().wait,
        )

    def _count(self, settlement: Settlement, settled: Settled | None = None) -> None:
        with self._guard:
            self._counts.settled([settlement], settled or Settled())
            try:
                self._counts.tell(self._beats.store)
                self._counts.write(self._beats.store)
            except Exception as error:  # noqa: BLE001  # its outcome is written anyway
                logger.info(
                    "the history of a job that outlasted its worker is not written: %s", error
                )
