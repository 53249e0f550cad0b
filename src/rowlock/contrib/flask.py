"""rowlock in Flask: an extension that follows Flask's conventions.

    queue = Rowlock()

    @queue.task(queue="mail")
    def send_email(to: str) -> None:
        render_template(...)              # jobs run in an application context

    def create_app() -> Flask:
        app = Flask(__name__)
        queue.init_app(app)
        return app

`flask rowlock worker` runs the jobs. All other commands of `rowlock` are available, too.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import click
from flask import Flask, current_app, has_app_context
from flask.cli import ScriptInfo

from rowlock import config
from rowlock.app import DATABASE_URL_VARIABLE, App
from rowlock.cli import LazyGroup, Target
from rowlock.clock import Clock
from rowlock.errors import OptionInvalid
from rowlock.task import Task
from rowlock.worker.report import running_fields

EXTENSION = "rowlock"
# Other processes find the queue of the application in FLASK_APP by this.
SPEC = f"{__name__}:queue"
FLASK_APP_VARIABLE = "FLASK_APP"

# The job for which a context was pushed. A task that it calls stays in that context.
_pushed: ContextVar[str | None] = ContextVar("rowlock_flask", default=None)


class Rowlock(App):
    """A Flask extension: a `rowlock.App` whose jobs run in an application context.

    The database is `app.config["ROWLOCK_DATABASE_URL"]`, else that environment variable. If it is
    initialised with several applications, the last one counts.

    Args:
        app: The application, if there is one already. Otherwise call `init_app` later.
        state: As for `rowlock.App`, like the other options.
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        state: Any = None,
        strict: bool = False,
        schema: str = "rowlock",
        keep_dead: float | timedelta | None = config.KEEP_DEAD_SECONDS_DEFAULT,
        notify_in_transaction: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._flask: Flask | None = None
        super().__init__(
            state=state,
            strict=strict,
            schema=schema,
            keep_dead=keep_dead,
            notify_in_transaction=notify_in_transaction,
            clock=clock,
        )
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Make it this application's queue, and add `flask rowlock` to its commands."""
        self._flask = app
        if (named := self._environment_url()) is not None:
            self.use_database(named)
        app.extensions[EXTENSION] = self
        app.cli.add_command(command)

    @property
    def flask(self) -> Flask:
        """The application of the jobs. Raises `OptionInvalid` before `init_app`."""
        if self._flask is None:
            raise OptionInvalid(
                "app",
                "this queue has no Flask application yet; call init_app(app) first. If a function "
                "creates the application, start a worker with `flask rowlock worker`",
            )
        return self._flask

    # Never write to a database that was not configured: before `init_app`, none is.
    def _environment_url(self) -> str | None:
        if self._flask is None:
            return None
        named: str | None = self._flask.config.get(DATABASE_URL_VARIABLE)
        return named or super()._environment_url()

    def _needed_url(self) -> str:
        assert self.flask is not None
        return super()._needed_url()

    def _register(self, task: Task[..., Any]) -> Task[..., Any]:
        super()._register(task)
        own = getattr(task.function, "rowlock_function", task.function)
        task.function = self._in_context(own)
        return task

    def _in_context(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            async def arun(*args: Any, **kwargs: Any) -> Any:
                with self._context_of_job():
                    return await function(*args, **kwargs)

            return _standing_for(function, arun)

        def run(*args: Any, **kwargs: Any) -> Any:
            with self._context_of_job():
                return function(*args, **kwargs)

        return _standing_for(function, run)

    @contextmanager
    def _context_of_job(self) -> Iterator[None]:
        """Push a context for each job. A plain call of a task stays in its caller's context."""
        job_id = running_fields().get("job_id")
        if job_id is None or job_id == _pushed.get():
            yield
            return
        before = _pushed.set(job_id)
        try:
            with self.flask.app_context():
                yield
        finally:
            _pushed.reset(before)


def _standing_for(function: Callable[..., Any], wrapper: Any) -> Callable[..., Any]:
    functools.update_wrapper(wrapper, function)
    wrapper.rowlock_function = function
    made: Callable[..., Any] = wrapper
    return made


def queue_of(app: Flask) -> Rowlock:
    """Return the queue of an application. Raise `OptionInvalid` if it has none."""
    found = app.extensions.get(EXTENSION)
    if not isinstance(found, Rowlock):
        raise OptionInvalid("app", f"{app!r} has no queue; call Rowlock(app) or init_app(app)")
    return found


@click.group("rowlock", cls=LazyGroup)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage background jobs with rowlock's commands, on this application's queue."""
    info = ctx.ensure_object(ScriptInfo)
    app = info.load_app()
    ctx.with_resource(app.app_context())
    if info.app_import_path:
        # Worker processes load the application by it.
        os.environ[FLASK_APP_VARIABLE] = info.app_import_path
    ctx.obj = Target(app_spec=SPEC, database_url=queue_of(app).url)


def __getattr__(name: str) -> Rowlock:
    """Return `queue` of the current application, or of the one that FLASK_APP names."""
    if name != "queue":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    if has_app_context():
        return queue_of(current_app)
    return queue_of(ScriptInfo(os.environ.get(FLASK_APP_VARIABLE)).load_app())


__all__ = ["Rowlock", "queue_of"]
