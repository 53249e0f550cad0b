"""The children of a supervisor: their processes and pipes, their shared memory, and which job is to
blame when one dies.

Children whose event loop stands still, because a handler blocks it (`Stalls`):

1. A child is stalled when its pulse has not changed for a few seconds, counting only time in which
   its supervisor was awake.
2. Jobs that a stalled child holds and has not begun are revoked, and given back a moment later,
   once per stall (`shared_memory` says why that is safe).
3. One child at a time does the maintenance: it fires schedules, finds expired leases and removes
   old jobs. When it stalls or dies, the supervisor appoints another. Two at a time do no harm.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rowlock import config
from rowlock.job import Beat, Lease
from rowlock.lifecycle import CancelSeen, Failed, Outcome
from rowlock.worker import signals
from rowlock.worker.process import resident_bytes
from rowlock.worker.settings import (
    EXIT_ENGINE_FAILED,
    EXIT_LEFT_BEHIND,
    EXIT_UNFIT,
    PROCESSES_MODULE,
    WorkerSettings,
)
from rowlock.worker.shared_memory import (
    DeadlineKind,
    LeaseSlot,
    SharedCounts,
    SharedLeases,
    SlotState,
)

logger: logging.Logger = logging.getLogger("rowlock.worker")


@dataclass(slots=True)
class Child:
    """A process, its pipes and what it shares in memory."""

    number: int
    worker: str
    process: subprocess.Popen[bytes]
    leases: SharedLeases
    say: int
    hear: int
    started_at: float
    # What it has counted, if there is a metrics port.
    counts: SharedCounts | None = None
    # The runs that are past their deadline, and what the supervisor has done about them.
    overdue: list[LeaseSlot] = field(default_factory=list[LeaseSlot])
    is_retired: bool = False
    is_killed: bool = False
    # The beginning of a message whose end has not come yet.
    unread: bytes = b""
    # Since when it has been asked to end, once its jobs have.
    leaving_since: float | None = None
    # Since when it takes no more jobs, because it has run its maximum.
    spent_since: float | None = None
    is_relieved: bool = False

    def is_ready(self) -> bool:
        """Whether it could recently claim jobs, or had no need to."""
        if self.counts is None or self.is_stopped():
            return False
        return time.monotonic() - self.counts.good_at < config.READY_SECONDS

    def is_stopped(self) -> bool:
        """Whether it is stopped (SIGSTOP, a debugger)."""
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            return False
        return stat.rpartition(")")[2].split()[0] in ("T", "t")

    def memory_mb(self) -> float:
        """Its resident memory."""
        return (resident_bytes(self.process.pid) or 0) / 2**20

    def held(self) -> list[LeaseSlot]:
        """The leases that it holds."""
        return [slot for slot in self.leases.slots() if slot.state is not SlotState.LOST]

    def lost(self) -> list[LeaseSlot]:
        """The runs that continue without their leases."""
        return [slot for slot in self.leases.slots() if slot.state is SlotState.LOST]

    def leave(self) -> None:
        """Have it claim nothing more, and end once its jobs have ended or its grace is over."""
        if self.leaving_since is None:
            self.leaving_since = time.monotonic()
        self.tell({"stop": True})

    def must_be_killed(self, settings: WorkerSettings) -> bool:
        """Whether waiting any longer is useless, for a leaving child with a run that does not stop.

        Its other jobs have ended, or had their grace; or it does not hear, so that none can end.
        """
        assert self.leaving_since is not None
        seconds = time.monotonic() - self.leaving_since
        stuck = {slot.key for slot in self.overdue}
        if all(slot.key in stuck for slot in self.leases.slots()):
            return True
        if not self.leases.is_leaving() and seconds > config.LEAVE_HEARD_SECONDS:
            return True
        return seconds > settings.grace_seconds + 2 * config.STOP_SECONDS

    def tell(self, word: dict[str, object]) -> None:
        # It may be dying, which is noticed elsewhere, or too busy to read: messages are repeated.
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self.say, json.dumps(word).encode() + b"\n")

    def tell_of(self, lease: Lease, beat: Beat) -> None:
        """Pass on what a heartbeat found. A lease that was settled meanwhile is not lost."""
        if beat is Beat.CANCEL_REQUESTED:
            self.tell({"cancel": [lease.id]})
        elif beat is Beat.LOST and (lease.id, lease.token) in {slot.key for slot in self.held()}:
            self.tell({"lost": [[lease.id, lease.token]]})

    def needs_relief(self, settings: WorkerSettings) -> bool:
        """Whether it has run its maximum of jobs, and the last ones take longer than the grace."""
        now = time.monotonic()
        if settings.max_jobs is None or self.is_relieved:
            return False
        if self.leases.finished() + self.leases.held() < settings.max_jobs:
            self.spent_since = None
        elif self.spent_since is None:
            self.spent_since = now
        return self.spent_since is not None and now - self.spent_since > settings.grace_seconds

    def has_worked(self) -> bool:
        """Whether it has run a job, whatever the job did to it."""
        return self.leases.finished() > 0 or any(
            slot.state is not SlotState.HELD for slot in self.leases.slots()
        )

    def ended_well(self, code: int) -> bool:
        """Whether it has ended by itself. The exit code is not enough: a handler can set it too."""
        return code in (0, EXIT_LEFT_BEHIND, EXIT_UNFIT) and self.leases.has_left()

    def is_unfit(self, code: int) -> bool:
        """Whether it has ended because it can't work on the database in its present state."""
        return code == EXIT_UNFIT and self.leases.has_left()

    def has_failed(self, code: int) -> bool:
        """Whether its own machinery has failed: then no job is to blame."""
        return code == EXIT_ENGINE_FAILED and self.leases.has_left()

    def close(self) -> None:
        self.leases.close()
        if self.counts is not None:
            self.counts.close()
        os.close(self.say)
        os.close(self.hear)


def start_child(
    number: int, *, app: str, worker: str, settings: WorkerSettings, has_counts: bool
) -> Child:
    """Start a process that runs an app's jobs.

    Raises:
        OSError: The system has no process, descriptor or memory left. Nothing was started.
    """
    slots = settings.concurrency + config.PREFETCH_MAX + config.SETTLE_BATCH * 4
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:

        def opened(descriptor: int, stack: contextlib.ExitStack) -> int:
            stack.callback(os.close, descriptor)
            return descriptor

        memory = opened(SharedLeases.make_descriptor(slots), theirs)
        counts = opened(SharedCounts.make_descriptor(), theirs) if has_counts else None
        child_hears, say = os.pipe()
        opened(child_hears, theirs)
        opened(say, ours)
        hear, child_tells = os.pipe()
        opened(hear, ours)
        opened(child_tells, theirs)
        orders = {
            "app": app,
            "worker": worker,
            "settings": msgspec.to_builtins(settings),
            "leases_descriptor": memory,
            "leases_slots": slots,
            "hear_descriptor": child_hears,
            "tell_descriptor": child_tells,
            "counts_descriptor": counts,
        }
        leases = SharedLeases(memory, slots)
        ours.callback(leases.close)
        shown = None if counts is None else SharedCounts(counts)
        with signals.held_back():
            process = subprocess.Popen(
                [sys.executable, "-m", PROCESSES_MODULE, "child", json.dumps(orders)],
                pass_fds=(memory, child_hears, child_tells, *([] if counts is None else [counts])),
                stdin=subprocess.DEVNULL,
            )
        ours.pop_all()
        os.set_blocking(hear, False)
        os.set_blocking(say, False)
        return Child(number, worker, process, leases, say, hear, time.monotonic(), shown)


def suspects(slots: Collection[LeaseSlot], code: int) -> list[LeaseSlot]:
    """The jobs that may have crashed their process: those that ran.

    If none ran, those whose outcome was not written yet: one of them may have ended the loop that
    should write it. But not if the process was killed.
    """
    started = [slot for slot in slots if slot.state is SlotState.STARTED]
    if started or code == -signal.SIGKILL:
        return started
    return [slot for slot in slots if slot.state is SlotState.ENDED]


def overdue_outcome(slot: LeaseSlot) -> Outcome:
    if slot.deadline_kind is DeadlineKind.CANCEL:
        return CancelSeen("it did not stop when asked to; its process was ended")
    return Failed("TimeoutError", "took longer than its limit and did not stop; its process ended")


GiveBack = Callable[[Child, list[LeaseSlot]], None]


@dataclass(slots=True)
class Pulse:
    """The pulse of a child, as its supervisor has seen it."""

    value: int = 0
    seen_at: float = 0.0
    # For how many seconds it has not changed.
    still_seconds: float = 0.0
    # Since when its jobs are revoked in this stall, and whether they were given back.
    revoked_at: float | None = None
    is_over: bool = False

    def see(self, value: int, now: float) -> None:
        """Note its present value. Time in which the supervisor was stopped does not count."""
        if value != self.value:
            self.value, self.still_seconds = value, 0.0
            self.revoked_at, self.is_over = None, False
        elif value:
            self.still_seconds += min(now - self.seen_at, config.PULSE_SECONDS)
        self.seen_at = now

    @property
    def is_stalled(self) -> bool:
        return self.still_seconds > config.STALL_SECONDS


class Stalls:
    """Watches the children of a supervisor, which calls it in every turn of its loop."""

    def __init__(self) -> None:
        self._pulses: dict[int, Pulse] = {}
        # The process that does the maintenance.
        self._maintainer: int | None = None

    @property
    def needs_maintainer(self) -> bool:
        """Whether no working child does the maintenance."""
        if self._maintainer is None:
            return True
        pulse = self._pulses.get(self._maintainer)
        return pulse is None or pulse.is_stalled

    def appoint(self, child: Child) -> None:
        """Note that this child does the maintenance."""
        self._maintainer = child.process.pid
        self._pulses[child.process.pid] = Pulse()

    def look(self, children: Collection[Child], give_back: GiveBack) -> None:
        """Check every child, and act if one is stalled.

        Args:
            give_back: Called with a child, and leases that the child will not begin.
        """
        now = time.monotonic()
        alive = {child.process.pid: child for child in children}
        self._pulses = {pid: self._pulses.get(pid) or Pulse() for pid in alive}
        for pid, child in alive.items():
            pulse = self._pulses[pid]
            pulse.see(child.leases.last_pulse(), now)
            # A stopped child may hold a lock of the database, so nothing is written for it.
            if pulse.is_stalled and not pulse.is_over and not child.is_stopped():
                self._revoke(child, pulse, now, give_back)
        if self.needs_maintainer:
            self._move_maintenance(alive)

    @staticmethod
    def _revoke(child: Child, pulse: Pulse, now: float, give_back: GiveBack) -> None:
        if pulse.revoked_at is None:
            pulse.revoked_at = now
            child.leases.revoke()
        elif now - pulse.revoked_at > config.REVOKE_SECONDS:
            pulse.is_over = True
            revoked = [slot for slot in child.leases.slots() if slot.is_revoked]
            logger.warning(
                "child %d does not respond: a handler blocks its event loop; %d jobs that it holds "
                "and has not begun are given back",
                child.number,
                len(revoked),
            )
            if revoked:
                give_back(child, revoked)

    def _move_maintenance(self, alive: dict[int, Child]) -> None:
        # Not a child that is about to end, as all of them are at a stop.
        staying = [pid for pid, child in alive.items() if child.leaving_since is None]
        fit = [pid for pid in staying if self._pulses[pid].value]
        fit = [pid for pid in fit if not self._pulses[pid].is_stalled]
        if not fit:
            return
        before = None if self._maintainer is None else alive.get(self._maintainer)
        if before is not None:
            before.tell({"maintain": False})
        self._maintainer = min(fit, key=lambda pid: alive[pid].number)
        maintainer = alive[self._maintainer]
        maintainer.tell({"maintain": True})
        logger.info("child %d fires schedules and recovers jobs from now on", maintainer.number)
