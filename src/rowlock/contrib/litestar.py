"""rowlock in Litestar: a plugin with a dependency, a lifespan and the dashboard.

app = Litestar(
    route_handlers=[order],
    plugins=[RowlockPlugin(queue, worker=True, dashboard="/queue", guards=[is_operator])],
    dependencies={"db": transaction(async_sessionmaker(engine))},
)

`litestar rowlock worker` runs the jobs. All other commands of `rowlock` are available, too.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from litestar import Litestar, asgi
from litestar.config.app import AppConfig
from litestar.connection import ASGIConnection
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.plugins import CLIPlugin, InitPlugin
from litestar.types import Receive, Scope, Send
from starlette.requests import Request

from rowlock import config
from rowlock.app import App
from rowlock.cli import LazyGroup, Target, load_object
from rowlock.contrib.asgi import Dashboard, Visitor, serving
from rowlock.errors import OptionInvalid

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
    from sqlalchemy.orm import Session, sessionmaker

# Other processes find the queue of the application in LITESTAR_APP by this.
SPEC = f"{__name__}:queue"
LITESTAR_APP_VARIABLE = "LITESTAR_APP"
# Marks a request whose guards Litestar has asked.
_ASKED = "rowlock.asked"

# Litestar calls them with the connection and the handler. They raise to refuse.
Guard: TypeAlias = Callable[[Any, Any], Any]


class RowlockPlugin(InitPlugin, CLIPlugin):
    """A queue that lives as long as the application.

    Args:
        queue: The app and its tasks.
        worker: Also run jobs in this process, without the isolation of `rowlock worker`.
        queues: Queues for the worker. A mapping gives each its own number of slots.
        concurrency: How many jobs run at once.
        grace: Seconds that running jobs get to finish at the end.
        migrate: Bring PostgreSQL's schema up to date first. A SQLite file always is.
        dashboard: The path of the dashboard and the HTTP API. None for neither.
        guards: The guards of that path. They are asked again while a stream of events lasts, which
            ends when one refuses. Without any, every request needs a token from
            `rowlock tokens create`.
        visitor: With guards, called with the connection once they have agreed. Returns a `Visitor`:
            a name for the audit log, and scopes. By default, visitors may do everything but
            create tokens.
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
        visitor: Callable[[Any], Visitor | bool] | None = None,
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
        self._visitor = visitor
        # Without guards, a token is needed.
        self._board = Dashboard(queue, guard=self._ask if guards else None)

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add the dependency, the lifespan and the dashboard."""
        app_config.dependencies[self._dependency] = Provide(self._provide, sync_to_thread=False)
        app_config.lifespan = [*app_config.lifespan, self._live]
        if self._path is not None:
            app_config.route_handlers.append(self._mounted(self._path))
        return app_config

    def on_cli_init(self, cli: click.Group) -> None:
        """Add `litestar rowlock`."""
        cli.add_command(command)

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

    async def _ask(self, request: Request) -> Visitor | bool:
        """Ask the guards, unless Litestar has just done so for the same request."""
        scope: Any = request.scope
        connection: Any = ASGIConnection(scope)
        if not scope.pop(_ASKED, False):
            try:
                for guard in self._guards:
                    answer = guard(connection, connection.route_handler)
                    if inspect.isawaitable(answer):
                        await answer
            except HTTPException:
                return False
        return True if self._visitor is None else self._visitor(connection)

    def _mounted(self, path: str) -> asgi:
        board, prefix = self._board, path.rstrip("/")

        @asgi(path, is_mount=True, guards=self._guards, copy_scope=True)
        async def rowlock_dashboard(scope: Scope, receive: Receive, send: Send) -> None:
            # Litestar removes the prefix from the path, but not from the raw path.
            root = scope.get("root_path", "") + prefix
            inner: Any = {**scope, "root_path": root, _ASKED: True}
            await board(inner, receive, send)  # type: ignore[arg-type]  # the same protocol

        return rowlock_dashboard


def queue_of(app: Litestar) -> App:
    """Return the queue of an application. Raise `OptionInvalid` if it has none."""
    try:
        return app.plugins.get(RowlockPlugin).queue
    except KeyError:
        problem = "has no queue; add plugins=[RowlockPlugin(queue)]"
        raise OptionInvalid("app", problem) from None


@click.group("rowlock", cls=LazyGroup)
def command() -> None:
    """Manage background jobs with rowlock's commands, on this application's queue."""
    ctx = click.get_current_context()  # Litestar would pass its own if we asked for it.
    # Worker processes load the application by it.
    os.environ[LITESTAR_APP_VARIABLE] = ctx.obj.app_path
    ctx.obj = Target(app_spec=SPEC, database_url=queue_of(ctx.obj.app).url)


def __getattr__(name: str) -> App:
    """Return `queue` of the application that LITESTAR_APP names or its function creates."""
    if name != "queue":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    found: Any = load_object(os.environ.get(LITESTAR_APP_VARIABLE, ""))
    return queue_of(found if isinstance(found, Litestar) else found())


def transaction(sessions: async_sessionmaker[AsyncSession] | sessionmaker[Session]) -> Provide:
    """Return a dependency: a session in a transaction, committed before the response is sent.

    It is rolled back if the handler raises an exception. Jobs enqueued with `using(conn=session)`
    are part of the transaction.
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


__all__ = ["RowlockPlugin", "Visitor", "queue_of", "transaction"]
