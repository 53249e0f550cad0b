"""What a handler sees of its run, and the exceptions by which it steers."""

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


class Release(Exception):
    """Raise to give the job back, uncounted; it runs again after `delay` (default 1 s)."""

    def __init__(
        self, delay: float | timedelta = RELEASE_SECONDS_DEFAULT, reason: str | None = None
    ) -> None:
        self.delay_us: int = duration_us(delay, option="delay")
        self.reason = reason
        super().__init__(reason or "released")


class Fail(Exception):
    """Raise to fail for good: no more attempts, the job is dead."""


class Cancel(Exception):
    """Raise to end the job as cancelled.

    It is also raised in a plain function when somebody cancels its job, once, at any line. One
    that catches it and returns has succeeded.
    """


class TimedOut(BaseException):
    """Raised in a plain function that has passed its `timeout`, once, at any line.

    Clean up and let it go on: the run has failed, whatever the function does. It is no `Exception`
    and no `TimeoutError`, so that code that goes on after the errors of others does not catch it.
    """

    def __init__(self, message: str = "the run has passed its time limit") -> None:
        super().__init__(message)


class Notes(Protocol):
    """Where a run's progress and log lines go; never blocks an event loop."""

    def progress(self, fraction: float, text: str) -> None: ...
    def log(self, line: str) -> None: ...


class Signals(Protocol):
    """What the run is told from outside."""

    @property
    def cancel_requested(self) -> bool: ...
    @property
    def stopping(self) -> bool: ...
    @property
    def is_settled(self) -> bool:
        """Whether a block has committed its success."""
        ...


class Transaction:
    """What a handler holds inside `ctx.transaction()`, and not for longer."""

    def __init__(self, job_id: str, connection: Any) -> None:
        self._job_id = job_id
        self._connection = connection
        self._result: Any = None
        self._is_over = False

    @property
    def connection(self) -> Any:
        """To the app's database, in a transaction. Committing it is not the handler's business.

        On PostgreSQL a psycopg `Connection` or `AsyncConnection`, on SQLite a
        `sqlite3.Connection`, in coroutines too. After the block it is somebody else's.
        """
        self._check_open()
        return self._connection

    @property
    def result(self) -> Any:
        """The job's result; what the function returns after the block is not stored."""
        return self._result

    @result.setter
    def result(self, result: Any) -> None:
        self._check_open()
        self._result = result

    def end(self) -> None:
        """What the block does at its end."""
        self._is_over = True

    def _check_open(self) -> None:
        if self._is_over:
            raise InvalidTransition(self._job_id, "the block of this transaction is over")


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
    """The running job. A parameter annotated with this class gets it; it is not in the payload.

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
    ) -> None:
        self._job = job
        self._state = state
        self._notes = notes
        self._signals = signals
        self._prepare = prepare
        self._block = block
        self._follow_ups: list[NewJob] = []
        # Whether its handler looks out for a request to cancel.
        self.has_looked: bool = False

    @property
    def job(self) -> Job:
        """The job as it was claimed."""
        return self._job

    @property
    def attempt(self) -> int:
        """Which attempt this is; 1 is the first."""
        return self._job.attempt

    @property
    def token(self) -> int:
        """The lease's token: it grows with every run, so it can fence side effects elsewhere."""
        return self._job.token

    @property
    def state(self) -> Any:
        """The app's own object: pools, clients, settings."""
        return self._state

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked to stop this job: clean up and raise `Cancel`.

        A run that returns all the same has succeeded. A coroutine gets `CancelledError` as well,
        a plain function `Cancel`, but for one that has looked here: if it does not stop, it gets
        that 5 s later.
        """
        self.has_looked = True
        return self._signals.cancel_requested

    @property
    def stopping(self) -> bool:
        """Whether the worker is shutting down; never in a drain."""
        return self._signals.stopping

    def progress(self, fraction: float, text: str = "") -> None:
        """Say how far it is, 0 to 1; at most two a second are stored, and the last one.

        Numbers beyond 0 and 1 are taken for those, and NaN for 0. Trouble with the database does
        not fail the job: what could not be stored is kept and tried again, until the run has ended.

        Raises:
            LeaseLost: In a plain function: another worker has the job now.
            OptionInvalid: `fraction` is not a number.
        """
        share = options.fraction(fraction, option="fraction")
        with shielded():
            self._notes.progress(share, str(text))

    def log(self, line: str) -> None:
        """Add a line to the job's log; at most 1,000 are kept. `app.store.read_log` reads them.

        What is not a string is turned into one. Trouble with the database does not fail the job:
        lines that could not be stored are kept and tried again, until the run has ended. A line
        whose answer was lost may be there twice.

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
            InvalidTransition: The success is committed already, by a block of `transaction()`.
        """
        if self._signals.is_settled:
            raise InvalidTransition(
                self._job.id,
                "its success is committed already: call enqueue_on_success inside the block",
            )
        with shielded():
            job = self._prepare(task, payload)
            self._follow_ups.append(job)
        return job

    def transaction(self) -> TransactionBlock:
        """A block whose writes and this job's success are committed together, or not at all.

        With it goes: what was written on its connection, jobs enqueued there
        (`task.using(conn=tx.connection)`), `tx.result`, and the jobs of `enqueue_on_success`.
        After the block the job has succeeded, whatever the function still does. A run has one.

        Raises:
            LeaseLost: By the end of the block the job was another's; nothing of it stays.
            StoreUnavailable: It could not be committed; on SQLite also when it took longer than a
                third of the lease.
            InvalidTransition: A second block, or one whose transaction was ended inside it.
            TypeError: `with` in a coroutine, or `async with` in a plain function.

        Example:
            with ctx.transaction() as tx:
                tx.connection.execute("UPDATE account SET balance = balance + 10 WHERE id = 1")
                tx.result = "paid"
        """
        if self._block is None:
            raise InvalidTransition(self._job.id, "its executor has no ctx.transaction()")
        return self._block(self)

    @property
    def follow_ups(self) -> tuple[NewJob, ...]:
        """The jobs that a success will enqueue."""
        return tuple(self._follow_ups)


# Stored as the type of an error: under the name that users know.
for _public in (Release, Fail, Cancel, TimedOut):
    _public.__module__ = "rowlock"
