"""The `rowlock` command: finds the subcommand and turns errors into exit codes.

A command lives in a module of its own and is named once in `COMMANDS`. Such a module imports
nothing but click and this one at its top; what it works with, it imports when it runs.
"""

from __future__ import annotations

import errno
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from rowlock.errors import RowlockError
from rowlock.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from rowlock.app import App
    from rowlock.store import Store

COMMANDS: Final[Mapping[str, str]] = {
    "bench": "rowlock.cli.bench:bench",
    "chaos": "rowlock.cli.chaos:chaos",
    "completion": "rowlock.cli.completion:completion",
    "cron": "rowlock.cli.cron:cron",
    "dead": "rowlock.cli.dead:dead",
    "dev": "rowlock.cli.dev:dev",
    "doctor": "rowlock.cli.doctor:doctor",
    "enqueue": "rowlock.cli.enqueue:enqueue",
    "jobs": "rowlock.cli.jobs:jobs",
    "migrate": "rowlock.cli.migrate:migrate",
    "move": "rowlock.cli.move:move",
    "prune": "rowlock.cli.prune:prune",
    "queues": "rowlock.cli.queues:queues",
    "serve": "rowlock.cli.serve:serve",
    "stats": "rowlock.cli.stats:stats",
    "tokens": "rowlock.cli.tokens:tokens",
    "top": "rowlock.cli.top:top",
    "workers": "rowlock.cli.workers:workers",
    "up": "rowlock.cli.up:up",
    "worker": "rowlock.cli.worker:worker",
}

EXIT_FAILED: Final = 1
EXIT_NOT_FOUND: Final = 3
EXIT_INVALID: Final = 4
EXIT_CODES: Final[Mapping[str, int]] = {
    "not_found": EXIT_NOT_FOUND,
    "payload_invalid": EXIT_INVALID,
    "option_invalid": EXIT_INVALID,
    "invalid_transition": EXIT_INVALID,
}


def exit_code(error: RowlockError) -> int:
    """How a command ends that failed like this."""
    return EXIT_CODES.get(error.code, EXIT_FAILED)


@dataclass(frozen=True, slots=True)
class Target:
    """What the commands work on: `click.pass_obj` hands it to them."""

    app_spec: str | None
    database_url: str | None

    def check_app(self) -> str:
        """What `--app` says, which must be given and well formed; nothing is loaded."""
        if self.app_spec is None:
            raise click.UsageError("this command needs --app module:app (or ROWLOCK_APP)")
        names_of(self.app_spec)
        return self.app_spec

    def load_object(self) -> object:
        """Import what `--app module:attribute` names; the working directory is searched first."""
        return load_object(self.check_app())

    def load_app(self) -> App:
        """The app that `--app` names."""
        from rowlock.app import App

        app = self.load_object()
        if not isinstance(app, App):
            raise click.BadParameter(f"{self.app_spec} is not a rowlock.App", param_hint="--app")
        return app

    def open_app(self) -> App:
        """The app of `--app`, on `--database-url` if that is given; else one without tasks."""
        from rowlock.app import App

        return App(self.database_url) if self.app_spec is None else self.open_named_app()

    def open_named_app(self) -> App:
        """The app that `--app` names, on `--database-url` if that is given."""
        app = self.load_app()
        if self.database_url is not None:
            app.use_database(self.database_url)
        return app

    def open_store(self, *, schema: str) -> Store:
        """The store of `--database-url`, of the app, or of the default URL, in this order."""
        from rowlock.app import App

        if self.database_url is None and self.app_spec is not None:
            return self.load_app().store
        return App(self.database_url, schema=schema).store


def open_inherited_app(spec: str, database_url: str | None) -> App:
    """The app of a worker in a process that it started, on that worker's database.

    Raises:
        SystemExit: It can't be loaded, and the reason is logged.
    """
    import logging

    from rowlock.worker.settings import EXIT_NOT_LOADED

    logger = logging.getLogger("rowlock.worker")
    try:
        return Target(spec, database_url).open_named_app()
    except BrokenApp as broken:
        logger.error("%s", broken.message, exc_info=broken.told)  # noqa: TRY400  # from their lines on
    except click.ClickException as error:
        logger.error("%s", error.message)  # noqa: TRY400  # a traceback of ours says nothing
    except RowlockError as error:
        logger.error("%s", error)  # noqa: TRY400  # as above
    raise SystemExit(EXIT_NOT_LOADED)


class BrokenApp(click.ClickException):
    """The module of `--app` raised an error; `told` has its traceback from that module on."""

    def __init__(self, spec: str, error: BaseException) -> None:
        super().__init__(f"{spec} can't be loaded: {type(error).__name__}: {error}")
        frames = error.__traceback__
        while frames is not None and _is_loading(frames.tb_frame.f_code.co_filename):
            frames = frames.tb_next
        self.told: tuple[type[BaseException], BaseException, TracebackType | None] = (
            type(error),
            error,
            frames,
        )

    def show(self, file: IO[Any] | None = None) -> None:
        import traceback

        click.echo("".join(traceback.format_exception(*self.told)), file=file, err=True)
        super().show(file)


def _is_loading(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")


def names_of(spec: str) -> tuple[str, str]:
    """The module and the attribute of `module:attribute`."""
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute or module_name.startswith("."):
        raise click.BadParameter(f"{spec!r} is not of the form module:app", param_hint="--app")
    return module_name, attribute


def load_object(spec: str) -> object:
    """Import `module:attribute`.

    Raises:
        click.BadParameter: There is no such module or attribute.
        BrokenApp: The module itself raised an error, or ended the process. Errors of ours are
            passed on as they are.
    """
    module_name, attribute = names_of(spec)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        # A module that the user's own module lacks is their traceback to see.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise BrokenApp(spec, error) from error
        problem = f"no module named {error.name!r} in {here} or installed"
    except AttributeError as error:
        if getattr(error, "name", None) != attribute:
            raise BrokenApp(spec, error) from error
        problem = f"module {module_name!r} has no {attribute!r}"
    except RowlockError:
        raise
    except (Exception, SystemExit) as error:
        raise BrokenApp(spec, error) from error
    raise click.BadParameter(problem, param_hint="--app")


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        spec = COMMANDS.get(cmd_name)
        if spec is None:
            return super().get_command(ctx, cmd_name)
        module_name, _, attribute = spec.partition(":")
        command = getattr(importlib.import_module(module_name), attribute)
        assert isinstance(command, click.Command), f"{spec} is not a command"
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RowlockError as error:
            from rowlock.cli import show

            show.complain(error)
            ctx.exit(exit_code(error))
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # Whoever read has seen enough: click ends it in silence.
            from rowlock.cli import show

            show.complain(f"{type(error).__name__}: {error}")
            show.give_up_output()
            ctx.exit(EXIT_FAILED)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--app",
    metavar="MODULE:APP",
    envvar="ROWLOCK_APP",
    show_envvar=True,
    help="The app and its tasks; the working directory is searched first.",
)
@click.option(
    "--database-url",
    metavar="URL",
    envvar="ROWLOCK_DATABASE_URL",
    show_envvar=True,
    help="The database, instead of the app's: sqlite:///FILE or postgresql://...",
)
@click.version_option(__version__, prog_name="rowlock", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context, app: str | None, database_url: str | None) -> None:
    """Durable background jobs on SQLite or PostgreSQL.

    Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 invalid input or transition, 5 a worker
    can't work on its database.
    """
    ctx.obj = Target(app_spec=app, database_url=database_url)
