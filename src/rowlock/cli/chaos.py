"""`rowlock chaos`: run real workers while processes and the database fail, and judge the result."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rowlock.cli import EXIT_FAILED, show
from rowlock.cli.bench import interruptible
from rowlock.cli.options import json_option

if TYPE_CHECKING:
    from rowlock.chaos.plan import ChaosPlan
    from rowlock.chaos.report import ChaosReport

_COUNT = click.IntRange(0, 1_000_000)


@click.command()
@click.option(
    "--store",
    type=click.Choice(["sqlite", "postgres"]),
    default="sqlite",
    show_default=True,
    help="Use a throw-away database of this kind. PostgreSQL needs rowlock[dev].",
)
@click.option(
    "--database",
    metavar="URL",
    help="Use your own database instead, in a schema or file that is removed afterwards.",
)
@click.option(
    "--jobs",
    type=click.IntRange(100, 10_000_000),
    default=20_000,
    show_default=True,
    help="Jobs to run.",
)
@click.option(
    "--kills",
    type=_COUNT,
    default=40,
    show_default=True,
    help="Processes to kill: children, supervisors, whole workers, producers.",
)
@click.option(
    "--pauses",
    type=_COUNT,
    default=8,
    show_default=True,
    help="Children and whole workers to stop until others must have taken over their jobs.",
)
@click.option(
    "--crashes",
    type=_COUNT,
    default=4,
    show_default=True,
    help="Crashes of the throw-away PostgreSQL, each an immediate stop.",
)
@click.option(
    "--swallows",
    type=_COUNT,
    default=40,
    show_default=True,
    help="Commits of PostgreSQL whose confirmation is lost.",
)
@click.option(
    "--troubles",
    type=_COUNT,
    default=4,
    show_default=True,
    help="Faults of each other kind with PostgreSQL: connections that are cut, slowed, silenced, "
    "ended by the server, or all used up.",
)
@click.option(
    "--clock-steps",
    type=_COUNT,
    default=4,
    show_default=True,
    help="Times that a worker's clock is changed by up to two hours. Only on a throw-away"
    " PostgreSQL, because SQLite uses the machine's clock.",
)
@click.option(
    "--full-disks",
    type=_COUNT,
    default=0,
    show_default=True,
    help="Times that SQLite's disk is full for a moment. Needs root, to mount a small disk.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=3,
    show_default=True,
    help="Workers to run, each a supervisor with two child processes.",
)
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help="Seed that decides what happens in which order (default: random).",
)
@click.option(
    "--legs",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Number of runs, with this seed and the ones after it.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIRECTORY",
    help="Keep journals, logs and SQLite's file in this directory.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write an SVG of the last run: jobs per second, and when each fault struck.",
)
@json_option("all figures")
@click.pass_context
def chaos(
    ctx: click.Context,
    *,
    store: str,
    database: str | None,
    jobs: int,
    kills: int,
    pauses: int,
    crashes: int,
    swallows: int,
    troubles: int,
    clock_steps: int,
    full_disks: int,
    workers: int,
    seed: int | None,
    legs: int,
    keep: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Run jobs while processes are killed and stopped, and while the database fails.

    Every enqueue, run and commit is recorded, and judged at the end. The exit code is 0 only if no
    promise was broken, and if enough faults struck to prove it.
    """
    from rowlock.chaos.plan import ChaosPlan, possible

    first = random.randrange(10**9) if seed is None else seed
    is_postgres = store == "postgres" if database is None else not database.startswith("sqlite")
    others = possible(
        crashes=crashes,
        swallows=swallows,
        troubles=troubles,
        clock_steps=clock_steps,
        full_disks=full_disks,
        is_postgres=is_postgres,
        is_own=database is None,
    )
    seeds = range(first, first + legs)
    _check_places(keep, plot, seeds)
    reports: list[ChaosReport] = []
    for number in seeds:
        plan = ChaosPlan(
            seed=number, jobs=jobs, kills=kills, pauses=pauses, others=others, workers=workers
        )
        with interruptible(), _run_directory(keep, number) as directory:
            reports.append(_run(plan, directory, store=store, database=database))
        _tell(reports[-1], as_json=as_json)
    if plot is not None:
        from rowlock.chaos.chart import draw_chart

        plot.write_text(draw_chart(reports[-1]), "utf-8")
    if any(report.verdict != "good" for report in reports):
        ctx.exit(EXIT_FAILED)


def _check_places(keep: Path | None, plot: Path | None, seeds: range) -> None:
    """Check that the files can be written, before hours are spent on their content.

    Raises:
        click.BadParameter: A run with this seed was kept there, or the directory doesn't exist.
    """
    kept = (
        []
        if keep is None
        else [directory for seed in seeds if (directory := _kept(keep, seed)).exists()]
    )
    if kept:
        raise click.BadParameter(
            f"{kept[0]} exists; remove it, or choose another directory or --seed",
            param_hint="--keep",
        )
    if plot is not None and not plot.absolute().parent.is_dir():
        raise click.BadParameter(
            f"{plot.parent} is not a directory; create it first", param_hint="--plot"
        )


def _kept(keep: Path, seed: int) -> Path:
    return keep / f"seed-{seed}"


@contextmanager
def _run_directory(keep: Path | None, seed: int) -> Iterator[Path]:
    """Yield a directory for the files of a run."""
    if keep is not None:
        directory = _kept(keep, seed)
        directory.mkdir(parents=True)
        yield directory
        return
    directory = Path(tempfile.mkdtemp(prefix="rowlock-chaos-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def _run(plan: ChaosPlan, directory: Path, *, store: str, database: str | None) -> ChaosReport:
    from rowlock.chaos.database import open_database
    from rowlock.chaos.run import Chaos
    from rowlock.cli.progress import progress

    with (
        open_database(plan, store, directory, url=database) as opened,
        progress("chaos", noun="job", total=plan.jobs) as moved,
    ):
        return Chaos(plan, opened, directory, on_progress=moved).run()


def _tell(report: ChaosReport, *, as_json: bool) -> None:
    if as_json:
        show.print_json(report.document())
        return
    show.print_tables(report_table(report))
    for text in report.texts:
        click.echo(show.escaped(text))
    click.echo(f"{report.verdict}: {_because(report)}")


def _because(report: ChaosReport) -> str:
    if report.violations:
        return f"promises were broken {sum(report.violations.values())} times"
    missed = [
        f"{gate.name} {gate.reached} of {gate.wanted}" for gate in report.gates if not gate.is_open
    ]
    if missed:
        return f"too few faults struck to prove anything: {', '.join(missed)}"
    return "no job was lost, done twice, or done by a worker that had lost its lease"


def report_table(report: ChaosReport) -> show.TextTable:
    """Return a table with one row per figure."""
    table = show.TextTable(
        show.columns("figure", "measured", right=["measured"]),
        title=f"{report.store} {report.version}, seed {report.plan.seed}",
    )
    for figure, measured in _rows(report):
        table.add(figure, measured)
    return table


def _rows(report: ChaosReport) -> Iterator[tuple[str, str]]:
    yield "jobs", f"{report.plan.jobs:,}"
    yield "took", f"{report.seconds:.0f} s"
    yield "drained after the last fault in", f"{report.drain_seconds:.1f} s"
    for fault, number in sorted(report.faults.items()):
        yield str(fault), f"{number:,}"
    for name, number in sorted(report.counts.items()):
        yield name, f"{number:,}"
    for name, durations in report.recovery.items():
        yield name, f"{durations.p50:.2f} / {durations.p99:.2f} / {durations.max:.2f} s"
