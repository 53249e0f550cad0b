"""The engine of a worker process: claims jobs, runs them in slots, settles them.

1. A lease is in `leases` from the moment the claim was answered until its outcome is written,
   given back or lost. Exactly these leases have a heartbeat.
2. A job starts only in a free slot, of the child and of its queue, and is leased only for one, or
   ahead of short jobs (`claims`). A job that waits too long in the buffer is given back, which
   isn't counted as an attempt. All are given back if this process was stopped for a lease.
3. A quarantined job (its process died before) runs alone: nothing starts until it has ended. Of
   several, a process keeps the first and gives the others back at once, for other processes.
4. The cause of a cancellation decides what the run is: released, cancelled, failed, or lost.
5. Jobs of blocks run in short turns of a task, each in a free slot, in the same order as all
   others. Only one turn is planned or under way at a time.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from rowlock import config
from rowlock.errors import Forbidden, RowlockError
from rowlock.job import Beat, Lease
from rowlock.lifecycle import Interrupted, NotBegun, Outcome, Released, Throttle
from rowlock.store import Settlement, Store
from rowlock.store.ops.claim import ID, ClaimedBlock
from rowlock.store.ops.recover import release_unknown
from rowlock.task import Tasks
from rowlock.worker import wire
from rowlock.worker.claims import Buffer, Capacity, Claimer, Leased, Load, Room
from rowlock.worker.counts import ProcessCounts
from rowlock.worker.job_blocks import BareSuccesses, BlockKinds, JobBlock, Suspended, run_block
from rowlock.worker.report import (
    RevokedSettlement,
    RunSettlement,
    fields_of,
    report_lost,
    report_settled,
)
from rowlock.worker.run import Cause, Run
from rowlock.worker.runner import Marker, Prepare, RunLock, Runner, SuspectLock, await_rest
from rowlock.worker.services import Notifications
from rowlock.worker.settings import WorkerSettings
from rowlock.worker.settler import Settler
from rowlock.worker.shared_memory import HeldLeases
from rowlock.worker.slots import Slots
from rowlock.worker.trouble import Act, ServiceName, Trouble, jittered, pause_for, repeat

if TYPE_CHECKING:
    from rowlock.worker.embedded import Leftovers

logger: logging.Logger = logging.getLogger("rowlock.worker")

# Outcomes of runs that did not finish their job's attempt.
_RETURNED = (Released, NotBegun, Interrupted, Throttle)


class WorkerEngine:
    """Runs jobs on the running event loop until it is stopped."""

    # A drain has found that nothing is left to be run.
    is_drained: bool = False
    # Why it has left, if it can't work on its database.
    unfit: RowlockError | None = None
    # Called once: when it has found nothing to do for the first time.
    on_idle: Callable[[], None] | None = None
    # Runs jobs of blocks. None: no turn is planned.
    _turn: asyncio.Task[None] | None = None
    # Whether a quarantined job runs now, and whether the last claim brought any.
    _is_alone: bool = False
    _has_met_quarantined: bool = False
    # When it has last claimed, and when it has asked for what is not answered yet.
    _claimed_at: float = 0.0
    _asked_at: float | None = None

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        *,
        worker: str,
        settings: WorkerSettings,
        leases: HeldLeases,
        state: Any,
        prepare: Prepare,
        on_news: Callable[[], None],
        counts: ProcessCounts,
        app: str | None = None,
        suspect_lock: RunLock | None = None,
        leftovers: Leftovers | None = None,
    ) -> None:
        self._store, self._tasks, self._leases = store, tasks, leases
        self._worker, self._settings = worker, settings
        self._buffer = Buffer(strict=settings.strict_queues)
        # By id and token: a run that lost its lease may go on while its job is run again here.
        self._running: dict[tuple[str, int], Run] = {}
        self._capacity = Capacity(settings, running=self._running, buffer=self._buffer)
        self._quarantined: set[tuple[str, int]] = set()
        self._marker = Marker(store)
        self._suspect_lock = SuspectLock(store) if suspect_lock is None else suspect_lock
        # Our leases, until their outcomes are written. No others under our name are ours.
        self._known: set[tuple[str, int]] = set()
        self._block_kinds = BlockKinds(tasks)
        self._claimer = Claimer(
            store, tasks, worker=worker, settings=settings, block_kinds=self._block_kinds
        )
        self._context = contextvars.copy_context()
        self._wake, self._idle = asyncio.Event(), asyncio.Event()
        self._notifications = Notifications(
            store,
            queues=settings.queues,
            wake=self._wake.set,
            hint=self._claimer.hint,
            on_news=on_news,
            errors=counts.errors,
        )
        self._chance = Random()
        self.stopping: asyncio.Event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._tidied_at = time.monotonic()
        self._finished = self._settles = 0
        self._grace_seconds = settings.grace_seconds
        self._winding_since = 0.0
        # Where runs go that do not end with this engine; without, their process is ended.
        self._leftovers = leftovers
        self._counts = counts
        self.settler: Settler = Settler(
            store,
            counts=counts,
            lease=settings.lease_seconds,
            on_settled=self._on_settled,
            on_settled_bare=self._on_settled_bare,
        )
        self._runner = Runner(
            store,
            state=state,
            prepare=prepare,
            find=tasks.find,
            threads=settings.concurrency,
            slots=Slots.for_app(app, wire.home_of(store, settings)),
            lease_seconds=settings.lease_seconds,
            errors=counts.errors,
        )
        self._trouble = Trouble("jobs can't be claimed", ServiceName.CLAIM, counts.errors)
        self._failing = Trouble("the engine has failed", ServiceName.ENGINE, counts.errors)

    # Calls from outside, all of them on the loop.

    def stop(self) -> None:
        """Claim nothing more. End when the running jobs have, or when the grace is over."""
        self.stopping.set()
        self._wake.set()
        for run in self._running.values():
            run.stop_soon()

    def leave(self, error: RowlockError) -> None:
        """As `stop`, because this worker can't work on its database any more."""
        if self.unfit is None:
            self.unfit = error
            self.stop()

    def stop_at_once(self) -> None:
        """As `stop`, without any grace."""
        self._grace_seconds = 0.0
        # It may be waiting for the end of a grace already.
        self._idle.set()
        self.stop()

    def cancel(self, id: str) -> None:
        """Cancel a job: a heartbeat or a notification brought the request."""
        for run in [run for run in self._running.values() if run.lease.id == id]:
            if run.cause is None and not run.is_settled:
                if not run.in_slot:
                    deadline = time.monotonic() + config.CANCEL_GRACE_SECONDS
                    self._leases.must_end_by(run.lease, deadline)
                run.end(Cause.CANCEL)
        for run in self._buffer.of(id):
            # With the flag set, a release ends it as cancelled.
            self._give_back(run)

    def lose(self, id: str, token: int) -> None:
        """End a run and record nothing: a heartbeat found that another worker has its job."""
        running = self._running.get((id, token))
        for run in [running] if running is not None else self._buffer.of(id, token):
            # A run that commits its own success finds out by itself, or has just settled it.
            if not run.is_settling:
                report_lost([run.lease])
                self._counts.lost([run.lease])
                self._leases.lose(run.lease)
                run.end(Cause.LOST)
                if run is not running:
                    self._leave_buffer(run)
                    self._known.discard(run.key)
                    self._wake.set()

    # Running

    @property
    def running(self) -> int:
        """How many jobs are running."""
        return len(self._running)

    def load(self) -> Load:
        """Which slots are taken."""
        return self._capacity.load()

    @property
    def good_at(self) -> float:
        """When it could last claim. Now, if it has no need to."""
        if self._trouble.is_on:
            return self._claimed_at
        return time.monotonic() if self._asked_at is None else self._asked_at

    async def run(self) -> int:
        """Serve until `stop`, or until nothing is left in a drain.

        Returns how many plain functions are still running: they stop only with their process.
        """
        async with asyncio.TaskGroup() as services, self._runner:
            settling = services.create_task(self.settler.run())
            listening = services.create_task(self._notifications.listen())
            what = "jobs that wait for a slot are not given back"
            tidying = services.create_task(self._repeat(self._tidy_on, what, ServiceName.BUFFER))
            looking = self._notifications.look_for_cancels(self._cancellable, self.cancel)
            cancelling = services.create_task(looking)
            flush, what = self._runner.flush_notes, "progress of running jobs is not written"
            flushing = services.create_task(self._repeat(flush, what, ServiceName.PROGRESS))
            await self._serve_until_stopped()
            tidying.cancel()
            listening.cancel()
            await self._wind_down()
            self.leave_behind()
            flushing.cancel()
            cancelling.cancel()
            self.settler.close(patience_seconds=self._grace_left())
            await settling
        if not self._running:
            await self._give_all_back()
        return len(self._running)

    async def _serve_until_stopped(self) -> None:
        """Claim until stopped, whatever goes wrong. Running jobs continue meanwhile."""
        while True:
            try:
                return await self._claim_until_stopped()
            except Exception as error:  # noqa: BLE001  # an odd error must not end what runs
                # Some of the last claim's leases may not be known here.
                self._claimer.doubt()
                await pause_for(self.stopping, self._failing.pause(error))

    async def _claim_until_stopped(self) -> None:
        while not self.stopping.is_set():
            self._wake.clear()
            room = self._room()
            if room is None:
                if self._is_worn_out():
                    return
                await self._wake.wait()
                continue
            settles = self._settles
            if await self._claim(room) != 0:
                continue
            if self.on_idle is not None and self._is_empty():
                tell, self.on_idle = self.on_idle, None
                tell()
            if self._settings.is_drain and self._is_empty() and settles == self._settles:
                self.is_drained = True
                return
            await self._rest()

    def _is_worn_out(self) -> bool:
        """Whether it has run its maximum of jobs, and its last ones have ended."""
        most = self._settings.max_jobs
        done = self._finished + self.settler.refused
        return most is not None and done >= most and self._is_empty()

    def _room(self) -> Room | None:
        """How many more jobs to lease. None: no more for now."""
        # Back-pressure: outcomes that can't be written must not pile up.
        if self._quarantined or self.settler.is_behind:
            return None
        most = self._settings.max_jobs
        if most is not None:
            unwritten = self.settler.backlog + self.settler.refused
            most -= self._finished + unwritten + len(self._running) + len(self._buffer)
        room = self._capacity.room(is_mixed=self._claimer.is_mixed, most=most)
        if self._has_met_quarantined:
            # More of them are likely to be next, and only one could be kept.
            room = room._replace(free=min(1, room.free), total=min(1, room.total))
        return room if room.total > 0 else None

    async def _claim(self, room: Room) -> int:
        asked_at = self._asked_at = time.monotonic()
        try:
            leased = await self._claimer.claim(
                room, known=self._known, sleep=partial(pause_for, self.stopping)
            )
            if leased and time.monotonic() - asked_at > self._settings.lease_seconds:
                leased = await self._still_held(leased)
        except Exception as error:  # noqa: BLE001  # whatever the database or a driver says
            self._claimer.doubt()
            await pause_for(self.stopping, self._trouble.pause(error))
            self._leave_if_forbidden(error)
            return -1
        finally:
            self._asked_at = None
        self._claimed_at = time.monotonic()
        self._trouble.over()
        self._capacity.lease(leased)
        for lease in leased.leases:
            self._take(lease)
        for block in leased.blocks:
            self._take_block(block)
        self._has_met_quarantined = bool(self._quarantined)
        if self._quarantined:
            self._return_quarantined()
        if self._notifications.came_at >= asked_at:
            # It may have been about one of these, before it was known here.
            self._notifications.came.set()
        self._dispatch()
        self._failing.over()
        rows = [lease.row for lease in leased.leases]
        if any(row is not None and row.max_attempts == 1 for row in rows):
            self._return_leased_ahead()
        return len(leased)

    def _return_leased_ahead(self) -> None:
        """Give back at-most-once jobs that have no free slot: they are not leased ahead."""
        for run in [each for each in self._buffer if each.is_at_most_once]:
            self._claimer.lease_for_slots_only(run.task.name)
            self._give_back(run)

    def _return_quarantined(self) -> None:
        """Give back the jobs that must run alone, except the next one: others can run them."""
        if any(run.is_suspect for run in self._buffer.alone) and self._suspect_lock.is_taken():
            for run in [run for run in self._buffer.alone if run.is_suspect]:
                self._return_suspect(run)
        for run in self._buffer.alone[1:]:
            self._give_back(run)

    def _return_suspect(self, run: Run) -> None:
        """Give a suspect back: another process of this machine runs one. It is tried again later.

        Suspects that were given back together come back one by one, or each turn would be one's.
        """
        self._give_back(run, delay=config.SUSPECT_WAIT_SECONDS * self._chance.uniform(0.5, 1.5))

    async def _still_held(self, leased: Leased) -> Leased:
        """Of leases whose claim was answered so late that they may be over, those still ours."""
        leases = leased.one_by_one()
        beats = await self._store.aheartbeat(leases, lease=self._settings.lease_seconds)
        held = [lease for lease, beat in zip(leases, beats, strict=True) if beat is not Beat.LOST]
        return Leased(held)

    def _take(self, lease: Lease) -> None:
        assert lease.row is not None
        task = self._tasks.find(lease.row.kind)
        assert task is not None, "only kinds that are known are claimed"
        self._leases.hold(lease)
        self._known.add((lease.id, lease.token))
        run = Run(lease, task, in_slot=self._runner.uses_slot(task))
        if run.is_quarantined:
            self._quarantined.add(run.key)
        self._buffer.put(run)

    def _take_block(self, claimed: ClaimedBlock) -> None:
        task = self._tasks.find(claimed.lane.kind)
        assert task is not None, "only kinds that are known are claimed"
        held = self._leases.hold_block([row[ID] for row in claimed.rows], claimed.token)
        if held is None:
            for row in claimed.rows:
                self._take(claimed.lease_of(row))
            return
        block = JobBlock(claimed, task, held)
        self._known.update(block.keys)
        self._buffer.put(block)

    def _is_empty(self) -> bool:
        return not self._running and not self._buffer and not self.settler.backlog

    async def _rest(self) -> None:
        """Wait until there may be something to claim."""
        is_listening = self._notifications.is_listening
        poll = config.POLL_SECONDS_WITH_BELL if is_listening else config.POLL_SECONDS
        poll, due = jittered(poll, self._chance), self._claimer.due_in
        await pause_for(self._wake, poll if due is None else min(poll, due))

    def _leave_if_forbidden(self, error: Exception) -> None:
        """Leave if the role was never allowed to claim: a person has to grant it the rights."""
        has_waited = self._trouble.seconds >= self._settings.start_seconds
        if isinstance(error, Forbidden) and has_waited and not (self._finished or self._known):
            self.leave(error)

    def _dispatch(self) -> None:
        """Start what has a slot. If a block comes next, its turn is planned and starts the rest."""
        if self._turn is not None or not self._may_start():
            return
        while (coming := self._next()) is not None:
            if isinstance(coming, JobBlock):
                # A task of its own: that of the caller may belong to another job.
                context = self._context.copy()
                self._turn = self._loop.create_task(self._take_turn(), context=context)
                return
            self._start(coming)
        # Alone also in shared memory: any other lease there would be a suspect.
        if not self._running and not self.settler.backlog:
            self._start_alone()

    def _may_start(self) -> bool:
        """Whether anything may start. What is stale by now is given back."""
        if self.stopping.is_set() or not self._buffer or self._is_alone:
            return False
        if self._has_stood_still():
            self._tidy()
        return True

    def _next(self) -> Run | JobBlock | None:
        """What has a slot and is next: a run, which leaves the buffer, or a block, which stays."""
        if len(self._running) >= self._settings.concurrency:
            return None
        has_slot = self._capacity.has_slot if self._capacity.is_per_queue else None
        coming = self._buffer.pop(has_slot)
        if isinstance(coming, JobBlock) and coming.claimed.lane.kind not in self._block_kinds:
            self._buffer.take_apart(lambda block: block is coming)
            coming = self._buffer.pop(has_slot)
        return coming

    async def _take_turn(self) -> None:
        """Start what is next, and run jobs of blocks, for a moment.

        A handler that suspends keeps this task, and another turn is planned for the rest.
        """
        task, until = asyncio.current_task(), time.monotonic() + config.TURN_SECONDS
        assert task is not None
        suspended: Suspended | None = None
        try:
            while self._may_start() and (coming := self._next()) is not None:
                if isinstance(coming, JobBlock):
                    suspended = self._run_block(coming, until)
                    if suspended is not None or task.cancelling():
                        break
                else:
                    self._start(coming)
                if time.monotonic() >= until:
                    break
        finally:
            self._turn = None
            if suspended is not None:
                self._enter(suspended.run)
                suspended.run.handle = task
            self._look_around()
        if suspended is not None:
            await self._attend(suspended.run, suspended.rest)

    def _run_block(self, block: JobBlock, until: float) -> Suspended | None:
        """Run jobs of a block that is next, one if jobs of other queues wait as well."""
        first = block.next
        suspended: Suspended | None = None
        try:
            most = 1 if self._buffer.is_mixed else len(block)
            suspended = run_block(block, self, until=until, most=most)
        finally:
            if runs := block.next - first:
                self._buffer.began(block, runs)
                kind = block.claimed.lane.kind
                self._block_kinds.note(kind, runs=runs, has_suspended=suspended is not None)
        if suspended is None and block.held.is_revoked():
            self.give_back_revoked()
        return suspended

    def succeeded(self, done: BareSuccesses) -> None:
        """Have plain successes of a block written."""
        runs = len(done.seconds)
        self._capacity.note(done.block.queue, sum(done.seconds) / runs, runs)
        self.settler.put_bare(done)

    def ended(self, run: Run, outcome: Outcome | None) -> None:
        """Have the outcome of a job of a block written that is not a plain success."""
        self._enter(run)
        self._on_ended(run, outcome)

    def _start_alone(self) -> None:
        run = next(iter(self._buffer.alone), None)
        if run is None:
            return
        if run.is_suspect and not self._suspect_lock.take():
            self._return_suspect(run)
            return
        self._buffer.remove(run)
        self._is_alone = True
        self._start(run)

    def _start(self, run: Run) -> None:
        run.started_at = time.monotonic()
        self._enter(run)
        run.mark = self._mark if run.must_be_marked else None
        # The task that starts it may belong to another job, whose context it must not inherit.
        run.handle = self._loop.create_task(self._attend(run), context=self._context.copy())

    def _enter(self, run: Run) -> None:
        """Have a run take a slot."""
        self._running[run.key] = run
        if self._capacity.is_per_queue:
            self._capacity.start(run)
        run.stopping = self.stopping.is_set()
        run.on_settled = self._note_settled

    def _note_settled(self, lease: Lease) -> None:
        """Note that its own block has settled a run. Called in the handler's thread."""
        # A loop that ended before its thread holds no leases.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._leases.settle, lease)

    async def _attend(self, run: Run, rest: Awaitable[Any] | None = None) -> None:
        """Run one job, or the rest of it, to its end, and have its outcome written."""
        outcome: Outcome | None = None
        run.has_begun = True
        try:
            if rest is not None:
                outcome = await await_rest(run, rest)
            # A run that was ended before its first line has nothing to end.
            elif (run.cause is None and self._begin(run)) and (
                run.mark is None or run.in_slot or await run.begin()
            ):
                outcome = await self._runner.run(run)
            else:
                outcome = run.outcome_before_start()
        except asyncio.CancelledError:
            # The loop ends, and this task with it, but no thread does.
            if self._leftovers is not None and run.guard is not None and run.keeper is None:
                self._leftovers.keep(run)
            raise
        finally:
            if run.keeper is None:
                self._on_ended(run, outcome)
            elif run.guard is None:
                # A coroutine, or one in a process slot.
                run.keeper.settle_soon(run, outcome)

    async def _mark(self, run: Run) -> bool:
        """Mark a run as begun. Returns whether its handler may be called."""
        try:
            is_held = await self._marker.mark(run.lease)
        except asyncio.CancelledError:
            if run.cause is None:
                raise
            return False
        except Exception as error:  # noqa: BLE001  # whatever it is, the handler was not called
            logger.warning(
                "job %s is given back: its run can't be marked as begun: %s",
                run.lease.id,
                error,
                extra=fields_of(run.lease),
            )
            return False
        if not is_held:
            self.lose(run.lease.id, run.lease.token)
        if run.cause is not None:
            return False
        run.started_at = time.monotonic()
        if not run.in_slot:
            self._leases.start(run.lease, deadline=_deadline(run.started_at, run.limit))
        return True

    def _begin(self, run: Run) -> bool:
        """Note that a run begins. False if it must not: another worker may have its job by now."""
        # It may have waited for another job that blocked the loop.
        run.started_at = time.monotonic()
        if run.limit is None:
            run.is_begun = self._leases.start(run.lease)
            return run.is_begun
        # A process slot is killed alone, without this process. The deadline of a run that must be
        # marked as begun counts from the mark.
        limit = None if run.in_slot or run.must_be_marked else run.limit
        # Its own timeout comes first. The deadline is for a run that does not stop.
        deadline = _deadline(run.started_at, limit)
        run.is_begun = self._leases.start(run.lease, deadline=deadline)
        return run.is_begun

    def _on_ended(self, run: Run, outcome: Outcome | None) -> None:
        lease = run.lease
        del self._running[run.key]
        if run.is_quarantined:
            self._quarantined.discard(run.key)
            self._is_alone = False
            self._suspect_lock.free()
        took = time.monotonic() - run.started_at if run.is_begun else None
        self._capacity.end(run, seconds=took)
        if run.success is not None:
            settlement = RunSettlement(lease, run.success, seconds=took)
            self._counts.settled([settlement])
            report_settled(settlement, outcome)
            self._on_settled([settlement])
        elif not run.is_begun and isinstance(outcome, NotBegun):
            self._release(run)
        elif outcome is None:
            self._leases.drop(lease)
            self._known.discard((lease.id, lease.token))
        else:
            self._leases.end(lease)
            self.settler.put(run.settlement(outcome))
        self._look_around()

    def _look_around(self) -> None:
        """Some runs have ended: start others, and claim if there are few."""
        self._dispatch()
        if not self._running:
            self._idle.set()
        if len(self._running) + len(self._buffer) <= self._capacity.hungry_below:
            self._wake.set()

    def _on_settled_bare(self, done: BareSuccesses) -> None:
        done.drop()
        token = done.block.claimed.token
        self._known.difference_update([(row[ID], token) for row in done.rows])
        self._count_settled(len(done.seconds))

    def _on_settled(self, settlements: list[Settlement]) -> None:
        for lease in [settlement.lease for settlement in settlements]:
            self._leases.drop(lease)
            self._known.discard((lease.id, lease.token))
        finished = sum(not isinstance(each.outcome, _RETURNED) for each in settlements)
        self._count_settled(finished)

    def _count_settled(self, finished: int) -> None:
        # A success may have brought jobs that a claim before it did not see.
        self._settles += 1
        self._finished += finished
        self._leases.count_finished(self._finished)
        self._dispatch()
        self._wake.set()

    def _cancellable(self) -> list[str]:
        """The jobs that may have a request to cancel."""
        running = [run.lease.id for run in self._running.values() if not run.cause]
        return [*running, *self._buffer.ids()]

    async def _repeat(self, act: Act, what: str, service: ServiceName) -> None:
        await repeat(act, Trouble(what, service, self._counts.errors))

    async def _tidy_on(self) -> float:
        """Give back jobs that have waited too long for a slot."""
        self._tidy()
        return config.PREFETCH_STALE_SECONDS / 2

    def _tidy(self) -> None:
        is_doubtful = self._has_stood_still()
        self._tidied_at = time.monotonic()
        stale = self._tidied_at - config.PREFETCH_STALE_SECONDS
        self._buffer.take_apart(lambda block: is_doubtful or block.claimed_at < stale)
        # The one that must run alone waits until nothing else runs.
        for run in list(self._buffer):
            if is_doubtful or (run.claimed_at < stale and not run.is_quarantined):
                self._capacity.distrust(run.queue)
                self._give_back(run)

    def _has_stood_still(self) -> bool:
        """Whether this process did nothing for a whole lease: other workers may have our jobs."""
        return time.monotonic() - self._tidied_at > self._settings.lease_seconds

    def _give_back(self, run: Run, *, delay: float | None = None) -> None:
        """Give a run back from the buffer: it is not started."""
        self._leave_buffer(run)
        self._release(run, delay=delay)

    def _release(self, run: Run, *, delay: float | None = None) -> None:
        wait = None if delay is None else round(delay * config.SECOND_US)
        is_revoked = self._leases.is_revoked(run.lease)
        kind = RevokedSettlement if is_revoked else Settlement
        self.settler.put(kind(run.lease, NotBegun(wait)))

    def give_back_revoked(self) -> None:
        """Drop the runs that the supervisor has given back while the loop was blocked."""
        self._buffer.take_apart(lambda block: block.held.is_revoked())
        for run in list(self._buffer):
            if self._leases.is_revoked(run.lease):
                self._give_back(run)

    def _leave_buffer(self, run: Run) -> None:
        self._buffer.remove(run)
        self._quarantined.discard(run.key)

    # Ending

    async def _wind_down(self) -> None:
        """Give back what has not started, let the rest finish within the grace, then end it."""
        self._buffer.take_apart(lambda _: True)
        for run in list(self._buffer):
            self._give_back(run)
        self._winding_since = time.monotonic()
        # Read again in every turn: the grace may be cut short.
        await self._wait_idle(lambda: self._winding_since + self._grace_seconds)
        for run in self._running.values():
            run.end(Cause.STOP)
        end = time.monotonic() + config.STOP_SECONDS
        await self._wait_idle(lambda: end)

    def _grace_left(self) -> float:
        return max(0.0, self._winding_since + self._grace_seconds - time.monotonic())

    def leave_behind(self) -> None:
        """Hand over the runs that continue: this engine does not settle them any more."""
        if self._leftovers is not None:
            for run in self._running.values():
                if run.keeper is None:
                    self._leftovers.keep(run)

    async def _wait_idle(self, until: Callable[[], float]) -> None:
        while self._running and (left := until() - time.monotonic()) > 0:
            self._idle.clear()
            await pause_for(self._idle, left)

    async def _give_all_back(self) -> None:
        """Give back leases under this worker's name that came from a claim without an answer.

        Leases of runs whose outcome could not be stored are left to expire, which leaves a trace.
        """
        try:
            await self._store.arun(release_unknown(self._worker, known=self.settler.given_up))
        except Exception as error:  # noqa: BLE001  # its jobs have ended well anyway
            logger.warning("leases of worker %s are left to expire: %s", self._worker, error)


def _deadline(started_at: float, limit: float | None) -> float | None:
    """When a run with a time limit that does not stop is ended together with its process."""
    return None if limit is None else started_at + limit + config.TIMEOUT_GRACE_SECONDS
