"""`manage.py rowlock …`: the command `rowlock`, with the app of this project."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandError

from rowlock.worker import signals

_APP = "rowlock.contrib.django.worker:app"
# These commands run until a signal stops them.
_SUPERVISING = ("up", "worker")
# Options of `manage.py` itself that take a value, and are already applied.
_DJANGOS = ("--settings", "--pythonpath")


class Command(BaseCommand):
    """Passes its arguments on to `rowlock`."""

    help = "Run rowlock's own command: worker, jobs, dead, queues, cron, doctor, ... (see --help)"

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command line. Django calls this."""
        words = without_djangos(argv[2:])
        if any(word in _SUPERVISING for word in words):
            # Nothing was started yet, so it exits with success. The supervisor takes over later.
            signals.obey(lambda *_: os._exit(0))
        prepare(argv[0])
        from rowlock import cli

        cli.main(words, prog_name=f"{Path(argv[0]).name} {argv[1]}")

    def add_arguments(self, parser: Any) -> None:
        """Add the words of the command line, for `call_command`."""
        parser.add_argument("words", nargs=argparse.REMAINDER)

    def handle(self, *, words: list[str], **_: Any) -> None:
        """Run the command, for `call_command("rowlock", "worker", "--drain")`."""
        prepare(sys.argv[0])
        from rowlock import cli

        try:
            code = cli.main(words, prog_name="rowlock", standalone_mode=False)
        except click.ClickException as error:
            raise CommandError(error.format_message(), returncode=error.exit_code) from error
        if code:
            raise CommandError(f"rowlock {' '.join(words)} has failed", returncode=code)


def without_djangos(words: Sequence[str]) -> list[str]:
    """Return the words without Django's own options."""
    kept: list[str] = []
    before = ""
    for word in words:
        if word.partition("=")[0] not in _DJANGOS and before not in _DJANGOS:
            kept.append(word)
        before = word
    return kept


def prepare(script: str) -> None:
    """Name the app in the environment, and let worker processes import what this one can."""
    os.environ.setdefault("ROWLOCK_APP", _APP)
    # Python puts the script's directory first, and `--pythonpath` before it.
    home = str(Path(script).resolve().parent)
    ahead = sys.path[: sys.path.index(home) + 1] if home in sys.path else []
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, [*ahead, *given])))
