"""What happens to a job when its run ends: pure decisions, no I/O.

A job held under a lease, an `Outcome` and the time give a `Transition`. The store applies it,
fenced by the lease's token.

1. With the cancel flag set, every outcome but success ends `cancelled`.
2. An attempt is a run that began. A job that was claimed and never began is never counted.
3. `max_attempts=1` means at most once: once such a run has begun, only its own return, exception
   or release decides. Anything else ends it `dead` as `Interrupted`.
4. With more attempts, an interruption that the job did not cause isn't counted as an attempt. It is
   recorded in the job's errors, and the number of such interruptions is bounded.
5. A job whose lease was lost twice in a row is a suspect. A suspect runs alone, its run is marked
   as begun before the handler is called, and the loss of that run counts as a crash.
6. A job never ends dead because another job crashed their process: only the crash of a job that
   ran alone can be its last.
7. Every job that ran when its process died is quarantined: it next runs alone. A run that ends by
   itself ends the quarantine, whatever it returns. The crashes stay counted.

| outcome                              | transition                                             |
|--------------------------------------|--------------------------------------------------------|
| Succeeded                            | Finish(succeeded)                                      |
| Failed, attempts left                | Return after the policy's backoff                      |
| Failed, none left or permanent       | Finish(dead)                                           |
| Released                             | Return, attempt not counted                            |
| Throttle                             | the same, and its limit's key is closed                |
| NotBegun                             | Return, attempt not counted, no trace                  |
| Interrupted                          | Return, attempt not counted; dead at the bound         |
| CancelSeen                           | Finish(cancelled)                                      |
| Lost, not known to have begun        | Return at once, attempt not counted; dead at the bound |
| Lost, begun                          | Return at once, or Finish(dead) when used up           |
| Lost, begun, a suspect               | as Crashed, alone                                      |
| Parked                               | Finish(dead)                                           |
| Crashed among others                 | Return at once, attempt not counted; dead at the bound |
| Crashed alone                        | Return at once, or Finish(dead) as poison or used up   |
| Interrupted, Lost, Crashed: begun and at most once | Finish(dead) as Interrupted              |
| any Return, while a newer job has the key that the job gave up | Finish(cancelled)          |
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, assert_never

from rowlock import codec, config, retry
from rowlock.job import JobError, JobState, Policy

# The error type of a run that we ended, or of an at-most-once run that was cut short.
INTERRUPTED: Final = "Interrupted"
# The error type of a job that ended because a newer one has its key.
SUPERSEDED: Final = "Superseded"


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned. `result` is JSON text, and `problem` says why there is none."""

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
    """Given back by its holder, to its old position or after `delay` microseconds."""

    delay: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Throttle:
    """The handler was asked to slow down: no job of its limit's key starts for `delay`."""

    delay: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class NotBegun:
    """Claimed, and given back before its handler was called."""

    delay: int | None = None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """We ended its run after it had begun: at a shutdown, or with another run in its process."""

    reason: str


@dataclass(frozen=True, slots=True)
class CancelSeen:
    """The handler followed a cancel request, or raised `Cancel` by itself."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker crashed: its lease expired, or a starting worker found it orphaned."""

    reason: str


@dataclass(frozen=True, slots=True)
class Parked:
    """Taken from a crashed worker and ended dead, so that a person can look at it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process that ran it crashed. `alone` is true if it ran nothing else."""

    evidence: str
    alone: bool = False


Outcome = (
    Succeeded
    | Failed
    | Released
    | Throttle
    | NotBegun
    | Interrupted
    | CancelSeen
    | Lost
    | Parked
    | Crashed
)


@dataclass(frozen=True, slots=True)
class Held:
    """The facts about a leased job that a decision needs."""

    attempt: int
    max_attempts: int
    crashes: int
    run_at: int
    cancel_requested: bool
    policy: Policy
    begun: bool = False
    """Whether it was committed that its run has begun."""
    losses: int = 0
    """How often in a row its lease was lost while its run was not known to have begun."""
    interruptions: int = 0
    """How many of its runs ended that weren't counted as attempts."""
    quarantined: bool = False
    """Whether its process died, and no run of it has ended by itself since."""
    has_limit: bool = False
    """Whether it runs under a limit."""

    @property
    def is_at_most_once(self) -> bool:
        return self.max_attempts == 1

    @property
    def is_suspect(self) -> bool:
        return self.losses >= config.SUSPECT_LOSSES

    @property
    def is_marked(self) -> bool:
        """Whether its runs are marked as begun, so that a missing mark proves that none began."""
        return self.is_at_most_once or self.is_suspect


@dataclass(frozen=True, slots=True)
class Return:
    """Back into the queue."""

    run_at: int
    attempt: int
    crashes: int
    error: JobError | None = None
    losses: int = 0
    interruptions: int = 0
    quarantined: bool = False
    is_counted: bool = False
    """Whether the ended run counts as an attempt."""
    throttled: Throttle | None = None
    """Why, and for how long, no job of its limit's key starts."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Out of the queue, in a terminal state. `keep` is in microseconds, None means forever."""

    state: JobState
    keep: int | None
    crashes: int
    result: str | None = None
    error: JobError | None = None


Transition = Return | Finish


def decide(held: Held, outcome: Outcome, *, now: int, chance: random.Random) -> Transition:
    """Return what happens to a held job after `outcome`, at `now`."""
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
            return _cleared(_give_back(held, _run_at(held, outcome.delay, now)))
        case Throttle():
            # At its limit it keeps its place: the key is closed for all.
            delay = None if held.has_limit else outcome.delay
            back = _cleared(_give_back(held, _run_at(held, delay, now)))
            return replace(back, throttled=outcome) if held.has_limit else back
        case NotBegun():
            return _give_back(held, _run_at(held, outcome.delay, now))
        case Parked():
            return _finish(held, JobState.DEAD, error=_error_of(held, outcome, now))
        case Interrupted() | Lost() | Crashed():
            return _cut_short(held, outcome, now)
        case _:
            assert_never(outcome)


def superseded(held: Held, back: Return, *, by: str, now: int) -> Finish:
    """Return the end of a job that would go back, but whose key a newer job has."""
    error = JobError(held.attempt, now, SUPERSEDED, f"superseded by {by}")
    return _finish(held, JobState.CANCELLED, error=error, crashes=back.crashes)


def _succeed(held: Held, outcome: Succeeded, now: int) -> Finish:
    error = _error_of(held, outcome, now) if outcome.problem else None
    return _finish(held, JobState.SUCCEEDED, result=outcome.result, error=error)


def _fail(held: Held, outcome: Failed, now: int, chance: random.Random) -> Transition:
    error = _error_of(held, outcome, now)
    if outcome.permanent or held.attempt >= held.max_attempts:
        return _finish(held, JobState.DEAD, error=error)
    delay = outcome.delay if outcome.delay is not None else _backoff(held, chance)
    return _cleared(replace(_counted(held, error), run_at=now + delay))


def _cleared(back: Return) -> Return:
    """Clear a job of suspicion: its run has ended by itself."""
    return replace(back, losses=0, quarantined=False)


def _backoff(held: Held, chance: random.Random) -> int:
    policy = retry.from_stored(held.policy.retry)
    return round(policy(held.attempt, None, random=chance) * config.SECOND_US)


def _run_at(held: Held, delay: int | None, now: int) -> int:
    return held.run_at if delay is None else now + delay


def _cut_short(held: Held, outcome: Interrupted | Lost | Crashed, now: int) -> Transition:
    """Decide on a run that something other than its handler ended."""
    if held.is_marked and not held.begun:
        # It is known that the handler was not called.
        return _give_back(held, held.run_at)
    error = _error_of(held, outcome, now)
    if held.is_at_most_once:
        crashes = held.crashes + isinstance(outcome, Crashed)
        return _finish(held, JobState.DEAD, error=error, crashes=crashes)
    back = replace(_give_back(held, held.run_at), error=error)
    match outcome:
        case Crashed(alone=True):
            return _crash(held, error)
        case Lost() if held.begun:
            return _crash(held, error) if held.is_suspect else _come_back(held, error)
        case Lost():
            return _uncounted(held, replace(back, losses=held.losses + 1))
        case Crashed():
            # Any of the jobs in that process may be the cause, so each of them runs alone next.
            crashes = held.crashes + 1
            return _uncounted(held, replace(back, crashes=crashes, quarantined=True))
        case Interrupted():
            return _uncounted(held, back)


def _give_back(held: Held, run_at: int) -> Return:
    """Return the job to its state before the claim."""
    return Return(
        run_at,
        max(0, held.attempt - 1),
        held.crashes,
        losses=held.losses,
        interruptions=held.interruptions,
        quarantined=held.quarantined,
    )


def _uncounted(held: Held, back: Return) -> Transition:
    """Record the run without counting it as an attempt, up to a bound."""
    if held.interruptions + 1 >= config.INTERRUPTIONS_MAX:
        return _finish(held, JobState.DEAD, crashes=back.crashes, error=back.error)
    return replace(back, interruptions=held.interruptions + 1)


def _counted(held: Held, error: JobError | None) -> Return:
    return Return(
        held.run_at,
        held.attempt,
        held.crashes,
        error,
        losses=held.losses,
        interruptions=held.interruptions,
        quarantined=held.quarantined,
        is_counted=True,
    )


def _come_back(held: Held, error: JobError | None) -> Transition:
    """Return the job for its next attempt at its old position, or end it if none is left."""
    if held.attempt >= held.max_attempts:
        return _finish(held, JobState.DEAD, error=error)
    return _counted(held, error)


def _crash(held: Held, error: JobError | None) -> Transition:
    """Decide on a job that crashed its process, in which nothing else ran."""
    crashes = held.crashes + 1
    if held.attempt >= held.max_attempts or crashes >= held.policy.max_crashes:
        return _finish(held, JobState.DEAD, crashes=crashes, error=error)
    return replace(_counted(held, error), crashes=crashes, quarantined=True)


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
    """Return the entry that an outcome leaves in the job's `errors`."""
    match outcome:
        case Succeeded():
            kind, message, traceback = "ResultNotStored", outcome.problem or "", ""
        case Failed():
            kind, message, traceback = outcome.type, outcome.message, outcome.traceback
        case CancelSeen():
            if outcome.reason is None:
                return None
            kind, message, traceback = "Cancelled", outcome.reason, ""
        case Released() | Throttle() | NotBegun():
            return None
        case Parked():
            kind, message, traceback = "LeaseLost", outcome.reason, ""
        case Interrupted() | Lost() | Crashed():
            kind, message, traceback = _name_of(held, outcome), _reason_of(outcome), ""
        case _:
            assert_never(outcome)
    # Wherever the texts come from, a failure can always be recorded.
    return JobError(held.attempt, now, _clean(kind), _clean(message), _clean(traceback))


def _name_of(held: Held, outcome: Interrupted | Lost | Crashed) -> str:
    """Return the error type of a run that was cut short."""
    if isinstance(outcome, Interrupted) or (held.is_at_most_once and held.begun):
        return INTERRUPTED
    is_alone = held.is_suspect if isinstance(outcome, Lost) else outcome.alone
    if is_alone and held.crashes + 1 >= held.policy.max_crashes:
        return "Poison"
    return "LeaseLost" if isinstance(outcome, Lost) else "Crashed"


def _reason_of(outcome: Interrupted | Lost | Crashed) -> str:
    return outcome.evidence if isinstance(outcome, Crashed) else outcome.reason


def _clean(text: str) -> str:
    return codec.clean_text(text, bytes_max=config.ERROR_BYTES_MAX)
