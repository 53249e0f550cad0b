"""A child's leases and counts in shared memory: written by the child, read by its supervisor, also
after the child's death. Times are CLOCK_MONOTONIC, which all processes of a machine share.

Leases (`SharedLeases`):

1. A slot is written completely before its state says so, and its state is one byte.
2. `HELD` is claimed and not begun, `STARTED` has begun: its handler is called after that was
   written, never before. `ENDED` waits for its outcome to be written. `LOST` still runs, and its
   lease is over or belongs to another worker. Only the child writes slots.

A child whose event loop is blocked can't start what it holds, nor give it back. Its supervisor
does that, and a child that goes on at this very moment must not start any of it:

3. The child's loop changes its pulse a few times a second. The supervisor alone writes the mark.
4. A slot carries the mark that was there when its lease was noted. A lease is revoked if it is
   `HELD` and its mark is not the one that is there now.
5. The child, to begin a run, writes `STARTED` first and reads the mark second. If the lease is
   revoked, it writes `HELD` again and never calls the handler: it gives the job back.
6. The supervisor writes a new mark first and reads the slots second, after a while that is long
   enough for both writes to be seen by both sides, whatever the processors' store buffers do.
   It gives back what is `HELD` and revoked at that read, nothing else.

So of the two at least one sees what the other wrote. If the supervisor read `HELD`, its mark was
there before the child's `STARTED`, and the child sees the mark. If the child saw the old mark, its
`STARTED` was there before the new one, and the supervisor sees that. Both may give a job back; the
lease's token lets only one of them. That the child asks the database whether a revoked lease is
still its own would not do: the supervisor's settle may be on its way.

Jobs that were claimed together have their slots side by side (`SharedBlock`). The rules are the
same, only many slots are written and dropped at once:

7. All slots of a block carry one mark, and the states of all are written after all slots are.
8. A slot of a block belongs to the block until `part`; from then on to the lease that it is given.
   Whoever it belongs to drops it, so no place is given back twice.

Counts (`SharedCounts`):

9. There are two halves. The child writes the one that is not shown, then shows it: one byte. So a
   reader sees whole sums, unless two writes come while it reads; then it reads again.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import msgspec

from rowlock import config
from rowlock.job import Lease
from rowlock.tally import Spread, Sums, Tally, merged

_SLOT = struct.Struct("=B B B 5x 16s q d 24x")
_SLOT_MARK = 2
_SLOT_ID = struct.calcsize("=B B B 5x")
_ID_BYTES = 16
# Before the slots: how many jobs have ended, a byte for whether the child has left, and why, and
# one for whether it is about to.
_FINISHED = struct.Struct("=Q")
_LEFT = _FINISHED.size
_LEAVING = _LEFT + 1
_TOLD, _DRAINED = 1, 2
# The pulse is 0 until the loop runs. One byte each: no reader can see half of a write.
_PULSE = 16
_MARK = 17
_HEADER_BYTES = 64
assert _SLOT.size == 64
# Found by a pattern: a loop over thousands of empty slots, five times a second, was most of what an
# idle supervisor cost.
_TAKEN = re.compile(rb"[^\0]", re.DOTALL)

# Of the counts: which half is shown, when the child could last claim; then each half.
_HEAD = struct.Struct("=B 7x d")
_LENGTH = struct.Struct("=I")
_HALF = config.SHARED_COUNTS_BYTES // 2
_READS_MAX = 5


class SlotState(IntEnum):
    """The state of a lease."""

    EMPTY = 0
    HELD = 1
    STARTED = 2
    ENDED = 3
    LOST = 4


# Plain numbers: they are written for every job.
_STARTED, _ENDED = int(SlotState.STARTED), int(SlotState.ENDED)


class DeadlineKind(IntEnum):
    """Which limit a deadline belongs to."""

    NONE = 0
    TIMEOUT = 1
    CANCEL = 2


@dataclass(frozen=True, slots=True)
class LeaseSlot:
    """One lease as the supervisor reads it."""

    id: str
    token: int
    state: SlotState
    deadline_kind: DeadlineKind
    deadline: float
    is_revoked: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Unique among all runs, also among those of its job."""
        return self.id, self.token

    def is_overdue(self, now: float) -> bool:
        """Whether its run, lost or not, should have ended and has not."""
        is_running = self.state in (SlotState.STARTED, SlotState.LOST)
        return is_running and self.deadline_kind is not DeadlineKind.NONE and self.deadline < now

    def lease(self, worker: str) -> Lease:
        return Lease(id=self.id, token=self.token, worker=worker)


class _FreePlaces:
    """The places of slots that nobody uses."""

    def __init__(self, count: int) -> None:
        # The starts and lengths of places side by side, and single ones. Neighbours are joined when
        # there is no room for a block otherwise.
        self._stretches = [(0, count)]
        self._single: list[int] = []

    def pop(self) -> int:
        """Take one place."""
        if not self._single:
            start, length = self._stretches.pop()
            if length > 1:
                self._stretches.append((start, length - 1))
            return start + length - 1
        return self._single.pop()

    def take(self, count: int) -> int | None:
        """Take places side by side, and return the first. None if there is no room."""
        place = self._take(count)
        if place is None:
            self._join()
            place = self._take(count)
        return place

    def _take(self, count: int) -> int | None:
        for at, (start, length) in enumerate(self._stretches):
            if length >= count:
                self._stretches[at : at + 1] = [(start + count, length - count)] * (length > count)
                return start
        return None

    def give(self, place: int, count: int = 1) -> None:
        """Give places side by side back."""
        if count == 1:
            self._single.append(place)
        elif count:
            self._stretches.append((place, count))

    def _join(self) -> None:
        stretches = sorted([*self._stretches, *((place, 1) for place in self._single)])
        self._single, self._stretches = [], []
        for start, length in stretches:
            if self._stretches and sum(self._stretches[-1]) == start:
                before, its = self._stretches[-1]
                self._stretches[-1] = (before, its + length)
            else:
                self._stretches.append((start, length))


class SharedLeases:
    """The slots of one child, how many jobs it has finished, and whether it has left."""

    def __init__(self, descriptor: int, slots: int) -> None:
        self._map = mmap.mmap(descriptor, _HEADER_BYTES + slots * _SLOT.size)
        self._free = _FreePlaces(slots)
        # By id and token: a lost run may still go on when its job is claimed again.
        self._places: dict[tuple[str, int], int] = {}

    @staticmethod
    def make_descriptor(slots: int) -> int:
        """Memory for the leases, to be passed on to a child."""
        descriptor = os.memfd_create("rowlock-leases")
        os.ftruncate(descriptor, _HEADER_BYTES + slots * _SLOT.size)
        return descriptor

    # The child's side

    def hold(self, lease: Lease) -> None:
        """Note a lease that was claimed."""
        place = self._free.pop()
        self._places[lease.id, lease.token] = place
        self._map[self._offset(place) + _SLOT_MARK] = self._map[_MARK]
        self._write(place, SlotState.HELD, lease, DeadlineKind.NONE, 0.0)

    def hold_block(self, ids: Sequence[str], token: int) -> SharedBlock | None:
        """Note leases that were claimed together. None if there is no room for them side by side.

        Written as a whole: 0.25 µs per lease instead of 1.8.
        """
        place = self._free.take(len(ids))
        if place is None:
            return None
        mark = self._map[_MARK]
        empty = _SLOT.pack(SlotState.EMPTY, DeadlineKind.NONE, mark, bytes(_ID_BYTES), token, 0.0)
        head, tail = empty[:_SLOT_ID], empty[_SLOT_ID + _ID_BYTES :]
        raw = bytes.fromhex("".join(ids).replace("-", ""))
        each = [raw[at : at + _ID_BYTES] for at in range(0, len(raw), _ID_BYTES)]
        start, end = self._offset(place), self._offset(place + len(ids))
        self._map[start:end] = head + (tail + head).join(each) + tail
        self._map[start : end : _SLOT.size] = bytes([SlotState.HELD]) * len(ids)
        return SharedBlock(self, place, mark)

    def start(self, lease: Lease, *, deadline: float | None = None) -> bool:
        """Note that a run begins. Past its deadline the process may be ended.

        False: its lease is revoked, and its handler must not be called. A run that has begun
        continues.
        """
        place = self._places[lease.id, lease.token]
        offset = self._offset(place)
        has_begun = self._map[offset] == SlotState.STARTED
        if deadline is None:
            self._map[offset] = SlotState.STARTED
        else:
            self._write(place, SlotState.STARTED, lease, DeadlineKind.TIMEOUT, deadline)
        if has_begun or self._map[_MARK] == self._map[offset + _SLOT_MARK]:
            return True
        self._map[offset] = SlotState.HELD
        return False

    def is_revoked(self, lease: Lease) -> bool:
        """Whether the supervisor gives it back or has done so, because it had not begun."""
        place = self._places.get((lease.id, lease.token))
        if place is None:
            return False
        offset = self._offset(place)
        is_held = self._map[offset] == SlotState.HELD
        return is_held and self._map[_MARK] != self._map[offset + _SLOT_MARK]

    def pulse(self) -> int:
        """Show that the loop is not blocked. Returns the present mark."""
        self._map[_PULSE] = self._map[_PULSE] % 255 + 1
        return self._map[_MARK]

    def settle(self, lease: Lease) -> None:
        """Note that a run has settled itself and continues.

        It is a suspect if the process crashes, but it has no deadline and is not settled again.
        """
        place = self._places.get((lease.id, lease.token))
        if place is not None:
            self._write(place, SlotState.LOST, lease, DeadlineKind.NONE, 0.0)

    def end(self, lease: Lease) -> None:
        """Note that a run is over, and its outcome not yet written."""
        self._turn(lease, SlotState.ENDED)

    def lose(self, lease: Lease) -> None:
        """Note that a lease was lost. Its run, if it has begun, keeps its deadline."""
        if not self._turn(lease, SlotState.LOST):
            self.drop(lease)

    def _turn(self, lease: Lease, state: SlotState) -> bool:
        """Change the state of a run that has begun. False if it has not, or is lost."""
        place = self._places.get((lease.id, lease.token))
        if place is None or self._map[self._offset(place)] != SlotState.STARTED:
            return False
        self._map[self._offset(place)] = state
        return True

    def must_end_by(self, lease: Lease, deadline: float) -> None:
        """Note that a run was cancelled, and by when it must have ended."""
        place = self._places.get((lease.id, lease.token))
        # A run that has not begun never will, so it needs no deadline.
        if place is not None and self._map[self._offset(place)] == SlotState.STARTED:
            self._write(place, SlotState.STARTED, lease, DeadlineKind.CANCEL, deadline)

    def drop(self, lease: Lease) -> None:
        """Note that a lease is settled, given back or lost."""
        place = self._places.pop((lease.id, lease.token), None)
        if place is not None:
            self._map[self._offset(place)] = SlotState.EMPTY
            self._free.give(place)

    def drop_block(self, place: int, count: int) -> None:
        """Note that leases side by side are settled."""
        start, end = self._offset(place), self._offset(place + count)
        self._map[start : end : _SLOT.size] = bytes(count)
        self._free.give(place, count)

    def adopt(self, lease: Lease, place: int) -> None:
        """Find the slot at this place by its lease from now on."""
        self._places[lease.id, lease.token] = place

    def count_finished(self, jobs: int) -> None:
        """Say how many jobs this child has finished since its start."""
        self._map[: _FINISHED.size] = _FINISHED.pack(jobs)

    def begin_to_leave(self) -> None:
        """Show that this child knows that it should end: its loop is not blocked."""
        self._map[_LEAVING] = 1

    def leave(self, *, is_drained: bool) -> None:
        """Show that this child ends on request, or has run its maximum, or has drained the queue.

        Its exit code is no proof: any handler can end its process with any code.
        """
        self._map[_LEFT] = _DRAINED if is_drained else _TOLD

    def _write(
        self, place: int, state: SlotState, lease: Lease, kind: DeadlineKind, deadline: float
    ) -> None:
        offset = self._offset(place)
        raw = bytes.fromhex(lease.id.replace("-", ""))
        mark = self._map[offset + _SLOT_MARK]
        packed = _SLOT.pack(0, kind, mark, raw, lease.token, deadline)
        self._map[offset + 1 : offset + _SLOT.size] = packed[1:]
        self._map[offset] = state

    @staticmethod
    def _offset(place: int) -> int:
        return _HEADER_BYTES + place * _SLOT.size

    # The supervisor's side

    def finished(self) -> int:
        """How many jobs the child has finished."""
        count: int = _FINISHED.unpack(self._map[: _FINISHED.size])[0]
        return count

    def is_leaving(self) -> bool:
        """Whether the child knows that it should end."""
        return bool(self._map[_LEAVING])

    def has_left(self) -> bool:
        """Whether the child has ended by itself."""
        return bool(self._map[_LEFT])

    def is_drained(self) -> bool:
        """Whether it has ended because nothing was left to run."""
        return self._map[_LEFT] == _DRAINED

    def last_pulse(self) -> int:
        """The pulse that the loop has written last. 0 before it runs."""
        return self._map[_PULSE]

    def revoke(self) -> None:
        """Have the child begin no run that it holds now. The head of this module says how."""
        self._map[_MARK] = (self._map[_MARK] + 1) % 256

    def started(self) -> int:
        """How many runs have begun and not ended."""
        return self._states().count(SlotState.STARTED)

    def held(self) -> int:
        """How many leases the child holds, with those of runs that have lost theirs."""
        states = self._states()
        return len(states) - states.count(SlotState.EMPTY)

    def slots(self) -> Iterator[LeaseSlot]:
        """The leases that the child holds, and those of runs that have lost theirs."""
        for taken in _TAKEN.finditer(self._states()):
            offset = self._offset(taken.start())
            state, kind, mark, raw, token, deadline = _SLOT.unpack(
                self._map[offset : offset + _SLOT.size]
            )
            if state != SlotState.EMPTY:
                id = str(uuid.UUID(bytes=raw))
                is_revoked = state == SlotState.HELD and mark != self._map[_MARK]
                yield LeaseSlot(
                    id, token, SlotState(state), DeadlineKind(kind), deadline, is_revoked
                )

    def _states(self) -> bytes:
        return self._map[_HEADER_BYTES :: _SLOT.size]

    def close(self) -> None:
        self._map.close()


class SharedBlock:
    """The slots of leases that were claimed together, by their numbers in the block."""

    def __init__(self, leases: SharedLeases, place: int, mark: int) -> None:
        self._leases = leases
        self._place = place
        self._mark = mark
        # Called twice per job: these save looking them up.
        self._map = leases._map
        self._offset = leases._offset(place)

    def start(self, number: int) -> bool:
        """As `SharedLeases.start`."""
        memory, offset = self._map, self._offset + number * _SLOT.size
        memory[offset] = _STARTED
        if memory[_MARK] == self._mark:
            return True
        memory[offset] = SlotState.HELD
        return False

    def end(self, number: int) -> None:
        """Note that a run is over, and its outcome not yet written."""
        self._map[self._offset + number * _SLOT.size] = _ENDED

    def is_revoked(self) -> bool:
        """Whether the supervisor gives back the leases that had not begun, or has done so."""
        return self._map[_MARK] != self._mark

    def part(self, number: int, lease: Lease) -> None:
        """Have a slot belong to its lease alone from now on."""
        self._leases.adopt(lease, self._place + number)

    def drop(self, first: int, count: int) -> None:
        """Note that leases side by side are settled."""
        self._leases.drop_block(self._place + first, count)


# Counts


@dataclass(slots=True)
class Totals:
    """What a process did since its start.

    How runs ended, and the jobs that it enqueued, by queue and kind. Leases that others took and
    runs that were interrupted, by queue. Outcomes that the database refused. Errors of its own
    services, by name.
    """

    tally: Tally = field(default_factory=dict[tuple[str, str], Sums])
    lost: Counter[str] = field(default_factory=Counter[str])
    enqueued: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    interrupted: Counter[str] = field(default_factory=Counter[str])
    refused: int = 0
    service_errors: Counter[str] = field(default_factory=Counter[str])

    def merge(self, other: Totals) -> None:
        merged(self.tally, other.tally)
        self.lost.update(other.lost)
        self.enqueued.update(other.enqueued)
        self.interrupted.update(other.interrupted)
        self.refused += other.refused
        self.service_errors.update(other.service_errors)


class _CountLine(msgspec.Struct, frozen=True, array_like=True):
    queue: str
    kind: str
    ends: list[int]
    run: dict[int, int]
    run_us: int
    wait: dict[int, int]
    wait_us: int


class _Written(msgspec.Struct, frozen=True, array_like=True):
    lines: list[_CountLine]
    lost: dict[str, int]
    enqueued: list[tuple[str, str, int]]
    interrupted: dict[str, int]
    refused: int
    service_errors: dict[str, int]


_decode = msgspec.json.Decoder(_Written).decode


def _encoded(counts: Totals) -> bytes:
    lines = [
        _CountLine(*name, s.ends, s.run.buckets, s.run.total_us, s.wait.buckets, s.wait.total_us)
        for name, s in counts.tally.items()
    ]
    enqueued = [(*name, number) for name, number in counts.enqueued.items()]
    written = _Written(
        lines,
        counts.lost,
        enqueued,
        counts.interrupted,
        counts.refused,
        counts.service_errors,
    )
    return msgspec.json.encode(written)


def _decoded(text: bytes) -> Totals:
    written = _decode(text)
    tally = {
        (line.queue, line.kind): Sums(
            line.ends, Spread(line.run, line.run_us), Spread(line.wait, line.wait_us)
        )
        for line in written.lines
    }
    enqueued = {(queue, kind): number for queue, kind, number in written.enqueued}
    return Totals(
        tally,
        Counter(written.lost),
        Counter(enqueued),
        Counter(written.interrupted),
        written.refused,
        Counter(written.service_errors),
    )


class SharedCounts:
    """The counts of one child, and when it could last claim or had no need to."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, _HEAD.size + 2 * _HALF)

    @staticmethod
    def make_descriptor() -> int:
        """Memory for the counts, to be passed on to a child."""
        descriptor = os.memfd_create("rowlock-counts")
        os.ftruncate(descriptor, _HEAD.size + 2 * _HALF)
        return descriptor

    def write(self, counts: Totals, *, good_at: float) -> None:
        """Show these totals, if they fit. Names are bounded, so that they do."""
        text = _encoded(counts)
        half = 1 - self._map[0]
        if len(text) <= _HALF - _LENGTH.size:
            place = _HEAD.size + half * _HALF
            self._map[place : place + _LENGTH.size] = _LENGTH.pack(len(text))
            start = place + _LENGTH.size
            self._map[start : start + len(text)] = text
        else:
            half = self._map[0]
        self._map[: _HEAD.size] = _HEAD.pack(half, good_at)

    def read(self) -> Totals:
        """The totals that are shown. Empty before the first."""
        for _ in range(_READS_MAX):
            shown = self._map[0]
            place = _HEAD.size + shown * _HALF
            (length,) = _LENGTH.unpack(self._map[place : place + _LENGTH.size])
            text = self._map[place + _LENGTH.size : place + _LENGTH.size + length]
            if shown == self._map[0]:
                return _decoded(text) if text else Totals()
        return Totals()

    @property
    def good_at(self) -> float:
        """When the child could last claim, or had no need to. 0: never."""
        good: float = _HEAD.unpack(self._map[: _HEAD.size])[1]
        return good

    def close(self) -> None:
        self._map.close()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A worker of several children at one time.

    `ready` of the `children` could lately claim jobs; `slots` are counted by what they do.
    """

    counts: Totals
    slots: Mapping[str, int]
    children: int
    ready: int


class HeldBlock(Protocol):
    """Where a process notes leases that were claimed together, by their numbers."""

    def start(self, number: int) -> bool: ...
    def end(self, number: int) -> None: ...
    def is_revoked(self) -> bool: ...
    def part(self, number: int, lease: Lease) -> None: ...
    def drop(self, first: int, count: int) -> None: ...


class HeldLeases(Protocol):
    """Where a process notes its leases, for the thread or supervisor that beats for them."""

    def hold(self, lease: Lease) -> None: ...
    def hold_block(self, ids: Sequence[str], token: int) -> HeldBlock | None: ...
    def start(self, lease: Lease, *, deadline: float | None = None) -> bool: ...
    def is_revoked(self, lease: Lease) -> bool: ...
    def settle(self, lease: Lease) -> None: ...
    def end(self, lease: Lease) -> None: ...
    def lose(self, lease: Lease) -> None: ...
    def must_end_by(self, lease: Lease, deadline: float) -> None: ...
    def drop(self, lease: Lease) -> None: ...
    def count_finished(self, jobs: int) -> None: ...
