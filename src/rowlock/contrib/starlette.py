"""rowlock in Starlette: a lifespan with the queue, and optionally a worker and the dashboard.

queue = rowlock.App()
board = Dashboard(queue, guard=is_operator)
api = Starlette(
    routes=[Mount("/queue", app=board)], lifespan=lifespan(queue, worker=True, dashboard=board)
)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, TypeAlias

from starlette.requests import HTTPConnection

from rowlock import config
from rowlock.app import App
from rowlock.contrib.asgi import Dashboard, Guard, Visitor, serving
from rowlock.errors import OptionInvalid

Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]
OwnLifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]

# The name of the queue in the lifespan's state, and so in `request.state`.
STATE = "rowlock"


def lifespan(
    queue: App,
    own: OwnLifespan | None = None,
    *,
    worker: bool = False,
    queues: Sequence[str] | Mapping[str, int] | None = None,
    concurrency: int = config.WORKER_CONCURRENCY_DEFAULT,
    grace: float | timedelta = config.WORKER_GRACE_SECONDS_DEFAULT,
    migrate: bool = False,
    dashboard: Dashboard | None = None,
) -> Lifespan:
    """Return the lifespan of an application with a queue. The options are those of `serving`.

    Args:
        own: The application's own lifespan. It starts before the queue and ends after it, so what
            it opens stays open as long as jobs run. It can pass it to them in `queue.state`.

    Example:
        api = Starlette(lifespan=lifespan(queue, worker=True))
    """

    @asynccontextmanager
    async def live(application: Any) -> AsyncIterator[Mapping[str, Any]]:
        serve = serving(
            queue,
            worker=worker,
            queues=queues,
            concurrency=concurrency,
            grace=grace,
            migrate=migrate,
            dashboard=dashboard,
        )
        # For servers and test clients that don't pass on the lifespan's state.
        setattr(application.state, STATE, queue)
        if own is None:
            async with serve:
                yield {STATE: queue}
        else:
            async with own(application) as state, serve:
                yield {**(state or {}), STATE: queue}

    return live


def queue_of(connection: HTTPConnection) -> App:
    """Return the queue of a request, from the lifespan of its application.

    Raises:
        OptionInvalid: The application has no `lifespan(queue)`, or the server runs none.
    """
    found = getattr(connection.state, STATE, None) or getattr(connection.app.state, STATE, None)
    if not isinstance(found, App):
        raise OptionInvalid(
            "lifespan", "this application has no queue; start it with lifespan(queue)"
        )
    return found


__all__ = ["Dashboard", "Guard", "Visitor", "lifespan", "queue_of", "serving"]
