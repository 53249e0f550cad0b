"""Runner: calls handlers. Coroutines run on the loop, plain functions in a thread, and either in a
process slot.

It returns an outcome, whatever the handler does, or None if the run was lost.

Before some handlers are called, one thing more must be true:

1. A run of an at-most-once job (`max_attempts=1`) or of a suspect is marked as begun by a committed
   write, fenced by its token, before its handler is called. Without the mark, anybody who finds its
   lease lost knows that the handler was not called.
2. A suspect, whose lease was lost twice in a row, runs with no other suspect beside it on this
   machine: when the whole machine or container goes down, only one of them can be blamed for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hashlib
import logging
import os
import socket
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Protocol, Self

from rowlock import config
from rowlock.context import Cancel, Context, TimedOut
from rowlock.errors import LeaseLost, PayloadInvalid, RowlockError
from rowlock.job import Lease, expiry_of
from rowlock.lifecycle import Outcome
from rowlock.store import NewJob, Store
from rowlock.store.blocks import Blocks
from rowlock.store.ops.hold import begin
from rowlock.task import Task
from rowlock.worker.progress import AsyncProgressWriter, BlockingProgressWriter
from rowlock.worker.report import note_limit, note_running
from rowlock.worker.run import RAISED, Cause, PayloadMisfit, Run, count_misfits, outcome_of, success
from rowlock.worker.slots import Slots, take_as_is
from rowlock.worker.transaction import RunBlock
from rowlock.worker.trouble import ServiceErrors
from rowlock.workflow import Find

logger: logging.Logger = logging.getLogger("rowlock.worker")

_IS_LINUX = sys.platform == "linux"

Prepare = Callable[[Any, dict[str, Any]], NewJob]


class Runner:
    """Runs the handlers of a process."""

    def __init__(
        self,
        store: Store,
        *,
        state: Any,
        prepare: Prepare,
        find: Find,
        threads: int,
        slots: Slots | None = None,
        lease_seconds: float = config.LEASE_SECONDS_DEFAULT,
        errors: ServiceErrors | None = None,
    ) -> None:
        self._store = store
        self._errors = errors
        self._state = state
        self._prepare = prepare
        self._find = find
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="rowlock-run")
        # Not the loop's threads: a block waits for its run's progress to be written, and handlers
        # may fill the loop's threads with calls that wait for that block.
        self._writers = ThreadPoolExecutor(config.NOTES_THREADS, thread_name_prefix="rowlock-notes")
        # In the order in which their runs began.
        self._notes: dict[AsyncProgressWriter, None] = {}
        self._slots = slots
        self._blocks = Blocks(store, lease_seconds=lease_seconds)

    def uses_slot(self, task: Task[..., Any]) -> bool:
        """Whether jobs of a task run in a process of their own."""
        return self._slots is not None and task.settings.executor == "process"

    async def run(self, run: Run) -> Outcome | None:
        """Run a job to its end, in a task of its own, because it changes the task's context."""
        note_running(run.lease)
        if run.in_slot:
            return await self._run_noted(run)
        if not run.task.is_async:
            return await self._run_in_thread(run)
        if run.task.schema.context_parameter is None:
            # Most tasks: the handler can't ask for more than its arguments.
            return await await_handler(run, None)
        return await self._run_noted(run)

    async def _run_in_thread(self, run: Run) -> Outcome | None:
        notes = None
        if run.task.schema.context_parameter is not None:
            notes = BlockingProgressWriter(self._store, run.lease, errors=self._errors)
            run.context = self._context(run, notes)
        run.guard_function()
        loop = asyncio.get_running_loop()
        alarm = None if run.limit is None else loop.call_later(run.limit, run.time_out)
        call = functools.partial(copy_context().run, _call, run, notes)
        try:
            outcome = await loop.run_in_executor(self._threads, call)
        finally:
            if alarm is not None:
                alarm.cancel()
        if notes is not None and not notes.is_written and run.cause is not Cause.LOST:
            # Not in the handler's thread, which another run may need.
            flush = functools.partial(loop.run_in_executor, self._writers, _flush, notes)
            await _flush_last(run, notes, flush)
        return outcome

    async def _run_noted(self, run: Run) -> Outcome | None:
        notes = AsyncProgressWriter(
            self._store, run.lease, threads=self._writers, errors=self._errors
        )
        self._notes[notes] = None
        context = run.context = self._context(run, notes)
        try:
            if run.in_slot:
                assert self._slots is not None
                outcome = await self._slots.run(run, context, notes)
            else:
                outcome = await await_handler(run, context)
        finally:
            self._notes.pop(notes, None)
            flush = functools.partial(notes.aflush, is_last=True)
            await _flush_last(run, notes, flush)
        return None if run.cause is Cause.LOST else outcome

    def _context(self, run: Run, notes: AsyncProgressWriter | BlockingProgressWriter) -> Context:
        """The context of a run's handler."""
        return Context(
            run.lease.job,
            state=self._state,
            notes=notes,
            signals=run,
            prepare=take_as_is if run.in_slot else self._prepare,
            block=functools.partial(RunBlock, run, notes=notes, blocks=self._blocks),
            find=self._find,
        )

    async def flush_notes(self) -> float:
        """Write the progress of running coroutines. Returns in how many seconds to do it again."""
        for notes in list(self._notes):
            await notes.aflush()
        if self._slots is not None:
            await self._slots.end_idle()
        return config.PROGRESS_SECONDS

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the slots, and start nothing more. Threads that do not stop are left."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._slots is not None:
            await self._slots.aclose()


async def _flush_last(
    run: Run,
    notes: AsyncProgressWriter | BlockingProgressWriter,
    flush: Callable[[], Awaitable[object]],
) -> None:
    """Write the last progress of a run. If it is cancelled here, its outcome still counts.

    It waits a little for a database that is away, but never beyond the run's time limit, and not
    when the worker is about to end.
    """
    end = time.monotonic() + config.NOTES_LAST_SECONDS
    if run.limit is not None:
        end = min(end, run.started_at + run.limit)
    try:
        await flush()
        while not notes.is_written:
            pause = config.PROGRESS_SECONDS
            if run.cause is not None or run.stopping or time.monotonic() + pause > end:
                logger.warning("job %s: its last progress and log lines are lost", run.lease.id)
                return
            await asyncio.sleep(pause)
            await flush()
    except asyncio.CancelledError:
        if run.cause is None:
            raise


def _flush(notes: BlockingProgressWriter) -> None:
    # Lost: another worker has the job now.
    with contextlib.suppress(LeaseLost):
        notes.flush()


def _call(run: Run, notes: BlockingProgressWriter | None) -> Outcome | None:
    """Run a plain function, in its thread."""
    outcome = call_handler(run, run.context)
    if run.cause is Cause.LOST:
        outcome = None
    elif notes is not None:
        _flush(notes)
    keeper = run.note_end(outcome)
    if keeper is not None:
        keeper.settle(run, outcome)
    return outcome


async def await_handler(run: Run, context: Context | None) -> Outcome | None:
    """Run a coroutine within its time limit. None if it was ended because its lease was lost."""
    home = os.getpid()
    try:
        return await _await_handler(run, context)
    finally:
        end_if_forked(home, run.lease.id)


async def await_rest(run: Run, rest: Awaitable[Any]) -> Outcome | None:
    """As `await_handler`, for a coroutine without a time limit whose first step was made."""
    home = os.getpid()
    try:
        return success(await rest)
    except (asyncio.CancelledError, *RAISED) as error:
        return outcome_of_error(error, run)
    finally:
        end_if_forked(home, run.lease.id)


async def _await_handler(run: Run, context: Context | None) -> Outcome | None:
    if run.limit is not None:
        return await _await_within(run.limit, run, context)
    try:
        return success(await run.task.function(**arguments_of(run.task, run.lease, context)))
    except (asyncio.CancelledError, *RAISED) as error:
        return outcome_of_error(error, run)


async def _await_within(seconds: float, run: Run, context: Context | None) -> Outcome | None:
    limit = asyncio.timeout(seconds)
    note_limit(limit)
    try:
        async with limit:
            result = await run.task.function(**arguments_of(run.task, run.lease, context))
        return success(result)
    except TimeoutError as error:
        if limit.expired():
            run.cause = Cause.TIMEOUT
            return run.outcome_of_cause()
        return _raised(error, run)
    except asyncio.CancelledError:
        return _cancelled(run)
    except RAISED as error:
        return _raised(error, run)


def outcome_of_error(error: BaseException, run: Run) -> Outcome | None:
    """The outcome of a coroutine that ended by this. None if its lease was lost."""
    return _cancelled(run) if isinstance(error, asyncio.CancelledError) else _raised(error, run)


def _cancelled(run: Run) -> Outcome | None:
    if run.cause is None:
        # Not from outside: it awaited something that was cancelled.
        return _raised(RuntimeError("what it waited for was cancelled"), run)
    return run.outcome_of_cause()


def _raised(error: BaseException, run: Run) -> Outcome:
    assert run.lease.row is not None
    return outcome_of(error, run.task, attempt=run.lease.row.attempt)


def call_handler(run: Run, context: Context | None) -> Outcome | None:
    """Run a plain function, in a thread or process of its own, where no signal interrupts it.

    Only its guard may, and not after this returns.
    """
    assert run.guard is not None
    home = os.getpid()
    try:
        arguments = arguments_of(run.task, run.lease, context)
        result = run.guard.call(run.task.function, arguments)
        return _raised(run.limit_error(), run) if run.is_late else success(result)
    except TimedOut as error:
        return _raised(_limit_passed(error, run), run)
    except asyncio.CancelledError:
        return _cancelled(run)
    except BaseException as error:  # noqa: BLE001  # whatever a handler raises is its outcome
        return _raised(error, run)
    finally:
        end_if_forked(home, run.lease.id)
        _abandon_block(run)


def _abandon_block(run: Run) -> None:
    """Undo a block that its function could not end, because it was interrupted right there."""
    if run.block is None:
        return
    try:
        run.block.abandon()
    except (RowlockError, OSError, sqlite3.Error) as error:
        logger.warning(
            "job %s: its transaction could not be rolled back cleanly: %s", run.lease.id, error
        )


def _limit_passed(error: TimedOut, run: Run) -> BaseException:
    """The error that the job gets, with the function's traceback.

    Unless the function has raised it by itself.
    """
    if run.cause is not Cause.TIMEOUT:
        return error
    limit = run.limit_error().with_traceback(error.__traceback__)
    # Keep what an instrumentation around the function has noted on it.
    limit.__dict__.update(error.__dict__)
    return limit


def end_if_forked(home: int, id: str) -> None:
    """End a process that the handler forked and that returned from it.

    It would live on beside this worker, with its name and its connections.
    """
    if os.getpid() != home:
        logger.error(
            "job %s: a process that its handler forked returned from the handler, and is ended: "
            "end such a process with os._exit()",
            id,
        )
        os._exit(1)


def arguments_of(task: Task[..., Any], lease: Lease, context: Context | None) -> dict[str, Any]:
    """The handler's typed arguments from the stored payload, with `context` if it takes one.

    Raises:
        Cancel: The job expired before it was claimed.
        PayloadMisfit: The payload does not fit the parameters.
    """
    assert lease.row is not None
    if (reason := expiry_of(lease.row)) is not None:
        raise Cancel(reason)
    schema = task.schema
    try:
        arguments = schema.arguments(lease.row.payload)
    except PayloadInvalid as error:
        job = lease.job
        misfits = count_misfits(job.errors, attempt=job.attempt)
        raise PayloadMisfit(error, misfits=misfits) from None
    if schema.context_parameter is not None:
        assert context is not None
        arguments[schema.context_parameter] = context
    return arguments


# Before some handlers are called


class Marker:
    """Marks runs as begun. Calls that come while a write is under way share the next one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = asyncio.Lock()
        self._waiting: dict[tuple[str, int], Lease] = {}
        self._answers: dict[tuple[str, int], bool] = {}

    async def mark(self, lease: Lease) -> bool:
        """Mark a run. False if its lease is lost."""
        key = (lease.id, lease.token)
        self._waiting[key] = lease
        try:
            async with self._turn:
                if key not in self._answers:
                    await self._write()
                return self._answers[key]
        finally:
            self._waiting.pop(key, None)
            self._answers.pop(key, None)

    async def _write(self) -> None:
        batch = {key: lease for key, lease in self._waiting.items() if key not in self._answers}
        held = await self._store.arun(begin(list(batch.values())))
        self._answers.update((key, key in held) for key in batch)


class RunLock(Protocol):
    """A lock that one of several processes holds while it runs a job."""

    def take(self) -> bool:
        """Whether it is ours now."""
        ...

    def is_taken(self) -> bool:
        """Whether another process holds it."""
        ...

    def free(self) -> None:
        """Let another have it."""
        ...


class SuspectLock:
    """Held by the one process of this machine that runs a suspect of this database.

    A socket of Linux's abstract namespace: no file is needed, the system frees it when the process
    dies, and containers that share a network share it. Elsewhere each process holds its own.
    """

    def __init__(self, store: Store) -> None:
        engine = store.engine
        place = f"{os.getuid()} {engine.address} {engine.schema}" if _IS_LINUX else ""
        self._name = "\0rowlock-suspect-" + hashlib.sha256(place.encode()).hexdigest()[:32]
        self._socket: socket.socket | None = None

    def take(self) -> bool:
        """Whether it is ours now."""
        if self._socket is not None or not _IS_LINUX:
            return True
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            bound.bind(self._name)
        except OSError as error:
            bound.close()
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        self._socket = bound
        return True

    def is_taken(self) -> bool:
        """Whether another process holds it."""
        is_ours = self._socket is not None
        is_free = self.take()
        if not is_ours:
            self.free()
        return not is_free

    def free(self) -> None:
        """Let another have it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
