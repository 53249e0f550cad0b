"""`app.schedule`: the part of the app that writes schedules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

from rowlock.errors import OptionInvalid
from rowlock.schedule import Schedule
from rowlock.store import NewJob, Store
from rowlock.store.ops.schedule import NewSchedule, new_schedule
from rowlock.task import EnqueueOptions, Task, TaskCall


class ScheduleCalls(ABC):
    """The calls of `App` that are about schedules."""

    store: Store

    @abstractmethod
    def _prepare(
        self, kind: str, payload: Mapping[str, object] | None, chosen: EnqueueOptions
    ) -> NewJob:
        """A checked job from a kind's name, a payload and options."""

    def schedule(
        self,
        name: str,
        task: Task[..., Any] | TaskCall[...] | str,
        *,
        cron: str,
        timezone: str = "UTC",
        payload: Mapping[str, object] | None = None,
        missed: Literal["skip", "once", "all"] = "skip",
    ) -> Schedule:
        """Enqueue a task at the times of a cron expression, from now on.

        The same name again replaces the schedule. Its next time stays, unless `cron` or `timezone`
        are others; so it can be called at every start of a program.

        Args:
            name: Any name; unique in the database.
            task: A task, `task.using(...)` for options of its jobs, or a kind by its name.
            cron: Minute, hour, day of month, month, day of week; or six fields with seconds first;
                or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.
            timezone: An IANA name, such as "Europe/Berlin".
            payload: The arguments of each job.
            missed: What becomes of ticks that no scheduler was there for: "skip" forgets those more
                than five minutes old, "once" runs one job for all of them, "all" one for each of
                the last 100.

        Example:
            app.schedule("nightly", report, cron="30 2 * * *", timezone="Europe/Berlin")
        """
        job = self._scheduled_job(task, payload)
        return self.store.put_schedule(_new(name, job, cron=cron, timezone=timezone, missed=missed))

    async def aschedule(
        self,
        name: str,
        task: Task[..., Any] | TaskCall[...] | str,
        *,
        cron: str,
        timezone: str = "UTC",
        payload: Mapping[str, object] | None = None,
        missed: Literal["skip", "once", "all"] = "skip",
    ) -> Schedule:
        """As `schedule`."""
        job = self._scheduled_job(task, payload)
        return await self.store.aput_schedule(
            _new(name, job, cron=cron, timezone=timezone, missed=missed)
        )

    def _scheduled_job(
        self, task: Task[..., Any] | TaskCall[...] | str, payload: Mapping[str, object] | None
    ) -> NewJob:
        match task:
            case str():
                return self._prepare(task, payload, {})
            case Task():
                return _job_of(task, payload, {})
            case TaskCall():
                if task.conn is not None:
                    raise OptionInvalid("task", "conn is of one job, not of a schedule's")
                return _job_of(task.task, payload, task.chosen)
            case _:
                raise OptionInvalid("task", f"must be a task or a kind, not {task!r}")


def _job_of(
    task: Task[..., Any], payload: Mapping[str, object] | None, chosen: EnqueueOptions
) -> NewJob:
    # Not by a call: a payload may have names that a call can't, such as `self`.
    return task.prepare(task.schema.validate({} if payload is None else payload), chosen)


def _new(name: str, job: NewJob, *, cron: str, timezone: str, missed: str) -> NewSchedule:
    return new_schedule(name, job, cron=cron, timezone=timezone, missed=missed)
