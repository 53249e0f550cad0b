"""One run of a job in a child: what it is, why it was ended, and what its end means for the job."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any, Protocol

from rowlock import codec, config, retry
from rowlock.config import SECOND_US
from rowlock.context import Cancel, Context, Fail, Release, Throttled, TimedOut
from rowlock.errors import PayloadInvalid
from rowlock.interrupts import Guard
from rowlock.job import JobError, Lease, timeout_of
from rowlock.lifecycle import (
    CancelSeen,
    Failed,
    Interrupted,
    NotBegun,
    Outcome,
    Released,
    Succeeded,
    Throttle,
)
from rowlock.task import Task
from rowlock.worker.report import RunSettlement

# What a coroutine of a handler may raise: any of it is its job's outcome, `sys.exit()` too. A
# KeyboardInterrupt is not: it comes from the terminal of the process that the worker lives in.
RAISED = (Exception, SystemExit, GeneratorExit, TimedOut)
# The modules between the worker's loop and the handler.
_OURS = ("rowlock.worker.", "rowlock.contrib.", "rowlock.interrupts")
_NO_RESULT = Succeeded(*codec.encode_result(None))
_NOT_RUN = (CoroutineType, GeneratorType, AsyncGeneratorType)


class Cause(Enum):
    """Why a run was ended from outside. It decides what a `CancelledError` means."""

    CANCEL = auto()
    TIMEOUT = auto()
    STOP = auto()
    LOST = auto()


class Keeper(Protocol):
    """Settles a run that its worker has left behind."""

    def settle(self, run: Run, outcome: Outcome | None) -> None: ...
    def settle_soon(self, run: Run, outcome: Outcome | None) -> None: ...


class OpenBlock(Protocol):
    """A block of `ctx.transaction()` that was begun and is not over."""

    def abandon(self) -> None:
        """Undo it: its function has ended without it."""
        ...


class Run:
    """A leased job on its way through this process, or through a process slot of it."""

    # The defaults are class attributes: a run is made for every job, and most set few of them.
    # Marks it as begun; False: its handler must not be called.
    mark: Callable[[Run], Awaitable[bool]] | None = None
    # The context of its handler, if that takes one.
    context: Context | None = None
    started_at: float = 0.0
    cause: Cause | None = None
    cancel_requested: bool = False
    stopping: bool = False
    handle: asyncio.Task[Any] | None = None
    # A task that is cancelled before its first line never runs any, its last ones included.
    has_begun: bool = False
    # Whether its handler was called, or is about to be.
    is_begun: bool = False
    # Of `ctx.transaction()`: a block is open, is being committed, was committed.
    block: OpenBlock | None = None
    is_settling: bool = False
    success: Succeeded | None = None
    # Settles it instead of its worker. This, and whether and how it has ended, is under the lock.
    keeper: Keeper | None = None
    has_ended: bool = False
    outcome: Outcome | None = None
    # Called once its own block has settled it, in the handler's thread.
    on_settled: Callable[[Lease], object] | None = None
    # Around a plain function in this process.
    guard: Guard | None = None

    def __init__(self, lease: Lease, task: Task[..., Any], *, in_slot: bool = False) -> None:
        row = lease.row
        assert row is not None
        self.lease: Lease = lease
        # Unique among all runs, also among those of its job.
        self.key: tuple[str, int] = (lease.id, lease.token)
        self.queue: str = row.queue
        self.rank: int = row.rank
        # Its time limit in seconds.
        self.limit: float | None = timeout_of(row)
        # Whether it lost its lease repeatedly, and must run with no other suspect beside it.
        self.is_suspect: bool = row.losses >= config.SUSPECT_LOSSES
        # Whether it must run alone: it was running when a process died, and has not ended by itself
        # since (in a process slot it is alone anyway), or it is a suspect.
        self.is_quarantined: bool = (row.quarantined and not in_slot) or self.is_suspect
        # Whether a committed write must say that it has begun before its handler is called.
        self.is_at_most_once: bool = row.max_attempts == 1
        self.must_be_marked: bool = self.is_suspect or self.is_at_most_once
        self.task: Task[..., Any] = task
        self.claimed_at: float = time.monotonic()
        self._ending = threading.Lock()
        self.in_slot: bool = in_slot
        # Set when there is something to pass on to the slot.
        self.news: asyncio.Event | None = asyncio.Event() if in_slot else None

    async def begin(self) -> bool:
        """Mark it as begun, if it must be. Returns whether its handler may be called."""
        return self.mark is None or await self.mark(self)

    def stop_soon(self) -> None:
        """Tell it that the worker shuts down. It may continue for the grace."""
        self.stopping = True
        if self.news is not None:
            self.news.set()

    def end(self, cause: Cause) -> None:
        """Ask it to stop. The first cause counts.

        A coroutine is cancelled. In a plain function, only a request to cancel is raised. For
        other causes it can read a flag. A run in a process slot is ended by the slot's reader.
        """
        if self.cause is None:
            self.cause = cause
        if cause is Cause.CANCEL:
            self.cancel_requested = True
        if self.news is not None:
            self.news.set()
        elif self.task.is_async:
            if self.handle is not None and self.has_begun:
                self.handle.cancel()
        elif cause is Cause.CANCEL and self.guard is not None:
            looks = self.context is not None and self.context.has_looked
            self.guard.interrupt(Cancel, after=config.CANCEL_SEEN_SECONDS if looks else 0.0)

    def guard_function(self) -> None:
        """Let a plain function in this process be interrupted from now on."""
        self.guard = Guard(is_spared=lambda: self.is_settled)

    def time_out(self) -> None:
        """Its limit has passed, and it is a plain function in this process."""
        # A run that was asked to stop with its worker continues, and still has its limit.
        if self.cause in (None, Cause.STOP) and not self.is_settled:
            self.cause = Cause.TIMEOUT
            assert self.guard is not None
            self.guard.interrupt(TimedOut)

    def leave_to(self, keeper: Keeper) -> bool:
        """Have this keeper settle it. Returns whether it has ended already."""
        with self._ending:
            self.keeper = keeper
            return self.has_ended

    def note_end(self, outcome: Outcome | None) -> Keeper | None:
        """Note that a plain function has ended, in its thread. Returns its keeper, if any."""
        with self._ending:
            self.has_ended, self.outcome = True, outcome
            return self.keeper

    @property
    def seconds(self) -> float:
        """How many seconds it has run."""
        return time.monotonic() - self.started_at

    def settlement(self, outcome: Outcome) -> RunSettlement:
        """The settlement of a run that ends now."""
        return RunSettlement(
            self.lease,
            outcome,
            () if self.context is None else self.context.follow_ups,
            None if self.context is None else self.context.growth,
            time.monotonic() - self.started_at,
        )

    @property
    def is_late(self) -> bool:
        """Whether its limit has passed, and nothing of it is committed."""
        if self.limit is None or self.is_settled:
            return False
        return time.monotonic() - self.started_at >= self.limit

    def limit_error(self) -> TimeoutError:
        """The error of a run that has passed its limit."""
        return TimeoutError(f"took longer than its limit of {self.limit:g} s")

    def limit_failure(self) -> Failed:
        """The outcome of a run that was ended at its limit."""
        error = self.limit_error()
        permanent = not self.task.settings.retry.allow(error)
        return Failed("TimeoutError", str(error), permanent=permanent)

    @property
    def is_settled(self) -> bool:
        """Whether the handler's own block has committed its success."""
        return self.success is not None

    def settled(self, success: Succeeded) -> None:
        """Note that the handler's own block has committed its success: it is not settled again."""
        self.success = success
        if self.on_settled is not None:
            self.on_settled(self.lease)

    def outcome_before_start(self) -> Outcome | None:
        """The outcome of a run whose handler was not called. None if it was lost."""
        match self.cause:
            case Cause.CANCEL:
                return CancelSeen()
            case Cause.LOST:
                return None
            case Cause.STOP | Cause.TIMEOUT:
                return NotBegun()
            case None:
                return NotBegun(config.NOT_BEGUN_SECONDS * config.SECOND_US)

    def outcome_of_cause(self) -> Outcome | None:
        """The outcome of a run that was ended from outside. None if it was lost."""
        match self.cause:
            case Cause.CANCEL:
                return CancelSeen()
            case Cause.TIMEOUT:
                return self.limit_failure()
            case Cause.STOP:
                return Interrupted("its worker was stopped, and the run did not end in time")
            case Cause.LOST | None:
                return None


# What its end means for the job: pure.


def success(result: object) -> Succeeded:
    """The outcome of a handler that returned. A result that can't be stored is noted.

    Raises:
        TypeError: It returned a coroutine or generator that was never run.
    """
    if result is None:
        return _NO_RESULT
    if isinstance(result, _NOT_RUN):
        if isinstance(result, CoroutineType):
            result.close()
        raise TypeError(
            f"it returned a {type(result).__name__}, which nobody runs: a task whose function "
            "is wrapped must be `async def` itself, or run it to its end"
        )
    text, problem = codec.encode_result(result)
    return Succeeded(text, problem)


def is_last(
    error: BaseException, *, attempt: int, max_attempts: int, task: Task[..., Any] | None = None
) -> bool:
    """Whether a run that ended by this exception will be its job's last one.

    A prediction, for integrations that are called while the exception passes them, before the
    settle. The store decides then, and a request to cancel may have come by that time. What comes
    after the settle reads the store's answer.
    """
    match error:
        case Release() | Throttled() | asyncio.CancelledError():
            return False
        case Fail() | Cancel():
            return True
        case _:
            may_repeat = task is None or task.settings.retry.allow(error)
            return attempt >= max_attempts or not may_repeat


class PayloadMisfit(Exception):
    """The stored payload does not fit the parameters of this worker's function.

    `misfits` is how often that happened to the job before.
    """

    def __init__(self, invalid: PayloadInvalid, *, misfits: int) -> None:
        self.misfits = misfits
        super().__init__(str(invalid))


def count_misfits(errors: Sequence[JobError], *, attempt: int) -> int:
    """How many attempts before this one found that the payload did not fit.

    A job that was taken back by `retry` begins again with its first attempt, and keeps its errors:
    those of its earlier life are not counted.
    """
    count = 0
    for error in reversed(errors):
        if error.attempt > attempt:
            break
        attempt = error.attempt
        count += error.type == PayloadMisfit.__name__
    return count


def outcome_of(error: BaseException, task: Task[..., Any], *, attempt: int) -> Outcome:
    """The outcome of a run that ended by an exception."""
    match error:
        case Release():
            return Released(error.delay_us, error.reason)
        case Throttled():
            return Throttle(error.delay_us, error.reason)
        case Cancel():
            return CancelSeen(str(error) or None)
        case asyncio.CancelledError():
            return CancelSeen()
        case Fail():
            return _failed(error, permanent=True)
        case PayloadMisfit():
            return _misfit(error)
        case _ if not task.settings.retry.allow(error):
            return _failed(error, permanent=True)
        case _:
            return _failed(error, delay=_asked_delay(error, task, attempt))


def _misfit(error: PayloadMisfit) -> Failed:
    """The outcome of a misfit: retried for as long as a deployment may take, then permanent."""
    waits = config.MISFIT_RETRY_SECONDS
    name = type(error).__name__
    if error.misfits >= len(waits):
        return Failed(name, str(error), permanent=True)
    return Failed(name, str(error), delay=waits[error.misfits] * SECOND_US)


def _failed(error: BaseException, *, permanent: bool = False, delay: int | None = None) -> Failed:
    text = codec.error_record(error.with_traceback(_from_handler(error.__traceback__)))
    return Failed(text.type, text.message, text.traceback, permanent=permanent, delay=delay)


def _from_handler(frames: TracebackType | None) -> TracebackType | None:
    """The frames from the user's own on."""
    theirs = frames
    while theirs is not None and _is_ours(theirs):
        theirs = theirs.tb_next
    return theirs or frames


def _is_ours(frames: TracebackType) -> bool:
    return str(frames.tb_frame.f_globals.get("__name__")).startswith(_OURS)


def _asked_delay(error: BaseException, task: Task[..., Any], attempt: int) -> int | None:
    """The delay that a callable policy wants. A stored policy is evaluated by the store."""
    policy = task.settings.retry.policy
    if not isinstance(policy, retry.CallablePolicy):
        return None
    return round(retry.ask(policy, attempt, error).seconds * SECOND_US)
