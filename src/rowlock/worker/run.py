"""One run of a job in a child: what it is, what it was told, and why it was ended."""

from __future__ import annotations

import asyncio
import time
from enum import Enum, auto
from typing import Any

from rowlock.job import Lease
from rowlock.lifecycle import CancelSeen, Failed, Outcome, Released
from rowlock.task import Task


class Cause(Enum):
    """Why a run was ended from outside; it decides what a `CancelledError` means."""

    CANCEL = auto()
    TIMEOUT = auto()
    STOP = auto()
    LOST = auto()


class Run:
    """A leased job on its way through this process."""

    __slots__ = (
        "cancel_requested",
        "cause",
        "claimed_at",
        "handle",
        "lease",
        "started_at",
        "stopping",
        "task",
    )

    def __init__(self, lease: Lease, task: Task[..., Any]) -> None:
        self.lease: Lease = lease
        self.task: Task[..., Any] = task
        self.claimed_at: float = time.monotonic()
        self.started_at: float = 0.0
        self.cause: Cause | None = None
        self.cancel_requested: bool = False
        self.stopping: bool = False
        self.handle: asyncio.Task[None] | None = None

    @property
    def queue(self) -> str:
        assert self.lease.row is not None
        return self.lease.row.queue

    @property
    def is_quarantined(self) -> bool:
        """Whether it was running when a process died: it must run alone now."""
        assert self.lease.row is not None
        return self.lease.row.crashes > 0

    def end(self, cause: Cause) -> None:
        """Ask a coroutine to stop; a thread can only see the flag. The first cause counts."""
        if self.cause is None:
            self.cause = cause
        if cause is Cause.CANCEL:
            self.cancel_requested = True
        if self.handle is not None and self.task.is_async:
            self.handle.cancel()

    def outcome_of_cause(self) -> Outcome | None:
        """The outcome of a run that was ended from outside; None if it was lost."""
        match self.cause:
            case Cause.CANCEL:
                return CancelSeen()
            case Cause.TIMEOUT:
                return Failed("TimeoutError", f"took longer than its limit of {self.limit:g} s")
            case Cause.STOP:
                return Released()
            case Cause.LOST | None:
                return None

    @property
    def limit(self) -> float | None:
        """Its time limit in seconds."""
        return self.lease.job.timeout
