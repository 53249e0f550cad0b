"""One verb on one psycopg connection, blocking or async. It begins its own transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from rowlock.store import drive
from rowlock.store.postgres.connections import BoundedAsyncConnection, BoundedConnection
from rowlock.store.postgres.prepared import Bound, Call, PreparedCalls
from rowlock.store.steps import (
    COPIED,
    Batch,
    Begin,
    Commit,
    Copy,
    News,
    Ring,
    Row,
    Rows,
    Statement,
    Step,
    Steps,
)

if TYPE_CHECKING:
    from rowlock.store.postgres.engine import PostgresEngine

T = TypeVar("T")

# Plans of prepared statements are kept, so a plan that was made while a table was empty must be as
# good when it is full. That holds for these without sequential scans; joins in others break it. It
# pays for single calls (find_settled 0.57 ms, prepared 0.11). For a batch, planning costs little.
PREPARED: frozenset[str] = frozenset(
    {
        "claim",
        "claim/hinted",
        "claim_block",
        "claim_block/hinted",
        "enqueue",
        "enqueue/limited",
        "enqueue_one",
        "enqueue_one/limited",
        "find_settled",
        "finish_bare",
        "finish_nodes",
        "lanes",
        "lanes_anywhere",
        "look_expired",
        "ring",
        "rooms",
        "spend_key",
        "spend_limit",
        "take_room",
        "take_room/ordered",
        "walk_room",
        "walk_room/known",
    }
)
# A part is written at once. Other work of an event loop gets a turn after it.
_PART_ROWS: Final = 64
_PART_CHARACTERS: Final = 128 * 1024
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_LOOK = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Fate:
    """Whether a verb can be started again after its connection was lost.

    Statements inside a transaction are undone with the connection, unless COMMIT was sent. The
    fate of a statement outside a transaction, and of a COMMIT, is unknown. Work that a confirmed
    COMMIT has made permanent is not started again (see `Op`).
    """

    def __init__(self) -> None:
        # Statements that were each a transaction of their own.
        self._alone = 0
        self.is_committing: bool = False

    def note_sent(self, *, is_begun: bool) -> None:
        self._alone += not is_begun

    def is_undone(self, *, looks_first: int) -> bool:
        """Whether all of it is undone. The first `looks_first` statements change nothing."""
        return not self.is_committing and self._alone <= looks_first


class _SessionState:
    """How far a verb has come on its connection."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine
        # The queues to notify after the commit, and those that were notified along with it.
        self._rung: frozenset[str] = frozenset()
        self._rung_along: frozenset[str] = frozenset()
        self._is_begun = False
        self.fate: Fate = Fate()

    def _note_ring(self, ring: Ring) -> None:
        self._rung |= ring.queues - self._rung_along

    def _prepared_call(self, prepared: PreparedCalls, step: Statement | Batch) -> Call[Rows]:
        """The call of a prepared statement, in one round trip with the notification of its queue.

        Otherwise it needs a second round trip, on another connection.
        """
        bound = self._engine.bind_prepared(step)
        is_alone = prepared.can_pair and not self._is_begun
        news = step.rings if isinstance(step, Batch) and is_alone else None
        if news is None or not self._engine.takes_turn(news.queue):
            return prepared.call(*bound)
        return self._call_and_ring(prepared, bound, news)

    def _call_and_ring(self, prepared: PreparedCalls, bound: Bound, news: News) -> Call[Rows]:
        ring = self._engine.bind_prepared(self._engine.ring_statement(news))
        rows, is_rung = yield from prepared.call_both(bound, ring)
        # Otherwise it is rung for once more, and trouble with that is logged.
        if is_rung:
            self._rung_along = frozenset((news.queue,))
        return rows


class PostgresSession(_SessionState):
    """One verb on one blocking connection."""

    def __init__(self, connection: BoundedConnection, engine: PostgresEngine) -> None:
        super().__init__(engine)
        self._connection = connection

    @property
    def is_closed(self) -> bool:
        return self._connection.closed

    @property
    def was_lent(self) -> bool:
        return self._connection.was_lent

    def run(self, steps: Steps[T]) -> T:
        result = drive.run(steps, self.perform)
        self._commit()
        return result

    def perform(self, step: Step) -> Rows:
        match step:
            case Begin():
                if not self._is_begun:
                    self._connection.execute(_BEGIN_LOOK if step.is_look else _BEGIN)
                    self._is_begun = True
                return []
            case Commit():
                self._commit()
                return []
            case Ring():
                self._note_ring(step)
                return []
            case Copy() if not self._engine.may_copy:
                return self.perform(step.instead())
            case Copy():
                self.fate.note_sent(is_begun=self._is_begun)
                with self._connection.cursor().copy(_copy_sql(step, self._engine.schema)) as copy:
                    for part in copy_text(step.rows):
                        copy.write(part)
                return COPIED
            case _:
                self.fate.note_sent(is_begun=self._is_begun)
                prepared = self._connection.prepared
                if prepared is not None and step.statement in PREPARED:
                    return self._connection.wait(self._prepared_call(prepared, step))
                sql, values = self._engine.binder.bind(step, now=self._engine.now())
                cursor = self._connection.execute(sql, values, prepare=False)
                return cursor.fetchall() if _has_rows(cursor) else []

    def _commit(self) -> None:
        if self._is_begun:
            self.fate.is_committing = True
            self._connection.execute("COMMIT")
            self._is_begun = self.fate.is_committing = False
        if self._rung:
            self._engine.ring(self._rung)
            self._rung = frozenset()

    def roll_back(self) -> bool:
        """Undo after an error of ours. Return whether the connection can be used again."""
        try:
            if _is_begun(self._connection):
                self._connection.execute("ROLLBACK")
        except psycopg.Error:
            return False
        return _is_idle(self._connection)


class AsyncPostgresSession(_SessionState):
    """One verb on one async connection."""

    def __init__(self, connection: BoundedAsyncConnection, engine: PostgresEngine) -> None:
        super().__init__(engine)
        self._connection = connection

    @property
    def is_closed(self) -> bool:
        return self._connection.closed

    @property
    def was_lent(self) -> bool:
        return self._connection.was_lent

    async def run(self, steps: Steps[T]) -> T:
        result = await drive.arun(steps, self.perform)
        await self._commit()
        return result

    async def perform(self, step: Step) -> Rows:
        match step:
            case Begin():
                if not self._is_begun:
                    await self._connection.execute(_BEGIN_LOOK if step.is_look else _BEGIN)
                    self._is_begun = True
                return []
            case Commit():
                await self._commit()
                return []
            case Ring():
                self._note_ring(step)
                return []
            case Copy() if not self._engine.may_copy:
                return await self.perform(step.instead())
            case Copy():
                self.fate.note_sent(is_begun=self._is_begun)
                text = _copy_sql(step, self._engine.schema)
                async with self._connection.cursor().copy(text) as copy:
                    for part in copy_text(step.rows):
                        await copy.write(part)
                        # A write only awaits anything once a buffer is full: without this, 10,000
                        # rows of 6 kB stopped the loop for 0.3 s.
                        await asyncio.sleep(0)
                return COPIED
            case _:
                self.fate.note_sent(is_begun=self._is_begun)
                prepared = self._connection.prepared
                if prepared is not None and step.statement in PREPARED:
                    return await self._connection.call(self._prepared_call(prepared, step))
                sql, values = self._engine.binder.bind(step, now=self._engine.now())
                cursor = await self._connection.execute(sql, values, prepare=False)
                return await cursor.fetchall() if _has_rows(cursor) else []

    async def _commit(self) -> None:
        if self._is_begun:
            self.fate.is_committing = True
            await self._connection.execute("COMMIT")
            self._is_begun = self.fate.is_committing = False
        if self._rung:
            self._engine.ring(self._rung)
            self._rung = frozenset()

    async def roll_back(self) -> bool:
        """Undo after an error of ours. Return whether the connection can be used again."""
        try:
            if _is_begun(self._connection):
                await self._connection.execute("ROLLBACK")
        except psycopg.Error:
            return False
        return _is_idle(self._connection)


def copy_text(rows: Sequence[Row]) -> Iterator[str]:
    """Yield rows as lines of COPY, some at a time. The first two values of a row are texts.

    By hand: psycopg looks at the type of every value, 1.9 µs per job. But the rows of one copy are
    mostly alike but for two values, and only those are written anew, in 0.5 µs.
    """
    lines: list[str] = []
    size = 0
    common: Row = ()
    end = "\n"
    for row in rows:
        if row[2:] != common:
            common = row[2:]
            end = "".join([f"\t{_copied(value)}" for value in common]) + "\n"
        first, second = row[0], row[1]
        if "\\" in second or not second.isprintable():
            second = second.translate(_ESCAPES)
        lines.append(f"{first}\t{second}{end}")
        size += len(second)
        if len(lines) == _PART_ROWS or size > _PART_CHARACTERS:
            yield "".join(lines)
            lines, size = [], 0
    if lines:
        yield "".join(lines)


def _copied(value: Any) -> str:
    return "\\N" if value is None else str(value).translate(_ESCAPES)


def _copy_sql(step: Copy, schema: str) -> bytes:
    return f"COPY {schema}.{step.table} ({', '.join(step.columns)}) FROM STDIN".encode()


def _is_begun(connection: BoundedConnection | BoundedAsyncConnection) -> bool:
    """Whether a transaction is open, by the server: an interrupt may come right after a BEGIN."""
    status = connection.pgconn.transaction_status
    return status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)


def _is_idle(connection: BoundedConnection | BoundedAsyncConnection) -> bool:
    """Whether it is neither lost nor in the middle of an answer that was not awaited."""
    pgconn = connection.pgconn
    is_idle = pgconn.transaction_status == TransactionStatus.IDLE
    return is_idle and pgconn.pipeline_status == PipelineStatus.OFF


def _has_rows(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> bool:
    """Whether it has rows. `cursor.description` would first make an object of every column."""
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0
