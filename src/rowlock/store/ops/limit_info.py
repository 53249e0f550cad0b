"""Limits and their keys as they are now. Bounded reads, no locks.

1. Jobs are counted up to a bound, and marked "at least" beyond it.
2. A look at keys visits a bounded number of them, and says so if there are more.
3. A caller bound to a tenant sees only limits whose keys are tenants, of those only its own key,
   and counts of its own jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from rowlock import config
from rowlock.clock import from_us
from rowlock.job import Count
from rowlock.limit_info import (
    PER_TENANT,
    LimitInfo,
    LimitKeyInfo,
    LimitKeys,
    LimitRules,
    declaration,
    rate_text,
)
from rowlock.store import options
from rowlock.store.ops.limits import (
    FOR_EVER_US,
    ChosenNumbers,
    LimitNumbers,
    decode_chosen,
    decode_declared,
    unknown_limit,
)
from rowlock.store.rotation import behind
from rowlock.store.steps import Batch, Begin, Op, Row, Rows, Statement, Steps, reading

# Rooms counted by one statement, which reads at most this many times the bound of a count.
_ROOMS: Final = 20
# Behind every job of a key.
_LAST: Final = (2**62, "ffffffff-ffff-ffff-ffff-ffffffffffff")
_ROOM_COLUMNS: Final = ("queue", "rank", "kind", "limit_name")


def list_limits(
    names: Sequence[str] | None = None,
    *,
    after: str = "",
    limit: int = config.LIMITS_LISTED_MAX,
    tenant: str | None = None,
) -> Op[list[LimitInfo]]:
    """The limits in the order of their names, also those that jobs name and no worker declares.

    Args:
        names: Only these. None: all.
        after: Only those after this name: for the next page.
        limit: At most this many.
        tenant: Only limits whose keys are tenants. Numbers of jobs are of this tenant alone.
    """
    asked = options.names(names, option="names")
    most = options.integer(limit, option="limit", low=1, high=config.LIMITS_LISTED_MAX)

    def steps() -> Steps[list[LimitInfo]]:
        yield Begin(is_look=True)
        now: int = (yield Statement("clock"))[0][0]
        if tenant is not None:
            return (yield from _limits_of_tenant(tenant, asked, after, most, now))
        found = yield from _stored(asked, after, most, now)
        last = found[-1].name if len(found) == most else None
        rooms = [
            room
            for room in (yield from _rooms())
            if room[3] > after
            and (last is None or room[3] <= last)
            and (asked is None or room[3] in asked)
        ]
        waiting = yield from _waiting(rooms, now)
        known = {rule.name: _info(rule, now) for rule in found}
        for name in {room[3] for room in rooms} - known.keys():
            none = Count(0)
            known[name] = LimitInfo(
                name=name, rules=LimitRules(), running=none, waiting=none, paused_keys=none
            )
        return [_with_waiting(known[name], waiting.get(name), now) for name in sorted(known)][:most]

    return reading("list_limits", steps)


def _limits_of_tenant(
    tenant: str, asked: list[str] | None, after: str, most: int, now: int
) -> Steps[list[LimitInfo]]:
    """The limits whose keys are tenants, page by page until there are enough."""
    infos: list[LimitInfo] = []
    rooms = yield from _rooms()
    while len(infos) < most and (found := (yield from _stored(asked, after, most, now))):
        after = found[-1].name
        for rule in [rule for rule in found if rule.declared.per == PER_TENANT]:
            own = [room for room in rooms if room[3] == rule.name]
            key = yield from _key_of_tenant(tenant, rule, own, now)
            infos.append(_as_seen_by(tenant, _info(rule, now), key))
    return infos[:most]


def limit_keys(
    name: str, *, limit: int = 50, after: str | None = None, tenant: str | None = None
) -> Op[LimitKeys]:
    """Keys of a limit: those with jobs that run or wait, that are paused, or have own numbers.

    By default, the busiest come first, of the first 1,000 keys. Raises `NotFound`.

    Args:
        limit: At most this many.
        after: In the order of their names instead, those after this one. "" begins with the first.
        tenant: Only this tenant's own key, with numbers of its own jobs. A limit whose keys are not
            tenants is not found.
    """
    most = options.integer(limit, option="limit", low=1, high=config.KEYS_LISTED_MAX)

    def steps() -> Steps[LimitKeys]:
        yield Begin(is_look=True)
        now: int = (yield Statement("clock"))[0][0]
        found = yield from _stored([name], "", 1, now)
        if not found or (tenant is not None and found[0].declared.per != PER_TENANT):
            raise unknown_limit(name)
        rule = found[0]
        if rule.declared.per is None:
            return LimitKeys(keys=[])
        if tenant is not None:
            rooms = yield from rooms_of(name)
            return LimitKeys(keys=[(yield from _key_of_tenant(tenant, rule, rooms, now))])
        visits = config.KEYS_LISTED_MAX if after is None else most + 1
        start = behind(after).start if after else ""
        keys, is_cut = yield from _visit(rule, start, visits, now, by_name=after is not None)
        if after is None:
            keys.sort(key=lambda each: (-each.running.value, -each.waiting.value, each.key))
            return LimitKeys(keys=keys[:most], is_cut=is_cut or len(keys) > most)
        is_cut = is_cut or len(keys) > most
        page = keys[:most]
        return LimitKeys(keys=page, is_cut=is_cut, next=page[-1].key if is_cut and page else None)

    return reading("limit_keys", steps)


class StoredLimit(NamedTuple):
    """A limit in the database. The numbers are those that count."""

    name: str
    declared: LimitNumbers
    chosen: ChosenNumbers | None
    numbers: LimitNumbers
    declared_at: int
    closed_until: int
    closed_by: str | None
    open_at: int
    running: int
    closed_keys: int


def stored_limit(name: str, now: int) -> Steps[StoredLimit | None]:
    """A limit by its name, within another verb."""
    found = yield from _stored([name], "", 1, now)
    return found[0] if found else None


def _stored(asked: list[str] | None, after: str, limit: int, now: int) -> Steps[list[StoredLimit]]:
    values = {"names": asked, "after": after, "limit": limit, "now": now}
    rows = yield Statement("limit_list", {**values, "cap": config.COUNT_EXACT_MAX + 1})
    return [_stored_of(row) for row in rows]


def _stored_of(row: Row) -> StoredLimit:
    name, declared_text, chosen, declared_at, *rules = row
    concurrency, interval_us, burst, key_concurrency, key_interval_us, key_burst, *state = rules
    closed_until, closed_by, bare_until, bare_by, open_at, running, closed_keys = state
    declared = decode_declared(declared_text)
    # A limit without keys has one, '', which `Throttled` and a dead job close.
    if declared.per is None and (bare_until or 0) > closed_until:
        closed_until, closed_by = bare_until, bare_by
        open_at = max(open_at, closed_until)
    numbers = LimitNumbers(
        concurrency=concurrency,
        interval_us=interval_us,
        burst=burst,
        key_concurrency=key_concurrency,
        key_interval_us=key_interval_us,
        key_burst=key_burst,
    )
    return StoredLimit(
        name,
        declared,
        decode_chosen(chosen) if chosen else None,
        numbers,
        declared_at,
        closed_until,
        closed_by,
        open_at,
        running,
        0 if declared.per is None else closed_keys,
    )


def _info(rule: StoredLimit, now: int) -> LimitInfo:
    """What a limit is, without the jobs that wait for it."""
    declared = rule.declared
    return LimitInfo(
        name=rule.name,
        rules=_rules(rule.numbers),
        declared=_rules(declared),
        chosen=None if rule.chosen is None else _rules(rule.chosen),
        per=declared.per,
        is_ordered=declared.is_ordered,
        on_dead=_on_dead(declared),
        weights=dict(declared.weights),
        declared_at=from_us(rule.declared_at),
        running=_capped(rule.running, config.COUNT_EXACT_MAX),
        waiting=Count(0),
        paused_keys=_capped(rule.closed_keys, config.COUNT_EXACT_MAX),
        **_closing(rule.closed_until, rule.closed_by, rule.open_at, now),
    )


def _rules(numbers: LimitNumbers | ChosenNumbers) -> LimitRules:
    return LimitRules(
        concurrency=numbers.concurrency,
        rate=rate_text(numbers.interval_us),
        burst=numbers.burst,
        concurrency_per_key=numbers.key_concurrency,
        rate_per_key=rate_text(numbers.key_interval_us),
        burst_per_key=numbers.key_burst,
    )


def declared_text(numbers: LimitNumbers) -> str:
    """What code declares, in a few words, to compare it with what others declare."""
    return declaration(
        _rules(numbers),
        per=numbers.per,
        is_ordered=numbers.is_ordered,
        on_dead=_on_dead(numbers),
        weights=numbers.weights,
    )


def _on_dead(numbers: LimitNumbers) -> str:
    return "pause" if numbers.pauses_when_dead else "continue"


def _closing(closed_until: int, closed_by: str | None, open_at: int, now: int) -> dict[str, Any]:
    """Whether something is paused, until when and why, or when its rate allows the next start."""
    if closed_until > now:
        until = None if closed_until >= FOR_EVER_US else from_us(closed_until)
        return {"is_paused": True, "paused_until": until, "paused_reason": closed_by}
    return {"opens_at": from_us(open_at) if open_at > now else None}


def _as_seen_by(tenant: str, info: LimitInfo, key: LimitKeyInfo) -> LimitInfo:
    """A limit without what it says about others."""
    weights = {name: weight for name, weight in info.weights.items() if name == tenant}
    return msgspec.structs.replace(
        info,
        weights=weights,
        running=key.running,
        waiting=key.waiting,
        paused_keys=Count(int(key.is_paused)),
        paused_reason=None,
        opens_at=None,
    )


# What waits


def _rooms() -> Steps[list[Row]]:
    """All rooms in which jobs wait: (queue, rank, kind, limit)."""
    rows = yield Statement("rooms/all", {"queues": None, "kinds": None})
    return [row[:4] for row in rows if row[4] is None]


def rooms_of(name: str) -> Steps[list[Row]]:
    """The rooms of a limit in which jobs wait: (queue, rank, kind, limit)."""
    return [room for room in (yield from _rooms()) if room[3] == name]


class RoomAge(NamedTuple):
    """A room, and since when the oldest of the jobs that were looked at waits there."""

    queue: str
    kind: str
    limit: str
    oldest: int


def room_ages() -> Steps[list[RoomAge]]:
    """The rooms in which jobs wait, within another verb."""
    found: list[RoomAge] = []
    values = {"cap": config.KEY_COUNT_EXACT_MAX}
    for room in (yield from _rooms()):
        queue, _, kind, limit = room
        ((_, number, oldest),) = yield Batch("count_rooms", _ROOM_COLUMNS, [room], values)
        if number:
            found.append(RoomAge(queue, kind, limit, oldest))
    return found


class _Waiting(NamedTuple):
    """How many jobs wait for a limit, and since when the oldest that was counted."""

    jobs: Count
    oldest: int


def _waiting(rooms: list[Row], now: int) -> Steps[dict[str, _Waiting]]:
    """Count the jobs in rooms, by limit. A limit beyond the bound is counted no further."""
    found: dict[str, _Waiting] = {}
    left = list(rooms)
    while left:
        values = {"cap": config.COUNT_EXACT_MAX + 1, "now": now}
        for name, number, oldest in (
            yield Batch("count_rooms", _ROOM_COLUMNS, left[:_ROOMS], values)
        ):
            if number:
                before = found.get(name, _Waiting(Count(0), oldest))
                total = before.jobs.value + number
                is_exact = before.jobs.exact and total <= config.COUNT_EXACT_MAX
                jobs = Count(min(total, config.COUNT_EXACT_MAX), exact=is_exact)
                found[name] = _Waiting(jobs, min(before.oldest, oldest))
        full = {name for name, waiting in found.items() if not waiting.jobs.exact}
        left = [room for room in left[_ROOMS:] if room[3] not in full]
    return found


def _with_waiting(info: LimitInfo, waiting: _Waiting | None, now: int) -> LimitInfo:
    if waiting is None:
        return info
    age = max(0, now - waiting.oldest) / config.SECOND_US
    return msgspec.structs.replace(info, waiting=waiting.jobs, oldest_waiting_seconds=age)


# Keys


class KeyState(NamedTuple):
    """What counts for a key. `running` is capped, `oldest` is when the longest run began."""

    key: str
    concurrency: int | None
    interval_us: int | None
    burst: int | None
    weight: int | None
    is_own: bool
    closed_until: int
    closed_by: str | None
    open_at: int
    running: int
    oldest: int | None


def key_states(
    name: str, keys: Sequence[str], now: int, *, cap: int, tenant: str | None = None
) -> Steps[list[KeyState]]:
    """What counts for keys of a limit, and how many of their jobs run, up to a cap."""
    values = {"limit_name": name, "keys": list(keys), "now": now, "cap": cap, "tenant": tenant}
    return [KeyState(*row) for row in (yield Statement("key_states", values))]


def count_of_key(
    rooms: Sequence[Row],
    key: str,
    *,
    before: tuple[int, str] = _LAST,
    tenant: str | None = None,
) -> Steps[Count]:
    """Count the jobs of a key that wait in these rooms, before a place, up to a bound."""
    total, most = 0, config.COUNT_EXACT_MAX
    values = {"key": key, "tenant": tenant, "cap": most + 1}
    columns = (*_ROOM_COLUMNS, "run_at", "id")
    for first in range(0, len(rooms), _ROOMS):
        batch = [(*room, *before) for room in rooms[first : first + _ROOMS]]
        total += sum(row[1] for row in (yield Batch("count_rooms/key", columns, batch, values)))
        if total > most:
            return Count(most, exact=False)
    return Count(total)


def _key_of_tenant(
    tenant: str, rule: StoredLimit, rooms: Sequence[Row], now: int
) -> Steps[LimitKeyInfo]:
    """The key of a tenant, with numbers of its own jobs."""
    cap = config.COUNT_EXACT_MAX + 1
    (state,) = yield from key_states(rule.name, [tenant], now, cap=cap, tenant=tenant)
    waiting = yield from count_of_key(rooms, tenant, tenant=tenant)
    running = _capped(state.running, config.COUNT_EXACT_MAX)
    # A reason may be from a job of somebody else.
    return _key_info(rule, state._replace(closed_by=None), running, waiting, now)


def other_keys(rooms: Sequence[Row], key: str) -> Steps[Count]:
    """Count the other keys of a limit with jobs in these rooms, up to a bound."""
    found: set[str] = set()
    visits = config.KEYS_LISTED_MAX + 1
    for queue, rank, kind, name in rooms[: config.KEY_ROOMS_MAX]:
        place = {"queue": queue, "rank": rank, "kind": kind, "limit_name": name}
        rows = yield Statement("room_keys", {**place, "start": "", "visits": visits, "cap": 1})
        found |= {row[0] for row in rows}
        if len(found) > visits:
            break
    return _capped(len(found - {key}), config.KEYS_LISTED_MAX)


class _WaitingKeys:
    """How many jobs of each key wait, summed over rooms of which each was read up to a key."""

    def __init__(self) -> None:
        self._jobs: dict[str, int] = {}
        self._cut: set[str] = set()
        self._end: str | None = None

    def add(self, rows: Rows, *, visits: int, cap: int) -> None:
        """Add the keys of a room. `visits` and `cap` bound what was read of it."""
        for key, number in rows:
            self._jobs[key] = self._jobs.get(key, 0) + min(number, cap)
            if number > cap:
                self._cut.add(key)
        if len(rows) >= visits:
            self.end_at(max(key for key, _ in rows))

    def end_at(self, key: str) -> None:
        """Behind this key, there may be others."""
        self._end = key if self._end is None else min(self._end, key)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._jobs))

    @property
    def end(self) -> str | None:
        """The last key that is known in full. None: all are."""
        return self._end

    def of(self, key: str) -> Count:
        is_exact = key not in self._cut and (self._end is None or key <= self._end)
        return Count(self._jobs.get(key, 0), exact=is_exact)


def _visit(
    rule: StoredLimit, start: str, visits: int, now: int, *, by_name: bool
) -> Steps[tuple[list[LimitKeyInfo], bool]]:
    """Visit keys from one on: those that run or wait, are paused or have numbers of their own.

    Returns:
        Up to `visits` of them, and whether there are more. By name, those are the first ones.
        Otherwise those with running jobs come before others.
    """
    values = {"limit_name": rule.name, "start": start, "visits": visits}
    busy = yield Statement("busy_keys", values)
    rooms = yield from rooms_of(rule.name)
    looked = rooms[: config.KEY_ROOMS_MAX]
    waiting = _WaitingKeys()
    cap = config.KEY_COUNT_EXACT_MAX // max(1, len(looked))
    for queue, rank, kind, _ in looked:
        place = {"queue": queue, "rank": rank, "kind": kind, "cap": cap + 1}
        waiting.add((yield Statement("room_keys", {**values, **place})), visits=visits, cap=cap)
    for is_running in (True, False):
        found = [row[0] for row in busy if bool(row[1]) is is_running]
        if len(found) >= visits:
            waiting.end_at(max(found))
    keys = dict.fromkeys((*(row[0] for row in busy), *waiting))
    end = waiting.end
    chosen = sorted(key for key in keys if end is None or key <= end) if by_name else list(keys)
    is_cut = end is not None or len(chosen) > visits or len(rooms) > len(looked)
    most = config.KEY_COUNT_EXACT_MAX
    states = yield from key_states(rule.name, chosen[:visits], now, cap=most + 1)
    return [
        _key_info(rule, state, _capped(state.running, most), waiting.of(state.key), now)
        for state in sorted(states)
    ], is_cut


def _key_info(
    rule: StoredLimit, state: KeyState, running: Count, waiting: Count, now: int
) -> LimitKeyInfo:
    return LimitKeyInfo(
        key=state.key,
        running=running,
        waiting=waiting,
        concurrency=state.concurrency,
        rate=rate_text(state.interval_us),
        burst=state.burst,
        weight=state.weight or rule.declared.weights.get(state.key, 1),
        is_own=bool(state.is_own),
        **_closing(state.closed_until, state.closed_by, state.open_at, now),
    )


def _capped(number: int, most: int) -> Count:
    return Count(min(number, most), number <= most)
