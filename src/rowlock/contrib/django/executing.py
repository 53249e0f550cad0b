"""One run of a Django task: its context, and the signals that Django's backends send."""

from __future__ import annotations

from traceback import format_exception
from types import TracebackType
from typing import Any, Self

from django.utils import timezone

from rowlock.contrib.django.flavour import (
    TaskContext,
    TaskError,
    TaskResultStatus,
    task_finished,
    task_started,
)
from rowlock.contrib.django.results import result_of
from rowlock.job import Job
from rowlock.worker.outcome import is_last


class Executing:
    """A run from its start to its end; a context manager. `end` takes what the task returned."""

    def __init__(self, backend: type[Any], task: Any, job: Job) -> None:
        self.task = task
        self._backend = backend
        self._job = job
        self._result = result_of(job, task, backend=task.backend)

    @property
    def context(self) -> tuple[Any, ...]:
        """What the function takes before its arguments."""
        return (TaskContext(task_result=self._result),) if self.task.takes_context else ()

    def __enter__(self) -> Self:
        task_started.send(self._backend, task_result=self._result)
        return self

    def end(self, value: Any) -> Any:
        """The task returned this; what can't be stored is noted by the worker, and no failure."""
        self._set("_return_value", value)
        return value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._finish(TaskResultStatus.SUCCESSFUL)
        elif self._is_last(error):
            trace = "".join(format_exception(error))
            path = f"{type(error).__module__}.{type(error).__qualname__}"
            self._result.errors.append(TaskError(exception_class_path=path, traceback=trace))
            self._finish(TaskResultStatus.FAILED)

    def _is_last(self, error: BaseException) -> bool:
        job = self._job
        return is_last(error, attempt=job.attempt, max_attempts=job.max_attempts)

    def _finish(self, status: Any) -> None:
        self._set("finished_at", timezone.now())
        self._set("status", status)
        task_finished.send(self._backend, task_result=self._result)

    def _set(self, name: str, value: object) -> None:
        # Django's results are frozen for users, not for backends.
        object.__setattr__(self._result, name, value)
