"""The `rowlock` command: finds the subcommand and turns errors into exit codes.

Commands live in modules that `COMMANDS` names. At its top, such a module imports only click, this
module and `options`. Everything else is imported when the command runs.
"""

from __future__ import annotations

import errno
import functools
import importlib
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from rowlock.errors import NotFound, OptionInvalid, RowlockError
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

# Commands of other queues, and the command here that does the same.
ELSEWHERE: Final[Mapping[str, str]] = {
    "beat": "worker", "scheduler": "worker", "start": "worker", "run": "worker", "work": "worker",
    "flower": "serve", "dashboard": "serve", "web": "serve", "monitor": "top", "inspect": "workers",
    "status": "stats", "info": "stats", "list": "jobs list", "call": "enqueue", "defer": "enqueue",
    "requeue": "dead retry", "retry": "dead retry", "purge": "dead purge", "schema": "migrate",
    "install": "migrate", "init": "migrate", "schedule": "cron", "schedules": "cron",
}  # fmt: skip

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
        try:
            app.load_tasks()
        except RowlockError:
            raise
        except (Exception, SystemExit) as error:
            raise BrokenApp(self.check_app(), error) from error
        return app

    def open_app(self, *, creates: bool = False) -> App:
        """Return the app of `--app`, or one without tasks, on `--database-url` if given.

        A command that `creates` may be the first one on its database. For any other, a SQLite file
        that does not exist is a mistake: it is refused, and not created.
        """
        from rowlock.app import App

        if self.app_spec is None:
            self.check_database()
            app = App(self.database_url)
        else:
            app = self.open_named_app()
        if not creates:
            check_file(app.store)
        return app

    def open_named_app(self) -> App:
        """Return the app that `--app` names, on `--database-url` if given."""
        from rowlock.app import NO_DATABASE

        app = self.load_app()
        if self.database_url is not None:
            app.use_database(self.database_url)
        elif not app.has_database:
            raise OptionInvalid("url", NO_DATABASE)
        return app

    def open_store(self, *, schema: str) -> Store:
        """Return the store of `--database-url`, else of the app."""
        from rowlock.app import App

        if self.database_url is None and self.app_spec is not None:
            return self.load_app().store
        self.check_database()
        return App(self.database_url, schema=schema).store

    def check_database(self) -> None:
        """Refuse to go on if neither an option nor the environment names a database."""
        if self.database_url is None:
            raise click.UsageError(
                "no database is named. Give --database-url (or ROWLOCK_DATABASE_URL), or --app with"
                " an app that names one. Examples: sqlite:///jobs.db, postgresql://USER@HOST/DB"
            )


def check_file(store: Store) -> None:
    """Raise `NotFound` if the database is a SQLite file that does not exist."""
    from rowlock.store.statements import Dialect

    engine = store.engine
    if engine.dialect is not Dialect.SQLITE:
        return
    from rowlock.store.sqlite.engine import SqliteEngine

    assert isinstance(engine, SqliteEngine)
    if not engine.file.path.exists():
        raise NotFound(
            f"{engine.file.path} does not exist. Check the URL of the database. If it is right: "
            "the first enqueue, a worker or `rowlock migrate` creates the file"
        )


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


class HintingGroup(click.Group):
    """A group that names the nearest command, if a command does not exist."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        is_command = name.startswith("-") or self.get_command(ctx, name) is not None
        if not is_command and not ctx.resilient_parsing:
            ctx.fail(self._unknown(ctx, name))
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: click.Context, name: str) -> str:
        from rowlock.cli import show
        from rowlock.suggest import nearest

        path = ctx.command_path
        what = f"There is no command '{path} {show.escaped(name)}'."
        if ctx.parent is None and (instead := ELSEWHERE.get(name)) is not None:
            return f"{what} Use '{path} {instead}'."
        known = self.list_commands(ctx)
        if close := nearest(name, known):
            return f"{what} Did you mean '{path} {close[0]}'?"
        return f"{what} The commands are {', '.join(known)}."


class LazyGroup(HintingGroup):
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


class MainGroup(LazyGroup):
    """The group whose options `--app` and `--database-url` may also follow its commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _take_target(command)
        return command


def _take_target(command: click.Command) -> None:
    """Have a command, and those in it, take the options that name the app and the database."""
    if any(each.name == "later_app_spec" for each in command.params):
        return
    for option, name in (("--app", "app_spec"), ("--database-url", "database_url")):
        command.params.append(
            click.Option(
                [option, f"later_{name}"],
                hidden=True,
                expose_value=False,
                # A value that was typed before the command counts more than the environment.
                allow_from_autoenv=False,
                callback=functools.partial(_note_target, name),
            )
        )
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _take_target(inner)


def _note_target(name: str, ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.obj = replace(ctx.obj, **{name: value})


@click.group(
    cls=MainGroup,
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

    --app and --database-url may also follow the command: rowlock worker --app shop:app.

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
