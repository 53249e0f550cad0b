"""A worker inside the caller's process: the same engine, without a supervisor's protection."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from rowlock import config
from rowlock.errors import RowlockError
from rowlock.ids import new_id
from rowlock.job import Beat, Lease
from rowlock.store import Store
from rowlock.task import Tasks
from rowlock.worker import signals
from rowlock.worker.beats import Beats
from rowlock.worker.engine import Engine
from rowlock.worker.household import Household
from rowlock.worker.ledger import Ledger, names_of
from rowlock.worker.leftovers import Leftovers
from rowlock.worker.runner import Prepare
from rowlock.worker.settings import WorkerSettings
from rowlock.worker.slots import find_app
from rowlock.worker.start import is_ready

logger: logging.Logger = logging.getLogger("rowlock.worker")


class EmbeddedWorker:
    """An engine on the running loop, whose leases are beaten for from a thread."""

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
        # As long as the jobs may go on, and what they did may be written: by then their leases are
        # lost, if the database is away.
        self._patience = settings.grace_seconds + settings.lease_seconds + 2 * config.STOP_SECONDS
        ledger = Ledger(names_of(tasks, settings.queues))
        self._beats = Beats(
            store,
            lease_seconds=settings.lease_seconds,
            on_beat=self._on_beat,
            errors=ledger.errors,
        )
        self.id: str = f"{socket.gethostname()[:60]}-{os.getpid()}-{new_id()[-12:]}"
        self._household = Household(store, tasks, worker=self.id, settings=settings, ledger=ledger)
        self._leftovers = Leftovers(
            self._beats, ledger=ledger, patience=settings.lease_seconds + config.STOP_SECONDS
        )
        self._start_seconds = settings.start_seconds
        self._is_ready = partial(is_ready, store, errors=ledger.errors)
        self._engine = Engine(
            store,
            tasks,
            worker=self.id,
            settings=settings,
            holdings=self._beats,
            state=state,
            prepare=prepare,
            on_news=self._household.hear,
            ledger=ledger,
            app=find_app(tasks),
            leftovers=self._leftovers,
        )
        self._household.watch(self._engine.load)
        self._household.on_unfit = self._engine.leave

    async def run(self) -> None:
        """Serve until stopped.

        Cancelled, however often, it stops as politely: what runs has its grace, and is settled.

        Raises:
            RowlockError: It can't work on the database as that is; the message says why.
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
            stopping=self._engine.stopping, tell=_tell_to_wait, start_seconds=self._start_seconds
        ):
            return
        async with self._beats, self._household.kept():
            try:
                await self._engine.run()
            finally:
                self._leave()
        if self._engine.unfit is not None:
            raise self._engine.unfit

    def _leave(self) -> None:
        """Have those that did not stop beaten for and settled; this worker is over."""
        self._engine.leave_behind()
        left = self._leftovers.leases
        self._beats.outlive(left)
        if left:
            what = "%d jobs did not stop: they go on, and are settled when they end"
            logger.warning(what, len(left))

    def stop(self) -> None:
        """Claim nothing more; `run` ends when the running jobs have, or the grace is over."""
        self._engine.stop()
        self._loop.call_later(self._patience, self._engine.settler.give_up)

    def stop_at_once(self) -> None:
        """As `stop`, without any grace, also when it is stopping already.

        Nor is a database waited for that is away.
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
        """Serve beside the block; its end stops the worker and waits for it.

        However long it takes until the database can be used: nobody would start it again.
        """
        self._start_seconds = math.inf
        service = asyncio.create_task(self.run())
        service.add_done_callback(_tell_failure)
        try:
            yield self
        finally:
            self.stop()
            with _calm():
                await service

    async def run_until_signalled(self) -> None:
        """Serve until a signal asks to stop; a second one ends the grace, a third one all."""
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
                    # Whatever a third one does to any program.
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

    Its scopes cancel a task in every turn of the loop until it ends: without this, a worker that
    has its grace would spend it spinning.
    """
    anyio: Any = sys.modules.get("anyio")
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)


def _tell_to_wait(error: RowlockError) -> None:
    logger.error("the worker in this process waits: %s", error)


def _tell_failure(service: asyncio.Task[None]) -> None:
    """At once, and not only when the block ends: until then nobody would know."""
    if not service.cancelled() and (error := service.exception()) is not None:
        logger.error("the worker in this process has ended", exc_info=error)
