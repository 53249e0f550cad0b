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
# These run for long, and are told to stop by signals.
_SUPERVISING = ("up", "worker")
# What `manage.py` itself takes, with a value, and has obeyed by now.
_DJANGOS = ("--settings", "--pythonpath")


class Command(BaseCommand):
    """Hands its arguments on: they are those of `rowlock`, not of Django's other commands."""

    help = "Run rowlock's own command: worker, jobs, dead, queues, cron, doctor, ... (see --help)"

    def run_from_argv(self, argv: list[str]) -> None:
        """As Django calls it, with all that was typed."""
        words = without_djangos(argv[2:])
        if any(word in _SUPERVISING for word in words):
            # Nothing was started yet, so it ends well. The supervisor takes over once it is there.
            signals.obey(lambda *_: os._exit(0))
        prepare(argv[0])
        from rowlock import cli

        cli.main(words, prog_name=f"{Path(argv[0]).name} {argv[1]}")

    def add_arguments(self, parser: Any) -> None:
        """For `call_command`: the words of the command line."""
        parser.add_argument("words", nargs=argparse.REMAINDER)

    def handle(self, *, words: list[str], **_: Any) -> None:
        """For `call_command("rowlock", "worker", "--drain")`."""
        prepare(sys.argv[0])
        from rowlock import cli

        try:
            code = cli.main(words, prog_name="rowlock", standalone_mode=False)
        except click.ClickException as error:
            raise CommandError(error.format_message(), returncode=error.exit_code) from error
        if code:
            raise CommandError(f"rowlock {' '.join(words)} has failed", returncode=code)


def without_djangos(words: Sequence[str]) -> list[str]:
    """The words without options of Django's own."""
    kept: list[str] = []
    before = ""
    for word in words:
        if word.partition("=")[0] not in _DJANGOS and before not in _DJANGOS:
            kept.append(word)
        before = word
    return kept


def prepare(script: str) -> None:
    """Name the app, and let workers, which are other processes, import what this one can."""
    os.environ.setdefault("ROWLOCK_APP", _APP)
    # Python puts the script's directory first, `--pythonpath` comes before it.
    home = str(Path(script).resolve().parent)
    ahead = sys.path[: sys.path.index(home) + 1] if home in sys.path else []
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, [*ahead, *given])))
