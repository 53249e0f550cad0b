"""What a child has counted, in shared memory: written by the child, read by its supervisor.

1. There are two halves. The child writes the one that is not shown, then shows it: one byte. So a
   reader sees whole sums, unless two writes come while it reads; then it reads again.
2. It can be read after the child's death: what the child counted is not lost with it.
3. Times are CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from rowlock import config
from rowlock.tally import Spread, Sums, Tally, merged

_HEAD = struct.Struct("=B 7x d")
_LENGTH = struct.Struct("=I")
_HALF = config.BOARD_BYTES // 2
_READS_MAX = 5


@dataclass(slots=True)
class Counts:
    """What a process did since its start: how runs ended, leases that others took and runs that
    were interrupted, both by queue, jobs that it enqueued, by queue and kind, outcomes that the
    database refused, and errors of its own services, by name."""

    tally: Tally = field(default_factory=dict[tuple[str, str], Sums])
    lost: Counter[str] = field(default_factory=Counter[str])
    enqueued: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    interrupted: Counter[str] = field(default_factory=Counter[str])
    refused: int = 0
    service_errors: Counter[str] = field(default_factory=Counter[str])

    def merge(self, other: Counts) -> None:
        merged(self.tally, other.tally)
        self.lost.update(other.lost)
        self.enqueued.update(other.enqueued)
        self.interrupted.update(other.interrupted)
        self.refused += other.refused
        self.service_errors.update(other.service_errors)


class _Line(msgspec.Struct, frozen=True, array_like=True):
    queue: str
    kind: str
    ends: list[int]
    run: dict[int, int]
    run_us: int
    wait: dict[int, int]
    wait_us: int


class _Written(msgspec.Struct, frozen=True, array_like=True):
    lines: list[_Line]
    lost: dict[str, int]
    enqueued: list[tuple[str, str, int]]
    interrupted: dict[str, int]
    refused: int
    service_errors: dict[str, int]


_decode = msgspec.json.Decoder(_Written).decode


def _encoded(counts: Counts) -> bytes:
    lines = [
        _Line(*name, s.ends, s.run.buckets, s.run.total_us, s.wait.buckets, s.wait.total_us)
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


def _decoded(text: bytes) -> Counts:
    written = _decode(text)
    tally = {
        (line.queue, line.kind): Sums(
            line.ends, Spread(line.run, line.run_us), Spread(line.wait, line.wait_us)
        )
        for line in written.lines
    }
    enqueued = {(queue, kind): number for queue, kind, number in written.enqueued}
    return Counts(
        tally,
        Counter(written.lost),
        Counter(enqueued),
        Counter(written.interrupted),
        written.refused,
        Counter(written.service_errors),
    )


class Board:
    """The counts of one child, and when it could last claim, or need not."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, _HEAD.size + 2 * _HALF)

    @staticmethod
    def make_descriptor() -> int:
        """Memory for a board, to be passed on to a child."""
        descriptor = os.memfd_create("rowlock-board")
        os.ftruncate(descriptor, _HEAD.size + 2 * _HALF)
        return descriptor

    def write(self, counts: Counts, *, good_at: float) -> None:
        """Show these. What does not fit is not shown: names are bounded, so that it does."""
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

    def read(self) -> Counts:
        """What is shown; nothing before the first."""
        for _ in range(_READS_MAX):
            shown = self._map[0]
            place = _HEAD.size + shown * _HALF
            (length,) = _LENGTH.unpack(self._map[place : place + _LENGTH.size])
            text = self._map[place + _LENGTH.size : place + _LENGTH.size + length]
            if shown == self._map[0]:
                return _decoded(text) if text else Counts()
        return Counts()

    @property
    def good_at(self) -> float:
        """When the child could last claim, or had no need to; 0: never."""
        good: float = _HEAD.unpack(self._map[: _HEAD.size])[1]
        return good

    def close(self) -> None:
        self._map.close()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A worker of several children at one time.

    `ready` of the `children` could lately claim jobs; `slots` are counted by what they do.
    """

    counts: Counts
    slots: Mapping[str, int]
    children: int
    ready: int
