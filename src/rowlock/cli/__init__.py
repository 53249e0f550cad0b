"""The `rowlock` command: finds the subcommand and turns errors into exit codes.

Commands live in modules that `COMMANDS` names. At its top, such a module imports only click, this
module and `options`. Everything else is imported when the command runs.
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
    "cron": "rowlock.cli.cron:cron",
    "dead": "rowlock.cli.dead:dead",
    "dev": "rowlock.cli.dev:dev",
    "doctor": "rowlock.cli.doctor:doctor",
    "enqueue": "rowlock.cli.enqueue:enqueue",
    "jobs": "rowlock.cli.jobs:jobs",
    "limits": "rowlock.cli.limits:limits",
    "migrate": "rowlock.cli.database:migrate",
    "move": "rowlock.cli.database:move",
    "prune": "rowlock.cli.database:prune",
    "queues": "rowlock.cli.queues:queues",
    "serve": "rowlock.cli.serve:serve",
    "stats": "rowlock.cli.queues:stats",
    "tokens": "rowlock.cli.tokens:tokens",
    "top": "rowlock.cli.top:top",
    "workers": "rowlock.cli.workers:workers",
    "up": "rowlock.cli.up:up",
    "worker": "rowlock.cli.worker:worker",
    "workflows": "rowlock.cli.workflows:workflows",
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
    """Return the exit code of a command that failed with this error."""
    return EXIT_CODES.get(error.code, EXIT_FAILED)


@dataclass(frozen=True, slots=True)
class Target:
    """The app and the database that a command works on. `click.pass_obj` passes it in."""

    app_spec: str | None
    database_url: str | None

    def check_app(self) -> str:
        """Return the value of `--app`, which must be given and well formed. Loads nothing."""
        if self.app_spec is None:
            raise click.UsageError("this command needs --app module:app (or ROWLOCK_APP)")
        names_of(self.app_spec)
        return self.app_spec

    def load_object(self) -> object:
        """Import the object that `--app` names. The working directory is searched first."""
        return load_object(self.check_app())

    def load_app(self) -> App:
        """Return the app that `--app` names."""
        from rowlock.app import App

        app = self.load_object()
        if not isinstance(app, App):
            raise click.BadParameter(f"{self.app_spec} is not a rowlock.App", param_hint="--app")
        return app

    def open_app(self) -> App:
        """Return the app of `--app`, or one without tasks, on `--database-url` if given."""
        from rowlock.app import App

        return App(self.database_url) if self.app_spec is None else self.open_named_app()

    def open_named_app(self) -> App:
        """Return the app that `--app` names, on `--database-url` if given."""
        app = self.load_app()
        if self.database_url is not None:
            app.use_database(self.database_url)
        return app

    def open_store(self, *, schema: str) -> Store:
        """Return the store of `--database-url`, else of the app, else of the default URL."""
        from rowlock.app import App

        if self.database_url is None and self.app_spec is not None:
            return self.load_app().store
        return App(self.database_url, schema=schema).store


def open_inherited_app(spec: str, database_url: str | None) -> App:
    """Load the app in a process that a worker started, on that worker's database.

    Raises:
        SystemExit: The app can't be loaded. The reason is logged.
    """
    import logging

    from rowlock.worker.settings import EXIT_NOT_LOADED

    logger = logging.getLogger("rowlock.worker")
    try:
        return Target(spec, database_url).open_named_app()
    except BrokenApp as broken:
        logger.error("%s", broken.message, exc_info=broken.exc_info)  # noqa: TRY400  # only their frames
    except click.ClickException as error:
        logger.error("%s", error.message)  # noqa: TRY400  # a traceback of ours says nothing
    except RowlockError as error:
        logger.error("%s", error)  # noqa: TRY400  # as above
    raise SystemExit(EXIT_NOT_LOADED)


class BrokenApp(click.ClickException):
    """The module of `--app` raised an error. `exc_info` holds its traceback from that module on."""

    def __init__(self, spec: str, error: BaseException) -> None:
        super().__init__(f"{spec} can't be loaded: {type(error).__name__}: {error}")
        frames = error.__traceback__
        while frames is not None and _is_loading(frames.tb_frame.f_code.co_filename):
            frames = frames.tb_next
        self.exc_info: tuple[type[BaseException], BaseException, TracebackType | None] = (
            type(error),
            error,
            frames,
        )

    def show(self, file: IO[Any] | None = None) -> None:
        import traceback

        click.echo("".join(traceback.format_exception(*self.exc_info)), file=file, err=True)
        super().show(file)


def _is_loading(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")


def names_of(spec: str) -> tuple[str, str]:
    """Split `module:attribute`."""
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute or module_name.startswith("."):
        raise click.BadParameter(f"{spec!r} is not of the form module:app", param_hint="--app")
    return module_name, attribute


def load_object(spec: str) -> object:
    """Import `module:attribute`.

    Raises:
        click.BadParameter: There is no such module or attribute.
        BrokenApp: The module itself raised an error, or ended the process. Errors of rowlock are
            raised unchanged.
    """
    module_name, attribute = names_of(spec)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        # An import that fails inside the user's module needs the user's traceback.
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
                raise  # The reader closed the pipe. click exits silently.
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
    help="The app with its tasks. The working directory is searched first.",
)
@click.option(
    "--database-url",
    metavar="URL",
    envvar="ROWLOCK_DATABASE_URL",
    show_envvar=True,
    help="Database to use instead of the app's: sqlite:///FILE or postgresql://...",
)
@click.version_option(__version__, prog_name="rowlock", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context, app: str | None, database_url: str | None) -> None:
    """Durable background jobs on SQLite or PostgreSQL.

    Exit codes: 0 success, 1 failure, 2 wrong usage, 3 not found, 4 invalid input or transition, 5 a
    worker can't work on its database.
    """
    ctx.obj = Target(app_spec=app, database_url=database_url)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell. Source it in that shell's startup file."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, f"click completes {shell}"
    root = ctx.find_root().command
    click.echo(found(root, {}, "rowlock", "_ROWLOCK_COMPLETE").source())
