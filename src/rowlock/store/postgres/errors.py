"""What an error of PostgreSQL means for us: retry, the server is away, or it refuses."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import Final

import psycopg

from rowlock import config
from rowlock.errors import (
    Forbidden,
    MigrationNeeded,
    RowlockError,
    StoreRefused,
    StoreUnavailable,
)
from rowlock.store.postgres.connections import CallTimeout


class Meaning(Enum):
    """What to do about an error."""

    RACE = auto()
    AWAY = auto()
    # As AWAY, and the caller has waited long enough.
    SILENT = auto()
    # Something in between loses prepared statements.
    UNPREPARED = auto()
    # A table with row-level security does not accept COPY.
    UNCOPIED = auto()
    # Our role is not allowed to do that.
    FORBIDDEN = auto()
    # The server is there, but can't do it now: it is full, or it took too long.
    BUSY = auto()
    # It refuses to store that: a trigger, a constraint or a limit forbids it.
    REFUSED = auto()
    UNMIGRATED = auto()
    OURS = auto()


_UNSUPPORTED_STATE: Final = "0A000"
_STATES: Final[Mapping[Meaning, Collection[str]]] = {
    # Serialization failure, deadlock, and a copy that met a row of its own (all other inserts check
    # for that): the transaction is certainly undone, and worth another try.
    Meaning.RACE: ("40001", "40P01", "23505"),
    # The server is going down, starting up, or this is no longer the primary.
    Meaning.AWAY: ("57P01", "57P02", "57P03", "57P05", "25006"),
    # A prepared statement is missing, exists already, or its plan is out of date: nothing was done.
    Meaning.UNPREPARED: ("26000", "42P05", _UNSUPPORTED_STATE),
    Meaning.UNMIGRATED: ("42P01", "3F000", "42703"),
    Meaning.FORBIDDEN: ("42501",),
}
_MEANINGS: Final = {state: meaning for meaning, states in _STATES.items() for state in states}


def meaning_of(error: psycopg.Error, *, is_closed: bool) -> Meaning:
    """Classify a driver's error."""
    state = error.sqlstate or ""
    meaning = _MEANINGS.get(state)
    if isinstance(error, CallTimeout):
        return Meaning.SILENT
    # Not from the server but from the driver: it may find the socket dead before libpq does.
    is_lost = is_closed or (not state and isinstance(error, psycopg.OperationalError))
    if state.startswith("08") or (is_lost and meaning is not Meaning.RACE):
        return Meaning.AWAY
    # SQL keywords are the same in every language of messages.
    if state == _UNSUPPORTED_STATE and "COPY" in str(error):
        return Meaning.UNCOPIED
    if meaning is not None:
        return meaning
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        # 53xxx: disk full, too many connections; 57014: a timeout; 55P03: a lock was not available.
        # 54xxx: the row is too large for the server. The driver classes it with those.
        return Meaning.REFUSED if state.startswith("54") else Meaning.BUSY
    # The driver itself refuses text that no column accepts, without asking the server.
    return Meaning.REFUSED if state or isinstance(error, psycopg.DataError) else Meaning.OURS


def mapped(error: psycopg.Error, meaning: Meaning, *, shown_url: str) -> RowlockError | None:
    """Our error for it. None lets the driver's error through: it is a mistake of ours."""
    if meaning is Meaning.OURS:
        return None
    if meaning is Meaning.UNMIGRATED:
        return MigrationNeeded(
            f"the tables at {shown_url} are missing or of another version",
            "run `rowlock migrate`",
            is_behind=True,
        )
    if meaning is Meaning.FORBIDDEN:
        return Forbidden(f"{shown_url}: {_first_line(error)}", by_database=True)
    if meaning is Meaning.REFUSED:
        return StoreRefused(shown_url, _reason(error))
    return StoreUnavailable(f"{shown_url}: {_first_line(error)}")


def _reason(error: psycopg.Error) -> str:
    """The server's first sentence. The rest may show the whole row."""
    said = error.diag.message_primary or type(error).__name__
    return said[: config.LOGGED_ERROR_CHARACTERS_MAX]


def is_login_refused(error: psycopg.Error) -> bool:
    """Whether every host that was tried has answered, and refused the user or the password.

    A code decides, if there is one. libpq passes none on for a connection that failed, but it
    reports that the server asked for a password and none was given. Everything else is read from
    the message, as far as it is in English.
    """
    if error.sqlstate:
        return error.sqlstate in _REFUSED_LOGIN_STATES
    text = str(error)
    hosts = text.count(_ONE_HOST)
    if hosts <= 1 and error.pgconn is not None and error.pgconn.needs_password:
        return True
    return len(_REFUSED_LOGIN.findall(text)) >= max(1, hosts)


# A wrong password; a role that does not exist, may not log in, or has no line in pg_hba.conf. Other
# codes are not about the user: no such database (3D000), too many connections (53300).
_REFUSED_LOGIN_STATES: Final = frozenset({"28P01", "28000"})
_ONE_HOST: Final = "connection to server at"
_REFUSED_LOGIN: Final = re.compile(
    r"authentication failed for user"
    r"|role \"[^\"]*\" does not exist"
    r"|role \"[^\"]*\" is not permitted to log in"
    r"|no pg_hba\.conf entry"
    r"|no password supplied"
    r"|permission denied for database"
)


def _first_line(error: psycopg.Error) -> str:
    return " ".join(str(error).split()) or type(error).__name__
