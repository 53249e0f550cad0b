"""One owner thread for async callers of SQLite: many requests, one transaction, one sync.

1. Each request has a SAVEPOINT of its own: one that fails undoes nothing of the others.
2. A request is answered only after the COMMIT that includes it.
3. Every request is answered, whatever happens to the thread or the file.
4. A request that commits by itself (long maintenance) is run apart, so it delays no other.
5. While it is idle, the thread folds a log that is getting long, so that no request has to.
"""

from __future__ import annotations

import asyncio
import copy
import queue
import sqlite3
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rowlock import config
from rowlock.errors import MigrationNeeded, StoreRefused, StoreUnavailable, UnsupportedStore
from rowlock.store import drive
from rowlock.store.steps import Commit, Op, Rows, Step

if TYPE_CHECKING:
    from rowlock.store.sqlite.session import SqliteSession

T = TypeVar("T")


class _NeedsCommitError(Exception):
    """Raised through a request that wants to commit halfway. It is then run apart."""


class RunApart(Protocol):
    """Runs an op in a transaction of its own, in the calling thread."""

    def __call__(self, op: Op[T]) -> T: ...


@dataclass(slots=True)
class _Request:
    op: Op[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


class CommitGroup:
    """Runs ops of any event loop in one thread, together."""

    def __init__(self, new_session: Callable[[], SqliteSession], *, run_apart: RunApart) -> None:
        self._new_session = new_session
        self._run_apart = run_apart
        self._guard = threading.Lock()
        self._owner: _Owner | None = None

    async def run(self, op: Op[T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._guard:
            if self._owner is None:
                self._owner = _Owner.started(self)
                # A group that is no longer referenced needs no thread.
                weakref.finalize(self, self._owner.requests.put, None).atexit = False
            self._owner.requests.put(_Request(op, loop, future))
        try:
            return await future
        except _NeedsCommitError:
            return await asyncio.to_thread(self._run_apart, op)

    def new_session(self) -> SqliteSession:
        """A session for the thread of this group."""
        return self._new_session()

    def close(self) -> None:
        """Finish all requests, then end the thread. A later call starts a new one."""
        with self._guard:
            owner, self._owner = self._owner, None
        if owner is not None:
            owner.requests.put(None)
            owner.thread.join()


@dataclass(slots=True)
class _Owner:
    """The thread with the connection, and its requests. None is the last request."""

    # Weak: the thread must not keep alive an engine that has no other reference.
    group: weakref.ref[CommitGroup]
    requests: queue.SimpleQueue[_Request | None] = field(default_factory=queue.SimpleQueue)
    thread: threading.Thread = field(init=False)
    session: SqliteSession | None = None

    @classmethod
    def started(cls, group: CommitGroup) -> _Owner:
        owner = cls(weakref.ref(group))
        owner.thread = threading.Thread(target=owner.serve, name="rowlock-sqlite", daemon=True)
        owner.thread.start()
        return owner

    def serve(self) -> None:
        is_last = False
        while not is_last:
            batch, is_last = self._gather()
            if batch:
                self._run_together(batch)
                _answer(batch)
        if self.session is not None:
            with self.session.busy:
                self.session.dispose()

    def _opened(self) -> SqliteSession:
        group = self.group()
        if group is None:
            raise StoreUnavailable("nothing was written: the store was garbage-collected meanwhile")
        return group.new_session()

    def _gather(self) -> tuple[list[_Request], bool]:
        """Wait for a request and take all that wait. Return them, and whether it was the last."""
        batch: list[_Request] = []
        try:
            while len(batch) < config.SQLITE_GROUP_MAX:
                request = self.requests.get(block=False) if batch else self._next()
                if request is None:
                    return batch, True
                # Its caller no longer waits.
                if not request.future.cancelled():
                    batch.append(request)
        except queue.Empty:
            pass
        return batch, False

    def _next(self) -> _Request | None:
        """Wait for a request."""
        session = self.session
        if session is not None and session.wants_fold():
            try:
                return self.requests.get(timeout=config.SQLITE_IDLE_SECONDS)
            except queue.Empty:
                session.fold_idle()
        return self.requests.get()

    def _run_together(self, batch: list[_Request]) -> None:
        writes = any(request.op.writes for request in batch)
        try:
            if self.session is None:
                self.session = self._opened()
            with self.session.transaction(writes=writes):
                for request in batch:
                    _run_one(self.session, request)
        except StoreRefused as error:
            # One of them was refused in a way that undid all: each gets a transaction of its own.
            if len(batch) == 1:
                batch[0].error = _error_for_one(error)
            else:
                for request in batch:
                    request.result = request.error = None
                    self._run_together([request])
        except BaseException as error:  # noqa: BLE001  # no code above could answer the callers
            # The transaction is gone, and with it the work of all requests.
            for request in batch:
                request.error = _error_for_one(error)


def _run_one(session: SqliteSession, request: _Request) -> None:
    execute = session.connection.execute
    execute("SAVEPOINT request")
    try:
        request.result = drive.run(request.op.start(), _without_commit(session))
    except Exception as error:
        if not session.connection.in_transaction:
            # SQLite itself undid the whole transaction, for lack of space or memory.
            raise
        request.error = session.file.mapped(error) if isinstance(error, sqlite3.Error) else error
        execute("ROLLBACK TO request")
    execute("RELEASE request")


def _without_commit(session: SqliteSession) -> Callable[[Step], Rows]:
    def perform(step: Step) -> Rows:
        if isinstance(step, Commit):
            raise _NeedsCommitError
        return session.perform(step)

    return perform


def _error_for_one(error: BaseException) -> Exception:
    """An exception for each caller: a shared one would collect the tracebacks of all."""
    if isinstance(error, StoreUnavailable | StoreRefused | UnsupportedStore | MigrationNeeded):
        own: Exception = copy.copy(error)
    else:
        own = StoreUnavailable(f"nothing was written: {type(error).__name__}: {error}")
    own.__cause__ = error
    return own


def _answer(batch: list[_Request]) -> None:
    """Notify each loop once, however many of its requests were in the batch."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Request]] = {}
    for request in batch:
        by_loop.setdefault(request.loop, []).append(request)
    for loop, requests in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, requests)
        except RuntimeError:
            # The loop is closed: no one waits on it.
            continue


def _resolve(requests: list[_Request]) -> None:
    for request in requests:
        if request.future.done():
            continue
        if request.error is not None:
            request.future.set_exception(request.error)
        else:
            request.future.set_result(request.result)
