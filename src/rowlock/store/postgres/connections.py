"""Deadlines for the calls of psycopg: a server that falls silent must not hold a caller for ever.

psycopg resumes a call's generator whenever the socket is ready, and ten times a second with
"nothing yet": that is where the time is looked at. It costs a call less than 1 µs, in both
colours. Rejected: a watchdog thread that shuts sockets down (one more thread in every process, and
a race with the descriptor's next owner); asyncio.timeout (a cancelled call first asks the server to
cancel, which takes psycopg another ten seconds when the server is silent).

Connecting is such a generator too, one for each address that is tried. libpq's own bound for it is
in whole seconds, two at least, which is too long for who beats for a short lease.
"""

from __future__ import annotations

import asyncio
import queue
import select
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rowlock import config
from rowlock.errors import StoreUnavailable

RV = TypeVar("RV")
Call = Generator[Any, Any, RV]


class CallTimeout(psycopg.OperationalError):
    """Nothing was answered in time. Whether it was done is not known."""


@dataclass(frozen=True, slots=True)
class Footing:
    """From which use on statements are prepared (None: never), and what is set for the session."""

    prepare_threshold: int | None = None
    settings: str = ""


# How long each attempt may take of the connect that goes on in this context.
_attempt_seconds: ContextVar[float | None] = ContextVar("rowlock_connect_attempt", default=None)


@contextmanager
def connecting(conninfo: str, seconds: float) -> Iterator[None]:
    """A connect in the block takes about so long at most; the hosts of its URL share the time.

    Otherwise a dead first host would leave nothing for the second. Names are looked up by the
    system's resolver, which has bounds of its own.
    """
    hosts = str(conninfo_to_dict(conninfo).get("host") or "").split(",")
    before = _attempt_seconds.set(seconds / len(hosts))
    try:
        yield
    finally:
        _attempt_seconds.reset(before)


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose calls end; `call_seconds` None is for work that may take any time.

    `footing` is how it was set up, to be restored after somebody else had it.
    """

    call_seconds: float | None = None
    footing: Footing = Footing()

    @classmethod
    def _connect_gen(cls, *rest: Any, **named: Any) -> Call[Any]:
        return _bounded(super()._connect_gen(*rest, **named), _attempt_seconds.get())

    def wait(self, gen: Call[RV], *rest: Any, **named: Any) -> RV:
        return super().wait(_bounded(gen, self.call_seconds), *rest, **named)


class BoundedAsyncConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """As `BoundedConnection`, for coroutines."""

    call_seconds: float | None = None
    footing: Footing = Footing()

    @classmethod
    def _connect_gen(cls, *rest: Any, **named: Any) -> Call[Any]:
        return _bounded(super()._connect_gen(*rest, **named), _attempt_seconds.get())

    async def wait(self, gen: Call[RV], *rest: Any, **named: Any) -> RV:
        return await super().wait(_bounded(gen, self.call_seconds), *rest, **named)


def is_alive(connection: BoundedConnection | BoundedAsyncConnection) -> bool:
    """Whether a connection that nobody was using can be used again. It costs 2 µs.

    One on which the server has said anything unasked cannot: usually that is its farewell, and the
    end of the connection follows only after it. A changed setting is told the same way, so rarely
    that a new connection is no loss.
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
    """For threads."""

    def __init__(self, connect: Callable[[], C], *, is_alive: Callable[[C], bool]) -> None:
        self._connect = connect
        self._is_alive = is_alive
        # Always the same list: it may outlive the pool, for whoever closes what is kept.
        self.idle: list[C] = []
        # Not a semaphore, which is written in Python: an interrupt inside of it could leave its
        # lock taken for ever.
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
        # Another thread may take the last one between a look and a pop.
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
    """For the tasks of one event loop."""

    def __init__(
        self, connect: Callable[[], Awaitable[A]], *, is_alive: Callable[[A], bool]
    ) -> None:
        self._connect = connect
        self._is_alive = is_alive
        # Always the same list, as above.
        self.idle: list[A] = []
        self._slots = asyncio.BoundedSemaphore(config.POSTGRES_POOL_MAX)

    async def take(self) -> A:
        try:
            async with asyncio.timeout(config.POSTGRES_POOL_WAIT_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise _exhausted() from None
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
        """What was kept, for whoever closes it now; its loop can't any more."""
        kept = self.idle[:]
        self.idle.clear()
        return kept
