"""rowlock's backend with what the tests of Django's own backends ask for.

`Waiting` stands in for Django's `DummyBackend`, `Draining` for its `ImmediateBackend`.
"""

from __future__ import annotations

from typing import Any

from rowlock.contrib.django import RowlockBackend, app
from rowlock.task import EnqueueOptions


class Waiting(RowlockBackend):
    """Jobs wait, and their results are at hand, as they were read after the enqueue."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.results: list[Any] = []

    def send(self, task: Any, args: Any, kwargs: Any, chosen: EnqueueOptions) -> Any:
        """Enqueue a job, and read it."""
        result = super().send(task, args, kwargs, chosen)
        self.results.append(self.get_result(result.id))
        return result

    def clear(self) -> None:
        """Forget all jobs."""
        self.results.clear()
        app.empty()


class Draining(RowlockBackend):
    """Jobs run before their enqueue returns, once."""

    def send(self, task: Any, args: Any, kwargs: Any, chosen: EnqueueOptions) -> Any:
        """Enqueue a job and run it."""
        once: EnqueueOptions = {**chosen, "max_attempts": 1}
        result = super().send(task, args, kwargs, once)
        app.drain()
        result.refresh()
        return result
