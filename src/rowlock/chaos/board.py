"""A few numbers that the processes of a run share: how far producers may go, and how far they are.

A file that all of them map; each number is written by one process.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Final

_NUMBER: Final = struct.Struct("=q")
_ALLOWED: Final = 0
_MADE: Final = 1


class Board:
    """The numbers, for one process."""

    def __init__(self, path: Path, producers: int) -> None:
        size = _NUMBER.size * (_MADE + producers)
        self._producers = producers
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, size)
            self._memory = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)

    @property
    def allowed(self) -> int:
        """How many jobs all producers together may have made by now."""
        return self._read(_ALLOWED)

    @allowed.setter
    def allowed(self, jobs: int) -> None:
        self._write(_ALLOWED, jobs)

    def made_by(self, producer: int) -> int:
        """How many jobs a producer has made, over all its lives."""
        return self._read(_MADE + producer)

    def add(self, producer: int, jobs: int) -> None:
        """A producer has made some more."""
        self._write(_MADE + producer, self.made_by(producer) + jobs)

    @property
    def made(self) -> int:
        """How many jobs were made."""
        return sum(map(self.made_by, range(self._producers)))

    def _read(self, place: int) -> int:
        number: int = _NUMBER.unpack_from(self._memory, place * _NUMBER.size)[0]
        return number

    def _write(self, place: int, number: int) -> None:
        _NUMBER.pack_into(self._memory, place * _NUMBER.size, number)

    def close(self) -> None:
        self._memory.close()
