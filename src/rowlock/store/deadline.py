"""Deadlines for the calls of psycopg: a server that falls silent must not hold a caller for ever.

psycopg resumes a call's generator whenever the socket is ready, and ten times a second with
"nothing yet": that is where the time is looked at. It costs a call less than 1 µs, in both
colours. Rejected: a watchdog thread that shuts sockets down (one more thread in every process, and
a race with the descriptor's next owner); asyncio.timeout (a cancelled call first asks the server to
cancel, which takes psycopg another ten seconds when the server is silent).
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

RV = TypeVar("RV")
Call = Generator[Any, Any, RV]


class CallTimeout(psycopg.OperationalError):
    """Nothing was answered in time. Whether it was done is not known."""


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose calls end; `call_seconds` None is for work that may take any time."""

    call_seconds: float | None = None

    def wait(self, gen: Call[RV], *rest: Any, **named: Any) -> RV:
        return super().wait(_bounded(gen, self.call_seconds), *rest, **named)


class BoundedAsyncConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """As `BoundedConnection`, for coroutines."""

    call_seconds: float | None = None

    async def wait(self, gen: Call[RV], *rest: Any, **named: Any) -> RV:
        return await super().wait(_bounded(gen, self.call_seconds), *rest, **named)


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
