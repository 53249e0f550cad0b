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

from rowlock.errors import OptionInvalid

_SEQUENCE_MAX = 0xFFF
_VERSION_7 = 0x7 << 76
_VARIANT = 0b10 << 62
_RANDOM_MASK = (1 << 62) - 1
_RANDOM_BYTES = 8 * 128


class JobIds:
    """Hands out ids, each greater than the one before it, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._millisecond = 0
        self._sequence = 0
        self._random = b""
        os.register_at_fork(after_in_child=self._start_afresh)

    def new(self) -> str:
        """A new id, as text."""
        with self._lock:
            millisecond, sequence = self._tick()
            tail = int.from_bytes(self._random_bytes()) & _RANDOM_MASK
        value = (millisecond << 80) | _VERSION_7 | (sequence << 64) | _VARIANT | tail
        digits = f"{value:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def _tick(self) -> tuple[int, int]:
        now = time.time_ns() // 1_000_000
        if now > self._millisecond:
            self._millisecond, self._sequence = now, 0
        elif self._sequence < _SEQUENCE_MAX:
            self._sequence += 1
        else:  # Run ahead of the clock rather than repeat or step back.
            self._millisecond, self._sequence = self._millisecond + 1, 0
        return self._millisecond, self._sequence

    def _random_bytes(self) -> bytes:
        """Eight that no other id has. Asked for by many: each time the interpreter lock changes
        hands, which cost a busy server 40 µs an id."""
        if not self._random:
            # Not the `random` module: two processes seeded alike would make the same ids.
            self._random = os.urandom(_RANDOM_BYTES)
        taken, self._random = self._random[:8], self._random[8:]
        return taken

    def _start_afresh(self) -> None:
        """In a forked child: neither the parent's lock nor the bytes that it will use."""
        self._lock = threading.Lock()
        self._random = b""


_ids = JobIds()
new_id: Callable[[], str] = _ids.new


def parse_id(value: str | uuid.UUID, *, option: str = "id") -> str:
    """The canonical text of an id given by a user; `OptionInvalid` if it is not a UUID."""
    if isinstance(value, uuid.UUID):
        return str(value)
    try:
        return str(uuid.UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise OptionInvalid(option, f"must be a UUID, not {value!r}") from None


def id_at(millisecond: int) -> str:
    """The lowest id that can be made in a millisecond since 1970."""
    return str(uuid.UUID(int=(max(0, millisecond) << 80) | _VERSION_7 | _VARIANT))
