"""The command hears signals before it has loaded anything."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rowlock import cli
from rowlock.__main__ import SUPERVISING, VALUED, command_of

# Signals itself in the moment in which the command line is about to be loaded.
SIGNALLED_WHILE_LOADING = """
import os, signal, sys
from importlib.abc import MetaPathFinder
from rowlock import __main__

class Loading(MetaPathFinder):
    def find_spec(self, name, *_):
        if name == "rowlock.cli":
            os.kill(os.getpid(), signal.Signals[sys.argv.pop()])

sys.meta_path.insert(0, Loading())
__main__.main()
"""


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["worker"], "worker"),
        (["--app", "shop:app", "worker", "-p", "2"], "worker"),
        (["--app=shop:app", "--database-url", "sqlite:///a.db", "up"], "up"),
        (["--app", "worker", "jobs", "list"], "jobs"),
        (["enqueue", "worker"], "enqueue"),
        (["--version"], None),
        ([], None),
    ],
)
def test_the_command_is_found_without_loading_it(words, command):
    """Options and their values are passed over."""
    assert command_of(words) == command


def test_what_it_knows_of_the_command_line_is_so():
    """Its tables name real commands, and all options of the main command that take a value."""
    valued = {name for option in cli.main.params if not option.is_flag for name in option.opts}

    assert valued == set(VALUED)
    assert set(SUPERVISING) <= set(cli.COMMANDS)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
@pytest.mark.parametrize("command", SUPERVISING)
def test_a_signal_while_it_loads_is_a_good_end(command, name):
    """Nothing was started, so nothing has failed, and nothing is said."""
    done = _signalled(command, name)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_other_commands_are_ended_as_usual():
    """A signal ends what would not take long anyway, and its exit code says so."""
    assert _signalled("stats", "SIGTERM").returncode == -15


def _signalled(command: str, name: str) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-c", SIGNALLED_WHILE_LOADING, "--app", "shop:app", command, name]
    return subprocess.run(words, capture_output=True, check=False)
