"""The verbs of schedules as methods of the store, each blocking and async (`a…`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from rowlock import config
from rowlock.job import Job
from rowlock.schedule import Fired, Schedule
from rowlock.store.ops import schedule as _schedule
from rowlock.store.ops.schedule import NewSchedule
from rowlock.store.steps import Op

T = TypeVar("T")


class ScheduleVerbs(ABC):
    """What the store can do with schedules; a part of `Store`."""

    @abstractmethod
    def run(self, op: Op[T]) -> T:
        """Run a verb and wait for it."""

    @abstractmethod
    async def arun(self, op: Op[T]) -> T:
        """As `run`."""

    def put_schedule(self, new: NewSchedule) -> Schedule:
        """Write a schedule, new or instead of one of that name.

        Whether it is paused stays; so does its next time, unless expression or zone are others.
        """
        return self.run(_schedule.put_schedule(new))

    async def aput_schedule(self, new: NewSchedule) -> Schedule:
        """As `put_schedule`."""
        return await self.arun(_schedule.put_schedule(new))

    def declare_schedules(
        self, declared: Sequence[NewSchedule], *, kinds: Sequence[str], owns_all: bool = False
    ) -> list[str]:
        """Make the schedules that came from code those of the code; the names of those removed.

        Args:
            declared: What the code says now. One that a call has taken over is left as it is.
            kinds: The tasks of that code: of these, schedules that it does not name are removed.
            owns_all: There is no other code with schedules on this database: remove those of
                other kinds too.
        """
        return self.run(_schedule.declare_schedules(declared, kinds=kinds, owns_all=owns_all))

    async def adeclare_schedules(
        self, declared: Sequence[NewSchedule], *, kinds: Sequence[str], owns_all: bool = False
    ) -> list[str]:
        """As `declare_schedules`."""
        op = _schedule.declare_schedules(declared, kinds=kinds, owns_all=owns_all)
        return await self.arun(op)

    def list_schedules(
        self, *, after: str = "", limit: int = config.LIST_LIMIT_MAX
    ) -> list[Schedule]:
        """Schedules by name; `after` the last one of the page before."""
        return self.run(_schedule.list_schedules(after=after, limit=limit))

    async def alist_schedules(
        self, *, after: str = "", limit: int = config.LIST_LIMIT_MAX
    ) -> list[Schedule]:
        """As `list_schedules`."""
        return await self.arun(_schedule.list_schedules(after=after, limit=limit))

    def pause_schedule(self, name: str) -> Schedule:
        """Fire nothing of a schedule until it is resumed. Raises `NotFound`."""
        return self.run(_schedule.set_schedule_pause(name, is_paused=True))

    async def apause_schedule(self, name: str) -> Schedule:
        """As `pause_schedule`."""
        return await self.arun(_schedule.set_schedule_pause(name, is_paused=True))

    def resume_schedule(self, name: str) -> Schedule:
        """Go on with the next tick from now; those of the pause are over. Raises `NotFound`."""
        return self.run(_schedule.set_schedule_pause(name, is_paused=False))

    async def aresume_schedule(self, name: str) -> Schedule:
        """As `resume_schedule`."""
        return await self.arun(_schedule.set_schedule_pause(name, is_paused=False))

    def run_schedule_now(self, name: str) -> Job:
        """Enqueue a schedule's job at once; its next tick stays. Raises `NotFound`."""
        return self.run(_schedule.run_schedule_now(name))

    async def arun_schedule_now(self, name: str) -> Job:
        """As `run_schedule_now`."""
        return await self.arun(_schedule.run_schedule_now(name))

    def delete_schedule(self, name: str) -> None:
        """Remove a schedule; jobs that it enqueued stay. Raises `NotFound`."""
        self.run(_schedule.delete_schedule(name))

    async def adelete_schedule(self, name: str) -> None:
        """As `delete_schedule`."""
        await self.arun(_schedule.delete_schedule(name))

    def fire_due(self) -> Fired:
        """Enqueue the jobs of all ticks that are due, each once among any number of callers."""
        return self.run(_schedule.fire_due())

    async def afire_due(self) -> Fired:
        """As `fire_due`."""
        return await self.arun(_schedule.fire_due())
