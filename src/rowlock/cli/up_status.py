"""The status line of `rowlock up`: counts of jobs, every few seconds, if they changed."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, Self

from rowlock.cli import show
from rowlock.errors import StoreUnavailable
from rowlock.job import Count, JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowlock.app import App

logger: logging.Logger = logging.getLogger("rowlock.up")

# Often enough to see progress, seldom enough to be read.
STATUS_SECONDS: Final = 2.0
_ENDED: Final = (JobState.SUCCEEDED, JobState.CANCELLED, JobState.DEAD)
_WAITING: Final = (JobState.RUNNING, JobState.READY, JobState.RETRYING, JobState.SCHEDULED)


class UpStatus:
    """A context manager that logs how many jobs ended since it was created."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._before = self._count()
        self._said = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="rowlock-up-status", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._said = ""
        self._say(last=True)

    def _repeat(self) -> None:
        while not self._over.wait(STATUS_SECONDS):
            self._say()

    def _say(self, *, last: bool = False) -> None:
        try:
            now = self._count()
        except StoreUnavailable:
            return  # The worker logs it.
        text = status_line(self._before, now)
        if text != self._said:
            self._said = text
            logger.info("%s%s", "at the end: " if last else "", text)

    def _count(self) -> dict[JobState, Count]:
        return summed([queue.counts for queue in self._app.stats()])


def summed(counts: Sequence[dict[JobState, Count]]) -> dict[JobState, Count]:
    """Add up the counts of several queues."""
    return {
        state: Count(
            sum(each.get(state, Count(0)).value for each in counts),
            exact=all(each.get(state, Count(0)).exact for each in counts),
        )
        for state in JobState
    }


def status_line(before: dict[JobState, Count], now: dict[JobState, Count]) -> str:
    """Return the jobs that ended since `before`, and those that wait, as one line."""
    # If the count before was not exact, the number since then is unknown.
    since = [state for state in _ENDED if before[state].exact]
    ended = {
        # Retention may have removed some that were there before.
        state: Count(max(0, now[state].value - before[state].value), exact=now[state].exact)
        for state in since
    }
    ever = _listed({state: now[state] for state in _ENDED if state not in since})
    waiting = {state: now[state] for state in _WAITING}
    parts = [_listed(ended), f"{ever} in all" if ever else ""]
    done = ", ".join(filter(None, parts)) or "no job has ended yet"
    hint = (
        " (`rowlock dead list` says why)"
        if now[JobState.DEAD].value > before[JobState.DEAD].value
        else ""
    )
    rest = _listed(waiting)
    return f"{done}{hint}; {f'waiting: {rest}' if rest else 'none are waiting'}"


def _listed(counts: dict[JobState, Count]) -> str:
    return ", ".join(
        f"{show.number(count.value, exact=count.exact)} {state}"
        for state, count in counts.items()
        if count.value
    )
