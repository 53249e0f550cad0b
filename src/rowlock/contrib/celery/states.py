"""The names of Celery's states, as `AsyncResult.state` returns them."""

from __future__ import annotations

PENDING = "PENDING"
RECEIVED = "RECEIVED"
STARTED = "STARTED"
SUCCESS = "SUCCESS"
FAILURE = "FAILURE"
REVOKED = "REVOKED"
REJECTED = "REJECTED"
RETRY = "RETRY"
IGNORED = "IGNORED"

READY_STATES: frozenset[str] = frozenset({SUCCESS, FAILURE, REVOKED})
UNREADY_STATES: frozenset[str] = frozenset({PENDING, RECEIVED, STARTED, REJECTED, RETRY})
EXCEPTION_STATES: frozenset[str] = frozenset({RETRY, FAILURE, REVOKED})
PROPAGATE_STATES: frozenset[str] = frozenset({FAILURE, REVOKED})
ALL_STATES: frozenset[str] = READY_STATES | {PENDING, RECEIVED, STARTED, RETRY}

# The end first. A state of your own comes after the two ends and before all others.
_ORDER = (SUCCESS, FAILURE, None, REVOKED, STARTED, RECEIVED, REJECTED, RETRY, PENDING)


def precedence(state: str) -> int:
    """Return the rank of a state. 0 is the highest."""
    return _ORDER.index(state if state in _ORDER else None)


class state(str):  # noqa: N801  # Celery's name for it, and it is a str there
    """A state that compares by its rank: `state("PROGRESS") > state("STARTED")`."""

    __slots__ = ()

    def __gt__(self, other: str) -> bool:
        return precedence(self) < precedence(other)

    def __ge__(self, other: str) -> bool:
        return precedence(self) <= precedence(other)

    def __lt__(self, other: str) -> bool:
        return precedence(self) > precedence(other)

    def __le__(self, other: str) -> bool:
        return precedence(self) >= precedence(other)
