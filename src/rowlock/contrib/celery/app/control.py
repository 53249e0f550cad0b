"""`app.control`: the commands to workers that make sense here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Never

from rowlock.contrib.compat import Unsupported

if TYPE_CHECKING:
    from rowlock.contrib.celery.app import Celery

_MISSING: Final[Mapping[str, str]] = {
    "add_consumer": "start a worker with `rowlock worker -q`",
    "cancel_consumer": "pause the queue: app.pause(queue)",
    "purge": "cancel the waiting jobs: app.bulk('cancel', 'ready')",
    "discard_all": "cancel the waiting jobs: app.bulk('cancel', 'ready')",
    "rate_limit": "change it while workers run with `rowlock limits set`",
    "time_limit": "set it on the task: @app.task(time_limit=...)",
    "shutdown": "send SIGTERM to the workers",
    "pool_grow": "start workers with `rowlock worker -c`",
    "pool_shrink": "start workers with `rowlock worker -c`",
    "pool_restart": "restart the workers",
    "autoscale": "start workers with `rowlock worker -c`",
    "election": "take a lock in your own database",
}
_LOOK = "look with app.workers(), app.stats(), app.list(state=...) or `rowlock top`"


class Control:
    """`app.control`: the supported commands to workers."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def revoke(self, task_id: str | Sequence[str], terminate: bool = False, **_: Any) -> None:
        """Cancel a job, or several."""
        for id in [task_id] if isinstance(task_id, str) else task_id:
            self._app.cancel(id)

    terminate = revoke

    def ping(self, destination: None = None, timeout: float = 1.0, **_: Any) -> list[Any]:
        """Return `[{name: {"ok": "pong"}}]`, for each worker whose heartbeat is fresh."""
        if destination is not None:
            raise Unsupported("control.ping(destination=...)", "ask for all, and choose")
        return [{name: answer} for name, answer in (self.inspect().ping() or {}).items()]

    def inspect(self, destination: None = None, **_: Any) -> Inspect:
        """Return what workers do, as far as the database knows it."""
        if destination is not None:
            raise Unsupported("control.inspect(destination=...)", "ask for all, and choose")
        return Inspect(self._app)

    def __getattr__(self, name: str) -> Never:
        if name.startswith("_"):
            raise AttributeError(name)
        raise Unsupported(f"control.{name}", _MISSING.get(name, _LOOK))


class Inspect:
    """`app.control.inspect()`: which workers live, what they run, and which tasks they know."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def ping(self, destination: None = None) -> dict[str, Any] | None:
        """Return `{"ok": "pong"}` for each worker whose heartbeat is fresh. None: there is none."""
        return {each.id: {"ok": "pong"} for each in self._app.workers()} or None

    def registered(self, *_: Any) -> dict[str, list[str]] | None:
        """Return the names of the tasks that each worker knows."""
        return {each.id: each.kinds for each in self._app.workers()} or None

    def active(self, *_: Any, **__: Any) -> dict[str, list[dict[str, Any]]] | None:
        """Return the jobs that each worker runs."""
        found = {each.id: self._running(each.running) for each in self._app.workers()}
        return found or None

    def _running(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        jobs = [job for job in map(self._app.get, ids) if job is not None]
        return [
            {
                "id": job.id,
                "name": job.kind,
                "type": job.kind,
                "args": [],
                "kwargs": job.payload,
                "hostname": job.worker,
                "time_start": None if job.started_at is None else job.started_at.timestamp(),
                "delivery_info": {"routing_key": job.queue, "priority": job.priority},
            }
            for job in jobs
        ]

    def __getattr__(self, name: str) -> Never:
        if name.startswith("_"):
            raise AttributeError(name)
        raise Unsupported(f"inspect().{name}()", _LOOK)
