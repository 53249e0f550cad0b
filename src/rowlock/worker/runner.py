"""Runner: calls a handler, a coroutine on the loop or a plain function in a thread.

What comes out of it is an outcome, whatever the handler does; None if the run was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rowlock import config
from rowlock.context import Context, Notes
from rowlock.errors import RowlockError
from rowlock.job import Lease
from rowlock.lifecycle import Outcome
from rowlock.store import NewJob, Store
from rowlock.task import Task
from rowlock.worker.notes import BlockingNotes, LoopNotes
from rowlock.worker.outcome import outcome_of, success
from rowlock.worker.run import Cause, Run

logger: logging.Logger = logging.getLogger("rowlock.worker")

Prepare = Callable[[Any, dict[str, Any]], NewJob]


class Runner:
    """Runs handlers; one for all slots of a process."""

    def __init__(self, store: Store, *, state: Any, prepare: Prepare, threads: int) -> None:
        self._store = store
        self._state = state
        self._prepare = prepare
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="rowlock-run")
        self._notes: dict[str, LoopNotes] = {}
        self._blocking: dict[str, BlockingNotes] = {}

    def context(self, run: Run) -> Context:
        """What the handler of a run may see; its notes are kept until it has ended."""
        notes: Notes
        if run.task.is_async:
            notes = self._notes[run.lease.id] = LoopNotes(self._store, run.lease)
        else:
            notes = self._blocking[run.lease.id] = BlockingNotes(self._store, run.lease)
        return Context(
            run.lease.job, state=self._state, notes=notes, signals=run, prepare=self._prepare
        )

    async def run(self, run: Run, context: Context) -> Outcome | None:
        """Run a job to its end."""
        if run.task.is_async:
            return await self._await(run, context, self._notes[run.lease.id])
        notes = self._blocking.pop(run.lease.id)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _call, run, context, notes)

    async def _await(self, run: Run, context: Context, notes: LoopNotes) -> Outcome | None:
        limit = asyncio.timeout(run.limit)
        try:
            async with limit:
                result = await run.task.function(**arguments_of(run.task, run.lease, context))
            return success(result)
        except TimeoutError as error:
            if limit.expired():
                run.cause = Cause.TIMEOUT
                return run.outcome_of_cause()
            return outcome_of(error, run.task, attempt=context.attempt)
        except asyncio.CancelledError:
            if run.cause is None:
                # Not from outside: something that it waited for was cancelled.
                other = RuntimeError("what it waited for was cancelled")
                return outcome_of(other, run.task, attempt=context.attempt)
            return run.outcome_of_cause()
        except Exception as error:  # noqa: BLE001  # whatever a handler raises is its outcome
            return outcome_of(error, run.task, attempt=context.attempt)
        finally:
            del self._notes[run.lease.id]
            await _flush(notes)

    async def flush_notes(self) -> None:
        """Write what coroutines say of their progress while they run; for ever."""
        while True:
            await asyncio.sleep(config.PROGRESS_SECONDS)
            for notes in list(self._notes.values()):
                await _flush(notes)

    def close(self) -> None:
        """Start nothing more; threads that do not stop are left."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def _flush(notes: LoopNotes) -> None:
    try:
        await notes.aflush()
    except RowlockError as error:
        logger.warning("progress is not stored: %s", error)


def _call(run: Run, context: Context, notes: BlockingNotes) -> Outcome | None:
    """Run a plain function, in its thread."""
    try:
        outcome: Outcome = success(run.task.function(**arguments_of(run.task, run.lease, context)))
    except Exception as error:  # noqa: BLE001  # whatever a handler raises is its outcome
        outcome = outcome_of(error, run.task, attempt=context.attempt)
    if run.cause is Cause.LOST:
        return None
    try:
        notes.flush()
    except RowlockError as error:
        logger.warning("job %s: its last progress is not stored: %s", run.lease.id, error)
    return outcome


def arguments_of(task: Task[..., Any], lease: Lease, context: Context) -> dict[str, Any]:
    """The handler's typed arguments, from the stored payload."""
    assert lease.row is not None
    arguments = task.schema.arguments(lease.row.payload)
    if task.schema.context_parameter is not None:
        arguments[task.schema.context_parameter] = context
    return arguments
