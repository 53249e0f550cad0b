"""Whose turn it is: the keys of a limit in rotation, and how many jobs each may start. Pure.

1. Keys stand in a ring, in the order of their names. A process remembers where it stopped.
2. Each key gets as many starts in a turn as its weight says. Turns go round until the slots are
   used up. A key that was cut off in its turn begins with the rest of it next time.
3. A key gets no more starts than it has room for, and others get what it leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from rowlock import config


class WaitingRoom(msgspec.Struct, frozen=True):
    """Where jobs of one queue, rank and kind wait at their limit."""

    queue: str
    rank: int
    kind: str
    limit: str


class Turn(NamedTuple):
    """From which key on a room is served, and how many jobs that key may still have, if some.

    `start` need not be a key: the next one after it comes first.
    """

    start: str = ""
    credit: int | None = None


_FIRST_TURN: Final = Turn()


class Rotation:
    """Whose turn is next in each room, as one process remembers it.

    Two threads that serve one room at once may give a key two turns: shares are approximate then.
    """

    def __init__(self) -> None:
        self._turns: dict[WaitingRoom, Turn] = {}
        # How many jobs each visited key has given, lately.
        self._gains: dict[WaitingRoom, float] = {}
        self._is_rooms_turn = False

    def turn(self, room: WaitingRoom) -> Turn:
        """Where to begin."""
        return self._turns.get(room, _FIRST_TURN)

    def visits(self, room: WaitingRoom, limit: int) -> int:
        """How many keys to visit for so many jobs: as many as should be enough."""
        wanted = 1 + 1.1 * limit / self._gains.get(room, 1.0)
        return round(min(config.KEYS_VISITED_MAX, max(config.KEYS_VISITED_MIN, wanted)))

    def set(self, room: WaitingRoom, turn: Turn, *, visited: int, jobs: int) -> None:
        """Where to begin next time. So many keys were visited, and so many jobs leased."""
        if room not in self._turns and len(self._turns) >= config.ROOMS_REMEMBERED_MAX:
            oldest = next(iter(self._turns))
            self._turns.pop(oldest, None)
            self._gains.pop(oldest, None)
        self._turns[room] = turn
        if visited:
            gain = max(0.1, jobs / visited)
            self._gains[room] = (self._gains.get(room, gain) + gain) / 2

    def rooms_first(self) -> bool:
        """Whether rooms come before lanes of the same rank: every second time."""
        self._is_rooms_turn = not self._is_rooms_turn
        return self._is_rooms_turn


def behind(key: str) -> Turn:
    """The turn of the first key after this one. No text has a NUL character."""
    return Turn(f"{key}\x01")


class SeenKey(NamedTuple):
    """A key of a room. `free`: how many more of its jobs may run. None: any number.

    Of its rate: the time between two starts, and how far ahead of the clock its next start can be.
    """

    key: str
    free: int | None
    open_at: int
    weight: int | None
    is_ours: bool
    interval_us: int | None = None
    ahead_us: int | None = None


class Walk(NamedTuple):
    """What a walk has found: keys in the order of their turns, and the rules of the limit.

    `is_whole`: there are no other keys.
    """

    keys: Sequence[SeenKey]
    is_whole: bool
    free: int | None = None
    open_at: int = 0
    has_rate: bool = False
    weights: Mapping[str, int] = MappingProxyType({})
    is_ordered: bool = False
    now: int = 0

    def weight(self, seen: SeenKey) -> int:
        """How many jobs of a key start in one turn."""
        return seen.weight or self.weights.get(seen.key, 1)

    @property
    def open_in(self) -> float | None:
        """How many seconds until a key, or the limit, is open again. None: nothing is closed."""
        times = [self.open_at, *(key.open_at for key in self.keys)]
        later = [time for time in times if time > self.now]
        return (min(later) - self.now) / config.SECOND_US if later else None


# More than anybody asks for.
_ANY: Final = 10**9


class KeyShares(NamedTuple):
    """How many jobs each key may start, in the order of turns, and whose turn is next."""

    jobs: dict[str, int]
    next_turn: Turn


def share(walk: Walk, limit: int, *, credit: Turn) -> KeyShares:
    """Divide a number of starts among keys by their weights, turn by turn."""
    left = limit if walk.free is None else min(limit, walk.free)
    rooms = {
        seen.key: _ANY if seen.free is None else seen.free
        for seen in walk.keys
        if seen.is_ours and seen.free != 0
    }
    weights = {seen.key: walk.weight(seen) for seen in walk.keys if seen.key in rooms}
    jobs = dict.fromkeys(rooms, 0)
    next_turn, own = credit, credit.credit
    while left and rooms:
        # Whole turns of all keys at once, and then one by one.
        total = sum(weights[key] for key in rooms)
        turns = min(left // total, *(rooms[key] // weights[key] for key in rooms))
        for key in list(rooms) if own is None else ():
            jobs[key] += turns * weights[key]
            left -= turns * weights[key]
            rooms[key] -= turns * weights[key]
            next_turn = behind(key)
        rooms = {key: room for key, room in rooms.items() if room}
        for key in list(rooms) if left else ():
            turn = own if own is not None and key == credit.start else weights[key]
            own = None
            number = min(turn, rooms[key], left)
            jobs[key] += number
            left -= number
            rooms[key] -= number
            if not rooms[key]:
                del rooms[key]
            is_cut = number < turn and key in rooms
            next_turn = Turn(key, turn - number) if is_cut else behind(key)
            if not left:
                break
    return KeyShares({key: number for key, number in jobs.items() if number}, next_turn)


def after(walk: Walk, shares: KeyShares, keys: Sequence[str]) -> Walk:
    """The walk after jobs of these keys have started: the keys that may have more jobs.

    Those are the ones that gave as many as was asked for.
    """
    starts = Counter(keys)
    left = [
        seen if seen.free is None else seen._replace(free=seen.free - starts[seen.key])
        for seen in walk.keys
        if starts[seen.key] and starts[seen.key] == shares.jobs.get(seen.key)
    ]
    free = None if walk.free is None else walk.free - len(keys)
    return walk._replace(keys=left, free=free)
