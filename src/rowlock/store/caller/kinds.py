"""Which library a connection comes from. Asks only libraries that the user has imported."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from rowlock.errors import OptionInvalid
from rowlock.store.caller import alchemy, django, drivers
from rowlock.store.caller.borrowed import Borrowed
from rowlock.store.steps import Rows

B = TypeVar("B")
_Kinds = tuple[tuple[str, str, Callable[[Any], B]], ...]

_BLOCKING: _Kinds[Borrowed[Rows]] = (
    ("sqlite3", "Connection", drivers.borrow_sqlite),
    ("psycopg", "Connection", drivers.borrow_psycopg),
    ("psycopg2.extensions", "connection", drivers.borrow_psycopg2),
    ("sqlalchemy.engine", "Connection", alchemy.borrow_connection),
    ("sqlalchemy.orm", "Session", alchemy.borrow_session),
    ("sqlalchemy.orm", "scoped_session", alchemy.borrow_scoped),
    ("django.db.backends.base.base", "BaseDatabaseWrapper", django.borrow_django),
    ("django.utils.connection", "ConnectionProxy", django.borrow_django),
)
_ASYNC: _Kinds[Awaitable[Borrowed[Awaitable[Rows]]]] = (
    ("psycopg", "AsyncConnection", drivers.aborrow_psycopg),
    # Its metaclass takes a pool's wrappers for connections as well.
    ("asyncpg", "Connection", drivers.borrow_asyncpg),
    ("aiosqlite", "Connection", drivers.borrow_aiosqlite),
    ("sqlalchemy.ext.asyncio", "AsyncConnection", alchemy.aborrow_connection),
    ("sqlalchemy.ext.asyncio", "AsyncSession", alchemy.aborrow_session),
    ("sqlalchemy.ext.asyncio", "async_scoped_session", alchemy.aborrow_scoped),
)
_ACCEPTED = (
    "a connection of sqlite3, aiosqlite, psycopg, psycopg2, asyncpg or Django, "
    "or a connection or session of SQLAlchemy"
)


def borrow(conn: object) -> Borrowed[Rows]:
    """A blocking connection; `OptionInvalid` for anything else."""
    open_it = _opener(_BLOCKING, conn)
    if open_it is None:
        is_async = _opener(_ASYNC, conn) is not None
        raise _refusal(conn, "is asynchronous: use aenqueue with it" if is_async else None)
    return open_it(conn)


async def aborrow(conn: object) -> Borrowed[Awaitable[Rows]]:
    """An async connection; `OptionInvalid` for anything else."""
    open_it = _opener(_ASYNC, conn)
    if open_it is None:
        is_blocking = _opener(_BLOCKING, conn) is not None
        raise _refusal(conn, "would block the loop: use enqueue with it" if is_blocking else None)
    return await open_it(conn)


def _opener(kinds: _Kinds[B], conn: object) -> Callable[[Any], B] | None:
    for module, name, open_it in kinds:
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, type) and isinstance(conn, found):
            return open_it
    return None


def _refusal(conn: object, problem: str | None) -> OptionInvalid:
    kind = f"{type(conn).__module__}.{type(conn).__qualname__}"
    return OptionInvalid(
        "conn", f"{kind} {problem}" if problem else f"must be {_ACCEPTED}, not {kind}"
    )
