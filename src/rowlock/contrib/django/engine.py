"""rowlock on Django's own connections: the engine for web processes, tests, drain and handlers.

1. A verb inside `atomic()` is part of it. Outside, it is a transaction of its own.
2. So an enqueue is committed or rolled back with the view's writes, and `get` sees jobs enqueued in
   the same transaction. This holds in a `TestCase`, too, whose transaction is never committed.
3. There are no connections besides Django's, and nothing to close. A test's database can be
   dropped, and one in memory works.
4. `app.drain()` claims, runs and settles jobs in the caller's thread. So a `TestCase` can run the
   jobs that it enqueued, though nothing is ever committed. `async_to_sync` runs coroutines, and
   their queries come back to this thread.
5. Handlers are treated like Django's requests: no connection is stale at the start, and none is
   kept at the end.
"""

from __future__ import annotations

import functools
import inspect
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections, transaction

from rowlock.clock import Clock, SystemClock
from rowlock.context import Context, TransactionBlock
from rowlock.contrib.django.settings import database_url
from rowlock.store.borrowed.connection import Borrowed, TransactionStatus
from rowlock.store.borrowed.libraries import borrow_django
from rowlock.store.borrowed.schema import BorrowedSchema
from rowlock.store.borrowed.visit import Calls, Visit, visit
from rowlock.store.drive import Binder
from rowlock.store.postgres.bell import bell_text
from rowlock.store.statements import Dialect, ParameterStyle
from rowlock.store.steps import Begin, Commit, News, Op, Rows, Statement, Step, Steps, writing
from rowlock.worker.drain import Drain
from rowlock.worker.progress import AsyncProgressWriter, BlockingProgressWriter
from rowlock.worker.run import Run

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("rowlock.bell")

_DIALECTS = {"sqlite": Dialect.SQLITE, "postgresql": Dialect.POSTGRES}


class DjangoEngine:
    """Runs verbs on the calling thread's connection to one of `DATABASES`."""

    def __init__(
        self, alias: str, *, schema: str, clock: Clock | None = None, notify: bool = True
    ) -> None:
        self.alias = alias
        self.schema = schema
        self.dialect: Dialect = _dialect_of(connections[alias])
        self.binder: Binder = Binder(self.dialect, schema, ParameterStyle.PYFORMAT)
        # On PostgreSQL the server's clock is used if none is given.
        is_sqlite = self.dialect is Dialect.SQLITE
        self.clock: Clock | None = clock or (SystemClock() if is_sqlite else None)
        self._notify = notify

    @property
    def address(self) -> str:
        """The URL by which workers find this database. It may hold a password: don't log it."""
        return database_url(connections[self.alias])

    def run(self, op: Op[T]) -> T:
        borrowed = borrow_django(connections[self.alias])
        return visit(borrowed, _AtHome(self, borrowed), op)

    async def arun(self, op: Op[T]) -> T:
        # In the thread of Django's own async calls, to use their connection.
        return await sync_to_async(self.run, thread_sensitive=True)(op)

    def migrate(self) -> list[int]:
        """Apply missing migrations in one transaction. Return their numbers."""
        with transaction.atomic(using=self.alias):
            return self._schema().migrate()

    def empty(self) -> None:
        """Delete all jobs, and all else that users and workers wrote. The tables stay."""
        with transaction.atomic(using=self.alias):
            schema = self._schema()
            if schema.applied():
                schema.empty()

    def applied(self) -> dict[int, str]:
        """Return the migrations of this database."""
        return self._schema().applied()

    def _schema(self) -> BorrowedSchema:
        return BorrowedSchema(borrow_django(connections[self.alias]), schema=self.schema)

    def ring(self, queues: frozenset[str]) -> None:
        """Wake the workers, once the jobs are committed."""
        if not self._notify:
            return
        try:
            self.run(_ring(self.schema, sorted(set(map(bell_text, queues)))))
        except Error as error:
            # The jobs are committed, and workers poll, so a log line is enough.
            logger.warning("workers could not be notified of new jobs: %s", error)

    def notifications(self) -> AsyncIterator[News | None]:
        raise ImproperlyConfigured(
            "a worker needs connections of its own; run manage.py rowlock worker"
        )

    def apart(self) -> DjangoEngine:
        """This engine: there are no connections besides Django's."""
        return self

    def close(self) -> None:
        """Do nothing: Django closes its connections."""

    async def aclose(self) -> None:
        """As `close`."""

    async def aclose_loop(self) -> None:
        """Do nothing: no connection belongs to a loop."""


class _AtHome(Visit):
    """A verb on a connection that is known to be to our database, by its alias."""

    def __init__(self, engine: DjangoEngine, borrowed: Borrowed[Rows]) -> None:
        super().__init__(
            engine,
            borrowed,
            known=weakref.WeakSet[Any](),
            instance="",
            notify_in_transaction=True,
        )

    def _checked(self, op: Op[T]) -> Steps[T]:
        return (yield from op.start())

    def _perform(self, step: Step) -> Calls[Rows]:
        if not isinstance(step, Commit):
            return (yield from super()._perform(step))
        # Inside atomic(), nothing is committed before its end.
        if self._borrowed.status is TransactionStatus.AUTOCOMMIT and self._is_begun:
            yield from self._send(self._bounds.end)
            self._is_begun = False
            return (yield from super()._perform(Begin()))
        return []


def _dialect_of(wrapper: Any) -> Dialect:
    if wrapper.vendor not in _DIALECTS:
        raise ImproperlyConfigured(
            f"rowlock works on SQLite and PostgreSQL, but the database {wrapper.alias!r} is "
            f"{wrapper.vendor}; name another in ROWLOCK['DATABASE']"
        )
    return _DIALECTS[wrapper.vendor]


def _ring(channel: str, queues: list[str]) -> Op[None]:
    def steps() -> Steps[None]:
        yield Statement("ring", {"channel": channel, "queues": queues})

    return writing("ring", steps)


class _HereAndNow:
    """Runs coroutines like `asyncio.Runner`, with access to Django's thread."""

    def run(self, coro: Coroutine[Any, Any, T], /) -> T:
        async def awaited() -> T:
            return await coro

        return async_to_sync(awaited)()


class DjangoDrain(Drain):
    """A drain without heartbeats, because no other process sees uncommitted leases.

    It has no `ctx.transaction()` either, which would be a second transaction.
    """

    def run(self) -> int:
        """Run the ready jobs. Return the number of runs."""
        self._run_all(_HereAndNow())
        return self._done

    async def arun(self) -> int:
        """Run like `run`, in the thread of Django's own async calls."""
        return await sync_to_async(self.run)()

    def _block(
        self, run: Run, notes: BlockingProgressWriter | AsyncProgressWriter
    ) -> Callable[[Context], TransactionBlock] | None:
        return None


def with_fresh_connections(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that old connections of its thread are closed before and after it.

    A coroutine gets a thread of its own for its queries, like a request, and its connections are
    closed with it.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            async with ThreadSensitiveContext():
                try:
                    return await function(*args, **kwargs)
                finally:
                    await sync_to_async(_close_all)()

        return awaited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        _close_old()
        try:
            return function(*args, **kwargs)
        finally:
            _close_old()

    return called


def _close_old() -> None:
    """Close old connections, but unlike `close_old_connections` not the one of a test around us."""
    for connection in _not_in_transactions():
        connection.close_if_unusable_or_obsolete()


def _close_all() -> None:
    for connection in _not_in_transactions():
        connection.close()


def _not_in_transactions() -> list[Any]:
    opened = connections.all(initialized_only=True)
    return [connection for connection in opened if not connection.in_atomic_block]
