"""Calls of prepared statements, without a cursor of psycopg's around each.

A cursor reads the SQL for placeholders, looks for a dumper per value, asks whether to prepare and
describes every column. For a statement that is always the same, all of that gives the same answer:
it was two thirds of the client's work of an enqueue. Waiting, deadlines and errors stay psycopg's.

1. A statement is prepared at its first call on a connection, under a name of ours.
2. Values go as text without a type. The casts in our SQL say what they are.
3. Two calls may be sent at once, in one round trip. Each is a transaction of its own. The second
   begins when the first has ended.
4. If the server has lost a statement (a pooler, DISCARD ALL), the call fails with a state that
   `errors` takes for UNPREPARED: nothing was done, and this engine prepares nothing any more.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from psycopg import generators
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from rowlock.store.drive import array_literal
from rowlock.store.steps import Rows

_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
T = TypeVar("T")
Call = Generator[Any, Any, T]
# The SQL of a call, and its values.
Bound = tuple[str, Sequence[Any]]


class PreparedCalls:
    """The prepared statements of one connection.

    `can_pair`: it leads to the server itself, and two calls may be sent at once.
    """

    def __init__(self, pgconn: PGconn, *, can_pair: bool) -> None:
        self._pgconn = pgconn
        self.can_pair = can_pair
        self._names: dict[str, bytes] = {}
        self._transformer = Transformer()

    def call(self, sql: str, values: Sequence[Any]) -> Call[Rows]:
        """Call a statement. To be run by a connection's `wait`."""
        name = self._names.get(sql)
        if name is None:
            name = yield from self._prepare(sql)
        self._pgconn.send_query_prepared(name, [_as_text(value) for value in values])
        return self._rows(_checked((yield from generators.execute(self._pgconn))))

    def call_both(self, first: Bound, second: Bound) -> Call[tuple[Rows, bool]]:
        """Call two statements. Returns the rows of the first, and whether the second succeeded.

        Raises:
            psycopg.Error: The first has failed. The second was run nevertheless.
        """
        pgconn = self._pgconn
        calls: list[tuple[bytes, Sequence[Any]]] = []
        for sql, values in (first, second):
            name = self._names.get(sql)
            calls.append((name or (yield from self._prepare(sql)), values))
        pgconn.enter_pipeline_mode()
        for name, values in calls:
            pgconn.send_query_prepared(name, [_as_text(value) for value in values])
            pgconn.pipeline_sync()
        yield from generators.send(pgconn)
        results: list[PGresult] = []
        # Each call answers with its result and a mark at its end.
        while len(results) < 4:
            results += yield from generators.fetch_many(pgconn)
        pgconn.exit_pipeline_mode()
        return self._rows(_checked(results[:1])), results[2].status in _DONE

    def _prepare(self, sql: str) -> Call[bytes]:
        name = b"rowlock_%d" % len(self._names)
        self._pgconn.send_prepare(name, sql.encode())
        _checked((yield from generators.execute(self._pgconn)))
        self._names[sql] = name
        return name

    def _rows(self, result: PGresult) -> Rows:
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
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return str(array_literal(value)).encode()
