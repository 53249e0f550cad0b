"""The command finds its subcommands late, and says by its exit code what went wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rowlock import App, cli
from rowlock.cli import Target, load_object, main
from rowlock.errors import (
    FieldError,
    InvalidTransition,
    NotFound,
    OptionInvalid,
    PayloadInvalid,
    RowlockError,
    StoreUnavailable,
)
from rowlock.version import __version__


@click.command()
@click.pass_obj
def show_target(target: Target) -> None:
    click.echo(f"{target.app_spec} {target.database_url}")


def create(url: str) -> None:
    with App(url) as app:
        app.migrate()


@pytest.fixture
def run_with(monkeypatch):
    """Run the command line with one made-up command, `made-up`."""

    def run(command: click.Command, *arguments: str, env: dict[str, str] | None = None):
        monkeypatch.setattr(sys.modules[__name__], "made_up", command, raising=False)
        monkeypatch.setattr(cli, "COMMANDS", {"made-up": f"{__name__}:made_up"})
        return CliRunner().invoke(main, [*arguments, "made-up"], env=env)

    return run


def test_version():
    """`--version` prints the name and the version, and nothing else."""
    assert CliRunner().invoke(main, ["--version"]).output == f"rowlock {__version__}\n"


def test_unknown_command_is_a_usage_error():
    """A command that does not exist ends with 2."""
    assert CliRunner().invoke(main, ["no-such-command"]).exit_code == 2


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["wrker"], "There is no command 'rowlock wrker'. Did you mean 'rowlock worker'?"),
        (["beat"], "There is no command 'rowlock beat'. Use 'rowlock worker'."),
        (
            ["jobs", "lst"],
            "There is no command 'rowlock jobs lst'. Did you mean 'rowlock jobs list'?",
        ),
        (
            ["tokens", "\x1b[2J"],
            "'rowlock tokens \\x1b[2J'. The commands are create, list, revoke.",
        ),
    ],
)
def test_an_unknown_command_gets_a_hint(words, hint):
    """The nearest one, what another queue's is called here, or all that there are."""
    done = CliRunner().invoke(main, words, prog_name="rowlock")

    assert (done.exit_code, done.stdout) == (2, "")
    assert hint in done.stderr


def test_the_app_and_the_database_may_follow_the_command(sqlite_url, tmp_path, monkeypatch):
    """Also between a group and its command. What is typed last counts."""
    monkeypatch.chdir(tmp_path)
    create(sqlite_url)
    (tmp_path / "late_app.py").write_text(
        "import rowlock\napp = rowlock.App()\n@app.task\ndef add(a: int) -> int:\n    return a\n",
        "utf-8",
    )
    late = ["--app", "late_app:app", "--database-url", sqlite_url]
    done = CliRunner().invoke(main, ["enqueue", "add", '{"a": 1}', *late])
    refused = CliRunner().invoke(main, ["enqueue", "ad", "{}", *late])
    accepted = CliRunner().invoke(main, ["enqueue", "ad", "{}", *late, "--any-kind"])
    lines = CliRunner().invoke(
        main,
        ["enqueue", "--many", "-", *late],
        input='{"kind": "add", "payload": {"a": 2}}\n{"kind": "da"}',
    )
    between = CliRunner().invoke(main, ["--app", "none:none", "jobs", *late, "list"])

    assert done.exit_code == 0, done.stderr
    assert (refused.exit_code, refused.stdout) == (4, "")
    assert "the app has no task 'ad'; did you mean 'add'? To enqueue it" in refused.stderr
    assert accepted.exit_code == 0
    assert (lines.exit_code, "line 2: kind: the app has no task 'da'" in lines.stderr) == (4, True)
    assert [line.split()[2] for line in between.stdout.splitlines()] == ["KIND", "ad", "add"]


def test_every_command_can_be_loaded():
    """Each line of the table names a command, and every command has a help text."""
    with click.Context(main) as context:
        helps = {name: main.get_command(context, name) for name in main.list_commands(context)}

    assert set(cli.COMMANDS) <= set(helps)
    assert [name for name, command in helps.items() if not (command and command.help)] == []


def test_options_reach_the_command(run_with):
    """`--app` and `--database-url` are handed to the command."""
    result = run_with(show_target, "--app", "shop:app", "--database-url", "sqlite:///a.db")

    assert result.output == "shop:app sqlite:///a.db\n"


def test_options_come_from_the_environment(run_with):
    """ROWLOCK_APP and ROWLOCK_DATABASE_URL stand in for the options."""
    env = {"ROWLOCK_APP": "shop:app", "ROWLOCK_DATABASE_URL": "sqlite:///b.db"}

    assert run_with(show_target, env=env).output == "shop:app sqlite:///b.db\n"


def test_a_workers_options_come_from_the_environment():
    """Each is `ROWLOCK_` and its long name; what is destructive has no variable."""
    arguments = ["--app", "shop:app", "worker"]
    bad = CliRunner().invoke(main, arguments, env={"ROWLOCK_CONCURRENCY": "many"})
    purge = ["--database-url", "sqlite:///none.db", "dead", "purge"]
    kept = CliRunner().invoke(main, purge, env={"ROWLOCK_DEAD_PURGE_ALL": "1"})

    assert (bad.exit_code, "'--concurrency'" in bad.output) == (2, True)
    assert kept.exit_code == 2


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (NotFound("no job 7"), 3),
        (PayloadInvalid("mail", [FieldError("to", "missing")]), 4),
        (OptionInvalid("delay", "must not be negative"), 4),
        (InvalidTransition("7", "is running"), 4),
        (StoreUnavailable("no answer"), 1),
        (RowlockError("something else"), 1),
    ],
)
def test_errors_become_exit_codes(run_with, error, exit_code):
    """Each of our errors is one line on stderr and the exit code of its kind."""

    @click.command()
    def failing() -> None:
        raise error

    result = run_with(failing)

    assert (result.exit_code, result.stdout, result.stderr) == (exit_code, "", f"error: {error}\n")


@pytest.mark.parametrize(
    "spec", ["no_colon", "no_such_module:app", "os:no_such_attribute", ":x", ".x:y"]
)
def test_bad_app_is_a_usage_error(spec):
    """An app that can't be found is the user's typing error, not a traceback."""
    with pytest.raises(click.BadParameter):
        load_object(spec)


def test_missing_app_is_a_usage_error():
    """A command that needs an app says how to name one."""
    with pytest.raises(click.UsageError, match="ROWLOCK_APP"):
        Target(app_spec=None, database_url=None).load_object()


READING = [
    ["jobs", "list"], ["jobs", "cancel", "x"], ["jobs", "bulk", "retry", "--yes"], ["stats"],
    ["queues", "list"], ["queues", "pause", "mail"], ["dead", "list"], ["dead", "export"],
    ["top", "--once"], ["workers"], ["cron", "list"], ["limits", "list"], ["tokens", "list"],
    ["prune"], ["move", "sqlite:///new.db"],
]  # fmt: skip
CREATING = [["migrate"], ["enqueue", "add"], ["tokens", "create", "ada", "--scope", "admin"]]


@pytest.mark.parametrize("words", [*READING, *CREATING, ["doctor"], ["serve"]], ids=" ".join)
def test_a_command_without_a_database_is_refused(tmp_path, monkeypatch, words):
    """Neither an option nor the environment names one: it says what to do, and makes no file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROWLOCK_DATABASE_URL", raising=False)
    done = CliRunner().invoke(main, words)

    assert (done.exit_code, done.stdout) == (2, "")
    assert "--database-url (or ROWLOCK_DATABASE_URL)" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_app_without_a_database_is_refused(tmp_path, monkeypatch):
    """Every command but `up` says so. A worker ends, and does not try again for ever."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROWLOCK_DATABASE_URL", raising=False)
    # Its children would leave compiled files.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "nameless.py").write_text("import rowlock\napp = rowlock.App()\n", "utf-8")
    before = {*tmp_path.iterdir()}
    words = [sys.executable, "-Bm", "rowlock.cli", "--app", "nameless:app"]
    listed = subprocess.run(
        [*words, "jobs", "list"], capture_output=True, check=False, text=True, timeout=60
    )
    worked = subprocess.run(
        [*words, "worker"], capture_output=True, check=False, text=True, timeout=60
    )

    assert (listed.returncode, listed.stdout) == (4, "")
    assert "error: url: no database is named. Pass its URL to App(...)" in listed.stderr
    assert worked.returncode == 1
    assert "url: no database is named. Pass its URL to App(...)" in worked.stderr
    assert {*tmp_path.iterdir()} == before


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_command_that_creates_nothing_refuses_a_missing_file(tmp_path, monkeypatch, words):
    """A misspelt URL is no empty queue: it says which file, and does not make it."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["--database-url", "sqlite:///shpo.db", *words])

    assert (done.exit_code, done.stdout) == (3, "")
    assert f"{tmp_path / 'shpo.db'} does not exist. Check the URL" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", CREATING, ids=" ".join)
def test_some_commands_create_the_file(tmp_path, monkeypatch, words):
    """The first job, the first token and a migration may come before any worker."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["--database-url", "sqlite:///jobs.db", *words])

    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "jobs.db").exists()


def test_app_is_found_in_the_working_directory(tmp_path, monkeypatch):
    """A module beside the user is found without being installed."""
    (tmp_path / "rowlock_beside_me.py").write_text("app = 42\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    assert load_object("rowlock_beside_me:app") == 42


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import rowlock_not_there\n", "ModuleNotFoundError: No module named 'rowlock_not_there'"),
        ("x = 1\nx.nothing\n", "AttributeError: 'int' object has no attribute 'nothing'"),
        ("def broken(:\n", "SyntaxError: invalid syntax"),
        ("raise SystemExit(7)\n", "SystemExit: 7"),
    ],
)
def test_errors_inside_the_app_are_not_hidden(tmp_path, monkeypatch, text, error):
    """They are shown from the module's own lines on, and the command has failed."""
    (tmp_path / "rowlock_broken_app.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    done = CliRunner().invoke(main, ["--app", "rowlock_broken_app:app", "stats"])
    files = re.findall(r'File "([^"]+)"', done.stderr)

    assert (done.exit_code, done.stdout) == (1, "")
    assert f"Error: rowlock_broken_app:app can't be loaded: {error}" in done.stderr
    assert set(files) == {str(tmp_path / "rowlock_broken_app.py")}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["jobs", "list"], "No space left on device"),
        (["enqueue", "work", "--many", "/proc/self/mem"], "Input/output error"),
    ],
)
def test_trouble_with_files_is_told(sqlite_url, words, problem):
    """A full disk, a file that can't be read: one line on stderr, and exit code 1."""
    create(sqlite_url)
    command = [sys.executable, "-m", "rowlock.cli", "--database-url", sqlite_url, *words]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, text=True)

    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.startswith("error: OSError: ")
    assert problem in done.stderr


def test_who_reads_no_more_is_not_told(sqlite_url):
    """`rowlock jobs list | head` ends in silence."""
    create(sqlite_url)
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "rowlock.cli", "--database-url", sqlite_url, "jobs", "list"]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)

    assert (done.returncode, done.stderr) == (1, b"")


def test_help_loads_no_driver():
    """`--help` stays quick: it imports no database driver and no event loop."""
    script = (
        "import sys\n"
        "from rowlock.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "heavy = {'psycopg', 'sqlite3', 'asyncio', 'starlette', 'uvicorn', 'rich'}\n"
        "sys.exit(' '.join(sorted(heavy & sys.modules.keys())) or None)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")
