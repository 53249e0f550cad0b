"""The journal of each process: one line per event, in a file of its own.

A line is one write(2) to a file opened with O_APPEND. The system has it even if the process is
killed the moment after, so nothing is flushed. Times are CLOCK_MONOTONIC, which all processes of a
machine share. An intention is recorded before the act, a result after it.
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
    """The first word of a line: what it records."""

    # A producer will enqueue a job, has got an answer, or can't know whether it was enqueued.
    ASK = "ask"
    ACK = "ack"
    UNKNOWN = "unknown"
    # A producer cancelled a job, and got the outcome.
    CANCEL = "cancel"
    CANCELLED = "cancelled"
    # A producer, or a handler that adds jobs: its workflow, what it wants, and whom it waits for.
    NODE = "node"
    # A handler: the last of the jobs that it adds.
    SINK = "sink"
    # A workflow will be cancelled.
    CANCEL_FLOW = "cancel-flow"
    # A handler has begun, will enqueue another job with its success, or has ended.
    START = "start"
    FOLLOW = "follow"
    END = "end"
    # The nemesis.
    STRIKE = "strike"
    OVER = "over"


class JournalLine(NamedTuple):
    """One line: time in nanoseconds, process, word, job and token."""

    at: int
    pid: int
    word: Word
    job: str
    token: int
    rest: str


class Journal:
    """The journal that one process writes."""

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
    """Yield every line of every process, those of one process in order."""
    for path in sorted(directory.iterdir()):
        with path.open(encoding="ascii") as file:
            for text in file:
                yield parse(text)


def parse(text: str) -> JournalLine:
    """Parse one line."""
    at, pid, word, job, token, rest = text.rstrip("\n").split(" ", 5)
    return JournalLine(int(at), int(pid), Word(word), job, int(token), rest)
