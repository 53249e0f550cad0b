"""One verb on a borrowed connection: its steps become calls of SQL, blocking or async.

1. `Begin` is a transaction of ours only if there is no other (see `TransactionStatus`). Otherwise
   it is a savepoint on SQLite: a batch is many statements there, and if one fails, none may stay.
   On PostgreSQL a failed statement undoes the user's whole transaction anyway, and many
   savepoints in one transaction slow down the whole database.
2. The first error is the one that is raised, even if undoing fails as well.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Generator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from rowlock.errors import OptionInvalid
from rowlock.store.borrowed.connection import Borrowed, TransactionStatus
from rowlock.store.drive import Binder
from rowlock.store.postgres.bell import bell_text
from rowlock.store.statements import Dialect
from rowlock.store.steps import Batch, Begin, Commit, Copy, Op, Ring, Rows, Statement, Step, Steps

if TYPE_CHECKING:
    from rowlock.store.engine import Engine
    from rowlock.store.postgres.engine import PostgresEngine
    from rowlock.store.sqlite.engine import SqliteEngine

T = TypeVar("T")
Known = weakref.WeakSet[Any]
Call = tuple[str, Any]
Calls = Generator[Call, Rows, T]


class _Bounds(msgspec.Struct, frozen=True):
    """The statements that begin, end and undo a verb's work."""

    begin: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()


_BOUNDS = {
    (Dialect.POSTGRES, TransactionStatus.OPEN): _Bounds(),
    (Dialect.POSTGRES, TransactionStatus.IDLE): _Bounds(),
    (Dialect.POSTGRES, TransactionStatus.AUTOCOMMIT): _Bounds(
        ("BEGIN ISOLATION LEVEL READ COMMITTED",), ("COMMIT",), ("ROLLBACK",)
    ),
    (Dialect.SQLITE, TransactionStatus.OPEN): _Bounds(
        ("SAVEPOINT rowlock",), ("RELEASE rowlock",), ("ROLLBACK TO rowlock", "RELEASE rowlock")
    ),
    # As the first write would do by itself: the user ends it.
    (Dialect.SQLITE, TransactionStatus.IDLE): _Bounds(("BEGIN IMMEDIATE",), (), ("ROLLBACK",)),
    (Dialect.SQLITE, TransactionStatus.AUTOCOMMIT): _Bounds(
        ("BEGIN IMMEDIATE",), ("COMMIT",), ("ROLLBACK",)
    ),
}


class Visit:
    """What one verb may do on a connection that is not ours."""

    def __init__(
        self,
        engine: Engine,
        borrowed: Borrowed[object],
        *,
        known: Known,
        instance: str,
        notify_in_transaction: bool,
    ) -> None:
        self._engine = engine
        self._borrowed = borrowed
        self._known = known
        self._instance = instance
        self._notify_in_transaction = notify_in_transaction
        self._binder = Binder(borrowed.dialect, engine.schema, borrowed.style)
        self._bounds = _BOUNDS[borrowed.dialect, borrowed.status]
        self._is_begun = False
        self._rung: frozenset[str] = frozenset()

    def calls(self, op: Op[T]) -> Calls[T]:
        """Run the verb from beginning to end. An error is thrown in where it happened."""
        try:
            result = yield from self._translated(self._checked(op))
            yield from self._ring_inside()
            yield from self._send(self._bounds.end)
        except GeneratorExit:
            # The caller will make no more calls.
            raise
        except BaseException:
            with suppress(Exception):
                yield from self._send(self._bounds.undo)
            raise
        self._ring_after()
        return result

    def _send(self, statements: tuple[str, ...]) -> Calls[None]:
        if self._is_begun:
            for sql in statements:
                yield sql, None

    def _translated(self, steps: Steps[T]) -> Calls[T]:
        try:
            step = next(steps)
            while True:
                step = steps.send((yield from self._perform(step)))
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()

    def _perform(self, step: Step) -> Calls[Rows]:
        match step:
            case Begin():
                if not self._is_begun:
                    # Noted before: an interrupted BEGIN may have taken effect, and must be undone.
                    self._is_begun = True
                    for sql in self._bounds.begin:
                        yield sql, None
                return []
            case Commit():
                raise AssertionError("a user's transaction is not ours to commit")
            case Ring():
                self._rung |= step.queues
                return []
            case Copy():
                # Not every driver has this attribute.
                return (yield from self._perform(step.instead()))
            case _ if self._borrowed.dialect is Dialect.POSTGRES:
                return (yield self._binder.bind(step, now=self._now()))
            case _:
                return (yield from self._each_row(step))

    def _each_row(self, step: Statement | Batch) -> Calls[Rows]:
        parts, runs = self._binder.bind_rows(step, now=self._now())
        rows: Rows = []
        for values in runs:
            answer: Rows = []
            for part in parts:
                answer = yield part, values
            rows += answer
        return rows

    def _now(self) -> int | None:
        clock = self._engine.clock
        return None if clock is None else clock.now_us()

    # Whether this is our database

    def _checked(self, op: Op[T]) -> Steps[T]:
        if self._borrowed.dialect is Dialect.SQLITE:
            yield from self._check_file()
        else:
            yield from self._check_database()
        return (yield from op.start())

    def _check_file(self) -> Steps[None]:
        """Check path and id, each time: a copy has the same id. The write lock comes first."""
        attached = yield Statement("attached")
        ours = cast("SqliteEngine", self._engine).file.path
        if not any(path and _is_same_file(Path(path), ours) for _, _, path in attached):
            raise _is_elsewhere()
        yield Begin()
        self._check_id((yield Statement("recognise")))

    def _check_database(self) -> Steps[None]:
        """Check once per connection: it can't start to lead elsewhere."""
        driver = self._borrowed.driver
        if driver in self._known:
            return
        table = {"table": f"{self._engine.schema}.instance"}
        is_there = (yield Statement("migration_table", table))[0][0]
        self._check_id((yield Statement("instance")) if is_there else [])
        # A connection that does not allow weak references is checked each time.
        with suppress(TypeError):
            self._known.add(driver)

    def _check_id(self, rows: Rows) -> None:
        if [self._instance] != [row[0] for row in rows]:
            raise _is_elsewhere()

    # The bell, on PostgreSQL only: on SQLite the log file is the bell

    def _ring_inside(self) -> Calls[None]:
        """Ring at the user's commit, by the library's hook or by a NOTIFY in the transaction."""
        if not self._has_bell() or self._borrowed.status is TransactionStatus.AUTOCOMMIT:
            return
        if not self._borrowed.ring_later(self._ring, self._rung) and self._notify_in_transaction:
            queues = sorted({bell_text(queue) for queue in self._rung})
            values = {"channel": self._engine.schema, "queues": queues}
            yield self._binder.bind(Statement("ring", values), now=None)

    def _ring_after(self) -> None:
        if self._has_bell() and self._borrowed.status is TransactionStatus.AUTOCOMMIT:
            self._ring(self._rung)

    def _has_bell(self) -> bool:
        return bool(self._rung) and self._borrowed.dialect is Dialect.POSTGRES

    @property
    def _ring(self) -> Any:
        return cast("PostgresEngine", self._engine).ring


def visit(borrowed: Borrowed[Rows], plan: Visit, op: Op[T]) -> T:
    """Run a verb on a blocking connection."""
    calls = plan.calls(op)
    try:
        call = next(calls)
        while True:
            try:
                rows = borrowed.execute(*call)
            except BaseException as error:  # noqa: BLE001  # thrown on, to be undone and raised there
                call = calls.throw(error)
            else:
                call = calls.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


async def avisit(borrowed: Borrowed[Awaitable[Rows]], plan: Visit, op: Op[T]) -> T:
    """Run a verb on an async connection."""
    calls = plan.calls(op)
    try:
        call = next(calls)
        while True:
            try:
                rows = await borrowed.execute(*call)
            except BaseException as error:  # noqa: BLE001  # thrown on, to be undone and raised there
                call = calls.throw(error)
            else:
                call = calls.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


def _is_same_file(path: Path, ours: Path) -> bool:
    try:
        return path.samefile(ours)
    except OSError:
        return False


def _is_elsewhere() -> OptionInvalid:
    return OptionInvalid(
        "conn",
        "leads to another database, not the app's, where no worker would see the job: "
        "connect to the app's database, or enqueue without conn",
    )
