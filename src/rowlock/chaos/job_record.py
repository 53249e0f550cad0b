"""The record of each job, from journals and commits, and how fast it recovered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from rowlock.chaos.journal import JournalLine, Word
from rowlock.chaos.plan import Fault
from rowlock.chaos.witness import CommittedChange

FLEETING: Final = "fleeting"


class Acknowledged(StrEnum):
    """The answer that a producer got to its enqueue."""

    NOTHING = "nothing"
    # The job exists, whether it is new or was there already with this id.
    OWN = "own"
    # Another job holds its key, and was returned.
    ANOTHER = "another"


@dataclass(slots=True)
class HandlerRun:
    """One run of a handler. `end` and `how` are None if it never recorded its end.

    `returned` is when its job went back into the queue, if it did.
    """

    start: int
    pid: int
    end: int | None = None
    how: str | None = None
    returned: int | None = None


@dataclass(slots=True)
class JobRecord:
    """One job. Times of processes are monotonic nanoseconds."""

    # As its producer enqueued it. `kind` is None if no producer did.
    kind: str | None = None
    tenant: str | None = None
    asked_at: int = 0
    delay: int = 0
    acknowledged: Acknowledged = Acknowledged.NOTHING
    acknowledged_at: int | None = None
    cancel: str | None = None
    runs: dict[int, HandlerRun] = field(default_factory=dict[int, HandlerRun])
    # The tokens of runs that were marked as begun.
    marked: set[int] = field(default_factory=set[int])
    # Its runs that left a trace and did not count as attempts, and the lost leases among them, in
    # a row.
    interruptions: int = 0
    losses: int = 0
    # As it was committed: how often it was inserted, except inserts that were withdrawn at once.
    inserted: int = 0
    token: int = 0
    # The worker that holds it (known on PostgreSQL), and whether any does.
    holder: str | None = None
    is_held: bool = False
    is_flagged: bool = False
    # It was inserted a second time, which must be withdrawn.
    is_again: bool = False
    # It was deleted while no worker ran it. Unless that finished it, it was withdrawn.
    is_withdrawn: bool = False
    # It left the live table from a run, and how, if it may have left nothing else.
    ends: int = 0
    left: CommittedChange | None = None
    # The terminal states that were written, and the last one.
    settles: int = 0
    state: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in a state or, if it is not kept, without one."""
        return self.state is not None or (self.kind == FLEETING and self.ends > 0)


@dataclass(slots=True)
class Strikes:
    """The faults that the nemesis injected, from its journal: when (nanoseconds), and where."""

    all: list[tuple[int, Fault]] = field(default_factory=list[tuple[int, Fault]])
    # When a process was struck, and by what.
    struck: dict[int, list[tuple[int, Fault]]] = field(
        default_factory=dict[int, list[tuple[int, Fault]]]
    )

    def hear(self, line: JournalLine) -> None:
        """Take a line of any journal."""
        if line.word is not Word.STRIKE:
            return
        what, _, pids = line.rest.partition(":")
        fault = Fault(what)
        self.all.append((line.at, fault))
        for pid in filter(None, pids.split(",")):
            self.struck.setdefault(int(pid), []).append((line.at, fault))


@dataclass(slots=True)
class RecoveryTimes:
    """Seconds from each strike in the middle of a run until its job was given back, and ran."""

    returned: list[float] = field(default_factory=list[float])
    again: list[float] = field(default_factory=list[float])


def recoveries(
    records: Iterable[JobRecord], struck: Mapping[int, list[tuple[int, Fault]]]
) -> dict[Fault, RecoveryTimes]:
    """Return the recovery times by the fault that struck the process of the run."""
    found: dict[Fault, RecoveryTimes] = {}
    for record in records:
        for run in record.runs.values():
            for at, fault in struck.get(run.pid, ()):
                if run.start < at and (run.end is None or run.end > at):
                    _note(found.setdefault(fault, RecoveryTimes()), record, run, at)
    return found


def _note(recovery: RecoveryTimes, record: JobRecord, run: HandlerRun, at: int) -> None:
    if run.returned is None or run.returned < at:
        return
    recovery.returned.append((run.returned - at) / 1e9)
    later = [each.start for each in record.runs.values() if each.start > at]
    if later:
        recovery.again.append((min(later) - at) / 1e9)
