"""What every ASGI framework needs: a queue for as long as a server lives, and a guarded dashboard.

1. The queue's connections, and its worker if it has one, end with the server's lifespan.
2. A dashboard that somebody watches is a request that does not end. A server waits for its
   requests before it ends the lifespan, so those are let go when the signal comes.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from rowlock import config
from rowlock.app import App
from rowlock.server import Api, asgi

Verdict: TypeAlias = bool | Response
Guard: TypeAlias = Callable[[Request], Verdict | Awaitable[Verdict]]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Dashboard:
    """The dashboard and the HTTP API of a queue, to be mounted below a prefix.

    Args:
        queue: Its tasks are read at the first request, so they may be defined later.
        guard: Asked before every request, with Starlette's `Request`: True lets it in, False is
            403, a response is the answer. Without a guard every request needs a token, made by
            `rowlock tokens create`.
        hosts: With a guard, the names that this server is reached by; others are refused.

    Example:
        board = Dashboard(queue, guard=lambda request: request.user.is_operator)
        api = FastAPI(lifespan=lifespan(queue, dashboard=board))
        api.mount("/queue", board)
    """

    def __init__(
        self, queue: App, *, guard: Guard | None = None, hosts: Sequence[str] | None = None
    ) -> None:
        self._queue = queue
        self._guard = guard
        self._hosts = hosts
        self._api: Api | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._guard is not None and scope["type"] == "http":
            verdict = self._guard(Request(scope, receive))
            refusal = _refusal(await verdict if inspect.isawaitable(verdict) else verdict)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._opened()(scope, receive, send)

    def _opened(self) -> Api:
        if self._api is None:
            self._api = asgi(self._queue, is_open=self._guard is not None, hosts=self._hosts)
        return self._api

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """For a lifespan: those who watch are let go at a signal, and the rest at its end."""
        loop = asyncio.get_running_loop()
        try:
            with _told_of_signals(lambda: loop.call_soon_threadsafe(self._let_go)):
                yield
        finally:
            if self._api is not None:
                # The next lifespan, in a test for example, begins with another one.
                api, self._api = self._api, None
                await api.aclose()

    def _let_go(self) -> None:
        if self._api is not None:
            self._api.service.stop()


def _refusal(verdict: object) -> Response | None:
    """What to answer instead; only a plain True lets in, so that a forgotten return does not."""
    if verdict is True:
        return None
    if isinstance(verdict, Response):
        return verdict
    return PlainTextResponse("forbidden", 403)


@contextmanager
def _told_of_signals(tell: Callable[[], object]) -> Iterator[None]:
    """Hear of signals beside the server's own handlers, which go on as ever."""
    # Elsewhere Python has no signals; and the default handlers are not called, but act.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def chained(number: int, frame: Any) -> None:
        tell()
        handler = before[signal.Signals(number)]
        assert callable(handler)
        handler(number, frame)

    ours = [number for number, handler in before.items() if callable(handler)]
    for number in ours:
        signal.signal(number, chained)
    try:
        yield
    finally:
        for number in ours:
            # Whoever came after us has chained us; taking us out would take them out too.
            if signal.getsignal(number) is chained:
                signal.signal(number, before[number])


@asynccontextmanager
async def serving(
    queue: App,
    *,
    worker: bool = False,
    queues: Sequence[str] | Mapping[str, int] | None = None,
    concurrency: int = config.WORKER_CONCURRENCY_DEFAULT,
    grace: float | timedelta = config.WORKER_GRACE_SECONDS_DEFAULT,
    migrate: bool = False,
    dashboard: Dashboard | None = None,
) -> AsyncIterator[App]:
    """Have a queue for the time of the block: what a lifespan of your own wraps around its yield.

    Args:
        worker: Run jobs in this process too, without the protection of `rowlock worker`.
        queues: Only these, for the worker; a mapping gives each its own number of slots.
        concurrency: How many jobs run at once.
        grace: How many seconds running jobs may go on when the block ends.
        migrate: Bring PostgreSQL's schema up to date first. A SQLite file always is.
        dashboard: What is mounted, so that it ends with the server.

    Example:
        @asynccontextmanager
        async def lifespan(api):
            async with serving(queue, worker=True):
                yield
    """
    async with AsyncExitStack() as stack:
        stack.push_async_callback(queue.aclose)
        # An enqueue in a request's own transaction needs tables that are there before it.
        if migrate or queue.url.startswith("sqlite:"):
            await queue.amigrate()
        if dashboard is not None:
            await stack.enter_async_context(dashboard.served())
        if worker:
            running = queue.worker(queues, concurrency=concurrency, grace=grace)
            await stack.enter_async_context(running)
        yield queue
