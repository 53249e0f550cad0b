"""Connections of Django. Nothing of it is imported: the wrapper has all that is needed."""

from __future__ import annotations

from typing import Any

from rowlock.errors import OptionInvalid
from rowlock.store.caller.borrowed import (
    Borrowed,
    RingNow,
    postgres_standing,
    sqlite_standing,
)
from rowlock.store.statements import Dialect, ParameterStyle
from rowlock.store.steps import Rows

_VENDORS = {
    "sqlite": (Dialect.SQLITE, sqlite_standing),
    "postgresql": (Dialect.POSTGRES, postgres_standing),
}


def borrow_django(wrapper: Any) -> Borrowed[Rows]:
    """A connection of `django.db.connections`, or `django.db.connection` itself."""
    if wrapper.vendor not in _VENDORS:
        raise OptionInvalid("conn", f"is a Django connection to {wrapper.vendor}")
    dialect, standing_of = _VENDORS[wrapper.vendor]
    wrapper.ensure_connection()

    # Through Django's cursor, so that its instrumentation and its checks see our statements too.
    def execute(sql: str, values: Any) -> Rows:
        with wrapper.cursor() as cursor:
            cursor.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def ring_later(ring: RingNow, queues: frozenset[str]) -> bool:
        # Outside of atomic(), after set_autocommit(False), Django has no hook.
        if not wrapper.in_atomic_block:
            return False
        wrapper.on_commit(lambda: ring(queues))
        return True

    driver = wrapper.connection
    # On SQLite too: Django's cursor turns these placeholders into those of the driver.
    style = ParameterStyle.PYFORMAT
    return Borrowed(dialect, style, standing_of(driver), driver, execute, ring_later)
