"""A user's connection as the verbs see it, whatever library made it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Generic, TypeVar

import msgspec

from rowlock.store.statements import Dialect, ParameterStyle

# `Rows` for a blocking connection, an awaitable of them for an async one.
A_co = TypeVar("A_co", covariant=True)

RingNow = Callable[[frozenset[str]], None]
RingLater = Callable[[RingNow, frozenset[str]], bool]


class TransactionStatus(Enum):
    """Whose transaction a statement would be part of."""

    OPEN = auto()  # A transaction is open: the user's.
    IDLE = auto()  # None is open, but the first write opens one, which the user will end.
    AUTOCOMMIT = auto()  # None is open, and each statement would be committed by itself.


def never_rings(ring: RingNow, queues: frozenset[str]) -> bool:
    """The `ring_later` of libraries without a hook for after the commit. Always False."""
    return False


class Borrowed(msgspec.Struct, Generic[A_co], frozen=True):
    """A connection of the user's, for the duration of one verb.

    `driver` is the connection at the bottom, below any framework. `ring_later` rings after the
    commit of the user's transaction, if it has one, and returns whether it will.
    """

    dialect: Dialect
    style: ParameterStyle
    status: TransactionStatus
    driver: object
    execute: Callable[[str, Any], A_co]
    ring_later: RingLater = never_rings


def sqlite_status(driver: Any) -> TransactionStatus:
    """The status of a `sqlite3.Connection`, or of one that looks like it."""
    if driver.in_transaction:
        return TransactionStatus.OPEN
    # `autocommit` came with Python 3.12. Where it is not a bool, isolation_level decides as before.
    # aiosqlite does not pass it on, and `_conn` is the connection that it wraps.
    setting = getattr(getattr(driver, "_conn", driver), "autocommit", None)
    is_autocommit = setting if isinstance(setting, bool) else driver.isolation_level is None
    return TransactionStatus.AUTOCOMMIT if is_autocommit else TransactionStatus.IDLE


def postgres_status(driver: Any) -> TransactionStatus:
    """The status of a connection of psycopg, of either version, blocking or async."""
    if driver.info.transaction_status != 0:
        return TransactionStatus.OPEN
    return TransactionStatus.AUTOCOMMIT if driver.autocommit else TransactionStatus.IDLE
