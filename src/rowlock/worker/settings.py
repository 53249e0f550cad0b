"""How a worker works: the options of `rowlock worker` and `app.worker`, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from rowlock import config
from rowlock.clock import duration_us
from rowlock.errors import OptionInvalid
from rowlock.store import options

# What a worker starts: `python -m` this, with the kind of process and its orders.
PROCESSES_MODULE = "rowlock.cli.processes"

# A child that ended on request while plain functions still ran.
EXIT_LEFT_BEHIND = 3
# A child whose app could not be loaded.
EXIT_NOT_LOADED = 4
# A child, and the whole worker, that can't work on its database as that is: not migrated, or
# migrated by a newer version, or its role is refused.
EXIT_UNFIT = 5
# A child whose own machinery has failed: no job of it is to blame.
EXIT_ENGINE_FAILED = 6

# A child whose start hook has failed.
EXIT_NOT_STARTED = 7

OrphanAction = Literal["leave", "retry", "park"]
QueueOrder = Literal["strict", "weighted"]


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one child needs to know. It is sent to the child as JSON.

    `queues` None serves every queue; a mapping gives each queue its own number of slots, 0 for
    no bound of its own.
    """

    queues: dict[str, int] | None = None
    kinds: list[str] | None = None
    concurrency: int = config.WORKER_CONCURRENCY_DEFAULT
    lease_seconds: float = config.LEASE_SECONDS_DEFAULT
    grace_seconds: float = config.WORKER_GRACE_SECONDS_DEFAULT
    start_seconds: float = config.WORKER_START_SECONDS_DEFAULT
    orphans: OrphanAction = "leave"
    orphans_older_than: float = config.ORPHANS_SECONDS_DEFAULT
    is_drain: bool = False
    max_jobs: int | None = None
    is_first: bool = True
    fires_schedules: bool = True
    order: QueueOrder = "weighted"
    # Whether it looks for jobs that no worker serves, and logs them.
    warns: bool = False

    @property
    def strict_queues(self) -> list[str] | None:
        """The queues in the order in which they are served, if that is strict."""
        return list(self.queues or {}) if self.order == "strict" and self.queues else None

    def kinds_of(self, known: Sequence[str]) -> list[str]:
        """Of the kinds that an app has, those that this worker takes."""
        return [kind for kind in known if self.kinds is None or kind in self.kinds]


def worker_settings(
    *,
    queues: Sequence[str] | Mapping[str, int] | None = None,
    kinds: Sequence[str] | None = None,
    concurrency: int = config.WORKER_CONCURRENCY_DEFAULT,
    lease: float | timedelta = config.LEASE_SECONDS_DEFAULT,
    grace: float | timedelta = config.WORKER_GRACE_SECONDS_DEFAULT,
    start_timeout: float | timedelta = config.WORKER_START_SECONDS_DEFAULT,
    orphans: OrphanAction = "leave",
    orphans_older_than: float | timedelta = config.ORPHANS_SECONDS_DEFAULT,
    drain: bool = False,
    max_jobs: int | None = None,
    schedules: bool = True,
    order: QueueOrder = "weighted",
    warns: bool = False,
) -> WorkerSettings:
    """Check the options of a worker."""
    if orphans not in ("leave", "retry", "park"):
        raise OptionInvalid("orphans", f"must be leave, retry or park, not {orphans!r}")
    if order not in ("strict", "weighted"):
        raise OptionInvalid("order", f"must be strict or weighted, not {order!r}")
    if order == "strict" and queues is None:
        raise OptionInvalid("order", "strict is between queues that are named: say which")
    lease_seconds = duration_us(lease, option="lease") / config.SECOND_US
    if lease_seconds < config.LEASE_SECONDS_MIN:
        raise OptionInvalid("lease", f"must be {config.LEASE_SECONDS_MIN} seconds or more")
    return WorkerSettings(
        queues=_queues(queues),
        kinds=options.names(kinds, option="kinds"),
        concurrency=options.integer(
            concurrency, option="concurrency", low=1, high=config.WORKER_CONCURRENCY_MAX
        ),
        lease_seconds=lease_seconds,
        grace_seconds=duration_us(grace, option="grace") / config.SECOND_US,
        start_seconds=duration_us(start_timeout, option="start_timeout") / config.SECOND_US,
        orphans=orphans,
        orphans_older_than=duration_us(orphans_older_than, option="orphans_older_than")
        / config.SECOND_US,
        is_drain=drain,
        max_jobs=max_jobs,
        fires_schedules=schedules and not drain,
        order=order,
        warns=warns,
    )


def _queues(queues: Sequence[str] | Mapping[str, int] | None) -> dict[str, int] | None:
    if queues is None:
        return None
    if not queues:
        raise OptionInvalid("queues", "names none, so nothing would run; leave it out to serve all")
    if not isinstance(queues, Mapping):
        return dict.fromkeys(options.names(queues, option="queues") or [], 0)
    return {
        options.name(queue, option="queues"): options.integer(
            slots, option="queues", low=0, high=config.WORKER_CONCURRENCY_MAX
        )
        for queue, slots in queues.items()
    }


def parse_queues(text: str) -> dict[str, int]:
    """The queues of `-q mail:20,default`: a number of slots may follow a name's last colon."""
    queues: dict[str, int] = {}
    for part in text.split(","):
        queue, colon, slots = part.strip().rpartition(":")
        if colon and slots.isdecimal():
            queues[queue] = int(slots)
        else:
            queues[part.strip()] = 0
    return queues
