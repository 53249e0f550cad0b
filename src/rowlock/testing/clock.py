"""A clock for tests that lets time pass at once, with everything that is due on the way."""

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

# So many runs in one call are a loop that does not end.
RUNS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Drain:
    """Run what is ready; at most so many. How many runs that were is the answer."""

    limit: int


class _Declare:
    """Write the schedules that stand in the code."""


class _Fire:
    """Enqueue what schedules have due; the answer is in how many seconds the next one is."""


class _NextLook:
    """In how many seconds a waiting job is due, or a lease over; None if there are none."""


_Step = _Drain | _Declare | _Fire | _NextLook
_Steps = Generator[_Step, float | None, int]


class VirtualClock(ManualClock):
    """A `ManualClock`; its `run_for` and `run_all` also run what becomes due meanwhile."""

    def __init__(self, start: datetime | None = None) -> None:
        super().__init__(*(() if start is None else (start,)))
        self._app: App | None = None

    @property
    def now(self) -> datetime:
        """The time it shows."""
        return from_us(self.now_us())

    def rule(self, app: App) -> None:
        """Run this app's jobs from now on; the app must have this clock."""
        self._app = app

    def move_to(self, moment: datetime) -> None:
        """Move on to an aware time that is not past."""
        ahead = to_us(moment, option="moment") - self.now_us()
        self.advance(timedelta(microseconds=ahead))

    def run_for(self, duration: float | timedelta) -> int:
        """Let time pass, and run all that becomes due: delays, retries, schedules, lost leases.

        Each is run at its own time and in this process; afterwards so much time has passed.
        How many runs that were.

        Raises:
            AssertionError: They were more than 10,000.
        """
        return self._drive(self._pass(duration_us(duration, option="duration"), has_cron=True))

    async def arun_for(self, duration: float | timedelta) -> int:
        """As `run_for`."""
        span = duration_us(duration, option="duration")
        return await self._adrive(self._pass(span, has_cron=True))

    def run_all(self) -> int:
        """Run until no job waits any more, however far away it is; schedules are not fired.

        How many runs that were; as `run_for` otherwise.
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
                raise AssertionError(f"{RUNS_MAX:,} runs, and there is more to run: is it a loop?")
            waits = [wait for wait in (tick, (yield _NextLook())) if wait is not None]
            # At least a microsecond: what is due and yet not run must not stop the time.
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
                        running = app.list(state=JobState.RUNNING, limit=1000)
                        answer = self._soonest(due, [job.lease_expires_at for job in running])
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
                        running = await app.alist(state=JobState.RUNNING, limit=1000)
                        answer = self._soonest(due, [job.lease_expires_at for job in running])
        except StopIteration as end:
            return int(end.value)

    @property
    def _ruled(self) -> App:
        if self._app is None:
            raise RuntimeError("this clock rules no app: use the fixture `rowlock_app`")
        return self._app

    def _soonest(self, due: float | None, ends: list[datetime | None]) -> float | None:
        # One that was over before, and that no run has taken, is nobody's here.
        left = [(end - self.now).total_seconds() for end in ends if end and end >= self.now]
        return min([*left, *([] if due is None else [due])], default=None)


__all__ = ["RUNS_MAX", "VirtualClock"]
