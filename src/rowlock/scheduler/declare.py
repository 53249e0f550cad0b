"""Schedules that stand in the code (`@app.task(cron=...)`) are written to the database.

A worker does it at its start. What is gone from the code is removed by this rule: a schedule that
came from code goes if its task is among those given and has no `cron` any more. One whose task is
not among them may belong to another program on the same database, and stays, unless `owns_all`.
"""

from __future__ import annotations

from rowlock.scheduler.service import logger
from rowlock.store import Store
from rowlock.store.ops.schedule import NewSchedule, new_schedule
from rowlock.task import Tasks


def declare_schedules(store: Store, tasks: Tasks, *, owns_all: bool = False) -> list[str]:
    """Write the schedules of tasks; the names of those removed.

    Args:
        owns_all: No other program has schedules in its code on this database: remove those of
            unknown tasks too.
    """
    declared = _declared(tasks)
    return _logged(store.declare_schedules(declared, kinds=tasks.kinds, owns_all=owns_all))


async def adeclare_schedules(store: Store, tasks: Tasks, *, owns_all: bool = False) -> list[str]:
    """As `declare_schedules`."""
    declared = _declared(tasks)
    return _logged(await store.adeclare_schedules(declared, kinds=tasks.kinds, owns_all=owns_all))


def _declared(tasks: Tasks) -> list[NewSchedule]:
    return [
        new_schedule(name, job, cron=cron.text, timezone=cron.timezone)
        for name, job, cron in tasks.scheduled()
    ]


def _logged(removed: list[str]) -> list[str]:
    for name in removed:
        logger.info("schedule %r is gone from the code and was removed", name)
    return removed
