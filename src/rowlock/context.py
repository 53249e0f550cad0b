"""The context of a run that a handler gets, and the exceptions that a handler raises."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol

from rowlock.clock import duration_us
from rowlock.config import RELEASE_SECONDS_DEFAULT
from rowlock.errors import InvalidTransition
from rowlock.interrupts import shielded
from rowlock.job import Job
from rowlock.store import NewJob, options
from rowlock.store.ops.workflows import Draft
from rowlock.workflow import Find, Growth


class Release(Exception):
    """Raise to give the job back without using an attempt. It runs again after `delay` (1 s)."""

    def __init__(
        self, delay: float | timedelta = RELEASE_SECONDS_DEFAULT, reason: str | None = None
    ) -> None:
        self.delay_us: int = duration_us(delay, option="delay")
        self.reason = reason
        super().__init__(reason or "released")


class Throttled(Exception):
    """Raise when a service asks to slow down, as with a 429. No attempt is used.

    No job of this job's key starts for `seconds`, on any worker, if it runs under a limit. Without
    one, only this job waits that long.
    """

    def __init__(self, seconds: float | timedelta, reason: str | None = None) -> None:
        self.delay_us: int = duration_us(seconds, option="seconds")
        self.reason = reason
        super().__init__(reason or "throttled")


class Fail(Exception):
    """Raise to fail permanently: the job is dead, whatever attempts are left."""


class Cancel(Exception):
    """Raise to end the job as cancelled.

    It is also raised in a plain function when its job is cancelled, once, at any line. A function
    that catches it and returns has succeeded.
    """


class TimedOut(BaseException):
    """Raised in a plain function that has passed its `timeout`, once, at any line.

    Clean up and let it propagate: the run has failed, whatever the function does. It is neither an
    `Exception` nor a `TimeoutError`, so that code that ignores errors of others does not catch it.
    """

    def __init__(self, message: str = "the run has exceeded its timeout") -> None:
        super().__init__(message)


def _knows_no_task(kind: str) -> None:
    return None


class Notes(Protocol):
    """Stores a run's progress and log lines, without blocking an event loop."""

    def progress(self, fraction: float, text: str) -> None: ...
    def log(self, line: str) -> None: ...


class Signals(Protocol):
    """The signals that a run gets from outside."""

    @property
    def cancel_requested(self) -> bool: ...
    @property
    def stopping(self) -> bool: ...
    @property
    def is_settled(self) -> bool:
        """Whether a block has committed its success."""
        ...


class Transaction:
    """The transaction inside `ctx.transaction()`. It is valid only within the block."""

    def __init__(self, job_id: str, connection: Any) -> None:
        self._job_id = job_id
        self._connection = connection
        self._result: Any = None
        self._is_over = False

    @property
    def connection(self) -> Any:
        """The connection to the app's database, in a transaction. The block commits it, not you.

        On PostgreSQL it is a psycopg `Connection` or `AsyncConnection`. On SQLite it is a
        `sqlite3.Connection`, in coroutines too. Don't use it after the block: it may belong to
        another run.
        """
        self._check_open()
        return self._connection

    @property
    def result(self) -> Any:
        """The job's result. What the function returns after the block is not stored."""
        return self._result

    @result.setter
    def result(self, result: Any) -> None:
        self._check_open()
        self._result = result

    def end(self) -> None:
        """End the block. After it, the connection can't be used."""
        self._is_over = True

    def _check_open(self) -> None:
        if self._is_over:
            raise InvalidTransition(self._job_id, "the block of this transaction has ended")


class TransactionBlock(Protocol):
    """For `with` in plain functions, for `async with` in coroutines."""

    def __enter__(self) -> Transaction: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    async def __aenter__(self) -> Transaction: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Context:
    """The running job. A parameter annotated with this class gets it. It is not in the payload.

    Example:
        @app.task
        def resize(ctx: Context, path: str) -> None:
            for done, size in enumerate(SIZES):
                ctx.progress(done / len(SIZES), f"{size} px")
    """

    def __init__(
        self,
        job: Job,
        *,
        state: Any,
        notes: Notes,
        signals: Signals,
        prepare: Callable[[Any, dict[str, Any]], NewJob],
        block: Callable[[Context], TransactionBlock] | None = None,
        find: Find = _knows_no_task,
    ) -> None:
        self._job = job
        self._state = state
        self._notes = notes
        self._signals = signals
        self._prepare = prepare
        self._block = block
        self._find = find
        self._follow_ups: list[NewJob] = []
        self._growth: Growth | None = None
        self._given_growth: Draft | None = None
        # Whether its handler checks for a cancel request.
        self.has_looked: bool = False

    @property
    def job(self) -> Job:
        """The job as it was claimed."""
        return self._job

    @property
    def attempt(self) -> int:
        """The number of this attempt. The first is 1."""
        return self._job.attempt

    @property
    def token(self) -> int:
        """The lease's token. It increases with every run, so you can fence external effects."""
        return self._job.token

    @property
    def state(self) -> Any:
        """The app's own object, for pools, clients and settings."""
        return self._state

    @property
    def cancel_requested(self) -> bool:
        """Whether the cancellation of this job was requested. Clean up and raise `Cancel`.

        A run that returns nevertheless has succeeded. A coroutine also gets `CancelledError`, and a
        plain function gets `Cancel`. A plain function that has read this property gets it 5 s
        later, if it does not stop.
        """
        self.has_looked = True
        return self._signals.cancel_requested

    @property
    def stopping(self) -> bool:
        """Whether the worker is shutting down. Always false in a drain."""
        return self._signals.stopping

    def progress(self, fraction: float, text: str = "") -> None:
        """Report progress, from 0 to 1. At most two reports per second are stored, and the last.

        Numbers outside are clamped to 0 and 1, and NaN counts as 0. A database error does not fail
        the job: progress that could not be stored is tried again until the run has ended.

        Raises:
            LeaseLost: In a plain function: another worker has the job now.
            OptionInvalid: `fraction` is not a number.
        """
        share = options.fraction(fraction, option="fraction")
        with shielded():
            self._notes.progress(share, str(text))

    def log(self, line: str) -> None:
        """Add a line to the job's log. At most 1,000 are kept. `app.store.read_log` reads them.

        Other objects are converted to strings. A database error does not fail the job: lines that
        could not be stored are tried again until the run has ended. If the database's answer was
        lost, a line may be stored twice.

        Raises:
            LeaseLost: In a plain function: another worker has the job now.
        """
        text = str(line)
        with shielded():
            self._notes.log(text)

    def enqueue_on_success(self, task: Any, /, **payload: Any) -> NewJob:
        """Enqueue a job if, and only if, this one succeeds. Checked now, written with the success.

        Args:
            task: A task, or `task.using(...)`.
            payload: Its arguments.

        Raises:
            InvalidTransition: A block of `transaction()` has already committed the success.
        """
        if self._signals.is_settled:
            raise InvalidTransition(
                self._job.id,
                "its success is already committed; call enqueue_on_success inside the block",
            )
        with shielded():
            job = self._prepare(task, payload)
            self._follow_ups.append(job)
        return job

    @property
    def workflow(self) -> Growth:
        """The workflow of this job, to add jobs to: `ctx.workflow.add(task.job(...))`.

        They are written if, and only if, this job succeeds. Jobs that wait for this job then also
        wait for the last of them. A job that belongs to no workflow begins one.
        """
        if self._growth is None:
            self._growth = Growth(self._find, self._job, lambda: self._signals.is_settled)
        return self._growth

    def transaction(self) -> TransactionBlock:
        """Open a block whose writes are committed together with this job's success, or not at all.

        The commit includes the writes on its connection, jobs enqueued there
        (`task.using(conn=tx.connection)`), `tx.result`, and the jobs of `enqueue_on_success`.
        After the block the job has succeeded, whatever the function still does. A run can open one
        block.

        Raises:
            LeaseLost: At the end of the block another worker had the job. Nothing is committed.
            StoreUnavailable: It could not be committed. On SQLite also if it took longer than a
                third of the lease.
            InvalidTransition: It is a second block, or its transaction was ended inside it.
            TypeError: `with` in a coroutine, or `async with` in a plain function.

        Example:
            with ctx.transaction() as tx:
                tx.connection.execute("UPDATE account SET balance = balance + 10 WHERE id = 1")
                tx.result = "paid"
        """
        if self._block is None:
            raise InvalidTransition(
                self._job.id, "its executor does not support ctx.transaction(); choose another"
            )
        return self._block(self)

    @property
    def follow_ups(self) -> tuple[NewJob, ...]:
        """The jobs that will be enqueued if this one succeeds."""
        return tuple(self._follow_ups)

    @property
    def growth(self) -> Draft | None:
        """The jobs that will be added to its workflow if it succeeds."""
        if self._given_growth is not None:
            return self._given_growth
        return None if self._growth is None else self._growth.finished()

    def grow(self, draft: Draft) -> None:
        """Take the jobs that its handler has added in another process."""
        self._given_growth = draft


# Errors are stored under the type name that users know.
for _public in (Release, Fail, Cancel, TimedOut):
    _public.__module__ = "rowlock"
