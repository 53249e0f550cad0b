"""Support for all ASGI frameworks: a queue in the server's lifespan, and a guarded dashboard.

1. The queue's connections, and its worker if it has one, end with the server's lifespan.
2. An open dashboard is a request that does not end. A server waits for its requests before it ends
   the lifespan, so these requests are ended when the signal comes.
3. A guard is asked before every request, and again while a stream lasts.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from rowlock import config
from rowlock.app import App
from rowlock.errors import Forbidden
from rowlock.server import Api, asgi
from rowlock.server.gate import GUARD, GUARDED, Caller
from rowlock.store.ops.audit import Actor
from rowlock.tokens import scopes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Who a guard admits, and what they may do.

    Args:
        name: Their name in the audit log.
        scopes: Some of `read`, `enqueue`, `work` and `admin`, as for a token.
        tenant: The only tenant whose jobs they see. None for all.
        can_create_tokens: Whether, with `admin`, they may create tokens. A token stays valid when
            the guard no longer admits whoever created it.
    """

    name: str
    scopes: Collection[str]
    tenant: str | None = None
    can_create_tokens: bool = False

    def caller(self) -> Caller:
        """Return them as the server knows callers. Raises `OptionInvalid` for unknown scopes."""
        return Caller(
            Actor(self.name, tenant=self.tenant),
            frozenset(scopes_of([*self.scopes])),
            can_create_tokens=self.can_create_tokens,
        )


Verdict: TypeAlias = bool | Visitor | Response
Guard: TypeAlias = Callable[[Request], Verdict | Awaitable[Verdict]]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Dashboard:
    """The dashboard and the HTTP API of a queue, to be mounted below a prefix.

    Args:
        queue: The app. Its tasks are read at the first request, so they may be defined later.
        guard: Called before every request with Starlette's `Request`, and again while a stream of
            events lasts, which ends when it refuses. True allows everything but to create tokens,
            False is a 403, and a response is sent as the answer. A `Visitor` allows what its scopes
            say, and its name is in the audit log. Without a guard, every request needs a token from
            `rowlock tokens create`.
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
            verdict = await self._ask(scope, receive)
            check = GuardCheck(partial(self._ask, scope), verdict)
            if check.refusal is not None:
                await check.refusal(scope, receive, send)
                return
            scope = {**scope, GUARD: check}
        await self._opened()(scope, receive, send)

    async def _ask(self, scope: Scope, receive: Receive | None = None) -> Verdict:
        assert self._guard is not None
        request = Request(scope) if receive is None else Request(scope, receive)
        verdict = self._guard(request)
        return await verdict if inspect.isawaitable(verdict) else verdict

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


class GuardCheck:
    """What a guard said about one request. It is asked again, at most once a second."""

    def __init__(self, ask: Callable[[], Awaitable[Verdict]], first: Verdict) -> None:
        self._ask = ask
        self._note(first)

    def _note(self, verdict: object) -> None:
        self._until = time.monotonic() + config.TOKEN_KNOWN_SECONDS
        self.refusal: Response | None = None
        self._caller = GUARDED
        if isinstance(verdict, Visitor):
            self._caller = verdict.caller()
        # Only a plain True allows a request, so a forgotten return does not.
        elif verdict is not True:
            refused = PlainTextResponse("forbidden", 403)
            self.refusal = verdict if isinstance(verdict, Response) else refused

    async def __call__(self) -> Caller:
        """Return the caller. Raises `Forbidden` once the guard refuses."""
        if time.monotonic() >= self._until:
            self._note(await self._ask())
        if self.refusal is not None:
            raise Forbidden("the guard of this application no longer admits you")
        return self._caller


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
