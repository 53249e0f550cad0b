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
    KeyShares,
    Rotation,
    SeenKey,
    Turn,
    WaitingRoom,
    Walk,
    after,
    behind,
    share,
)
from rowlock.store.steps import Batch, Rows, Statement, Steps

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
    """

    leases: list[Lease]
    is_spent: bool
    open_in: float | None = None


def claim_room(
    room: WaitingRoom, limit: int, values: Mapping[str, Any], rotation: Rotation
) -> Steps[RoomClaim]:
    """Lease up to `limit` jobs of a room. The caller has begun a transaction.

    Args:
        values: What a claim writes: the worker, the length of the lease, whether runs begin.
    """
    place = {"queue": room.queue, "rank": room.rank, "kind": room.kind, "limit_name": room.limit}
    turn = rotation.turn(room)
    walk = yield from _walk(place, turn, rotation.visits(room, limit))
    visited = len(walk.keys)
    leases: list[Lease] = []
    open_in, is_whole = walk.open_in, walk.is_whole
    has_rate = walk.has_rate or any(key.interval_us for key in walk.keys)
    next_turn = behind(walk.keys[-1].key) if walk.keys and not walk.is_whole else turn
    while len(leases) < limit:
        shares = share(walk, limit - len(leases), credit=turn)
        if not shares.jobs:
            break
        taken = yield from _take(walk, shares, {**place, **values})
        leases += taken
        if sum(shares.jobs.values()) == len(taken):
            next_turn = shares.next_turn
        walk = after(walk, shares, [_key_of(lease) for lease in taken])
        turn = shares.next_turn
    rotation.set(room, next_turn, visited=visited, jobs=len(leases))
    # If a rate was used up, only the next walk sees when it allows another start.
    is_spent = is_whole and len(leases) < limit and not (has_rate and leases)
    return RoomClaim(leases, is_spent, open_in)


def _walk(place: Mapping[str, Any], turn: Turn, visits: int) -> Steps[Walk]:
    """Visit keys from one on, and behind the last one the first ones."""
    values = {**place, "visits": visits, "lock_class": LOCK_CLASS, "start": turn.start}
    return _seen((yield Statement("walk_room", values)), turn, visits)


def _seen(rows: Rows, turn: Turn, visits: int) -> Walk:
    """The answer of `walk_room`. Without a row for the limit, nobody has declared it: no turns."""
    # A join promises no order.
    keys = [SeenKey(*row[:7]) for row in rows if row[0] is not None]
    keys.sort(key=lambda seen: (seen.key < turn.start, seen.key))
    for key, free, open_at, _, _, interval_us, _, weights, is_ordered, now in rows:
        if key is not None:
            continue
        return Walk(
            keys,
            len(keys) < visits,
            free,
            open_at,
            bool(interval_us),
            _decode_weights(weights) if weights else {},
            bool(is_ordered),
            now,
        )
    return Walk([], is_whole=True)


def _take(walk: Walk, shares: KeyShares, values: Mapping[str, Any]) -> Steps[list[Lease]]:
    """Lease jobs of keys, and note the starts where there is a rate."""
    name = "take_room/ordered" if walk.is_ordered else "take_room"
    limit = sum(shares.jobs.values())
    rows = yield Batch(name, ("key", "most"), list(shares.jobs.items()), {**values, "limit": limit})
    places = {key: place for place, key in enumerate(shares.jobs)}
    made = [(JobRow._make(row[:-1]), row[-1]) for row in rows]
    # Neither an UPDATE nor a batch promises any order of the rows that it returns.
    made.sort(key=lambda pair: (places[pair[0].limit_key or ""], pair[0].run_at, pair[0].id))
    if made:
        yield from _spend(walk, made, values["limit_name"])
    return [Lease.of_row(row, now=now, claim=None) for row, now in made]


def _spend(walk: Walk, made: Sequence[tuple[JobRow, int]], limit_name: str) -> Steps[None]:
    at = max(now for _, now in made)
    starts = Counter(row.limit_key or "" for row, _ in made)
    rows = [
        (seen.key, starts[seen.key] * seen.interval_us, seen.ahead_us, seen.interval_us)
        for seen in walk.keys
        if seen.interval_us and seen.key in starts
    ]
    values = {"limit_name": limit_name, "at": at}
    if rows:
        yield Batch("spend_key", ("key", "time", "ahead", "interval"), rows, values)
    if walk.has_rate:
        yield Statement("spend_limit", {**values, "starts": len(made)})


def _key_of(lease: Lease) -> str:
    assert lease.row is not None
    return lease.row.limit_key or ""
