"""The command line in this process on a database of the test's own, and on a made-up terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rowlock import App
from rowlock.cli import main

Run = Callable[..., Result]
# What a stored text would do to a terminal that prints it as it is.
HOSTILE = "q\x1b[2J\x1b[31m\x9b5m\u202e\rx"


@pytest.fixture
def app(any_url: str) -> Iterator[App]:
    """An app without tasks on the database of the test."""
    with App(any_url) as app:
        yield app


@pytest.fixture
def run(any_url: str) -> Run:
    """Run `rowlock` on the database of the test, which is migrated, as in a pipe."""
    with App(any_url) as app:
        app.migrate()

    def run(*words: str, input: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, ["--database-url", any_url, *words], input=input)

    return run


def documents(result: Result) -> list[Any]:
    """The JSON lines that a command printed."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def kill(app: App, id: str, error: str = "boom") -> None:
    """Let a job of one attempt fail."""
    job = app.get(id)
    assert job is not None
    (lease,) = app.store.claim(worker="w", queues=[job.queue], kinds=[job.kind], limit=1)
    assert lease.id == id
    app.store.fail(lease, error, permanent=True)


def on_terminal(
    *words: str, url: str, typed: str = "", without: Path | None = None, **environment: str
) -> tuple[int, str]:
    """Run `rowlock` on a terminal of 200 columns; its exit code, and all that it wrote there.

    `without` is a directory for a module that hides rich.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ROWLOCK_")}
    clean |= {"TERM": "xterm-256color", "COLUMNS": "200", **environment}
    clean.pop("NO_COLOR" if "NO_COLOR" not in environment else "", None)
    if without is not None:
        (without / "rich.py").write_text("raise ImportError('hidden')\n", "utf-8")
        clean["PYTHONPATH"] = f"{without}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "rowlock.cli", "--database-url", url, *words]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=clean, start_new_session=True
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        written = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return process.returncode, written.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # The other end is closed: so Linux says that it is over.
        return b""
