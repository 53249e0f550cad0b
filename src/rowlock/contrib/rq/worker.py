"""`Worker`: runs jobs in the script's own process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from rowlock.app import App
from rowlock.contrib.rq.job import app_of
from rowlock.contrib.rq.queue import Queue


class Worker:
    """Runs the jobs of queues in this process. Prefer `rowlock --app module:app worker`."""

    def __init__(
        self, queues: Queue | str | Sequence[Queue | str], connection: App | None = None, **_: Any
    ) -> None:
        listed = [queues] if isinstance(queues, Queue | str) else list(queues)
        self._names = [each.name if isinstance(each, Queue) else each for each in listed]
        apps = [each.connection for each in listed if isinstance(each, Queue)]
        self.connection: App = app_of(connection or (apps[0] if apps else None))

    def work(self, burst: bool = False, **_: Any) -> bool:
        """Run the ready jobs (`burst`), or until a signal comes. Return whether any job ran."""
        if burst:
            return self.connection.drain(self._names) > 0
        self.connection.run_worker(self._names)
        return True


SimpleWorker: TypeAlias = Worker
