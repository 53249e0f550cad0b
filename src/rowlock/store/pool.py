"""Connections kept for the next call: a bounded stack, blocking and async.

Small on purpose: a caller connects itself, so it sees at once and in full why that failed, and no
thread works in the background. The last one used is the first one reused, unless the server has
closed it meanwhile: then nothing must be sent on it, or nobody knows whether it was done.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from rowlock import config
from rowlock.errors import StoreUnavailable


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
