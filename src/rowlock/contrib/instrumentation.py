"""Instrumentation of an app: blocks around each enqueue and each run of a handler.

The integrations of OpenTelemetry and Sentry use it. An app without any has no overhead.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rowlock.app import App
from rowlock.job import Lease
from rowlock.task import Instrumentation, Task
from rowlock.worker.report import is_overdue, running_lease


def install(app: App, instrumentation: Instrumentation) -> None:
    """Instrument every enqueue and run of an app from now on."""
    app.instrumentations.append(instrumentation)
    # A handler may call its own task, or another, as a plain function.
    inside: ContextVar[Lease | None] = ContextVar("rowlock_inside", default=None)
    app.surround(lambda task: _instrumented(task, instrumentation, inside))


def _instrumented(
    task: Task[..., Any], instrumentation: Instrumentation, inside: ContextVar[Lease | None]
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
            with _limited(instrumentation, lease):
                return await function(*args, **kwargs)

        return awaited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        lease = entered()
        if lease is None:
            return function(*args, **kwargs)
        with instrumentation.running(lease):
            return function(*args, **kwargs)

    return called


@contextmanager
def _limited(instrumentation: Instrumentation, lease: Lease) -> Iterator[None]:
    """Enter the block around a run. It sees a timeout, which cancels the handler, as an error."""
    cancelled: asyncio.CancelledError | None = None
    try:
        with instrumentation.running(lease):
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
