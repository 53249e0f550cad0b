"""Job ids: UUIDv7 made by the client, growing within a process.

Made before the database is asked, so that an enqueue whose answer was lost can be repeated with
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
# Of 16 random digits the first becomes one of four, which say what kind of UUID it is.
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
_DIGITS = 16
_RANDOM_BYTES = _DIGITS // 2 * 128


class JobIds:
    """Hands out ids, each greater than the one before it, from any thread."""

    def __init__(self) -> None:
        self._start_afresh()
        os.register_at_fork(after_in_child=self._start_afresh)

    def _start_afresh(self) -> None:
        """In a forked child: neither the parent's lock nor the digits that it will use."""
        self._lock = threading.Lock()
        self._millisecond = 0
        self._prefix = ""
        self._sequence = 0
        self._random = ""
        self._taken = 0

    def new(self) -> str:
        """A new id, as text."""
        with self._lock:
            now = time.time_ns() // 1_000_000
            if now > self._millisecond:
                self._go_to(now)
            elif self._sequence < _SEQUENCE_MAX:
                self._sequence += 1
            else:  # Run ahead of the clock rather than repeat or step back.
                self._go_to(self._millisecond + 1)
            prefix, sequence, tail = self._prefix, self._sequence, self._random_digits()
        # Put together from text: half the time of shifting numbers and writing 128 bits.
        return f"{prefix}{sequence:03x}-{_VARIANT[tail[0]]}{tail[1:4]}-{tail[4:]}"

    def _go_to(self, millisecond: int) -> None:
        self._millisecond, self._sequence = millisecond, 0
        self._prefix = f"{millisecond >> 16:08x}-{millisecond & 0xFFFF:04x}-7"

    def _random_digits(self) -> str:
        """Digits that no other id has. Asked for by many: each time the interpreter lock changes
        hands, which cost a busy server 40 µs an id."""
        if self._taken == len(self._random):
            # Not the `random` module: two processes seeded alike would make the same ids.
            self._random, self._taken = os.urandom(_RANDOM_BYTES).hex(), 0
        start, self._taken = self._taken, self._taken + _DIGITS
        return self._random[start : self._taken]


_ids = JobIds()
new_id: Callable[[], str] = _ids.new


def parse_id(value: str | uuid.UUID, *, option: str = "id") -> str:
    """The canonical text of an id given by a user; `OptionInvalid` if it is not a UUID."""
    if isinstance(value, uuid.UUID):
        return str(value)
    try:
        return str(uuid.UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise OptionInvalid(option, f"must be a UUID, not {shown(value)}") from None


def id_at(millisecond: int) -> str:
    """The lowest id that can be made in a millisecond since 1970."""
    since = max(0, millisecond)
    return f"{since >> 16:08x}-{since & 0xFFFF:04x}-7000-8000-000000000000"
