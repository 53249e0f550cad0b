"""`using`: a Django task with options that only rowlock has, such as a key or a tenant."""

from __future__ import annotations

from typing import Any, Final, Unpack

from asgiref.sync import sync_to_async

from rowlock.contrib.django.backend import RowlockBackend
from rowlock.errors import OptionInvalid
from rowlock.store import NewJob, options
from rowlock.task import EnqueueOptions

# Options of Django's own, by our names.
_DJANGOS: Final = {
    "queue": "task.using(queue_name=...)",
    "priority": "task.using(priority=...)",
    "run_at": "task.using(run_after=...)",
}


def using(task: Any, **chosen: Unpack[EnqueueOptions]) -> DjangoTaskCall:
    """A Django task with options for one enqueue, beyond those of Django's `task.using`.

    Args:
        task: A task of Django's, or its `task.using(...)`.
        chosen: `key`, `key_hold`, `if_held`, `quiet`, `max_wait`, `delay`, `tenant`,
            `max_attempts`, `keep`, `timeout`, `expires`, `tags`, `meta`, `id` and `limit_key`, as
            in `Task.using`.

    Raises:
        OptionInvalid: An option does not exist, or is one of Django's own.

    Example:
        using(confirm, key="order-7", tenant="acme").enqueue(7)
        app.enqueue_many([using(confirm).job(number) for number in numbers])
    """
    options.refuse_unknown(chosen, EnqueueOptions.__annotations__)
    if "conn" in chosen:
        raise OptionInvalid("conn", "leave it out; Django's own connection is always used")
    for name, instead in _DJANGOS.items():
        if name in chosen:
            raise OptionInvalid(name, f"is an option of Django's; use {instead}")
    if not isinstance(task.get_backend(), RowlockBackend):
        raise OptionInvalid(
            "task", f"the backend {task.backend!r} of {task.module_path} is not rowlock's"
        )
    return DjangoTaskCall(task, chosen)


class DjangoTaskCall:
    """A Django task with options, ready for its arguments. Created by `using`."""

    def __init__(self, task: Any, chosen: EnqueueOptions) -> None:
        self._task = task
        self._chosen = chosen

    @property
    def task(self) -> Any:
        """The task of Django's."""
        return self._task

    @property
    def module_path(self) -> str:
        """The dotted name of the task's function, which is the kind of its jobs."""
        path: str = self._task.module_path
        return path

    @property
    def chosen(self) -> EnqueueOptions:
        """The options."""
        return self._chosen

    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a job with these arguments and the options. Returns a result of Django's."""
        return self._task.get_backend().send(self._task, args, kwargs, self._chosen)

    async def aenqueue(self, *args: Any, **kwargs: Any) -> Any:
        """As `enqueue`."""
        return await sync_to_async(self.enqueue)(*args, **kwargs)

    def job(self, *args: Any, **kwargs: Any) -> NewJob:
        """A job to be enqueued with others by `app.enqueue_many`.

        Django's signal `task_enqueued` is not sent for it.
        """
        job: NewJob = self._task.get_backend().job(self._task, args, kwargs, self._chosen)
        return job
