"""The side channel of a measurement: which job ran how often, when, and how late.

A file that every process maps into its memory: two numbers a job (when its handler started, and
how long after its enqueue), then a byte a job (how often it ran). A hit costs half a microsecond
and sends nothing to the database under test.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_JOB_BYTES = 8 + 8 + 1
FILE_VARIABLE = "BENCH_REC"
JOBS_VARIABLE = "BENCH_N"


class Record:
    """One process's view of the file."""

    def __init__(self, path: Path, jobs: int) -> None:
        self.path = path
        self.jobs = jobs
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), jobs * _JOB_BYTES)
        self._view = memoryview(self._map)
        self._starts = self._view[: jobs * 8].cast("d")
        self._delays = self._view[jobs * 8 : jobs * 16].cast("d")
        self._counts = self._view[jobs * 16 :]

    def hit(self, number: int, enqueued_at: float) -> None:
        """A handler has started; called by it."""
        now = time.time()
        self._counts[number] += 1
        self._starts[number] = now
        self._delays[number] = now - enqueued_at

    def done(self, low: int = 0, high: int | None = None) -> int:
        """How many different jobs have started."""
        part = bytes(self._counts[low:high])
        return len(part) - part.count(0)

    def doubles(self, low: int = 0, high: int | None = None) -> int:
        """How many jobs ran more than once."""
        return sum(count > 1 for count in self._counts[low:high])

    def starts(self, low: int = 0, high: int | None = None) -> list[float]:
        """When handlers started, the first one first."""
        return sorted(start for start in self._starts[low:high] if start)

    def delays_ms(self, low: int = 0, high: int | None = None) -> list[float]:
        """From just before the enqueue to the start, of those that ran, the shortest first."""
        ran = zip(self._delays[low:high], self._counts[low:high], strict=True)
        return sorted(1000 * delay for delay, count in ran if count)

    def delays_before(self, moment: float, low: int, high: int) -> list[float]:
        """As `delays_ms`, of the jobs that were enqueued before a moment."""
        ran = zip(
            self._starts[low:high], self._delays[low:high], self._counts[low:high], strict=True
        )
        return sorted(
            1000 * delay for start, delay, count in ran if count and start - delay < moment
        )

    def close(self) -> None:
        for view in (self._starts, self._delays, self._counts, self._view):
            view.release()
        self._map.close()


@contextmanager
def new_record(jobs: int, directory: Path) -> Iterator[Record]:
    """An empty file for so many jobs, removed at the end."""
    descriptor, name = tempfile.mkstemp(prefix="record-", dir=directory)
    os.ftruncate(descriptor, jobs * _JOB_BYTES)
    os.close(descriptor)
    record = Record(Path(name), jobs)
    try:
        yield record
    finally:
        record.close()
        Path(name).unlink()


@cache
def told_record() -> Record:
    """The file that this process was told of by its environment."""
    return Record(Path(os.environ[FILE_VARIABLE]), int(os.environ[JOBS_VARIABLE]))
