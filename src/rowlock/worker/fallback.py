"""What is stored of an outcome that the database refuses to store whole: pure.

A success stays a success, so that its job does not run again; only its result is left out. If its
follow-ups are refused, it can't be a success, since they belong to it: its job is dead. Every other
outcome loses its text.
"""

from __future__ import annotations

from dataclasses import replace

from rowlock.errors import StoreRefused
from rowlock.lifecycle import CancelSeen, Failed, Outcome, Released, Succeeded
from rowlock.store import Settlement

# The types of errors that an outcome gets here.
RESULT_REFUSED = "ResultRefused"
UNRECORDABLE = "Unrecordable"
_REASON = "result_refused"


def fallback(settlement: Settlement, error: Exception) -> Settlement | None:
    """What to store instead of what was refused with this error; None: nothing can be left out."""
    reason = error.reason if isinstance(error, StoreRefused) else type(error).__name__
    outcome = _less(settlement, reason)
    if outcome is None:
        return None
    follow_ups = settlement.follow_ups if isinstance(outcome, Succeeded) else ()
    return replace(settlement, outcome=outcome, follow_ups=follow_ups)


def _less(settlement: Settlement, reason: str) -> Outcome | None:
    match outcome := settlement.outcome:
        case Succeeded() if outcome.result is not None:
            return Succeeded(None, f"the database refused it: {reason}")
        case Succeeded() if settlement.follow_ups:
            said = f"{_REASON}: it returned, and the database refused its follow-ups: {reason}"
            return Failed(RESULT_REFUSED, said, permanent=True)
        # What the database said may be what it refuses.
        case Failed(type=type) if type == RESULT_REFUSED:
            return None if outcome.message == _REASON else replace(outcome, message=_REASON)
        case Failed(type=type) if type == UNRECORDABLE:
            return replace(outcome, message="") if outcome.message else None
        case Failed():
            return replace(outcome, type=UNRECORDABLE, message=reason, traceback="")
        case CancelSeen() if outcome.reason is not None:
            return CancelSeen()
        case Released() if outcome.reason is not None:
            return Released(outcome.delay)
        case _:
            return None
