"""The scheduler: fires what is due, then sleeps until the next tick."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from rowlock import config
from rowlock.schedule import Fired
from rowlock.scheduler.service import logger, repeat
from rowlock.store import Store
from rowlock.worker.trouble import ServiceErrors, ServiceName, Trouble


class Scheduler:
    """Enqueues the jobs of schedules when they are due. Any number may run on one database.

    It sleeps by this machine's monotonic clock for as long as the database says that there is
    until the next tick, and at most 30 seconds: a clock that was set is seen then, and so is a
    schedule that another process has written, where no bell can be heard.
    """

    def __init__(
        self,
        store: Store,
        *,
        chance: Random | None = None,
        tell: Callable[[Fired], object] | None = None,
        errors: ServiceErrors | None = None,
    ) -> None:
        self._store = store
        self._tell = tell
        self._trouble = Trouble(
            "schedules are not fired", ServiceName.SCHEDULES, errors, chance=chance
        )
        self._woken = asyncio.Event()
        self._complained: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Fire until cancelled."""
        await repeat(
            self._fire,
            self._trouble,
            woken=self._woken,
            rest_seconds=config.SCHEDULER_REST_SECONDS,
        )

    def wake(self) -> None:
        """Look soon: a schedule may have been written. From the loop that it runs on."""
        self._woken.set()

    async def _fire(self) -> float:
        fired = await self._store.afire_due()
        self._complain(fired)
        if self._tell is not None:
            self._tell(fired)
        longest = config.SCHEDULER_SLEEP_SECONDS_MAX
        return longest if fired.wait_seconds is None else min(fired.wait_seconds, longest)

    def _complain(self, fired: Fired) -> None:
        unreadable = frozenset(fired.unreadable)
        for name in sorted(unreadable - self._complained):
            logger.error(
                "schedule %r is not fired from here: its time zone or expression is not known "
                "to this installation",
                name,
            )
        self._complained = unreadable
