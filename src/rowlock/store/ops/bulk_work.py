"""Bulk work that is written down: begun by one, gone on with by any, its progress to be read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from rowlock import codec, config
from rowlock.clock import from_us, maybe_from_us, to_us
from rowlock.filters import JobFilter
from rowlock.ids import parse_id
from rowlock.job import Count, JobState
from rowlock.store.ops.audit import Actor
from rowlock.store.ops.bulk import BulkAction, BulkStep, Place, Selection, count_selected, step
from rowlock.store.ops.manage import is_seen
from rowlock.store.steps import Begin, Op, Row, Statement, Steps, reading, writing


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """Work on many jobs as it stands. `total` fitted when it began; `problem` says why it ended
    before its time."""

    id: str
    action: BulkAction
    state: JobState | None
    chosen: JobFilter
    per_second: int | None
    actor: str
    tenant: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    total: Count
    done: int
    skipped: int
    skipped_ids: list[str]
    problem: str | None


class _Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored form of which jobs."""

    state: JobState | None
    chosen: dict[str, Any]
    per_second: int | None = None


@dataclass(frozen=True, slots=True)
class TooMany:
    """It was not begun: more jobs fit than were expected."""

    count: Count


def count_bulk(wanted: Selection) -> Op[Count]:
    """How many jobs fit now; exact to a bound, and told so."""
    return reading("count_bulk", lambda: count_selected(wanted))


def start_bulk(
    wanted: Selection, *, id: str, expected: int, actor: Actor, per_second: int | None = None
) -> Op[Bulk | TooMany]:
    """Write down work to be done, unless more jobs fit than whoever asks has seen.

    Args:
        per_second: At most so many jobs a second; None: as fast as it goes.
    """
    id = parse_id(id)

    def steps() -> Steps[Bulk | TooMany]:
        yield Begin()
        # Said again after a lost answer: it is there.
        known = yield Statement("bulk_get", {"id": id})
        if known:
            return _bulk(known[0])
        count = yield from count_selected(wanted)
        if count.value > expected:
            return TooMany(count)
        now: int = (yield Statement("clock"))[0][0]
        values = _values(id, wanted, count, actor, now=now, per_second=per_second)
        yield Statement("bulk_add", values)
        return _bulk((yield Statement("bulk_get", {"id": id}))[0])

    return writing("start_bulk", steps, repeat=steps)


def _values(
    id: str,
    wanted: Selection,
    count: Count,
    actor: Actor,
    *,
    now: int,
    per_second: int | None,
) -> dict[str, object]:
    stored = _Stored(wanted.state, _given(wanted.chosen), per_second)
    return {
        "id": id,
        "total": count.value,
        "is_exact": count.exact,
        "actor": codec.clean_text(actor.name, bytes_max=config.NAME_CHARACTERS_MAX),
        "tenant": actor.tenant,
        "action": wanted.action.value,
        "chosen": msgspec.json.encode(stored).decode(),
        "place": msgspec.json.encode(Place(now)).decode(),
    }


def _given(chosen: JobFilter) -> dict[str, Any]:
    return {name: value for name, value in chosen.values().items() if value is not None}


def get_bulk(id: str, *, tenant: str | None = None) -> Op[Bulk | None]:
    """How far it is; None if there is none (any more), or not of that tenant."""
    bulk_id = parse_id(id)

    def steps() -> Steps[Bulk | None]:
        rows = yield Statement("bulk_get", {"id": bulk_id})
        found = _bulk(rows[0]) if rows else None
        return found if found is not None and is_seen(found.tenant, by=tenant) else None

    return reading("get_bulk", steps)


def running_bulks() -> Op[list[str]]:
    """The ids of work that has not ended."""

    def steps() -> Steps[list[str]]:
        rows = yield Statement("bulk_running", {"limit": config.LIST_LIMIT_MAX})
        return [row[0] for row in rows]

    return reading("running_bulks", steps)


@dataclass(frozen=True, slots=True)
class Advance:
    """Whether there is more to be done, and in how many seconds, at the rate that was asked for."""

    is_more: bool
    wait_seconds: float = 0.0


def advance_bulk(id: str) -> Op[Advance]:
    """Take the next step of it, if it is time; nothing if somebody else is at it."""

    def steps() -> Steps[Advance]:
        yield Begin()
        rows = yield Statement("bulk_lock", {"id": id})
        if not rows:
            return Advance(is_more=False)
        bulk, place = _bulk(rows[0][:-1]), msgspec.json.decode(rows[0][-1], type=Place)
        limit = _step_limit(bulk)
        pause = 0.0 if bulk.per_second is None else limit / bulk.per_second
        is_first = place == Place(place.until)
        now: int = (yield Statement("clock"))[0][0]
        left = pause - (now - to_us(bulk.updated_at, option="now")) / config.SECOND_US
        if left > 0 and not is_first:
            return Advance(is_more=True, wait_seconds=left)
        wanted = Selection(bulk.action, bulk.state, bulk.chosen)
        taken = yield from step(wanted, place, limit=limit)
        yield Statement("bulk_move", _moved(bulk, taken, place))
        return Advance(taken.next is not None, pause)

    return writing("advance_bulk", steps, repeat=steps)


def _step_limit(bulk: Bulk) -> int:
    """How many jobs of one step: those of half a second, where there is a rate."""
    if bulk.per_second is None:
        return config.MAINTENANCE_BATCH_ROWS
    return max(1, min(config.MAINTENANCE_BATCH_ROWS, bulk.per_second // 2))


def _moved(bulk: Bulk, taken: BulkStep, place: Place) -> dict[str, object]:
    named = [*bulk.skipped_ids, *taken.skipped][: config.BULK_SKIPPED_MAX]
    return {
        "id": bulk.id,
        "done": taken.done,
        "skipped": len(taken.skipped),
        "skipped_ids": msgspec.json.encode(named).decode(),
        "place": msgspec.json.encode(taken.next or place).decode(),
        "is_over": taken.next is None,
    }


def fail_bulk(id: str, problem: str) -> Op[None]:
    """Give it up where it stands, and say why."""
    text = codec.clean_text(problem, bytes_max=config.PROGRESS_TEXT_BYTES_MAX)

    def steps() -> Steps[None]:
        yield Statement("bulk_fail", {"id": id, "problem": text})

    return writing("fail_bulk", steps, repeat=steps)


def _bulk(row: Row) -> Bulk:
    stored = msgspec.json.decode(row[5], type=_Stored)
    return Bulk(
        id=row[0],
        created_at=from_us(row[1]),
        updated_at=from_us(row[2]),
        finished_at=maybe_from_us(row[3]),
        action=BulkAction(row[4]),
        state=stored.state,
        chosen=JobFilter(**stored.chosen),
        per_second=stored.per_second,
        actor=row[6],
        tenant=row[7],
        total=Count(row[8], exact=bool(row[9])),
        done=row[10],
        skipped=row[11],
        skipped_ids=msgspec.json.decode(row[12], type=list[str]),
        problem=row[13],
    )
