"""What each process says of itself: a line an event, in a file that is its own.

A line is one write(2) to a file opened with O_APPEND: the system has it even if the process is
killed the moment after, so nothing is flushed. Times are CLOCK_MONOTONIC, one for all processes of
a machine. What is about to be done is said before it is done, what was done afterwards.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

DIRECTORY_VARIABLE = "ROWLOCK_CHAOS_DIRECTORY"


class Word(StrEnum):
    """What was said."""

    # A producer: this will be enqueued; it was told so; nobody can tell whether it was.
    ASK = "ask"
    ACK = "ack"
    UNKNOWN = "unknown"
    # A producer asked to cancel it, and was told the outcome.
    CANCEL = "cancel"
    CANCELLED = "cancelled"
    # A handler has begun, will enqueue another job with its success, has come to its end.
    START = "start"
    FOLLOW = "follow"
    END = "end"
    # The nemesis.
    STRIKE = "strike"
    OVER = "over"


class JournalLine(NamedTuple):
    """One line: when (nanoseconds), in which process, and what of which job and token."""

    at: int
    pid: int
    word: Word
    job: str
    token: int
    rest: str


class Journal:
    """Where one process writes."""

    def __init__(self, directory: Path, name: str) -> None:
        self._pid = os.getpid()
        path = directory / f"{name}-{self._pid}-{time.monotonic_ns()}"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, word: Word, job: str = "-", token: int = 0, rest: str = "") -> None:
        """Write one line."""
        line = f"{time.monotonic_ns()} {self._pid} {word} {job} {token} {rest}\n"
        os.write(self._descriptor, line.encode())

    def note_all(self, word: Word, jobs: Iterable[tuple[str, str]]) -> None:
        """Write a line for each job and the rest of its line, all in one write."""
        head = f"{time.monotonic_ns()} {self._pid} {word}"
        lines = [f"{head} {job} 0 {rest}\n" for job, rest in jobs]
        os.write(self._descriptor, "".join(lines).encode())

    def close(self) -> None:
        os.close(self._descriptor)


def read(directory: Path) -> Iterator[JournalLine]:
    """Every line of every process, those of one process in their order."""
    for path in sorted(directory.iterdir()):
        with path.open(encoding="ascii") as file:
            for text in file:
                yield parse(text)


def parse(text: str) -> JournalLine:
    """One line."""
    at, pid, word, job, token, rest = text.rstrip("\n").split(" ", 5)
    return JournalLine(int(at), int(pid), Word(word), job, int(token), rest)
