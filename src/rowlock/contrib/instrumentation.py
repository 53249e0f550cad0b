"""Instrumentation of an app: blocks around each enqueue and each run of a handler.

OpenTelemetry's and Sentry's integrations are such. An app without any pays nothing for it.
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
    """Instrument all that an app enqueues and runs, from now on."""
    app.instrumentations.append(instrumentation)
    # A handler may call its own task, or another's, as the function that it is.
    inside: ContextVar[Lease | None] = ContextVar("rowlock_inside", default=None)
    app.surround(lambda task: _surrounded(task, instrumentation, inside))


def _surrounded(
    task: Task[..., Any], instrumentation: Instrumentation, inside: ContextVar[Lease | None]
) -> Callable[..., Any]:
    function = task.function

    def entered() -> Lease | None:
        """The lease that this call is the run of, if it is one."""
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
    """The block around a run; a time limit, which cancels the handler, reaches it as an error."""
    cancelled: asyncio.CancelledError | None = None
    try:
        with instrumentation.running(lease):
            try:
                yield
            except asyncio.CancelledError as error:
                if not is_overdue():
                    raise
                cancelled = error
                # The words of the job's own error.
                limit = lease.job.timeout
                raise TimeoutError(f"took longer than its limit of {limit:g} s") from None
    except TimeoutError:
        if cancelled is None:
            raise
        # To whoever set the limit it goes on as it came.
        raise cancelled from None


def texts_of(carrier: object) -> dict[str, str]:
    """What can be headers, of what came in `meta`: that is anybody's to write."""
    if not isinstance(carrier, dict):
        return {}
    return {name: value for name, value in carrier.items() if isinstance(value, str)}
