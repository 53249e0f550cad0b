"""`Worker`: runs jobs in the script's own process."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Never, TypeAlias

from rowlock.app import App
from rowlock.contrib.compat import Unsupported
from rowlock.contrib.rq.job import ExceptionHandler, app_of, exception_handlers
from rowlock.contrib.rq.queue import Queue

# Options that tune what does not exist here, or are always so.
_HARMLESS: Final = frozenset(
    {
        "name", "worker_ttl", "default_worker_ttl", "maintenance_interval", "log_job_description",
        "job_monitoring_interval", "prepare_for_work", "date_format", "log_format",
        # Jobs for later, and retries, are always run.
        "with_scheduler",
    }
)  # fmt: skip
_ADVICE: Final[Mapping[str, str]] = {
    "default_result_ttl": "pass result_ttl= to enqueue",
    "job_class": "leave it out: jobs are rowlock's",
    "queue_class": "leave it out: queues are rowlock's",
    "serializer": "leave it out: arguments and results are JSON",
    "disable_default_exception_handler": "leave it out: a failed job is always stored as failed",
    "work_horse_killed_handler": "look at the job's errors: a lost run is one of them",
    "max_idle_time": "use work(burst=True), or `rowlock worker`",
    "dequeue_strategy": "use `rowlock worker --order`",
}
_DEFAULTS: Final = (None, False, "default")


class Worker:
    """Runs the jobs of queues in this process. Prefer `rowlock --app module:app worker`.

    Args:
        queues: The queues, or their names.
        connection: The `rowlock.App`, if the queues are given by name.
        exception_handlers: Functions of (job, type, error, traceback), called in this process when
            a run fails. A handler that returns False is the last one that is called.
        other: RQ's other options. Those that can't be followed are refused.
    """

    def __init__(
        self,
        queues: Queue | str | Sequence[Queue | str],
        name: str | None = None,
        *,
        connection: App | None = None,
        exception_handlers: ExceptionHandler | Sequence[ExceptionHandler] | None = None,
        **other: Any,
    ) -> None:
        _refuse(other, "Worker")
        listed = [queues] if isinstance(queues, Queue | str) else list(queues)
        self._names = [each.name if isinstance(each, Queue) else each for each in listed]
        apps = [each.connection for each in listed if isinstance(each, Queue)]
        self.connection: App = app_of(connection or (apps[0] if apps else None))
        given = exception_handlers
        self._handlers = [given] if callable(given) else list(given or ())

    def push_exc_handler(self, handler: ExceptionHandler) -> None:
        """Add a handler, which is called first."""
        self._handlers.insert(0, handler)

    def work(
        self,
        burst: bool = False,
        logging_level: str | int | None = None,
        *,
        max_jobs: int | None = None,
        **other: Any,
    ) -> bool:
        """Run the ready jobs (`burst`), or until a signal comes. Return whether any job ran.

        Args:
            burst: Return when no job is ready.
            logging_level: The level of rowlock's loggers.
            max_jobs: Run at most this many. Only with `burst`.
            other: RQ's other options. Those that can't be followed are refused.
        """
        _refuse(other, "work")
        if max_jobs is not None and not burst:
            raise Unsupported("work(max_jobs=...) without burst", "add burst=True, in a loop")
        if logging_level is not None:
            logging.getLogger("rowlock").setLevel(logging_level)
        with self._handling():
            if burst:
                return self.connection.drain(self._names, limit=max_jobs) > 0
            self.connection.run_worker(self._names)
            return True

    @contextmanager
    def _handling(self) -> Iterator[None]:
        before = exception_handlers.get(self.connection, ())
        exception_handlers[self.connection] = (*self._handlers, *before)
        try:
            yield
        finally:
            exception_handlers[self.connection] = before

    @classmethod
    def all(cls, *_: object, **__: object) -> Never:
        """Raise `Unsupported`."""
        raise Unsupported("Worker.all()", "use app.workers()")

    @classmethod
    def count(cls, connection: App | None = None, queue: Queue | None = None) -> int:
        """Return the number of workers whose heartbeat is fresh."""
        if queue is not None:
            raise Unsupported("Worker.count(queue=...)", "use app.workers(), which has queues")
        return len(app_of(connection).workers())


def _refuse(other: Mapping[str, Any], what: str) -> None:
    for option, value in other.items():
        if option not in _HARMLESS and value not in _DEFAULTS:
            raise Unsupported(f"{what}({option}=...)", _ADVICE.get(option, "leave it out"))


SimpleWorker: TypeAlias = Worker
SpawnWorker: TypeAlias = Worker
