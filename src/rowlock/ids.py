"""Job ids: UUIDv7, created by the client, increasing within a process.

An id is created before the enqueue, so that an enqueue whose answer was lost can be repeated with
the same id. The standard library has UUIDv7 only from Python 3.14 on.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable

from rowlock.errors import OptionInvalid, shown

_SEQUENCE_MAX = 0xFFF
# The first of 16 random digits becomes one of four that mark the variant of the UUID.
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
_DIGITS = 16
_RANDOM_BYTES = _DIGITS // 2 * 128


class JobIds:
    """Creates ids, each greater than the one before, from any thread."""

    def __init__(self) -> None:
        self._start_afresh()
        os.register_at_fork(after_in_child=self._start_afresh)

    def _start_afresh(self) -> None:
        """Reset in a forked child, which must share neither the parent's lock nor its digits."""
        self._lock = threading.Lock()
        self._millisecond = 0
        self._prefix = ""
        self._sequence = 0
        self._random = ""
        self._taken = 0

    def new(self) -> str:
        """Return a new id, as text."""
        with self._lock:
            now = time.time_ns() // 1_000_000
            if now > self._millisecond:
                self._go_to(now)
            elif self._sequence < _SEQUENCE_MAX:
                self._sequence += 1
            else:  # Run ahead of the clock rather than repeat or step back.
                self._go_to(self._millisecond + 1)
            prefix, sequence, tail = self._prefix, self._sequence, self._random_digits()
        # Joined from texts: this takes half the time of shifting numbers and writing 128 bits.
        return f"{prefix}{sequence:03x}-{_VARIANT[tail[0]]}{tail[1:4]}-{tail[4:]}"

    def _go_to(self, millisecond: int) -> None:
        self._millisecond, self._sequence = millisecond, 0
        self._prefix = f"{millisecond >> 16:08x}-{millisecond & 0xFFFF:04x}-7"

    def _random_digits(self) -> str:
        """Return digits that no other id has.

        They are read in batches: each read releases the GIL, which cost a busy server 40 µs per id.
        """
        if self._taken == len(self._random):
            # Not the `random` module: two processes seeded alike would make the same ids.
            self._random, self._taken = os.urandom(_RANDOM_BYTES).hex(), 0
        start, self._taken = self._taken, self._taken + _DIGITS
        return self._random[start : self._taken]


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


def id_at(millisecond: int) -> str:
    """Return the lowest id of a millisecond since 1970."""
    since = max(0, millisecond)
    return f"{since >> 16:08x}-{since & 0xFFFF:04x}-7000-8000-000000000000"
