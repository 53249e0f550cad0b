"""Drain: run the jobs that are ready in this process, one after the other, and return.

For tests and scripts. Plain functions run in the calling thread (`drain`) or in a thread
(`adrain`), coroutines on a loop. A time limit ends coroutines only. A plain function that takes
longer fails too, but not before it returns.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from rowlock import config
from rowlock.chance import CHANCE
from rowlock.columns import JobRow
from rowlock.context import Context, TransactionBlock
from rowlock.errors import InvalidTransition, LeaseLost, StoreRefused
from rowlock.ids import new_id
from rowlock.job import Beat, Lease
from rowlock.lifecycle import Interrupted, NotBegun, Outcome, Throttle
from rowlock.store import Settlement, Store
from rowlock.store.blocks import Blocks
from rowlock.store.ops.claim import LimitOf, claim
from rowlock.store.ops.hold import begin, cancel_requests
from rowlock.store.ops.rooms import KeysLook, look_at_keys
from rowlock.store.ops.settle import settle
from rowlock.store.options import LimitPlace
from rowlock.task import Task, Tasks
from rowlock.worker.beats import Beats
from rowlock.worker.claims import limit_of
from rowlock.worker.progress import AsyncProgressWriter, BlockingProgressWriter
from rowlock.worker.report import RunSettlement, report, report_settled, running
from rowlock.worker.run import RAISED, Cause, Run, outcome_of, success
from rowlock.worker.runner import Prepare, arguments_of
from rowlock.worker.settler import fallback
from rowlock.worker.transaction import RunBlock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """What to run: the queues (None: all), and at most how many jobs (None: all that are due)."""

    queues: Sequence[str] | None
    limit: int | None


class CoroutineRunner(Protocol):
    """Runs coroutines to their end: `asyncio.Runner`, or the framework's own runner."""

    def run(self, coro: Coroutine[Any, Any, T], /) -> T: ...


class ProcessDied(BaseException):
    """For tests: raised by `on_reached`, it ends the run as if the process had died there."""


class Drain:
    """Claims, runs and settles jobs of an app's tasks."""

    # Called at each step of a run: after-claim, after-handler, before-settle, after-settle.
    on_reached: Callable[[str, Lease], None] | None = None

    def __init__(
        self, store: Store, tasks: Tasks, *, state: Any, prepare: Prepare, request: DrainRequest
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._state = state
        self._prepare = prepare
        self.request: DrainRequest = request
        self._worker = f"drain-{socket.gethostname()[:80]}-{os.getpid()}-{new_id()}"
        self._runs: dict[str, Run] = {}
        self._beats = Beats(
            store, lease_seconds=config.LEASE_SECONDS_DEFAULT, on_beat=self._on_beat
        )
        self._done = 0
        # Whether the last claim sent jobs to the rooms of their limits, instead of leasing them.
        self._were_sent = False
        # How many claims in a row may give nothing. None: not known.
        self._claims_left: int | None = None
        # Limits with keys that were closed by a run, while others of theirs were leased.
        self._throttled: set[tuple[str | None, str | None]] = set()
        self._limits = [limit.declared for limit in tasks.declared_limits]
        self._blocks = Blocks(store, lease_seconds=config.LEASE_SECONDS_DEFAULT)

    def run(self) -> int:
        """Run the jobs that are ready, and return how many runs there were."""
        with self._beats, asyncio.Runner() as runner:
            try:
                self._run_all(runner)
            finally:
                runner.run(self._store.engine.aclose_loop())
        return self._done

    def _run_all(self, runner: CoroutineRunner) -> None:
        self._store.declare_limits(self._limits)
        while (leases := self._claim()) or self._goes_on():
            held = [self._hold(lease) for lease in leases]
            try:
                while held:
                    if self._is_wanted(held[0]):
                        self._run_one(held[0], runner)
                    self._let_go(held.pop(0))
            except ProcessDied:
                held.clear()
                raise
            finally:
                self._give_back(held)

    async def arun(self) -> int:
        """As `run`, on the running loop."""
        async with self._beats:
            await self._store.adeclare_limits(self._limits)
            while (leases := await self._aclaim()) or await self._agoes_on():
                held = [self._hold(lease) for lease in leases]
                try:
                    while held:
                        if await self._ais_wanted(held[0]):
                            await self._arun_one(held[0])
                        self._let_go(held.pop(0))
                except ProcessDied:
                    held.clear()
                    raise
                finally:
                    if held:
                        await asyncio.to_thread(self._give_back, held)
        return self._done

    def _hold(self, lease: Lease) -> Run:
        run = self._runs[lease.id] = Run(lease, self._task_of(lease))
        self._beats.hold(lease)
        return run

    def _let_go(self, run: Run) -> None:
        self._beats.drop(run.lease)
        del self._runs[run.lease.id]

    def _on_beat(self, lease: Lease, beat: Beat) -> None:
        run = self._runs.get(lease.id)
        if run is not None:
            run.cancel_requested = run.cancel_requested or beat is Beat.CANCEL_REQUESTED
            run.cause = Cause.LOST if beat is Beat.LOST else run.cause

    def _is_wanted(self, run: Run) -> bool:
        """Whether it was not cancelled, throttled or taken over while the runs before it ran."""
        if run.cause is Cause.LOST:
            return False
        is_throttled = _key_of(run) in self._throttled
        if not is_throttled and not self._store.run(cancel_requests([run.lease.id])):
            return not run.must_be_marked or bool(self._store.run(begin([run.lease])))
        # With the flag set, a release ends it as cancelled.
        _quietly_lost(lambda: self._store.settle([Settlement(run.lease, NotBegun())]))
        return False

    async def _ais_wanted(self, run: Run) -> bool:
        if run.cause is Cause.LOST:
            return False
        is_throttled = _key_of(run) in self._throttled
        if not is_throttled and not await self._store.arun(cancel_requests([run.lease.id])):
            if not run.must_be_marked:
                return True
            marked = await self._store.arun(begin([run.lease]))
            return bool(marked)
        await _aquietly_lost(self._store.asettle([Settlement(run.lease, NotBegun())]))
        return False

    def _claim(self) -> list[Lease]:
        leases = self._store.run(claim(self._store.local, **self._wanted()))
        self._claims_left = None if leases else self._claims_left
        return leases

    async def _aclaim(self) -> list[Lease]:
        leases = await self._store.arun(claim(self._store.local, **self._wanted()))
        self._claims_left = None if leases else self._claims_left
        return leases

    def _goes_on(self) -> bool:
        """Whether to claim again, though the last claim gave nothing."""
        if self._claims_left is None and self._may_wait_at_keys:
            self._count_claims(self._store.run(look_at_keys(self._tasks.kinds)))
        return self._is_next_claim()

    async def _agoes_on(self) -> bool:
        if self._claims_left is None and self._may_wait_at_keys:
            self._count_claims(await self._store.arun(look_at_keys(self._tasks.kinds)))
        return self._is_next_claim()

    @property
    def _may_wait_at_keys(self) -> bool:
        is_full = self.request.limit is not None and self._done >= self.request.limit
        return bool(self._limits) and not self._were_sent and not is_full

    def _count_claims(self, look: KeysLook) -> None:
        """A key is open that the last claim did not visit: claim until all have had their turn."""
        self._claims_left = look.keys // config.KEYS_VISITED_MIN + 1 if look.is_open else 0

    def _is_next_claim(self) -> bool:
        if self._were_sent:
            return True
        self._claims_left = (self._claims_left or 0) - 1
        return self._claims_left >= 0

    def _wanted(self) -> dict[str, Any]:
        # From now on, the database knows which keys are closed.
        self._throttled.clear()
        self._were_sent = False
        left = config.DRAIN_BATCH
        if self.request.limit is not None:
            left = min(left, self.request.limit - self._done)
        kinds = self._tasks.kinds
        return {
            "worker": self._worker,
            # With nothing left to run, claim from no queue.
            "queues": self.request.queues if left > 0 and kinds else [],
            "kinds": kinds,
            "limit": max(1, left),
            "policies": {task.name: task.known_policy() for task in self._tasks},
            "limits": {
                task.name: self._limit_of(task)
                for task in self._tasks
                if task.settings.limit is not None
            },
            "begun": False,
        }

    def _limit_of(self, task: Task[..., Any]) -> LimitOf:
        place = limit_of(task)

        def noted(row: JobRow) -> LimitPlace | None:
            self._were_sent = True
            return place(row)

        return noted

    def _note_throttle(self, run: Run, outcome: Outcome) -> None:
        if isinstance(outcome, Throttle) and run.lease.job.limit is not None:
            self._throttled.add(_key_of(run))

    def _give_back(self, held: list[Run]) -> None:
        """Give back jobs that were claimed and not run to their end. No attempt is counted."""
        if held and held[0].started_at:
            cut_short = Settlement(held[0].lease, Interrupted("the drain was interrupted"))
            _quietly_lost(lambda: self._store.settle([cut_short]))
        if held:
            self._store.release_worker(self._worker)
        for run in held:
            self._let_go(run)

    def _reached(self, point: str, run: Run) -> None:
        if self.on_reached is not None:
            self.on_reached(point, run.lease)

    def _run_one(self, run: Run, runner: CoroutineRunner) -> None:
        task = run.task
        self._reached("after-claim", run)
        run.started_at = time.monotonic()
        if task.is_async:
            notes = AsyncProgressWriter(self._store, run.lease)
            context = self._context(run, notes)
            outcome = runner.run(self._await(task, run, context, notes))
            self._reached("after-handler", run)
        else:
            blocking = BlockingProgressWriter(self._store, run.lease)
            context = self._context(run, blocking)
            outcome = self._call(run, context)
            self._reached("after-handler", run)
            _quietly_lost(blocking.flush)
        self._done += 1
        self._note_throttle(run, outcome)
        settlement = _settlement(run, outcome, context)
        self._reached("before-settle", run)
        if run.success is not None:
            report_settled(replace(settlement, outcome=run.success), outcome)
        else:
            _quietly_lost(lambda: self._settle(settlement))
        self._reached("after-settle", run)

    def _settle(self, settlement: Settlement) -> None:
        """Store an outcome, or the part of it that the database accepts."""
        try:
            settled = self._store.run(settle([settlement], chance=CHANCE))
        except StoreRefused as error:
            if (less := fallback(settlement, error)) is None:
                raise
            self._settle(less)
            return
        settled.raise_if_missed()
        report([settlement], settled.ended)

    async def _asettle(self, settlement: Settlement) -> None:
        try:
            settled = await self._store.arun(settle([settlement], chance=CHANCE))
        except StoreRefused as error:
            if (less := fallback(settlement, error)) is None:
                raise
            await self._asettle(less)
            return
        settled.raise_if_missed()
        report([settlement], settled.ended)

    async def _arun_one(self, run: Run) -> None:
        task = run.task
        self._reached("after-claim", run)
        run.started_at = time.monotonic()
        if task.is_async:
            notes = AsyncProgressWriter(self._store, run.lease)
            context = self._context(run, notes)
            outcome = await self._await(task, run, context, notes)
            self._reached("after-handler", run)
        else:
            blocking = BlockingProgressWriter(self._store, run.lease)
            context = self._context(run, blocking)
            outcome = await asyncio.to_thread(self._call, run, context)
            self._reached("after-handler", run)
            await asyncio.to_thread(_quietly_lost, blocking.flush)
        self._done += 1
        self._note_throttle(run, outcome)
        settlement = _settlement(run, outcome, context)
        self._reached("before-settle", run)
        if run.success is not None:
            report_settled(replace(settlement, outcome=run.success), outcome)
        else:
            await _aquietly_lost(self._asettle(settlement))
        self._reached("after-settle", run)

    def _task_of(self, lease: Lease) -> Task[..., Any]:
        task = self._tasks.find(lease.job.kind)
        assert task is not None, "only kinds that are known are claimed"
        return task

    def _context(self, run: Run, notes: BlockingProgressWriter | AsyncProgressWriter) -> Context:
        return Context(
            run.lease.job,
            state=self._state,
            notes=notes,
            signals=run,
            prepare=self._prepare,
            block=self._block(run, notes),
            find=self._tasks.find,
        )

    def _block(
        self, run: Run, notes: BlockingProgressWriter | AsyncProgressWriter
    ) -> Callable[[Context], TransactionBlock] | None:
        """Makes the handler's `ctx.transaction()`. None if there is none."""
        return functools.partial(RunBlock, run, notes=notes, blocks=self._blocks)

    def _call(self, run: Run, context: Context) -> Outcome:
        task, lease = run.task, run.lease
        try:
            with running(lease):
                result = task.function(**arguments_of(task, lease, context))
            if run.is_late:
                raise run.limit_error()
            return success(result)
        except RAISED as error:
            return outcome_of(error, task, attempt=lease.job.attempt)

    async def _await(
        self, task: Task[..., Any], run: Run, context: Context, notes: AsyncProgressWriter
    ) -> Outcome:
        lease = run.lease
        timeout = lease.job.timeout
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                with running(lease, limit):
                    arguments = arguments_of(task, lease, context)
                    handler = asyncio.ensure_future(task.function(**arguments))
                await _attend(handler, run, notes)
                return success(handler.result())
        except TimeoutError as error:
            if limit.expired():
                return run.limit_failure()
            return outcome_of(error, task, attempt=lease.job.attempt)
        except asyncio.CancelledError as error:
            if not run.cancel_requested:
                raise
            return outcome_of(error, task, attempt=lease.job.attempt)
        except RAISED as error:
            return outcome_of(error, task, attempt=lease.job.attempt)
        finally:
            await notes.aflush(is_last=True)


def _key_of(run: Run) -> tuple[str | None, str | None]:
    return (run.lease.job.limit, run.lease.job.limit_key)


async def _attend(handler: asyncio.Future[Any], run: Run, notes: AsyncProgressWriter) -> None:
    """Wait for a handler, write its progress meanwhile, and cancel it when asked to."""
    try:
        while not handler.done():
            await asyncio.wait({handler}, timeout=config.PROGRESS_SECONDS)
            if run.cancel_requested and not handler.done():
                handler.cancel()
                await asyncio.wait({handler})
            await notes.aflush()
    finally:
        if not handler.done():
            handler.cancel()
            await asyncio.wait({handler})


def _settlement(run: Run, outcome: Outcome, context: Context) -> Settlement:
    return RunSettlement(
        run.lease,
        outcome,
        context.follow_ups,
        context.growth,
        seconds=time.monotonic() - run.started_at,
    )


def _quietly_lost(action: Callable[[], None]) -> bool:
    """Ignore that a lease was lost meanwhile: another worker has the job. Nothing is recorded."""
    try:
        action()
    except (LeaseLost, InvalidTransition):
        return False
    return True


async def _aquietly_lost(action: Awaitable[None]) -> bool:
    try:
        await action
    except (LeaseLost, InvalidTransition):
        return False
    return True
