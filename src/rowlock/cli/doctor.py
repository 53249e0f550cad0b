"""`rowlock doctor`: examine whether the database suits a queue, and whether the queue moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from rowlock import config
from rowlock.cli import EXIT_FAILED, Target, findings, show
from rowlock.cli.findings import Finding, Level
from rowlock.cli.options import json_option
from rowlock.errors import RowlockError

if TYPE_CHECKING:
    from rowlock.app import App
    from rowlock.job import WorkerInfo
    from rowlock.store import Store
    from rowlock.store.ops.health import DueLane

# Workflows that wait for jobs outside of them, and jobs of each, that are looked at.
_WAITING_LOOKED_AT: Final = 10
_STYLES: Final = {Level.OK: "green", Level.WARN: "yellow", Level.BAD: "bold red"}


@click.command()
@json_option("`ok`, and `findings`, each with `check`, `level`, `text` and `advice`")
@click.pass_obj
def doctor(target: Target, *, as_json: bool) -> None:
    """Examine the database and the queue. The exit code is 1 if a finding is bad.

    Findings are ok, warn or bad. Nothing is changed, and nobody's queries are shown.
    """
    found: list[Finding] = []
    for finding in examine(target):
        found.append(finding)
        if not as_json:
            print_finding(finding)
    is_bad = any(finding.level is Level.BAD for finding in found)
    if as_json:
        show.print_json({"ok": not is_bad, "findings": [each.document() for each in found]})
    if is_bad:
        raise click.exceptions.Exit(EXIT_FAILED)


def print_finding(finding: Finding) -> None:
    """Print a finding, and below it the advice."""
    text = f"{finding.level:<4} {finding.check:<14} {show.escaped(finding.text)}"
    show.print_wrapped(text, indent=20, style=_STYLES[finding.level], head=4)
    if finding.advice:
        show.print_wrapped(f"{'':<20}→ {show.escaped(finding.advice)}", indent=22, style="dim")


def examine(target: Target) -> Iterator[Finding]:
    """Yield one finding after the other. A check that fails is a finding, too."""
    try:
        app = target.open_app(creates=True)
    except RowlockError as error:
        yield Finding("store", Level.BAD, str(error))
        return
    with app:
        store = app.store
        try:
            yield from _examine_store(store, repr(app).removeprefix("<App ").removesuffix(">"))
            if any(app):
                yield findings.timeouts_in_threads(_limited_in_threads(app))
        except RowlockError as error:
            yield Finding("store", Level.BAD, str(error))


def _limited_in_threads(app: App) -> list[str]:
    """Return the kinds that run in threads beside others, and may not stop at their timeout."""
    return sorted(
        task.name
        for task in app
        if not task.is_async
        and task.settings.executor != "process"
        and task.settings.timeout_us is not None
    )


def _examine_store(store: Store, shown_url: str) -> Iterator[Finding]:
    from rowlock.store.statements import Dialect

    is_sqlite = store.engine.dialect is Dialect.SQLITE
    applied = store.engine.applied()
    migrations = findings.migrations(store.engine.dialect, applied, is_sqlite=is_sqlite)
    if not applied or migrations.level is Level.BAD:
        # Nothing else can be checked: an engine works on its own schema only.
        yield Finding("store", Level.OK, shown_url)
        yield migrations
        return
    yield from _sqlite(store, shown_url) if is_sqlite else _postgres(store, shown_url)
    yield migrations
    yield from _queue(store)


def _sqlite(store: Store, shown_url: str) -> Iterator[Finding]:
    from rowlock.store.ops import health

    server = store.run(health.server())
    yield Finding("store", Level.OK, f"SQLite {server.version}, {shown_url}")
    yield findings.sqlite_version(server.version)
    # A network file system was refused when the store was opened.
    yield Finding("file system", Level.OK, "local, as far as this system reports")
    yield findings.journal_mode(store.run(health.journal_mode()))


def _postgres(store: Store, shown_url: str) -> Iterator[Finding]:
    from rowlock.clock import SystemClock
    from rowlock.store.ops import health
    from rowlock.store.postgres.engine import PostgresEngine
    from rowlock.store.postgres.pooler import find_pooler

    engine = store.engine
    assert isinstance(engine, PostgresEngine)
    store.run(health.server())  # Connects, so that the next answer takes one round trip.
    clock = SystemClock()
    before = clock.now_us()
    server = store.run(health.server())
    after = clock.now_us()
    yield Finding("store", Level.OK, f"PostgreSQL {server.version}, {shown_url}")
    yield findings.clock_skew(there=server.now, before=before, after=after)
    yield findings.pooler(find_pooler(engine.url), is_preparing=engine.url.prepare == "always")
    yield findings.connections(store.run(health.connections()))
    yield findings.dead_tuples(store.run(health.dead_tuples()))
    yield findings.oldest_transaction(store.run(health.oldest_transaction()))


def _queue(store: Store) -> Iterator[Finding]:
    from rowlock.cli.workers import now
    from rowlock.store.ops import health

    yield findings.expired_leases(store.run(health.expired_leases()))
    workers = [worker for worker in store.workers() if worker.is_live_at(now())]
    paused = {queue.queue for queue in store.stats() if queue.is_paused}
    yield findings.paused_queues(sorted(paused))
    lanes = [lane for lane in store.run(health.due_lanes()) if lane.queue not in paused]
    yield findings.unserved(lanes, workers)
    yield from _limits(store, lanes, workers)
    yield from _workflows(store)


def _workflows(store: Store) -> Iterator[Finding]:
    from rowlock.store.ops.workflow_info import open_workflows
    from rowlock.workflow_rules import WorkflowState

    flows = store.run(open_workflows())
    if not flows:
        return
    waiting = [flow for flow in flows if flow.state is WorkflowState.WAITING]
    stuck = [flow for flow in waiting[:_WAITING_LOOKED_AT] if _is_stuck(store, flow.id)]
    yield findings.workflows(flows, stuck)


def _is_stuck(store: Store, workflow: str) -> bool:
    """Whether a job of a workflow waits for a dead job elsewhere."""
    page = store.workflow_jobs(workflow, state="waiting", limit=_WAITING_LOOKED_AT)
    return any(store.why(job.id).code == "stuck" for job in page)


def _limits(
    store: Store, lanes: Sequence[DueLane], workers: Sequence[WorkerInfo]
) -> Iterator[Finding]:
    limits = store.limits()
    if not limits:
        return
    yield findings.declared_limits(limits, workers)
    yield findings.limit_numbers(limits, workers)
    starved = [limit.name for limit in limits if findings.is_starved(limit, lanes, workers)]
    # A limit may be open while all of its keys with jobs are closed.
    yield findings.starved_limits([name for name in starved if _has_open_key(store, name)])


def _has_open_key(store: Store, name: str) -> bool:
    keys = store.limit_keys(name, limit=config.KEYS_LISTED_MAX).keys
    waiting = [key for key in keys if key.waiting.value]
    return not keys or any(not key.is_paused and key.opens_at is None for key in waiting)
