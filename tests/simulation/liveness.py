"""Whether an open limit gives a job to a worker that is free, within a bounded time.

Only limits without a rate are looked at, and only while nothing goes wrong. Who may start next is
read from the rows, by rules that are written here once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rowlock import config
from tests.simulation.limits import LIMITS, QUEUE

if TYPE_CHECKING:
    from tests.simulation.database import Database
    from tests.simulation.machine import Machine

LOOK_SECONDS = 0.5

_WAITING = """
SELECT job.limit_name, job.limit_key
FROM rowlock_job AS job
WHERE job.limit_name IS NOT NULL AND job.lease_expires_at IS NULL AND job.run_at <= :now
    AND NOT EXISTS (
        SELECT 1
        FROM rowlock_job AS first
        WHERE (first.limit_name, first.limit_key) = (job.limit_name, job.limit_key)
            AND first.place < job.place
    )
    AND NOT EXISTS (
        SELECT 1
        FROM rowlock_limit_key AS state
        WHERE (state.limit_name, state.key) = (job.limit_name, job.limit_key)
            AND state.closed_until > :now
    )
GROUP BY 1, 2
"""
_RUNNING = """
SELECT limit_name, limit_key, count(*)
FROM rowlock_job
WHERE limit_name IS NOT NULL AND lease_expires_at IS NOT NULL
GROUP BY 1, 2
"""


class OpenRooms:
    """Since when each key could have given a job."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._since: dict[tuple[str, str], float] = {}

    def look(self, machines: Iterable[Machine]) -> str | None:
        """Look once. Return what is wrong."""
        now = self._database.loop.now
        is_anyone_free = any(machine.is_free(QUEUE) for machine in machines)
        found = self._open() if is_anyone_free else set[tuple[str, str]]()
        self._since = {key: self._since.get(key, now) for key in found}
        # Half a second between two looks here, and as long as a worker may sleep, twice.
        bound = 2 * max(config.POLL_SECONDS, config.POLL_SECONDS_WITH_BELL) + 1.0
        late = [key for key, since in self._since.items() if now - since > bound]
        return f"{late[0]} is open, somebody is free, and nothing starts" if late else None

    def _open(self) -> set[tuple[str, str]]:
        ask = self._database.connection.execute
        running = {(name, key): count for name, key, count in ask(_RUNNING)}
        found = set[tuple[str, str]]()
        for name, key in ask(_WAITING, {"now": self._database.clock.now_us()}):
            numbers = LIMITS[name].numbers
            total = sum(count for (other, _), count in running.items() if other == name)
            own = running.get((name, key), 0)
            is_metered = numbers.interval_us is not None or numbers.key_interval_us is not None
            is_full = total >= (numbers.concurrency or total + 1)
            if not is_metered and not is_full and own < (numbers.key_concurrency or own + 1):
                found.add((name, key))
        return found
