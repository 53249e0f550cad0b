"""Whose turn it is: the keys of a limit in rotation, and how many jobs each may start. Pure.

1. Keys stand in a ring, in the order of their names. A process remembers where it stopped.
2. Each key gets as many starts in a turn as its weight says. Turns go round until the slots are
   used up. A key that was cut off in its turn begins with the rest of it next time.
3. A key gets no more starts than it has room for, and others get what it leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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


class KeyFloor(NamedTuple):
    """Where the jobs of a key begin, as far as a look has seen: at a job, and at a place in order.

    Jobs below it (given back, committed late) are found by the next look.
    """

    run_at: int
    id: str
    place: int = 0


class Alive(NamedTuple):
    """Which starts of a key may not have ended: these turns, and all after `upto`.

    Known under the lock of the key: so no other start can have a turn up to `upto`.
    """

    upto: int = 0
    turns: tuple[int, ...] = ()

    @property
    def listed(self) -> str:
        """The turns as PostgreSQL writes a list."""
        return f"{{{','.join(map(str, self.turns))}}}"


_NOTHING_KNOWN: Final = Alive()


def still_alive(before: Sequence[int], fresh: Sequence[int], *, is_all: bool) -> Alive:
    """What is alive after some starts. `before` was alive then, or the oldest of it."""
    turns = (*before, *fresh)
    if not is_all or len(turns) > config.TURNS_REMEMBERED_MAX:
        return Alive(min(turns) - 1)
    return Alive(max(turns), turns)


class _Ring:
    """The keys of a room that were seen since the last look, and whether those are all."""

    def __init__(self) -> None:
        self.floors: dict[str, KeyFloor] = {}
        self.is_whole = False
        self.is_slow = False


class Rotation:
    """Whose turn is next in each room, and what is known of its keys, as one process remembers it.

    Two threads that serve one room at once may give a key two turns: shares are approximate then.
    """

    def __init__(self) -> None:
        self._turns: dict[WaitingRoom, Turn] = {}
        # How many jobs each visited key has given, lately.
        self._gains: dict[WaitingRoom, float] = {}
        self._rings: dict[WaitingRoom, _Ring] = {}
        # By limit and key. The key None stands for the whole limit.
        self._alive: dict[tuple[str, str | None], Alive] = {}
        self._is_rooms_turn = False

    def turn(self, room: WaitingRoom) -> Turn:
        """Where to begin."""
        return self._turns.get(room, _FIRST_TURN)

    def visits(self, room: WaitingRoom, limit: int) -> int:
        """How many keys to visit for this many jobs: as many as should be enough."""
        wanted = 1 + 1.1 * limit / self._gains.get(room, 1.0)
        return round(min(config.KEYS_VISITED_MAX, max(config.KEYS_VISITED_MIN, wanted)))

    def set(self, room: WaitingRoom, turn: Turn, *, visited: int, jobs: int) -> None:
        """Where to begin next time. `visited` keys have given `jobs` jobs."""
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

    # What is known since the last look

    def look_again(self) -> None:
        """A look begins: the keys of all rooms are walked through from their beginnings."""
        self._rings.clear()

    def note(self, room: WaitingRoom, walk: Walk) -> None:
        """These keys were seen, in the order of their turns.

        If that took long, the walk has passed over many jobs that have ended, and it is worth
        remembering where those of each key begin. Otherwise it would cost more than it saves.
        """
        ring = self._rings.setdefault(room, _Ring())
        keys = max(len(walk.keys), config.KEYS_VISITED_MIN)
        ring.is_slow = ring.is_slow or walk.spent_us > keys * config.KEY_SLOW_US
        if not ring.is_slow:
            return
        for seen in walk.keys:
            place = ring.floors[seen.key].place if seen.key in ring.floors else 0
            ring.floors[seen.key] = KeyFloor(seen.run_at, seen.id, place)
        ring.is_whole = ring.is_whole or walk.is_whole
        if len(ring.floors) > config.KEYS_REMEMBERED_MAX:
            ring.floors.clear()
            ring.is_whole = False

    def is_slow(self, room: WaitingRoom) -> bool:
        """Whether walks through this room take long, so that what is known of its keys counts."""
        ring = self._rings.get(room)
        return ring is not None and ring.is_slow

    def known(self, room: WaitingRoom, turn: Turn, visits: int) -> list[str] | None:
        """The keys to visit, from one on. None: not all keys are known, so look for them."""
        ring = self._rings.get(room)
        if ring is None or not ring.is_whole or not ring.is_slow:
            return None
        keys = sorted(ring.floors, key=lambda key: (key < turn.start, key))
        return keys[:visits]

    def forget(self, room: WaitingRoom, keys: Iterable[str]) -> None:
        """These keys have no jobs left."""
        ring = self._rings.get(room)
        if ring is not None:
            for key in keys:
                ring.floors.pop(key, None)

    def count_known(self, room: WaitingRoom) -> int:
        """How many keys are known."""
        ring = self._rings.get(room)
        return 0 if ring is None else len(ring.floors)

    def floor(self, room: WaitingRoom, key: str) -> KeyFloor:
        """Where the jobs of a key begin."""
        ring = self._rings.get(room)
        floor = None if ring is None else ring.floors.get(key)
        return _BOTTOM if floor is None else floor

    def start(self, room: WaitingRoom, key: str, floor: KeyFloor) -> None:
        """A job of a key was started: the last of those that were."""
        ring = self._rings.get(room)
        if ring is not None and key in ring.floors:
            ring.floors[key] = floor

    # What runs

    def alive(self, room: WaitingRoom, key: str | None) -> Alive:
        """Which starts of a key, or of the whole limit, may not have ended."""
        if not self.is_slow(room):
            return _NOTHING_KNOWN
        return self._alive.get((room.limit, key), _NOTHING_KNOWN)

    def set_alive(self, limit: str, key: str | None, alive: Alive) -> None:
        """Known under the lock of the key, or of the limit."""
        while len(self._alive) >= config.KEYS_REMEMBERED_MAX:
            self._alive.pop(next(iter(self._alive)), None)
        self._alive.pop((limit, key), None)
        self._alive[limit, key] = alive


_BOTTOM: Final = KeyFloor(-(2**63), "00000000-0000-0000-0000-000000000000")


def behind(key: str) -> Turn:
    """The turn of the first key after this one. No text has a NUL character."""
    return Turn(f"{key}\x01")


class SeenKey(NamedTuple):
    """A key of a room, and its first job. `free`: how many more may run. None: any number.

    Of its rate: the time between two starts, and how far ahead of the clock its next start can be.
    """

    key: str
    run_at: int
    id: str
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
    # How many microseconds the walk took in the database, if it had to look for keys.
    spent_us: int = 0
    is_ours: bool = False

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

    Those are the ones that gave as many as was asked for, and those that were not asked.
    """
    starts = Counter(keys)
    left = [
        seen if seen.free is None else seen._replace(free=seen.free - starts[seen.key])
        for seen in walk.keys
        if starts[seen.key] == shares.jobs.get(seen.key, 0)
    ]
    free = None if walk.free is None else walk.free - len(keys)
    return walk._replace(keys=left, free=free)
