"""rowlock in Litestar: a plugin with the queue as a dependency, in the lifespan, and its dashboard.

app = Litestar(
    route_handlers=[order],
    plugins=[RowlockPlugin(queue, worker=True, dashboard="/queue", guards=[is_operator])],
    dependencies={"db": transaction(async_sessionmaker(engine))},
)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from litestar import Litestar, asgi
from litestar.config.app import AppConfig
from litestar.di import Provide
from litestar.plugins import InitPlugin
from litestar.types import Receive, Scope, Send

from rowlock import config
from rowlock.app import App
from rowlock.contrib.asgi import Dashboard, serving

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
    from sqlalchemy.orm import Session, sessionmaker

# As Litestar calls them: with the connection and the handler; they raise to refuse.
Guard: TypeAlias = Callable[[Any, Any], Any]


class RowlockPlugin(InitPlugin):
    """A queue for as long as the application lives.

    Args:
        queue: The app and its tasks.
        worker: Run jobs in this process too, without the protection of `rowlock worker`.
        queues: Only these, for the worker; a mapping gives each its own number of slots.
        concurrency: How many jobs run at once.
        grace: How many seconds running jobs may go on at the end.
        migrate: Bring PostgreSQL's schema up to date first. A SQLite file always is.
        dashboard: The path of the dashboard and of the HTTP API; None for neither.
        guards: Who may come there. Without any, every request needs a token, made by
            `rowlock tokens create`.
        dependency: The name by which handlers get the queue.
    """

    def __init__(
        self,
        queue: App,
        *,
        worker: bool = False,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        concurrency: int = config.WORKER_CONCURRENCY_DEFAULT,
        grace: float | timedelta = config.WORKER_GRACE_SECONDS_DEFAULT,
        migrate: bool = False,
        dashboard: str | None = None,
        guards: Sequence[Guard] = (),
        dependency: str = "queue",
    ) -> None:
        self.queue = queue
        self._worker = worker
        self._queues = queues
        self._concurrency = concurrency
        self._grace = grace
        self._migrate = migrate
        self._path = dashboard
        self._guards = guards
        self._dependency = dependency
        # Litestar's guards are asked first; where there are none, a token is.
        self._board = Dashboard(queue, guard=(lambda _: True) if guards else None)

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add the dependency, the lifespan and the dashboard."""
        app_config.dependencies[self._dependency] = Provide(self._provide, sync_to_thread=False)
        app_config.lifespan = [*app_config.lifespan, self._live]
        if self._path is not None:
            app_config.route_handlers.append(self._mounted(self._path))
        return app_config

    def _provide(self) -> App:
        return self.queue

    def _live(self, _: Litestar) -> AbstractAsyncContextManager[App]:
        return serving(
            self.queue,
            worker=self._worker,
            queues=self._queues,
            concurrency=self._concurrency,
            grace=self._grace,
            migrate=self._migrate,
            dashboard=self._board,
        )

    def _mounted(self, path: str) -> asgi:
        board, prefix = self._board, path.rstrip("/")

        @asgi(path, is_mount=True, guards=self._guards, copy_scope=True)
        async def rowlock_dashboard(scope: Scope, receive: Receive, send: Send) -> None:
            # Litestar cuts the prefix off the path, but not off the raw one, and tells nobody.
            inner: Any = {**scope, "root_path": scope.get("root_path", "") + prefix}
            await board(inner, receive, send)  # type: ignore[arg-type]  # the same protocol

        return rowlock_dashboard


def transaction(sessions: async_sessionmaker[AsyncSession] | sessionmaker[Session]) -> Provide:
    """A dependency: a session in a transaction that is committed before the response is sent.

    It is rolled back if the handler raises anything. What is enqueued with `using(conn=session)`
    stands or falls with it.
    """
    from sqlalchemy.ext.asyncio import async_sessionmaker

    if isinstance(sessions, async_sessionmaker):
        makes = sessions

        async def abegin() -> AsyncGenerator[Any, None]:
            async with makes.begin() as session:
                yield session

        return Provide(abegin)

    blocking = sessions

    def begin() -> Generator[Any, None, None]:
        with blocking.begin() as session:
            yield session

    return Provide(begin)


__all__ = ["RowlockPlugin", "transaction"]
