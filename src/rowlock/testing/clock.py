"""A clock for tests that lets time pass at once, and runs everything that becomes due."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from rowlock.app import App
from rowlock.clock import EPOCH, ManualClock, duration_us, from_us, to_us
from rowlock.config import SECOND_US
from rowlock.job import JobState
from rowlock.scheduler import adeclare_schedules, declare_schedules
from rowlock.store.ops.claim import look
from rowlock.store.ops.rooms import look_at_keys

# More runs than this in one call are an endless loop.
RUNS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Drain:
    """Run ready jobs, at most `limit`. Answered with the number of runs."""

    limit: int


class _Declare:
    """Store the schedules that are declared in code."""


class _Fire:
    """Enqueue the jobs of due schedules. Answered with the seconds until the next one."""


class _NextLook:
    """Answered with the seconds until a job is due, a lease expires, or a key of a limit opens."""


_Step = _Drain | _Declare | _Fire | _NextLook
_Steps = Generator[_Step, float | None, int]


class VirtualClock(ManualClock):
    """A `ManualClock` whose `run_for` and `run_all` also run the jobs that become due."""

    def __init__(self, start: datetime | None = None) -> None:
        super().__init__(*(() if start is None else (start,)))
        self._app: App | None = None

    @property
    def now(self) -> datetime:
        """Return the time that it shows."""
        return from_us(self.now_us())

    def rule(self, app: App) -> None:
        """Run this app's jobs from now on. The app must have this clock."""
        self._app = app

    def move_to(self, moment: datetime) -> None:
        """Move forward to an aware time that is not in the past."""
        ahead = to_us(moment, option="moment") - self.now_us()
        self.advance(timedelta(microseconds=ahead))

    def run_for(self, duration: float | timedelta) -> int:
        """Let time pass, and run what becomes due: delays, retries, schedules, lost leases, limits.

        Each job runs at its own time, in this process. Afterwards the clock has moved forward by
        `duration`.

        Returns:
            The number of runs.

        Raises:
            AssertionError: There were more than 10,000 runs.
        """
        return self._drive(self._pass(duration_us(duration, option="duration"), has_cron=True))

    async def arun_for(self, duration: float | timedelta) -> int:
        """As `run_for`."""
        span = duration_us(duration, option="duration")
        return await self._adrive(self._pass(span, has_cron=True))

    def run_all(self) -> int:
        """Run until no job is waiting, however far in the future it is due.

        Schedules are not fired.

        Returns:
            The number of runs.

        Raises:
            AssertionError: There were more than 10,000 runs.
        """
        return self._drive(self._pass(None, has_cron=False))

    async def arun_all(self) -> int:
        """As `run_all`."""
        return await self._adrive(self._pass(None, has_cron=False))

    def _pass(self, span_us: int | None, *, has_cron: bool) -> _Steps:
        end = None if span_us is None else self.now_us() + span_us
        runs = 0
        if has_cron:
            yield _Declare()
        while True:
            tick = (yield _Fire()) if has_cron else None
            runs += int((yield _Drain(RUNS_MAX - runs)) or 0)
            if runs >= RUNS_MAX:
                raise AssertionError(f"more than {RUNS_MAX:,} runs: do jobs enqueue each other?")
            waits = [wait for wait in (tick, (yield _NextLook())) if wait is not None]
            # At least a microsecond: a job that is due but does not run must not stop the time.
            ahead = max(1, round(min(waits) * SECOND_US)) if waits else None
            if ahead is None or (end is not None and self.now_us() + ahead > end):
                break
            self.advance(timedelta(microseconds=ahead))
        if end is not None:
            self.move_to(EPOCH + timedelta(microseconds=end))
        return runs

    def _drive(self, steps: _Steps) -> int:
        app = self._ruled
        answer: float | None = None
        try:
            while True:
                match steps.send(answer):
                    case _Drain(limit):
                        answer = app.drain(limit=limit)
                    case _Declare():
                        answer = None
                        declare_schedules(app.store, app)
                    case _Fire():
                        answer = app.store.fire_due().wait_seconds
                    case _NextLook():
                        due = app.store.run(look(queues=None, kinds=app.kinds)).due_in
                        opens = app.store.run(look_at_keys(app.kinds)).open_in
                        running = app.list(state=JobState.RUNNING, limit=1000)
                        ends = [job.lease_expires_at for job in running]
                        answer = self._soonest(due, opens, ends)
        except StopIteration as end:
            return int(end.value)

    async def _adrive(self, steps: _Steps) -> int:
        app = self._ruled
        answer: float | None = None
        try:
            while True:
                match steps.send(answer):
                    case _Drain(limit):
                        answer = await app.adrain(limit=limit)
                    case _Declare():
                        answer = None
                        await adeclare_schedules(app.store, app)
                    case _Fire():
                        answer = (await app.store.afire_due()).wait_seconds
                    case _NextLook():
                        due = (await app.store.arun(look(queues=None, kinds=app.kinds))).due_in
                        opens = (await app.store.arun(look_at_keys(app.kinds))).open_in
                        running = await app.alist(state=JobState.RUNNING, limit=1000)
                        ends = [job.lease_expires_at for job in running]
                        answer = self._soonest(due, opens, ends)
        except StopIteration as end:
            return int(end.value)

    @property
    def _ruled(self) -> App:
        if self._app is None:
            raise RuntimeError("this clock has no app; use the fixture `rowlock_app`")
        return self._app

    def _soonest(
        self, due: float | None, opens: float | None, ends: list[datetime | None]
    ) -> float | None:
        # A lease that had expired before, and that no run has taken, is not ours.
        left = [(end - self.now).total_seconds() for end in ends if end and end >= self.now]
        return min([*left, *(wait for wait in (due, opens) if wait is not None)], default=None)


__all__ = ["RUNS_MAX", "VirtualClock"]
