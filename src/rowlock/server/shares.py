"""Shares: places that are few, divided so that no caller takes them all.

1. A place is counted before anything is awaited, so a burst can't pass the bound.
2. A caller gets another place only while more places are free than it holds. So one caller holds at
   most half of them, two hold at most three quarters, and a newcomer nearly always finds one free.
   Rejected: a fixed part per caller, which either wastes most places when one caller is there, or
   leaves none when four are.
3. Callers are told apart by their tenant, or else by their token (`Caller.holder`). A tenant can
   make tokens for itself, and would otherwise get a share for each. All callers without a token
   have one share. Addresses don't count: behind a proxy, all callers have the same.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from rowlock import config
from rowlock.server.problems import Refusal


class Shares:
    """Places of one sort, and who holds them."""

    def __init__(self) -> None:
        # By holder. None is remembered once it holds nothing.
        self._held: dict[str, int] = {}
        self._total = 0

    def __len__(self) -> int:
        """How many places are held."""
        return self._total

    def take(self, holder: str, *, most: int) -> bool:
        """Take one of `most` places, and return whether there was one for this holder."""
        own = self._held.get(holder, 0)
        if own >= most - self._total:
            return False
        self._held[holder] = own + 1
        self._total += 1
        return True

    def leave(self, holder: str) -> None:
        """Give one place back."""
        self._total -= 1
        self._held[holder] -= 1
        if not self._held[holder]:
            del self._held[holder]

    @contextmanager
    def holding(self, holder: str, *, most: int) -> Iterator[bool]:
        """Hold a place in the block. The value is whether there was one."""
        is_held = self.take(holder, most=most)
        try:
            yield is_held
        finally:
            if is_held:
                self.leave(holder)


class Turns:
    """Work of one sort: a few at a time, the others wait in line, and beyond that are refused.

    Holders with a line take turns, however long their lines are.

    Args:
        most: How much of it runs at a time.
        waiting_max: How much of it may wait in line.
    """

    def __init__(self, most: Callable[[], int], *, waiting_max: Callable[[], int]) -> None:
        self._most = most
        self._waiting_max = waiting_max
        self._running = Shares()
        self._waiting = Shares()
        # The holder whose turn is next comes first.
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many calls wait in line."""
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, holder: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it in the block.

        Raises:
            Refusal: The line of this holder is full.
        """
        if holder in self._lines or not self._running.take(holder, most=self._most()):
            await self._wait(holder)
        try:
            yield
        finally:
            self._running.leave(holder)
            self._call_next()

    async def _wait(self, holder: str) -> None:
        """Wait in line. At the end a place is held."""
        with self._waiting.holding(holder, most=self._waiting_max()) as is_waiting:
            if not is_waiting:
                raise Refusal(
                    "too_many_requests",
                    "too many such calls of this token wait already; try again later",
                    headers={"retry-after": str(config.HTTP_RETRY_SECONDS)},
                )
            called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._lines.setdefault(holder, deque()).append(called)
            try:
                await called
            except asyncio.CancelledError:
                if not called.cancelled():
                    # Its turn had come just then.
                    self._running.leave(holder)
                self._call_next()
                raise

    def _call_next(self) -> None:
        """Give the places that are free to those who wait, one per holder in turn."""
        is_over = False
        while not is_over:
            is_over = True
            for holder, line in list(self._lines.items()):
                while line and line[0].cancelled():
                    line.popleft()
                if line and self._running.take(holder, most=self._most()):
                    is_over = False
                    line.popleft().set_result(None)
                    self._lines.move_to_end(holder)
                if not line:
                    del self._lines[holder]
