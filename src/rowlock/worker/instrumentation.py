"""Blocks around each enqueue and each run of a handler: instrumentation and middleware.

The integrations of OpenTelemetry and Sentry use it. An app without any has no overhead.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from rowlock.context import Cancel, Release, Throttled, TimedOut
from rowlock.job import Job, Lease
from rowlock.task import Instrumentation, Task, Tasks
from rowlock.worker.report import is_overdue, running_lease
from rowlock.worker.run import is_last

logger: logging.Logger = logging.getLogger("rowlock.worker")

# Returns the block around a run.
Running = Callable[[Lease], AbstractContextManager[object]]
# A run that ended with these has not failed.
NO_FAILURE = (Release, Throttled, Cancel, asyncio.CancelledError)


class Middleware:
    """Called around every run of a task's function. Derive from it, and override what you need.

    It is called where the function runs: in a child, a process slot, an embedded worker or a drain.
    For a coroutine that is the event loop, so don't block. If `before` raises, the function isn't
    called, and the run ends by that exception. What the other methods raise is only logged.

    Example:
        class Timing(rowlock.Middleware):
            def on_dead(self, job: rowlock.Job, error: BaseException) -> None:
                alert(f"{job.kind} {job.id}: {error}")


        app.add_middleware(Timing())
    """

    def before(self, job: Job) -> None:
        """Called before the function."""

    def after(self, job: Job, error: BaseException | None) -> None:
        """Called after the function, before the outcome is stored. The last one to be called.

        Args:
            error: The exception that ended it. None if it returned.
        """

    def on_failure(self, job: Job, error: BaseException) -> None:
        """Called if the run has failed. `Cancel`, `Release` and `Throttled` are no failures."""

    def on_retry(self, job: Job, error: BaseException) -> None:
        """Called after `on_failure`, if the job will be retried."""

    def on_dead(self, job: Job, error: BaseException) -> None:
        """Called after `on_failure`, if the job will be dead."""


def add_middleware(tasks: Tasks, middleware: Middleware) -> None:
    """Call a middleware around every run from now on."""

    @contextmanager
    def running(lease: Lease) -> Iterator[None]:
        job = lease.job
        middleware.before(job)
        ended: BaseException | None = None
        try:
            yield
        except BaseException as error:
            # The limit of a plain function, as its job will show it.
            ended = TimeoutError(str(error)) if isinstance(error, TimedOut) else error
            raise
        finally:
            _end(middleware, tasks.find(job.kind), job, ended)

    _surround(tasks, running)


def _end(
    middleware: Middleware, task: Task[..., Any] | None, job: Job, error: BaseException | None
) -> None:
    with _logged(middleware, job):
        if error is not None and not isinstance(error, NO_FAILURE):
            middleware.on_failure(job, error)
            if is_last(error, attempt=job.attempt, max_attempts=job.max_attempts, task=task):
                middleware.on_dead(job, error)
            else:
                middleware.on_retry(job, error)
    with _logged(middleware, job):
        middleware.after(job, error)


@contextmanager
def _logged(middleware: Middleware, job: Job) -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("job %s: %s has failed", job.id, type(middleware).__qualname__)


def install(tasks: Tasks, instrumentation: Instrumentation) -> None:
    """Instrument every enqueue and run of an app from now on."""
    tasks.instrumentations.append(instrumentation)
    _surround(tasks, instrumentation.running)


def _surround(tasks: Tasks, running: Running) -> None:
    # A handler may call its own task, or another, as a plain function.
    inside: ContextVar[Lease | None] = ContextVar("rowlock_inside", default=None)
    tasks.surround(lambda task: _instrumented(task, running, inside))


def _instrumented(
    task: Task[..., Any], running: Running, inside: ContextVar[Lease | None]
) -> Callable[..., Any]:
    function = task.function

    def entered() -> Lease | None:
        """Return the lease of the run, or None if this call is not a run."""
        lease = running_lease()
        is_run = lease is not None and lease.row is not None and lease.row.kind == task.name
        if not is_run or inside.get() is lease:
            return None
        inside.set(lease)
        return lease

    if task.is_async:

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            lease = entered()
            if lease is None:
                return await function(*args, **kwargs)
            with _limited(running, lease):
                return await function(*args, **kwargs)

        return awaited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        lease = entered()
        if lease is None:
            return function(*args, **kwargs)
        with running(lease):
            return function(*args, **kwargs)

    return called


@contextmanager
def _limited(running: Running, lease: Lease) -> Iterator[None]:
    """Enter the block around a run. It sees a timeout, which cancels the handler, as an error."""
    cancelled: asyncio.CancelledError | None = None
    try:
        with running(lease):
            try:
                yield
            except asyncio.CancelledError as error:
                if not is_overdue():
                    raise
                cancelled = error
                # The text of the job's own error.
                limit = lease.job.timeout
                raise TimeoutError(f"took longer than its limit of {limit:g} s") from None
    except TimeoutError:
        if cancelled is None:
            raise
        # The code that set the limit gets the original cancellation.
        raise cancelled from None


def texts_of(carrier: object) -> dict[str, str]:
    """Return the parts of a `meta` value that can be headers, because anyone can write `meta`."""
    if not isinstance(carrier, dict):
        return {}
    return {name: value for name, value in carrier.items() if isinstance(value, str)}
