"""Bulk: dead jobs that fit are retried or removed, a bounded step at a time.

Each step is one transaction and says where the next one begins, so that whoever asks can show how
far it is, and stop in between. What dies after the first step is not of this walk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rowlock import config
from rowlock.store.ops.manage import JobFilter
from rowlock.store.steps import Batch, Begin, Op, Ring, Rows, Statement, Steps, writing

_FIRST_ID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a walk over the dead jobs is: behind this failure, among those up to its start."""

    until: int
    after: int = -1
    after_id: str = _FIRST_ID


@dataclass(frozen=True, slots=True)
class BulkStep:
    """What one step did; `next` is None at the end. `skipped` are ids whose key is in use again."""

    done: int
    skipped: list[str]
    next: Place | None


def retry_dead_step(chosen: JobFilter, place: Place | None = None) -> Op[BulkStep]:
    """Take the next dead jobs that fit back to ready."""
    return _step("retry_dead_step", chosen, place, _revive)


def purge_dead_step(chosen: JobFilter, place: Place | None = None) -> Op[BulkStep]:
    """Remove the next dead jobs that fit, with their logs and what their keys hold."""
    return _step("purge_dead_step", chosen, place, _remove)


def _step(
    name: str,
    chosen: JobFilter,
    place: Place | None,
    act: Callable[[list[str]], Steps[set[str]]],
) -> Op[BulkStep]:
    def steps() -> Steps[BulkStep]:
        yield Begin()
        here = place or Place((yield Statement("clock"))[0][0])
        rows = yield Statement("lock_dead", {**chosen.values(), **_bounds(here)})
        ids = [row[0] for row in rows]
        done = (yield from act(ids)) if ids else set[str]()
        skipped = [id for id in ids if id not in done]
        return BulkStep(len(done), skipped, _after(here, rows))

    # Begun anew from the same place: what was done already is no longer dead.
    return writing(name, steps, repeat=steps)


def _bounds(place: Place) -> dict[str, object]:
    return {
        "until_finished": place.until,
        "after": place.after,
        "after_id": place.after_id,
        "limit": config.MAINTENANCE_BATCH_ROWS,
    }


def _after(place: Place, rows: Rows) -> Place | None:
    if len(rows) < config.MAINTENANCE_BATCH_ROWS:
        return None
    id, finished_at = rows[-1]
    return Place(place.until, finished_at, id)


def _revive(ids: list[str]) -> Steps[set[str]]:
    revived = yield Batch("revive", ("id", "payload"), [(id, None) for id in ids])
    done = {row[0] for row in revived}
    if done:
        yield Statement("forget", {"ids": sorted(done)})
        yield Ring(frozenset(row[1] for row in revived))
    return done


def _remove(ids: list[str]) -> Steps[set[str]]:
    gone = yield Statement("forget", {"ids": sorted(ids)})
    yield Statement("unlog", {"ids": sorted(ids)})
    return {row[0] for row in gone}
