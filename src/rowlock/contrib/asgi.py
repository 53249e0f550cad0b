"""Support for all ASGI frameworks: a queue in the server's lifespan, and a guarded dashboard.

1. The queue's connections, and its worker if it has one, end with the server's lifespan.
2. An open dashboard is a request that does not end. A server waits for its requests before it ends
   the lifespan, so these requests are ended when the signal comes.
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
        queue: The app. Its tasks are read at the first request, so they may be defined later.
        guard: Called before every request with Starlette's `Request`. True allows it, False is a
            403, and a response is sent as the answer. Without a guard, every request needs a token
            from `rowlock tokens create`.
        hosts: With a guard, the host names of this server. Requests for others are refused.

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
        """Serve during a lifespan. Open streams end at a signal, other requests at its end."""
        loop = asyncio.get_running_loop()
        try:
            with _on_signals(lambda: loop.call_soon_threadsafe(self._let_go)):
                yield
        finally:
            if self._api is not None:
                # The next lifespan, for example in a test, starts with a new one.
                api, self._api = self._api, None
                await api.aclose()

    def _let_go(self) -> None:
        if self._api is not None:
            self._api.service.stop()


def _refusal(verdict: object) -> Response | None:
    """Return the refusal, if any. Only True allows a request, so a forgotten return does not."""
    if verdict is True:
        return None
    if isinstance(verdict, Response):
        return verdict
    return PlainTextResponse("forbidden", 403)


@contextmanager
def _on_signals(call: Callable[[], object]) -> Iterator[None]:
    """Call a function on signals, before the server's own handlers, which still run."""
    # Other threads can't handle signals. The default handlers can't be called.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def chained(number: int, frame: Any) -> None:
        call()
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
            # A later handler has chained ours. Removing ours would remove that one, too.
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
    """Open a queue while the block lasts. Wrap it around the yield of your own lifespan.

    Args:
        worker: Also run jobs in this process, without the isolation of `rowlock worker`.
        queues: Queues for the worker. A mapping gives each its own number of slots.
        concurrency: How many jobs run at once.
        grace: Seconds that running jobs get to finish when the block ends.
        migrate: Bring PostgreSQL's schema up to date first. A SQLite file always is.
        dashboard: The mounted dashboard, so that it ends with the server.

    Example:
        @asynccontextmanager
        async def lifespan(api):
            async with serving(queue, worker=True):
                yield
    """
    async with AsyncExitStack() as stack:
        stack.push_async_callback(queue.aclose)
        # An enqueue in a request's own transaction needs tables that already exist.
        if migrate or queue.url.startswith("sqlite:"):
            await queue.amigrate()
        if dashboard is not None:
            await stack.enter_async_context(dashboard.served())
        if worker:
            running = queue.worker(queues, concurrency=concurrency, grace=grace)
            await stack.enter_async_context(running)
        yield queue
