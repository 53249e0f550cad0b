"""Before a worker starts: whether it can work on its database, and what to do if it can't.

1. A database that is away is waited for without an end, as it is later on.
2. One that is not migrated, or refuses the role, is waited for quietly, but not forever: in a
   deployment the worker may start before the migration has run. Then the worker ends.
3. One that a newer version has migrated, or that is none of ours, ends the worker at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random

from rowlock import config
from rowlock.errors import Forbidden, MigrationNeeded, RowlockError, StoreUnavailable
from rowlock.scheduler.service import jittered
from rowlock.store import Store
from rowlock.store.ops.fitness import check_schema
from rowlock.worker.trouble import ServiceErrors, ServiceName, Trouble, pause_for


async def is_ready(
    store: Store,
    *,
    start_seconds: float,
    stopping: asyncio.Event,
    errors: ServiceErrors,
    tell: Callable[[RowlockError], None],
) -> bool:
    """Wait until the worker can start; False if it was stopped before.

    Args:
        start_seconds: How long to wait for a person to do something.
        tell: Called once, with the reason, if it has to wait for a person to do something.

    Raises:
        RowlockError: It can't start, and waiting is of no use, or has taken long enough.
    """
    trouble = Trouble("the worker can't start", ServiceName.START, errors)
    chance = Random()
    waiting_since: float | None = None
    while not stopping.is_set():
        try:
            await store.arun(check_schema(store.engine.dialect))
        except RowlockError as error:
            if _is_for_a_person(error):
                errors.count(ServiceName.START)
                if waiting_since is None:
                    waiting_since = time.monotonic()
                    tell(error)
                if time.monotonic() - waiting_since >= start_seconds:
                    raise
                pause = jittered(config.START_LOOK_SECONDS, chance)
            elif isinstance(error, StoreUnavailable):
                pause = trouble.pause(error)
            else:
                raise
        except Exception as error:  # noqa: BLE001  # a service survives all but cancellation
            pause = trouble.pause(error)
        else:
            trouble.over()
            return True
        await pause_for(stopping, pause)
    return False


def _is_for_a_person(error: Exception) -> bool:
    """Whether somebody has to do something, who may be about to do it."""
    match error:
        case MigrationNeeded():
            return error.is_behind
        case StoreUnavailable():
            return error.refused_login
        case _:
            return isinstance(error, Forbidden)


def advice(error: RowlockError, *, migrate_command: str) -> str:
    """What is wrong, and which command mends it, in one line."""
    match error:
        case MigrationNeeded(is_behind=True):
            return f"{error.problem}: run `{migrate_command}` with a role that may create tables"
        case Forbidden():
            return f"{error}; `rowlock migrate --sql --roles` prints the rights that a worker needs"
        case StoreUnavailable(refused_login=True):
            return f"{error}; check both in the database URL, or create the role"
        case _:
            return str(error)
