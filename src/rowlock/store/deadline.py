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

import select
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

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
