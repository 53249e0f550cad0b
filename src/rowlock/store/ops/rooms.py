"""Claims under limits: jobs that wait in the rooms of their limits, key by key.

1. What may not run now is not in its lane. A job with a limit waits in the room of its queue, rank,
   kind and limit, or outside it until it is due.
2. A slot of a limit is a leased row. Nothing is counted up or down, so nothing can leak: a slot is
   free as soon as its lease is gone, however that ended.
3. Lock, then count: `walk_room` takes the locks of some keys without waiting for any of them, and
   `take_room`, a new statement with a younger snapshot, counts what runs and leases the rest. The
   locks last until the end of the transaction. SQLite needs none: a writer is alone.
4. Keys have their turns in rotation: a walk begins behind the last key that was served. Each key
   gets as many jobs as its weight says, and as many times that as fit.
5. A rate is kept by GCRA: one time per key, the one at which its next start would be due if starts
   came at exactly that rate. It is moved in the transaction that leases the jobs.
6. In a limit with an order, only the first job of a key can be leased, and while it runs or waits
   for a retry, it is still the first.

Jobs with a limit are only leased for slots that are free, and always found by job_lease.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from rowlock import config
from rowlock.columns import JobRow
from rowlock.job import Lease
from rowlock.store.rotation import (
    Alive,
    KeyFloor,
    KeyShares,
    Rotation,
    SeenKey,
    Turn,
    WaitingRoom,
    Walk,
    after,
    behind,
    share,
    still_alive,
)
from rowlock.store.steps import Batch, Begin, Op, Row, Rows, Statement, Steps, writing

# The class of our advisory locks: the first letters of our name. Those of an application, which
# has the numbers of one argument or another class, are never the same.
LOCK_CLASS: Final = int.from_bytes(b"rowl")
_decode_weights = msgspec.json.Decoder(dict[str, int]).decode


class RoomLook(NamedTuple):
    """What a look at rooms has found.

    `overdue`: queues with jobs to be let in. `due_in`: the seconds until there are others.
    """

    rooms: Sequence[WaitingRoom] = ()
    overdue: Sequence[str] = ()
    due_in: float | None = None


def look_at_rooms(queues: Sequence[str] | None, kinds: Sequence[str] | None) -> Steps[RoomLook]:
    """Find the rooms of these queues (None: all) and kinds in which jobs wait."""
    rows = yield Statement("rooms", {"queues": queues, "kinds": kinds})
    rooms: list[WaitingRoom] = []
    overdue: list[str] = []
    due_in: float | None = None
    for queue, rank, kind, limit, due_at, now in rows:
        if due_at is None:
            rooms.append(WaitingRoom(queue, rank, kind, limit))
        elif due_at <= now:
            overdue.append(queue)
        else:
            wait = (due_at - now) / config.SECOND_US
            due_in = wait if due_in is None else min(due_in, wait)
    return RoomLook(rooms, overdue, due_in)


def admit(queues: Sequence[str]) -> Steps[None]:
    """Let jobs that have become due into their rooms."""
    yield Statement("admit", {"queues": list(queues), "limit": config.MAINTENANCE_BATCH_ROWS})


class RoomClaim(NamedTuple):
    """The leases of a claim, and what is left.

    `is_spent`: every key has had its chance. `open_in`: the seconds until another one opens.
    `spent`: the seconds that the database took to look for keys.
    """

    leases: list[Lease]
    is_spent: bool
    open_in: float | None = None
    spent: float = 0.0


def claim_room(
    room: WaitingRoom, limit: int, values: Mapping[str, Any], rotation: Rotation
) -> Steps[RoomClaim]:
    """Lease up to `limit` jobs of a room. The caller has begun a transaction.

    Args:
        values: What a claim writes: the worker, the length of the lease, whether runs begin.
    """
    turn = rotation.turn(room)
    walk = yield from _walk(room, turn, rotation.visits(room, limit), rotation)
    visited = len(walk.keys)
    leases: list[Lease] = []
    open_in, is_whole = walk.open_in, walk.is_whole
    has_rate = walk.has_rate or any(key.interval_us for key in walk.keys)
    next_turn = behind(walk.keys[-1].key) if walk.keys and not walk.is_whole else turn
    last = turn.start
    in_vain = 0
    while len(leases) < limit:
        shares = share(walk, limit - len(leases), credit=turn)
        if not shares.jobs:
            break
        if in_vain == config.TAKES_IN_VAIN_MAX:
            # The others have their turn in the next claim.
            next_turn, is_whole = behind(last), False
            break
        taken = yield from _take(room, walk, shares, values, rotation)
        leases += taken
        last, in_vain = [*shares.jobs][-1], in_vain + (not taken)
        if sum(shares.jobs.values()) == len(taken):
            next_turn = shares.next_turn
        walk = after(walk, shares, [_key_of(lease) for lease in taken])
        turn = shares.next_turn
    rotation.set(room, next_turn, visited=visited, jobs=len(leases))
    # If a rate was used up, only the next walk sees when it allows another start.
    is_spent = is_whole and len(leases) < limit and not (has_rate and leases)
    return RoomClaim(leases, is_spent, open_in, walk.spent_us / config.SECOND_US)


class KeysLook(NamedTuple):
    """All keys at which jobs wait: how many, whether one seems open, and when another one opens.

    `open_in` is in seconds. None: nothing is closed, or nobody knows until when.
    """

    keys: int
    is_open: bool
    open_in: float | None


def look_at_keys(kinds: Sequence[str]) -> Op[KeysLook]:
    """Look at every key at which jobs of these kinds wait. For drains and tests, not for workers.

    A claim visits only some keys, and the next claim others.
    """

    def steps() -> Steps[KeysLook]:
        yield Begin()
        count, is_open, waits = 0, False, list[float]()
        for room in (yield from look_at_rooms(None, kinds)).rooms:
            turn, seen, is_whole = Turn(), set[str](), False
            while not is_whole:
                walk = yield from _walk(room, turn, config.KEYS_VISITED_MAX, Rotation())
                waits += [] if walk.open_in is None else [walk.open_in]
                is_open = is_open or bool(share(walk, 1, credit=turn).jobs)
                # A walk goes on with the first keys behind the last one.
                is_whole = walk.is_whole or any(each.key in seen for each in walk.keys)
                seen |= {each.key for each in walk.keys}
                turn = turn if is_whole else behind(walk.keys[-1].key)
            count += len(seen)
        known = [wait for wait in waits if wait <= config.DURATION_SECONDS_MAX]
        return KeysLook(count, is_open, min(known, default=None))

    return writing("look_at_keys", steps, repeat=steps)


def _place(room: WaitingRoom) -> dict[str, Any]:
    return {"queue": room.queue, "rank": room.rank, "kind": room.kind, "limit_name": room.limit}


def _walk(room: WaitingRoom, turn: Turn, visits: int, rotation: Rotation) -> Steps[Walk]:
    """Visit keys from one on, and behind the last one the first ones."""
    total = rotation.alive(room, None)
    values = {
        **_place(room),
        "visits": visits,
        "lock_class": LOCK_CLASS,
        "total_upto": total.upto,
    }
    keys = rotation.known(room, turn, visits)
    if keys is None:
        rows = yield Statement("walk_room", {**values, "start": turn.start})
        walk = _seen(rows, turn, visits)
        rotation.note(room, walk)
        return walk
    floors = [rotation.floor(room, key) for key in keys]
    alive = [rotation.alive(room, key) for key in keys]
    rows = yield Statement(
        "walk_room/known",
        {
            **values,
            "keys": keys,
            "floors_at": [floor.run_at for floor in floors],
            "floors_id": [floor.id for floor in floors],
            "uptos": [each.upto for each in alive],
            "olds": [each.listed for each in alive],
        },
    )
    is_whole = len(keys) == rotation.count_known(room)
    walk = _seen(rows, turn, visits)._replace(is_whole=is_whole, spent_us=0)
    if walk.is_ours:
        rotation.forget(room, set(keys) - {seen.key for seen in walk.keys})
    return walk


def _seen(rows: Rows, turn: Turn, visits: int) -> Walk:
    """The answer of `walk_room`. Without a row for the limit, nobody has declared it: no turns."""
    # A join promises no order.
    keys = [SeenKey(*row[:9]) for row in rows if row[0] is not None]
    keys.sort(key=lambda seen: (seen.key < turn.start, seen.key))
    for row in rows:
        if row[0] is not None:
            continue
        free, open_at, _, is_ours, interval_us, _, weights, is_ordered, now, spent_us = row[3:]
        return Walk(
            keys,
            is_whole=len(keys) < visits,
            free=free,
            open_at=open_at,
            has_rate=bool(interval_us),
            weights=_decode_weights(weights) if weights else {},
            is_ordered=bool(is_ordered),
            now=now,
            spent_us=spent_us,
            is_ours=bool(is_ours),
        )
    return Walk([], is_whole=True)


_TAKE_COLUMNS: Final = ("key", "most", "floor_at", "floor_id", "upto", "old", "first_place")
_COLUMNS: Final = len(JobRow._fields)


class _Start(NamedTuple):
    """A job that was leased, with what was alive of its key before: some turns, and how many.

    `oldest` is the oldest turn alive of the whole limit, if that has a number: 0 without any.
    """

    row: JobRow
    turn: int
    now: int
    alive: Sequence[int] | None
    running: int | None
    oldest: int | None

    @property
    def key(self) -> str:
        return self.row.limit_key or ""


def _take(
    room: WaitingRoom,
    walk: Walk,
    shares: KeyShares,
    values: Mapping[str, Any],
    rotation: Rotation,
) -> Steps[list[Lease]]:
    """Lease jobs of keys, and note the starts where there is a rate."""
    name = "take_room/ordered" if walk.is_ordered else "take_room"
    asked: list[Row] = []
    for key, most in shares.jobs.items():
        floor, alive = rotation.floor(room, key), rotation.alive(room, key)
        asked.append((key, most, floor.run_at, floor.id, alive.upto, alive.listed, floor.place))
    total = rotation.alive(room, None)
    limit = sum(shares.jobs.values())
    is_slow = rotation.is_slow(room)
    given = {**_place(room), **values, "limit": limit, "total_upto": total.upto, "asks": is_slow}
    rows = yield Batch(name, _TAKE_COLUMNS, asked, given)
    taken = [_Start(JobRow._make(row[:_COLUMNS]), *row[_COLUMNS:]) for row in rows]
    places = {key: place for place, key in enumerate(shares.jobs)}
    # Neither an UPDATE nor a batch promises any order of the rows that it returns.
    taken.sort(key=lambda each: (places[each.key], each.row.run_at, each.row.id))
    if taken:
        yield from _spend(walk, taken, room.limit)
    if taken and is_slow:
        _remember(room, taken, rotation, is_every_tenant=values["tenants"] is None)
    return [Lease.of_row(each.row, now=each.now) for each in taken]


def _remember(
    room: WaitingRoom, taken: Sequence[_Start], rotation: Rotation, *, is_every_tenant: bool
) -> None:
    """Remember what is alive, as it was seen under the locks, and where each key goes on."""
    fresh: dict[str, list[int]] = {}
    for each in taken:
        row = each.row
        fresh.setdefault(each.key, []).append(each.turn)
        if row.place is not None:
            # In an order, a job that is due later may come first.
            rotation.start(room, each.key, rotation.floor(room, each.key)._replace(place=row.place))
        elif is_every_tenant:
            rotation.start(room, each.key, KeyFloor(row.run_at, row.id))
        if each.alive is not None:
            turns = fresh[each.key]
            alive = still_alive(each.alive, turns, is_all=len(each.alive) == each.running)
            rotation.set_alive(room.limit, each.key, alive)
    oldest = taken[0].oldest
    if oldest is not None:
        turns = [each.turn for each in taken]
        rotation.set_alive(room.limit, None, Alive(min([oldest, *turns] if oldest else turns) - 1))


def _spend(walk: Walk, taken: Sequence[_Start], limit_name: str) -> Steps[None]:
    at = max(each.now for each in taken)
    starts = Counter(each.key for each in taken)
    rows = [
        (seen.key, starts[seen.key] * seen.interval_us, seen.ahead_us, seen.interval_us)
        for seen in walk.keys
        if seen.interval_us and seen.key in starts
    ]
    values = {"limit_name": limit_name, "at": at}
    if rows:
        yield Batch("spend_key", ("key", "time", "ahead", "interval"), rows, values)
    if walk.has_rate:
        yield Statement("spend_limit", {**values, "starts": len(taken)})


def _key_of(lease: Lease) -> str:
    assert lease.row is not None
    return lease.row.limit_key or ""
