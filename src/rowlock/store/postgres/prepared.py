"""Calls of prepared statements, without a cursor of psycopg's around each.

A cursor reads the SQL for placeholders, looks for a dumper per value, asks whether to prepare and
describes every column. For a statement that is always the same, all of that gives the same answer:
it was two thirds of the client's work of an enqueue. Waiting, deadlines and errors stay psycopg's.

1. A statement is prepared at its first call on a connection, under a name of ours.
2. Values go as text without a type. The casts in our SQL say what they are.
3. If the server has lost a statement (a pooler, DISCARD ALL), the call fails with a state that
   `errors` takes for UNPREPARED: nothing was done, and this engine prepares nothing any more.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from psycopg import generators
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from rowlock.store.drive import array_literal
from rowlock.store.steps import Rows

_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
Call = Generator[Any, Any, Rows]


class PreparedCalls:
    """The prepared statements of one connection."""

    def __init__(self, pgconn: PGconn) -> None:
        self._pgconn = pgconn
        self._names: dict[str, bytes] = {}
        self._transformer = Transformer()

    def call(self, sql: str, values: Sequence[Any]) -> Call:
        """Call a statement. To be run by a connection's `wait`."""
        pgconn = self._pgconn
        name = self._names.get(sql)
        if name is None:
            name = b"rowlock_%d" % len(self._names)
            pgconn.send_prepare(name, sql.encode())
            _checked((yield from generators.execute(pgconn)))
            self._names[sql] = name
        pgconn.send_query_prepared(name, [_as_text(value) for value in values])
        result = _checked((yield from generators.execute(pgconn)))
        if not result.nfields:
            return []
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)


def _checked(results: Sequence[PGresult]) -> PGresult:
    (result,) = results
    if result.status not in _DONE:
        raise error_from_result(result)
    return result


def _as_text(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return str(array_literal(value)).encode()
