"""The messages between a worker and its process slots: frames of JSON, never pickled.

A frame is its length in four bytes, and an object with the name of its message. Both sides use the
standard library's JSON: text that no database accepts passes, and is judged where it is stored.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from rowlock import config
from rowlock.columns import JobRow
from rowlock.job import Lease
from rowlock.lifecycle import (
    CancelSeen,
    Crashed,
    Failed,
    Interrupted,
    Lost,
    NotBegun,
    Outcome,
    Parked,
    Released,
    Succeeded,
)
from rowlock.store import NewJob, Store
from rowlock.store.ops.workflows import Draft
from rowlock.store.url import masked
from rowlock.worker.settings import WorkerSettings

LENGTH = struct.Struct("!I")
_OUTCOMES: dict[str, type[Outcome]] = {
    outcome.__name__: outcome
    for outcome in (
        Succeeded,
        Failed,
        Released,
        NotBegun,
        Interrupted,
        CancelSeen,
        Lost,
        Parked,
        Crashed,
    )
}


class SlotOrders(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot needs at its start, in one argument that every user of the machine can read."""

    app: str
    path: list[str]
    descriptor: int


# From the worker. `run` counts the runs of a slot: a message that comes too late has an old one.


class Home(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The worker's database, and how long its leases are. Sent first, and once."""

    url: str
    lease_seconds: float

    def __repr__(self) -> str:
        return f"Home({masked(self.url)!r}, {self.lease_seconds!r})"


def home_of(store: Store, settings: WorkerSettings) -> Home:
    """What process slots must know of a worker."""
    return Home(url=store.engine.address, lease_seconds=settings.lease_seconds)


class Start(msgspec.Struct, frozen=True, tag=True):
    """Run this job."""

    run: int
    row: list[Any]

    def lease(self) -> Lease:
        # The time is of use only for jobs that wait: this one runs.
        return Lease.of_row(JobRow._make(self.row), now=0)


class End(msgspec.Struct, frozen=True, tag=True):
    """End the run, for this cause: the name of a `Cause`."""

    run: int
    cause: str


class Stopping(msgspec.Struct, frozen=True, tag=True):
    """The worker shuts down. The run may continue for the grace."""

    run: int


class Gathered(msgspec.Struct, frozen=True, tag=True):
    """The answer to `HoldProgress` and `Conclude`: what the worker has not written of the run."""

    run: int
    progress: tuple[float, str] | None
    lines: list[str]


# From the slot.


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The app is loaded, or, with a number, that run begins."""

    run: int = 0


class Progressed(msgspec.Struct, frozen=True, tag=True):
    """The handler reported its progress."""

    run: int
    fraction: float
    text: str


class Logged(msgspec.Struct, frozen=True, tag=True):
    """The handler added a line to its log."""

    run: int
    line: str


class Followed(msgspec.Struct, frozen=True, tag=True):
    """The handler wants this job if it succeeds."""

    run: int
    job: NewJob


class Grown(msgspec.Struct, frozen=True, tag=True):
    """The handler wants these jobs in its workflow if it succeeds."""

    run: int
    draft: Draft


# Of a block of `ctx.transaction()`, which the slot opens and commits by itself.


class HoldProgress(msgspec.Struct, frozen=True, tag=True):
    """A block is about to open that nobody else can write beside: write nothing of the run."""

    run: int


class Conclude(msgspec.Struct, frozen=True, tag=True):
    """As `HoldProgress`, before the block is committed, which settles the run."""

    run: int


class ResumeProgress(msgspec.Struct, frozen=True, tag=True):
    """The block was undone: write again."""

    run: int


class Committed(msgspec.Struct, frozen=True, tag=True):
    """The block was committed, and the run's success with it, perhaps without its result."""

    run: int
    problem: str | None


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The run is over. Its outcome is sent by its name and fields."""

    run: int
    outcome: str
    fields: dict[str, Any]

    @classmethod
    def of(cls, run: int, outcome: Outcome) -> Finished:
        return cls(run, type(outcome).__name__, msgspec.to_builtins(outcome))

    def read(self) -> Outcome:
        return msgspec.convert(self.fields, _OUTCOMES[self.outcome])


Order = Home | Start | End | Stopping | Gathered
Word = (
    Hello
    | Progressed
    | Logged
    | Followed
    | Grown
    | HoldProgress
    | Conclude
    | ResumeProgress
    | Committed
    | Finished
)


def encode(word: Order | Word) -> bytes:
    """A message as a frame."""
    body = json.dumps(msgspec.to_builtins(word), separators=(",", ":")).encode()
    if len(body) > config.SLOT_FRAME_BYTES_MAX:
        raise ValueError(f"a message of {len(body)} bytes is too large for a process slot")
    return LENGTH.pack(len(body)) + body


def length_of(head: bytes) -> int:
    """The length of a frame's body in bytes."""
    length: int = LENGTH.unpack(head)[0]
    if length > config.SLOT_FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {length} bytes is too large for a message")
    return length


def decode_order(body: bytes) -> Order:
    """A message from the worker."""
    order: Order = msgspec.convert(json.loads(body), Order)
    return order


def decode_word(body: bytes) -> Word:
    """A message from the slot."""
    word: Word = msgspec.convert(json.loads(body), Word)
    return word


def read_frame(receive: Callable[[int], bytes]) -> bytes | None:
    """The body of the next frame from a blocking `receive`. None at the end."""
    head = _exactly(receive, LENGTH.size)
    return None if head is None else _exactly(receive, length_of(head))


def _exactly(receive: Callable[[int], bytes], count: int) -> bytes | None:
    parts: list[bytes] = []
    while count > 0:
        part = receive(min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
