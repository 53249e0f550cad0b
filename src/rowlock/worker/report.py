"""What became of runs, as log records: one per run, with the job's fields beside the text.

A record never has a payload or a result: only ids, names, an error's type and first line, and its
traceback. Its text is complete without the fields, for users who format records their own way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from rowlock import codec, config
from rowlock.job import Lease
from rowlock.lifecycle import (
    CancelSeen,
    Crashed,
    Failed,
    Interrupted,
    NotBegun,
    Outcome,
    Released,
    Succeeded,
    Throttle,
)
from rowlock.store import Settlement
from rowlock.store.ops.claim import ClaimedBlock
from rowlock.store.steps import Row
from rowlock.tally import Ended, RunEnd

logger: logging.Logger = logging.getLogger("rowlock.worker")
# Its own logger, so that its level can switch off the lines of jobs that end well.
jobs_logger: logging.Logger = logging.getLogger("rowlock.worker.jobs")

# The lease of the job whose handler runs in this context, for its log records. Of a job of a block,
# what it is made of when somebody asks.
_running: ContextVar[Lease | tuple[ClaimedBlock, Row] | None] = ContextVar(
    "rowlock_running", default=None
)
# Its time limit, if it is a coroutine that has one.
_limit: ContextVar[asyncio.Timeout | None] = ContextVar("rowlock_limit", default=None)

_NO_ENDS: dict[str, RunEnd] = {}

# The fields of a record, in the order in which they are shown.
FIELDS = ("job_id", "kind", "queue", "attempt", "worker", "duration_seconds", "error")
# The attribute of a record with more about it, by names: shown as lines, or as fields of JSON.
DETAILS = "rowlock_details"


@dataclass(slots=True)
class RunSettlement(Settlement):
    """A settlement, and how long the run took: None if it never started."""

    seconds: float | None = None


@dataclass(slots=True)
class RevokedSettlement(Settlement):
    """Gives back a job that has not begun, and that the supervisor gives back as well."""


def first_names(names: Sequence[str]) -> list[str]:
    """The first of many names, and how many more there are."""
    most = config.LOGGED_NAMES_MAX
    more = [] if len(names) <= most else [f"and {len(names) - most} more"]
    return [*names[:most], *more]


def note_running(lease: Lease) -> None:
    """Records made from here on in this context, its tasks and its copies, are of this job."""
    _running.set(lease)


def note_running_row(block: ClaimedBlock, row: Row) -> None:
    """As `note_running`, for a job of a block."""
    _running.set((block, row))


@contextmanager
def running(lease: Lease, limit: asyncio.Timeout | None = None) -> Iterator[None]:
    """Records made in the block, in its tasks and its copied contexts, are of this job.

    So is the time limit of its coroutine.
    """
    before, limit_before = _running.set(lease), _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(limit_before)
        _running.reset(before)


def running_lease() -> Lease | None:
    """The lease of the job whose handler calls this. None outside of a handler."""
    found = _running.get()
    if isinstance(found, tuple):
        block, row = found
        found = block.lease_of(row)
        _running.set(found)
    return found


def note_limit(limit: asyncio.Timeout) -> None:
    """The coroutines that run from here on in this context, and in its copies, have this limit."""
    _limit.set(limit)


def is_overdue() -> bool:
    """Whether the handler that calls this is being cancelled because its time is over."""
    limit = _limit.get()
    return limit is not None and limit.expired()


def running_fields() -> dict[str, Any]:
    """The fields of the job whose handler calls this. Empty outside of a handler."""
    lease = running_lease()
    return {} if lease is None else fields_of(lease)


def fields_of(lease: Lease) -> dict[str, Any]:
    """The fields that a record about a lease carries."""
    fields: dict[str, Any] = {"job_id": lease.id, "worker": lease.worker}
    if lease.row is not None:
        fields |= {
            "kind": lease.row.kind,
            "queue": lease.row.queue,
            "attempt": lease.row.attempt,
        }
    return fields


def report(settlements: Sequence[Settlement], ended: Sequence[Ended] = ()) -> None:
    """Log how runs ended, once that is written.

    Args:
        ended: What became of them, as the store has decided. Plain successes may be left out. So
            may runs whose settle was repeated because its answer was lost: then nobody knows, and
            the record does not say.
    """
    is_shown = shows_successes()
    ends = {run.id: run.end for run in ended} if ended else _NO_ENDS
    for settlement in settlements:
        # Nearly all are plain successes: if they are not shown, they cost nothing here.
        outcome = settlement.outcome
        if is_shown or not isinstance(outcome, Succeeded) or outcome.problem is not None:
            _report_one(settlement, ends.get(settlement.lease.id))


def shows_successes() -> bool:
    """Whether a job that ended well gets a log record."""
    return jobs_logger.isEnabledFor(logging.INFO)


def report_lost(leases: Sequence[Lease]) -> None:
    """Log that runs ended after other workers had taken their jobs."""
    for lease in leases:
        logger.warning(
            "%s lost its lease: its outcome is not recorded", _name(lease), extra=fields_of(lease)
        )


def report_settled(settlement: Settlement, outcome: Outcome | None) -> None:
    """Log a run whose block was committed, and what went wrong after that, if anything did."""
    if isinstance(outcome, Failed):
        logger.error(
            "job %s failed after its transaction was committed, and stays succeeded%s",
            settlement.lease.id,
            _because(f"{outcome.type}: {outcome.message}"),
            extra={**fields_of(settlement.lease), "error": outcome.type},
        )
    elif isinstance(outcome, Crashed):
        logger.warning(
            "job %s crashed after its transaction was committed, and stays succeeded%s",
            settlement.lease.id,
            _because(outcome.evidence),
            extra={**fields_of(settlement.lease), "error": "Crashed"},
        )
    elif outcome is not None and not isinstance(outcome, Succeeded):
        logger.info(
            "job %s stays succeeded: its transaction was committed, and %s comes after that",
            settlement.lease.id,
            type(outcome).__name__,
            extra=fields_of(settlement.lease),
        )
    report([settlement])


class _LogLine(NamedTuple):
    """The text of a record. The duration stands between `what` and `rest`."""

    level: int
    what: str
    rest: str = ""


def _report_one(settlement: Settlement, end: RunEnd | None) -> None:
    lease, outcome = settlement.lease, settlement.outcome
    fields = fields_of(lease)
    took = ""
    if isinstance(settlement, RunSettlement) and settlement.seconds is not None:
        fields["duration_seconds"] = round(settlement.seconds, 6)
        took = f" after {_duration(settlement.seconds)}"
    if isinstance(outcome, Failed):
        fields["error"] = outcome.type
    elif isinstance(outcome, Crashed):
        fields["error"] = "Crashed"
    line = _line(settlement, end)
    if not jobs_logger.isEnabledFor(line.level):
        return
    record = jobs_logger.makeRecord(
        jobs_logger.name,
        line.level,
        __file__,
        0,
        "%s %s%s%s",
        (_name(lease), line.what, took, line.rest),
        None,
        extra=fields,
    )
    if isinstance(outcome, Failed) and outcome.traceback:
        # As text: the exception itself may come from another process, or hold much memory.
        lines = outcome.traceback[: config.LOGGED_CHARACTERS_MAX].splitlines()
        record.exc_text = "\n".join(map(codec.escaped, lines))
    jobs_logger.handle(record)


def _line(settlement: Settlement, end: RunEnd | None) -> _LogLine:
    match outcome := settlement.outcome:
        case Succeeded(problem=None):
            return _LogLine(logging.INFO, "succeeded")
        case Succeeded():
            return _LogLine(logging.WARNING, "succeeded", _because(outcome.problem))
        case CancelSeen():
            return _LogLine(logging.INFO, "was cancelled", _because(outcome.reason))
        case Failed():
            return _line_of_failure(settlement.lease, outcome, end)
        case _ if end is RunEnd.CANCELLED:
            return _LogLine(logging.INFO, "was cancelled")
        case Crashed():
            return _line_of_break(logging.ERROR, "crashed", outcome.evidence, end)
        case Interrupted():
            return _line_of_break(logging.WARNING, "was interrupted", outcome.reason, end)
        case _:
            return _line_of_return(outcome)


def _line_of_return(outcome: Outcome) -> _LogLine:
    match outcome:
        case Released():
            return _LogLine(logging.INFO, "was released", _because(outcome.reason))
        case Throttle():
            return _LogLine(logging.INFO, "was throttled", _because(outcome.reason))
        case NotBegun():
            return _LogLine(logging.DEBUG, "was given back before its run began")
        case _:
            return _LogLine(logging.WARNING, f"ended as {type(outcome).__name__}")


def _line_of_break(level: int, what: str, reason: str, end: RunEnd | None) -> _LogLine:
    if end is RunEnd.DEAD:
        return _LogLine(logging.ERROR, f"is dead: it {what}", _because(reason))
    return _LogLine(level, what, _because(reason))


def _line_of_failure(lease: Lease, outcome: Failed, end: RunEnd | None) -> _LogLine:
    error = _because(f"{outcome.type}: {outcome.message}")
    attempts = ""
    if lease.row is not None:
        most = lease.row.max_attempts or config.MAX_ATTEMPTS_DEFAULT
        attempts = f", attempt {lease.row.attempt} of {most}"
    match end:
        case RunEnd.RETRYING:
            return _LogLine(logging.WARNING, "failed", f"{attempts}, and will be retried{error}")
        case RunEnd.CANCELLED:
            return _LogLine(logging.INFO, "was cancelled", error)
        case RunEnd.DEAD:
            return _LogLine(logging.ERROR, "is dead: it failed", f"{attempts}{error}")
        case _:
            return _LogLine(logging.WARNING, "failed", f"{attempts}{error}")


def _duration(seconds: float) -> str:
    """Return a duration with a unit, for people. `:.3g` alone shows 0.00001 as 1e-05."""
    if seconds < 1:
        return f"{seconds * 1_000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:,.0f} s"


def _name(lease: Lease) -> str:
    kind = "" if lease.row is None else f" ({codec.escaped(lease.row.kind)})"
    return f"job {lease.id}{kind}"


def _because(reason: str | None) -> str:
    """The first line of a reason, cut and escaped."""
    first = (reason or "").strip().partition("\n")[0]
    return f": {codec.escaped(first[: config.LOGGED_ERROR_CHARACTERS_MAX])}" if first else ""


def report_less(less: Settlement, refused: Exception) -> None:
    """Log that only a part of an outcome was stored."""
    lease = less.lease
    what = "job %s: the database refused its outcome, %s is not stored: %s"
    part = "its result" if isinstance(less.outcome, Succeeded) else "its text"
    logger.error(what, lease.id, part, refused, extra=fields_of(lease))
