"""`rowlock bench`: measure how fast jobs run on a database, and what limits them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from rowlock.cli import Target, show
from rowlock.cli.options import json_option

if TYPE_CHECKING:
    from rowlock.bench.measure import BenchReport

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@click.command()
@click.option(
    "--jobs",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Jobs per round (default: as many as take about a second).",
)
@click.option(
    "-p",
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Worker processes.",
)
@click.option("--no-held", is_flag=True, help="Skip the part with a transaction held open.")
@json_option("every figure by name, rates per second, times in milliseconds, and `words`")
@click.pass_obj
def bench(
    target: Target, *, jobs: int | None, processes: int, no_held: bool, as_json: bool
) -> None:
    """Measure how fast your database enqueues and runs jobs, and what limits it.

    Takes less than a minute. It works in a schema of its own (SQLite: in a file beside yours) that
    is removed at the end, and never touches your jobs. It puts real load on the server, and holds a
    transaction open for some seconds.
    """
    from rowlock.bench.explain import explain
    from rowlock.bench.measure import BenchPlan, Measuring
    from rowlock.cli.progress import progress
    from rowlock.store.scratch import left_behind, scratch

    with target.open_app(creates=True) as app:
        url, shown = app.url, repr(app).removeprefix("<App ").removesuffix(">")
    for other in left_behind(url):
        note = f"note: {other} belongs to another run, or was left behind by a killed one"
        click.echo(show.escaped(note), err=True)
    plan = BenchPlan(jobs=jobs, processes=processes, held=not no_held)
    with interruptible(), scratch(url) as place:
        try:
            report = Measuring(place, plan, progress).run()
        finally:
            _ignore_signals()  # Only the cleanup is left.
    words = list(explain(report))
    if as_json:
        show.print_json({"database": shown, **document(report), "words": words})
        return
    show.print_tables(report_table(report, shown))
    click.echo("")
    for sentence in words:
        click.echo(sentence)


@contextmanager
def interruptible() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, and ignore every signal after the first."""

    def interrupt(*_: object) -> None:
        _ignore_signals()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def document(report: BenchReport) -> dict[str, Any]:
    """Return the report as JSON, with rates per second and times in milliseconds."""
    from dataclasses import asdict

    return {**asdict(report), "held_share": report.held_share}


def report_table(report: BenchReport, shown: str) -> show.TextTable:
    """Return a table with one row per figure."""
    name = "PostgreSQL" if report.is_postgres else "SQLite"
    table = show.TextTable(
        show.columns("figure", "measured", right=["measured"]),
        title=f"{name} {report.version}, {shown}",
    )
    for figure, measured in _rows(report):
        table.add(figure, measured)
    return table


def _rows(report: BenchReport) -> Iterator[tuple[str, str]]:
    if report.is_postgres:
        yield "round trip", f"{report.round_trip_ms:.2f} ms"
    yield "disk, per commit", f"{report.sync_ms:.2f} ms"
    yield "enqueue, one by one", f"{report.enqueue_per_s:,.0f}/s"
    yield "enqueue, in bulk", f"{report.enqueue_many_per_s:,.0f}/s"
    several = "" if report.processes == 1 else "es"
    yield f"run, {report.processes} process{several}", f"{report.run_per_s:,.0f}/s"
    yield "enqueue to start, median", f"{report.latency_p50_ms:.1f} ms"
    yield "enqueue to start, 99th percentile", f"{report.latency_p99_ms:.1f} ms"
    if report.wal_bytes_per_job is not None:
        yield "WAL per job", f"{report.wal_bytes_per_job:,.0f} bytes"
    if report.held_share is not None:
        first, last = report.held_per_s[0], report.held_per_s[-1]
        yield "run, transaction held open: first", f"{first:,.0f}/s"
        yield "run, transaction held open: last", f"{last:,.0f}/s ({100 * report.held_share:.0f} %)"
