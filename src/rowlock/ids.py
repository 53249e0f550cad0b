"""Job ids: UUIDv7, created by the client, increasing within a process.

An id is created before the enqueue, so that an enqueue whose answer was lost can be repeated with
the same id. The standard library has UUIDv7 only from Python 3.14 on.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator

from rowlock.errors import OptionInvalid, shown

_SEQUENCE_MAX = 0xFFF
# The first of 16 random digits becomes one of four that mark the variant of the UUID.
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
_DIGITS = 16
# Random ends of ids are made this many at a time.
_TAILS = 512
# The bits after the time, the bits of version and variant, and the values of those in a UUIDv8.
_TIME_SHIFT = 80
_MARKS = 0xF << 76 | 0x3 << 62
_VERSION_8 = 0x8 << 76 | 0x2 << 62


class JobIds:
    """Creates ids, each greater than the one before, from any thread.

    Within a millisecond an id takes no lock: threads share an iterator of sequence numbers and a
    list of random ends, whose `next` and `pop` can't be interrupted. So a signal handler may create
    an id while it interrupts the creation of another.
    """

    def __init__(self) -> None:
        self._start_afresh()
        os.register_at_fork(after_in_child=self._start_afresh)

    def _start_afresh(self) -> None:
        """Reset in a forked child, which must share neither the parent's lock nor its digits."""
        self._lock = threading.RLock()
        # A millisecond, how its ids begin, and the sequence numbers that are left in it.
        self._current: tuple[int, str, Iterator[int]] = (0, "", iter(()))
        self._tails: list[str] = []

    def new(self) -> str:
        """Return a new id, as text."""
        while True:
            current = millisecond, prefix, numbers = self._current
            if time.time_ns() // 1_000_000 <= millisecond:
                # A few numbers are lost with the last of the random ends, which does no harm.
                for number in numbers:
                    try:
                        return f"{prefix}{number:03x}-{self._tails.pop()}"
                    except IndexError:
                        self._tails.extend(_random_tails())
            self._leave(current)

    def _leave(self, current: tuple[int, str, Iterator[int]]) -> None:
        """Go to the next millisecond, ahead of the clock rather than repeat or step back."""
        millisecond = max(time.time_ns() // 1_000_000, current[0] + 1)
        prefix = f"{millisecond >> 16:08x}-{millisecond & 0xFFFF:04x}-7"
        following = (millisecond, prefix, iter(range(_SEQUENCE_MAX + 1)))
        with self._lock:
            if self._current is current:
                self._current = following


def _random_tails() -> list[str]:
    """Return random ends of ids.

    They are read in batches: each read releases the GIL, which cost a busy server 40 µs per id. Not
    by the `random` module: two processes seeded alike would make the same ids.
    """
    digits = os.urandom(_DIGITS // 2 * _TAILS).hex()
    return [
        f"{_VARIANT[digits[at]]}{digits[at + 1 : at + 4]}-{digits[at + 4 : at + _DIGITS]}"
        for at in range(0, len(digits), _DIGITS)
    ]


_ids = JobIds()
new_id: Callable[[], str] = _ids.new


def parse_id(value: str | uuid.UUID, *, option: str = "id") -> str:
    """Return the canonical text of a user's id. Raise `OptionInvalid` if it is not a UUID."""
    if isinstance(value, uuid.UUID):
        return str(value)
    try:
        return str(uuid.UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise OptionInvalid(option, f"must be a UUID, not {shown(value)}") from None


def id_of_tenant(id: str, tenant: str) -> str:
    """Return the id under which a job is stored whose id a tenant chose: a UUIDv8.

    It depends on both, so no tenant can take or find an id of another. The time of a UUIDv7 stays
    in front, so that such jobs keep their place among others. The rest is hashed: at least 74 bits.
    No id that we create has version 8.
    """
    given = uuid.UUID(id)
    digest = hashlib.sha256(f"{tenant}\0{given}".encode()).digest()
    hashed = int.from_bytes(digest[:16], "big")
    if given.version == 7:
        hashed = given.int >> _TIME_SHIFT << _TIME_SHIFT | hashed & ((1 << _TIME_SHIFT) - 1)
    return str(uuid.UUID(int=hashed & ~_MARKS | _VERSION_8))


def id_at(millisecond: int) -> str:
    """Return the lowest id of a millisecond since 1970."""
    since = max(0, millisecond)
    return f"{since >> 16:08x}-{since & 0xFFFF:04x}-7000-8000-000000000000"
