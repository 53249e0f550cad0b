"""Progress of long work on stderr: a bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import click

from rowlock.cli import show

# In a pipe, at most one line is printed in this time. The first is printed at once.
LINE_SECONDS: Final = 2.0


class ProgressCallback(Protocol):
    """Called with the number of items done."""

    def __call__(self, done: int) -> None: ...


@contextmanager
def progress(label: str, *, noun: str, total: int | None = None) -> Iterator[ProgressCallback]:
    """Show how many of `total` items (None: unknown) are done, counted in `noun`s."""
    if not sys.stderr.isatty():
        yield _Lines(label, noun)
    elif show.is_rich():
        with _bar(label, noun=noun, total=total) as moved:
            yield moved
    else:
        yield _Counter(label, noun)
        click.echo("", err=True)


class _Lines:
    """For a pipe: prints a line now and then."""

    def __init__(self, label: str, noun: str) -> None:
        self._label = label
        self._noun = noun
        self._next = 0.0

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + LINE_SECONDS
            click.echo(f"{self._label}: {show.plural(done, self._noun)}", err=True)


class _Counter:
    """For a terminal without rich: overwrites one line."""

    def __init__(self, label: str, noun: str) -> None:
        self._label = label
        self._noun = noun

    def __call__(self, done: int) -> None:
        click.echo(f"\r{self._label}: {show.plural(done, self._noun)} ", err=True, nl=False)


@contextmanager
def _bar(label: str, *, noun: str, total: int | None) -> Iterator[ProgressCallback]:
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[done]}", markup=False),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=show.rich_console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, done="")

        def moved(done: int) -> None:
            bar.update(task, completed=done, done=show.plural(done, noun))

        yield moved
