"""What an error of PostgreSQL means for us: try again, say that it is away, or let it through."""

from __future__ import annotations

from enum import Enum, auto

import psycopg

from rowlock.errors import MigrationNeeded, RowlockError, StoreUnavailable
from rowlock.store.deadline import CallTimeout

# Serialization failure, deadlock, and a copy that met a row of its own (all other inserts look out
# for that): the transaction is surely undone, and worth another try.
_RACE_STATES = frozenset({"40001", "40P01", "23505"})
# The server is going down, starting up, or this is no longer the primary.
_AWAY_STATES = frozenset({"57P01", "57P02", "57P03", "57P05", "25006"})
# A prepared statement is not there, or there already, or its plan is out of date: nothing was done.
_UNPREPARED_STATES = frozenset({"26000", "42P05", "0A000"})
_UNMIGRATED_STATES = frozenset({"42P01", "3F000", "42703"})


class Meaning(Enum):
    """What to do about an error."""

    RACE = auto()
    AWAY = auto()
    # As away, and the caller has waited long enough.
    SILENT = auto()
    # Somebody stands in between who loses prepared statements.
    UNPREPARED = auto()
    REFUSED = auto()
    UNMIGRATED = auto()
    OURS = auto()


def meaning_of(error: psycopg.Error, *, is_closed: bool) -> Meaning:
    """Sort a driver's error."""
    state = error.sqlstate or ""
    if isinstance(error, CallTimeout):
        return Meaning.SILENT
    if state in _RACE_STATES:
        return Meaning.RACE
    if state in _AWAY_STATES or state.startswith("08") or is_closed:
        return Meaning.AWAY
    if state in _UNPREPARED_STATES:
        return Meaning.UNPREPARED
    if state in _UNMIGRATED_STATES:
        return Meaning.UNMIGRATED
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        # 53xxx: disk full, too many connections; 57014: a timeout; 55P03: a lock not to be had.
        return Meaning.REFUSED
    return Meaning.OURS


def mapped(error: psycopg.Error, meaning: Meaning, *, shown_url: str) -> RowlockError | None:
    """Our error for it; None lets the driver's through: it is a mistake of ours."""
    if meaning is Meaning.OURS:
        return None
    if meaning is Meaning.UNMIGRATED:
        return MigrationNeeded(
            f"the tables at {shown_url} are missing or of another version: run `rowlock migrate`"
        )
    return StoreUnavailable(f"{shown_url}: {_first_line(error)}")


def _first_line(error: psycopg.Error) -> str:
    return " ".join(str(error).split()) or type(error).__name__
