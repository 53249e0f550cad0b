"""How a run may end, and what becomes of its job: pure decisions, no I/O.

A job that is held under a lease, an `Outcome`, and the time give a `Transition`; the store applies
it, fenced by the lease's token.

1. With the cancel flag set, every outcome but success ends `cancelled`.
2. A release never counts the attempt; everything else does.
3. A job whose worker vanished gets the same number of attempts as one that fails.
4. A bystander never dies of a neighbour: only a crash of a job that ran alone can be its last.

| outcome                          | transition                                       |
|----------------------------------|--------------------------------------------------|
| Succeeded                        | Finish(succeeded)                                |
| Failed, attempts left            | Return after the policy's backoff                |
| Failed, none left or permanent   | Finish(dead)                                     |
| Released                         | Return, attempt not counted                      |
| CancelSeen                       | Finish(cancelled)                                |
| Lost (lease expired, orphaned)   | Return at once, or Finish(dead) when used up     |
| Parked                           | Finish(dead)                                     |
| Crashed                          | Return at once, or Finish(dead) as poison        |
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import assert_never

from rowlock import codec, config, retry
from rowlock.job import JobError, JobState, Policy


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned; `result` is JSON text, `problem` says why there is none."""

    result: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised. `delay` (microseconds) overrides the job's stored policy."""

    type: str
    message: str
    traceback: str = ""
    permanent: bool = False
    delay: int | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """Given back untried, to its old place in the queue or after `delay` microseconds."""

    delay: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CancelSeen:
    """The handler saw the request to cancel, or asked for it itself."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker vanished: its lease expired, or it was not heard of at a start."""

    reason: str


@dataclass(frozen=True, slots=True)
class Parked:
    """Taken from a vanished worker and given up, for somebody to look at."""

    reason: str


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process that ran it died; `alone` if it ran nothing else."""

    evidence: str
    alone: bool = False


Outcome = Succeeded | Failed | Released | CancelSeen | Lost | Parked | Crashed


@dataclass(frozen=True, slots=True)
class Held:
    """What a decision needs to know of a job under a lease."""

    attempt: int
    max_attempts: int
    crashes: int
    run_at: int
    cancel_requested: bool
    policy: Policy


@dataclass(frozen=True, slots=True)
class Return:
    """Back into the queue."""

    run_at: int
    attempt: int
    crashes: int
    error: JobError | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """Out of the queue, in a terminal state; `keep` is microseconds, None for ever."""

    state: JobState
    keep: int | None
    crashes: int
    result: str | None = None
    error: JobError | None = None


Transition = Return | Finish


def decide(held: Held, outcome: Outcome, *, now: int, chance: random.Random) -> Transition:
    """What becomes of a held job after `outcome`, at `now`."""
    if isinstance(outcome, Succeeded):
        return _succeed(held, outcome, now)
    if held.cancel_requested or isinstance(outcome, CancelSeen):
        crashes = held.crashes + isinstance(outcome, Crashed)
        error = _error_of(held, outcome, now)
        return _finish(held, JobState.CANCELLED, error=error, crashes=crashes)
    match outcome:
        case Failed():
            return _fail(held, outcome, now, chance)
        case Released():
            run_at = held.run_at if outcome.delay is None else now + outcome.delay
            return Return(run_at, max(0, held.attempt - 1), held.crashes)
        case Lost():
            return _come_back(held, _error_of(held, outcome, now))
        case Parked():
            return _finish(held, JobState.DEAD, error=_error_of(held, outcome, now))
        case Crashed():
            return _crash(held, outcome, now)
        case _:
            assert_never(outcome)


def _succeed(held: Held, outcome: Succeeded, now: int) -> Finish:
    error = _error_of(held, outcome, now) if outcome.problem else None
    return _finish(held, JobState.SUCCEEDED, result=outcome.result, error=error)


def _fail(held: Held, outcome: Failed, now: int, chance: random.Random) -> Transition:
    error = _error_of(held, outcome, now)
    if outcome.permanent or held.attempt >= held.max_attempts:
        return _finish(held, JobState.DEAD, error=error)
    delay = outcome.delay if outcome.delay is not None else _backoff(held, chance)
    return Return(now + delay, held.attempt, held.crashes, error)


def _backoff(held: Held, chance: random.Random) -> int:
    policy = retry.from_stored(held.policy.retry)
    return round(policy(held.attempt, None, random=chance) * config.SECOND_US)


def _come_back(held: Held, error: JobError | None) -> Transition:
    """The next attempt at once, at its old place in the queue; or none is left."""
    if held.attempt >= held.max_attempts:
        return _finish(held, JobState.DEAD, error=error)
    return Return(held.run_at, held.attempt, held.crashes, error)


def _crash(held: Held, outcome: Crashed, now: int) -> Transition:
    error = _error_of(held, outcome, now)
    crashes = held.crashes + 1
    used_up = held.attempt >= held.max_attempts
    if outcome.alone and (used_up or crashes >= held.policy.max_crashes):
        return _finish(held, JobState.DEAD, crashes=crashes, error=error)
    # Any of those that ran may be the guilty one, so each gets one more run, alone.
    attempt = held.max_attempts - 1 if used_up else held.attempt
    return Return(held.run_at, attempt, crashes, error)


def _finish(
    held: Held,
    state: JobState,
    *,
    result: str | None = None,
    error: JobError | None = None,
    crashes: int | None = None,
) -> Finish:
    count = held.crashes if crashes is None else crashes
    return Finish(state, held.policy.keep_for(state), count, result, error)


def _error_of(held: Held, outcome: Outcome, now: int) -> JobError | None:
    """The line that an outcome leaves in the job's `errors`."""
    match outcome:
        case Succeeded():
            kind, message, traceback = "ResultNotStored", outcome.problem or "", ""
        case Failed():
            kind, message, traceback = outcome.type, outcome.message, outcome.traceback
        case CancelSeen():
            if outcome.reason is None:
                return None
            kind, message, traceback = "Cancelled", outcome.reason, ""
        case Released():
            return None
        case Lost() | Parked():
            kind, message, traceback = "LeaseLost", outcome.reason, ""
        case Crashed():
            poison = outcome.alone and held.crashes + 1 >= held.policy.max_crashes
            kind, message, traceback = "Poison" if poison else "Crashed", outcome.evidence, ""
        case _:
            assert_never(outcome)
    # Whoever wrote them: a failure can always be recorded.
    return JobError(held.attempt, now, _clean(kind), _clean(message), _clean(traceback))


def _clean(text: str) -> str:
    return codec.clean_text(text, bytes_max=config.ERROR_BYTES_MAX)
