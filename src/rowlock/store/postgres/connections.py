"""Deadlines for the calls of psycopg: a silent server must not hold a caller forever.

psycopg resumes a call's generator whenever the socket is ready, and ten times per second with
"nothing yet". That is where the time is checked. It costs less than 1 µs per call, blocking or
async. Rejected: a watchdog thread that shuts sockets down (one more thread in every process, and a
race with the descriptor's next owner); asyncio.timeout (a cancelled call first asks the server to
cancel, which takes psycopg another ten seconds when the server is silent).

Connecting is such a generator too, one for each address that is tried. libpq's own bound for it is
in whole seconds, at least two, which is too long for the heartbeats of a short lease.
"""

from __future__ import annotations

import asyncio
import queue
import select
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from rowlock import config
from rowlock.errors import StoreUnavailable
from rowlock.store.postgres.prepared import PreparedCalls
from rowlock.store.postgres.socket_calls import UNUSUAL, CancelledCall, SocketCalls

RV = TypeVar("RV")
Call = Generator[Any, Any, RV]


def set_up(connection: BoundedConnection | BoundedAsyncConnection, setup: SessionSetup) -> None:
    """Note how a new connection is set up.

    psycopg itself never prepares on it. Once it has prepared a single BEGIN, it drops every
    statement of the session after the next rollback, ours as well.
    """
    connection.setup = setup
    # Texts of prepared calls are UTF-8.
    if setup.is_preparing and connection.info.encoding == "utf-8":
        # With `prepare=always` a pooler may stand in between, and is without our settings.
        can_pair = bool(setup.settings)
        connection.prepared = PreparedCalls(connection.pgconn, can_pair=can_pair)


class CallTimeout(psycopg.OperationalError):
    """The server did not answer in time. It may or may not have done the work."""


class SessionSetup(msgspec.Struct, frozen=True):
    """Whether a connection prepares our statements, and what its session sets."""

    is_preparing: bool = False
    settings: str = ""


# How long each attempt of the connect in this context may take.
_attempt_seconds: ContextVar[float | None] = ContextVar("rowlock_connect_attempt", default=None)


@contextmanager
def connecting(conninfo: str, seconds: float) -> Iterator[None]:
    """Bound a connect in the block to about `seconds`. The hosts of its URL share the time.

    Otherwise a dead first host would leave no time for the second. Names are looked up by the
    system's resolver, which has bounds of its own.
    """
    hosts = str(conninfo_to_dict(conninfo).get("host") or "").split(",")
    before = _attempt_seconds.set(seconds / len(hosts))
    try:
        yield
    finally:
        _attempt_seconds.reset(before)


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose calls end. `call_seconds` None is for work that may take any time.

    `setup` is how it was set up, to be restored after a block has used it. `prepared` calls
    statements that it has prepared. None: it must not prepare any. `was_lent`: a handler has used
    it, and may have dropped them.
    """

    call_seconds: float | None = None
    setup: SessionSetup = SessionSetup()
    prepared: PreparedCalls | None = None
    was_lent: bool = False

    @classmethod
    def _connect_gen(cls, *rest: Any, **named: Any) -> Call[Any]:
        return _bounded(super()._connect_gen(*rest, **named), _attempt_seconds.get())

    def wait(self, gen: Call[RV], *rest: Any, **named: Any) -> RV:
        return super().wait(_bounded(gen, self.call_seconds), *rest, **named)

    def discard(self) -> None:
        """Close it from any thread."""
        self.pgconn.finish()


class BoundedAsyncConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """As `BoundedConnection`, for coroutines."""

    call_seconds: float | None = None
    setup: SessionSetup = SessionSetup()
    prepared: PreparedCalls | None = None
    was_lent: bool = False
    _calls: SocketCalls | None = None

    @classmethod
    def _connect_gen(cls, *rest: Any, **named: Any) -> Call[Any]:
        return _bounded(super()._connect_gen(*rest, **named), _attempt_seconds.get())

    async def wait(self, gen: Call[RV], *rest: Any, **named: Any) -> RV:
        if self._calls is not None:
            self._calls.stop()
        return await super().wait(_bounded(gen, self.call_seconds), *rest, **named)

    async def call(self, gen: Call[RV]) -> RV:
        """As `wait`, for the short calls of prepared statements."""
        if self._calls is None:
            self._calls = SocketCalls(self.pgconn)
        try:
            answer: Any = await self._calls.run(gen, self.call_seconds, self._timeout)
        except asyncio.CancelledError:
            # psycopg asks the server to cancel, waits for the end, and raises this again.
            return await super().wait(CancelledCall(gen))
        return await self.wait(gen) if answer is UNUSUAL else answer

    def _timeout(self) -> CallTimeout:
        return CallTimeout(f"no answer within {self.call_seconds:g} s")

    async def close(self) -> None:
        if self._calls is not None:
            self._calls.stop()
        await super().close()

    def discard(self) -> None:
        """Close it without its loop, from any thread."""
        if self._calls is None:
            self.pgconn.finish()
        else:
            self._calls.stop_soon(self._finish)

    def _finish(self) -> None:
        self.pgconn.finish()


def is_alive(connection: BoundedConnection | BoundedAsyncConnection) -> bool:
    """Whether an idle connection can be used again. It costs 2 µs.

    It can't if the server has sent anything unasked. Usually that is its farewell, and the end of
    the connection follows only afterwards. A changed setting is reported the same way, which is so
    rare that making a new connection costs nothing.
    """
    try:
        heard = select.poll()
        heard.register(connection.pgconn.socket, select.POLLIN)
        return not heard.poll(0) and not connection.closed
    except (psycopg.OperationalError, OSError):
        return False


def _bounded(call: Call[RV], seconds: float | None) -> Call[RV]:
    return call if seconds is None else _until(call, seconds)


def _until(call: Call[RV], seconds: float) -> Call[RV]:
    end = time.monotonic() + seconds
    try:
        wanted = next(call)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > end:
                raise CallTimeout(f"no answer within {seconds:g} s")
            wanted = call.send(ready)
    except StopIteration as done:
        answer: RV = done.value
        return answer


class Closable(Protocol):
    """A blocking connection."""

    def close(self) -> None: ...


class AsyncClosable(Protocol):
    """An async connection."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Closable)
A = TypeVar("A", bound=AsyncClosable)


def _exhausted() -> StoreUnavailable:
    return StoreUnavailable(
        f"all {config.POSTGRES_POOL_MAX} connections were busy for "
        f"{config.POSTGRES_POOL_WAIT_SECONDS:.0f} s"
    )


class Pool(Generic[C]):
    """Connections for threads."""

    def __init__(self, connect: Callable[[], C], *, is_alive: Callable[[C], bool]) -> None:
        self._connect = connect
        self._is_alive = is_alive
        # Always the same list: it may outlive the pool, for the finalizer that closes them.
        self.idle: list[C] = []
        # Not a semaphore, which is written in Python: an interrupt inside it could leave its lock
        # taken forever.
        self._slots: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(config.POSTGRES_POOL_MAX):
            self._slots.put(None)

    def take(self) -> C:
        try:
            self._slots.get(timeout=config.POSTGRES_POOL_WAIT_SECONDS)
        except queue.Empty:
            raise _exhausted() from None
        try:
            while (connection := self._pop()) is not None:
                if self._is_alive(connection):
                    return connection
                connection.close()
            return self._connect()
        except BaseException:
            self._slots.put(None)
            raise

    def _pop(self) -> C | None:
        # Another thread may take the last one between the check and the pop.
        try:
            return self.idle.pop()
        except IndexError:
            return None

    def give(self, connection: C, *, is_sound: bool) -> None:
        try:
            if is_sound:
                self.idle.append(connection)
            else:
                connection.close()
        finally:
            self._slots.put(None)

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()


class AsyncPool(Generic[A]):
    """Connections for the tasks of one event loop."""

    def __init__(
        self, connect: Callable[[], Awaitable[A]], *, is_alive: Callable[[A], bool]
    ) -> None:
        self._connect = connect
        self._is_alive = is_alive
        # Always the same list, as in `Pool`.
        self.idle: list[A] = []
        self._slots = asyncio.BoundedSemaphore(config.POSTGRES_POOL_MAX)

    async def take(self) -> A:
        if self._slots.locked():
            await self._wait()
        else:
            # No timeout, which costs a timer of the loop, is needed here.
            await self._slots.acquire()
        try:
            while self.idle:
                connection = self.idle.pop()
                if self._is_alive(connection):
                    return connection
                await connection.close()
            return await self._connect()
        except BaseException:
            self._slots.release()
            raise

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(config.POSTGRES_POOL_WAIT_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise _exhausted() from None

    async def give(self, connection: A, *, is_sound: bool) -> None:
        try:
            if is_sound:
                self.idle.append(connection)
            else:
                await connection.close()
        finally:
            self._slots.release()

    async def close(self) -> None:
        while self.idle:
            await self.idle.pop().close()

    def emptied(self) -> list[A]:
        """Take all kept connections, to close them: their loop no longer can."""
        kept = self.idle[:]
        self.idle.clear()
        return kept
