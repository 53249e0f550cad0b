"""The judgements of `rowlock doctor`: pure functions from facts to findings with advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from rowlock import config
from rowlock.cli import show
from rowlock.cli.workers import names

if TYPE_CHECKING:
    from rowlock.job import Count, WorkerInfo
    from rowlock.limit_info import LimitInfo
    from rowlock.store.ops.health import (
        Connections,
        DeadTuples,
        DueLane,
        ExpiredLeases,
        OldestTransaction,
    )
    from rowlock.store.ops.workflow_info import OpenWorkflow
    from rowlock.store.postgres.pooler import Pooler
    from rowlock.store.statements import Dialect

# SQLite before this version may corrupt a file when a checkpoint runs beside a writer.
SQLITE_WAL_RESET_FIXED: Final = (3, 51, 3)
# Times come from the server. Only a `run_at` or a filter computed on this machine is off by the
# skew.
SKEW_SECONDS_WARN: Final = 1.0
SKEW_SECONDS_BAD: Final = 30.0
CONNECTIONS_WARN: Final = 0.8
CONNECTIONS_BAD: Final = 0.95
# Vacuum starts at about 5,000. Twenty times that means that it does not keep up.
DEAD_TUPLES_WARN: Final = 100_000
DEAD_TUPLES_BAD: Final = 1_000_000
TRANSACTION_SECONDS_WARN: Final = 60.0
TRANSACTION_SECONDS_BAD: Final = 600.0
# Any worker recovers expired leases within seconds.
LEASE_SECONDS_BAD: Final = 60.0
# A worker may be about to start.
UNSERVED_SECONDS_BAD: Final = 60.0
# Every worker looks at rooms within seconds.
STARVED_SECONDS_WARN: Final = 300.0


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, and what to do about it."""

    check: str
    level: Level
    text: str
    advice: str = ""

    def document(self) -> dict[str, str]:
        return {name: str(value) for name, value in asdict(self).items()}


def _level(value: float, *, warn: float, bad: float) -> Level:
    if value >= bad:
        return Level.BAD
    return Level.WARN if value >= warn else Level.OK


def _unless_ok(level: Level, advice: str) -> str:
    return "" if level is Level.OK else advice


def migrations(dialect: Dialect, applied: dict[int, str], *, is_sqlite: bool) -> Finding:
    """Check that the schema belongs to this version."""
    from rowlock.errors import MigrationNeeded
    from rowlock.store import migrate

    try:
        missing = migrate.pending(dialect, applied)
    except MigrationNeeded as error:
        return Finding("migrations", Level.BAD, str(error))
    if not missing:
        return Finding("migrations", Level.OK, f"up to date at {max(applied):04}")
    listed = ", ".join(f"{migration.number:04}" for migration in missing)
    if is_sqlite:
        hint = "the file is created and migrated on first use"
        return Finding("migrations", Level.WARN, f"missing: {listed}", hint)
    hint = "run `rowlock migrate` with a role that may create tables"
    return Finding("migrations", Level.BAD, f"missing: {listed}", hint)


def sqlite_version(version: str) -> Finding:
    """Check for the SQLite bug by which a reset of the log may corrupt the file."""
    numbers = tuple(int(part) for part in version.split(".") if part.isdecimal())
    if numbers >= SQLITE_WAL_RESET_FIXED:
        return Finding("WAL reset", Level.OK, "fixed in this version of SQLite")
    return Finding(
        "WAL reset",
        Level.WARN,
        f"SQLite {version} may corrupt a file if a checkpoint meets a writer (fixed in 3.51.3)",
        "rowlock's own processes avoid this; let no other program checkpoint this file, or use a "
        "Python with a newer SQLite",
    )


def journal_mode(mode: str) -> Finding:
    """Check that readers and the writer don't block each other."""
    if mode == "wal":
        return Finding("journal mode", Level.OK, "wal")
    hint = "another program changed it; rowlock sets it again on the next connection"
    return Finding("journal mode", Level.BAD, f"{mode}, not wal", hint)


def clock_skew(*, there: int, before: int, after: int) -> Finding:
    """Compare both clocks, allowing for the time of the round trip."""
    middle, spread = (before + after) / 2, (after - before) / 2
    seconds = max(0.0, abs(there - middle) - spread) / 1_000_000
    level = _level(seconds, warn=SKEW_SECONDS_WARN, bad=SKEW_SECONDS_BAD)
    way = "ahead of" if there > middle else "behind"
    text = "this machine and the server agree"
    if level is not Level.OK:
        text = f"the server is {show.age(seconds)} {way} this machine"
    hint = "synchronise both clocks (NTP); a run_at computed here is off by this much"
    return Finding("clock", level, text, _unless_ok(level, hint))


def pooler(found: Pooler, *, is_preparing: bool) -> Finding:
    """Check for a pooler in front of the server, and whether our settings suit it."""
    if found == "none":
        return Finding("pooler", Level.OK, "none in front of the server")
    text = f"one in front of the server, in {found} mode"
    if found == "transaction" and is_preparing:
        hint = "remove prepare=always from the URL, unless the pooler tracks statements"
        text += ", and the URL asks for prepared statements"
        return Finding("pooler", Level.WARN, text, hint)
    return Finding("pooler", Level.OK, text)


def connections(found: Connections) -> Finding:
    """Check that there are connections left for more workers."""
    share = found.used / max(1, found.limit)
    level = _level(share, warn=CONNECTIONS_WARN, bad=CONNECTIONS_BAD)
    text = f"{found.used} of {found.limit} in use (max_connections)"
    hint = "put a pooler in front, run fewer processes, or raise max_connections"
    return Finding("connections", level, text, _unless_ok(level, hint))


def dead_tuples(found: DeadTuples) -> Finding:
    """Check that vacuum keeps up with the table of live jobs."""
    level = _level(found.dead, warn=DEAD_TUPLES_WARN, bad=DEAD_TUPLES_BAD)
    last = "never yet"
    if found.vacuum_seconds is not None:
        last = f"{show.age(found.vacuum_seconds)} ago"
    text = f"{found.dead:,} dead, {found.live:,} live rows in job; last vacuumed {last}"
    hint = "end the oldest transaction (below), check that autovacuum is on, or VACUUM the table"
    return Finding("vacuum", level, text, _unless_ok(level, hint))


def oldest_transaction(found: OldestTransaction | None) -> Finding:
    """Name the transaction that keeps vacuum from its work, without its query."""
    if found is None:
        return Finding("transactions", Level.OK, "none open")
    level = _level(found.seconds, warn=TRANSACTION_SECONDS_WARN, bad=TRANSACTION_SECONDS_BAD)
    who = "prepared" if found.pid is None else f"pid {found.pid}"
    text = (
        f"the oldest has been open for {show.age(found.seconds)}: {who}, "
        f"application {found.application or '-'}, user {found.user}, "
        f"database {found.database}, {found.state or 'state hidden'}"
    )
    hint = "commit or end it; until then no dead row is removed, and claims get slower"
    return Finding("transactions", level, text, _unless_ok(level, hint))


def expired_leases(found: ExpiredLeases) -> Finding:
    """Check that a worker recovers the jobs of crashed workers."""
    if not found.count:
        return Finding("leases", Level.OK, "none has expired")
    level = _level(found.oldest_seconds, warn=0.0, bad=LEASE_SECONDS_BAD)
    text = f"{show.plural(found.count, 'lease')} expired, the oldest "
    text += f"{show.age(found.oldest_seconds)} ago"
    hint = "no worker recovers them; start one, any worker on this database will do"
    return Finding("leases", level, text, hint)


def paused_queues(paused: Sequence[str]) -> Finding:
    """List the paused queues: some may have been forgotten."""
    if not paused:
        return Finding("queues", Level.OK, "none is paused")
    hint = "resume one with `rowlock queues resume QUEUE`"
    return Finding("queues", Level.WARN, f"paused: {names(paused)}", hint)


def timeouts_in_threads(kinds: Sequence[str]) -> Finding:
    """Check whether a run that does not stop at its timeout would take other runs with it."""
    if not kinds:
        return Finding("timeouts", Level.OK, "no plain function with a timeout shares its process")
    hint = (
        'give long ones executor="process": then a run that does not stop at its timeout is ended '
        "alone, not together with its child process"
    )
    text = f"plain functions with a timeout, in threads: {names(kinds)}"
    return Finding("timeouts", Level.OK, text, hint)


def declared_limits(limits: Sequence[LimitInfo], workers: Sequence[WorkerInfo]) -> Finding:
    """Check that every limit is declared, in the database and by the code of a live worker."""
    unknown = [limit for limit in limits if limit.declared is None]
    if unknown:
        listed = names([f"{limit.name} ({_jobs(limit.waiting)})" for limit in unknown])
        hint = "start a worker whose code declares them; until then, none of their jobs starts"
        text = f"jobs wait for limits that no worker has declared: {listed}"
        return Finding("limits", Level.BAD, text, hint)
    dropped = [limit for limit in limits if _is_dropped(limit, workers)]
    if dropped:
        hint = (
            "if the code no longer has them, their stored numbers still count for these jobs; "
            "change those with `rowlock limits set`"
        )
        text = f"no live worker declares {names([limit.name for limit in dropped])}, which jobs use"
        return Finding("limits", Level.WARN, text, hint)
    return Finding("limits", Level.OK, f"{show.plural(len(limits), 'limit')}, all declared")


def _jobs(count: Count) -> str:
    noun = "job" if count.value == 1 else "jobs"
    return f"{show.number(count.value, exact=count.exact)} {noun}"


def _is_dropped(limit: LimitInfo, workers: Sequence[WorkerInfo]) -> bool:
    """Whether jobs use a limit that none of the workers declares."""
    # Workers over HTTP, and loops of users' own, announce neither slots nor limits.
    own = [worker.vitals.limits for worker in workers if worker.vitals.slots is not None]
    # A worker announces some of its limits if it has many.
    is_known = all(len(declared) < config.LIMITS_ANNOUNCED_MAX for declared in own)
    is_used = limit.running.value or limit.waiting.value
    return bool(is_used and own and is_known) and not any(limit.name in each for each in own)


def limit_numbers(limits: Sequence[LimitInfo], workers: Sequence[WorkerInfo]) -> Finding:
    """Check that the code of all live workers declares the numbers that are stored."""
    different: list[str] = []
    for limit in limits:
        stored = _declared(limit)
        for worker in workers:
            own = worker.vitals.limits.get(limit.name)
            if own is not None and stored is not None and own != stored:
                different.append(f"{limit.name}: {worker.id} has ({own}), stored is ({stored})")
    if not different:
        return Finding("limit numbers", Level.OK, "all workers declare those that are stored")
    hint = (
        "the later declaration counts: deploy the same code everywhere, or restart the workers "
        "whose numbers shall count"
    )
    text = f"workers declare other numbers than are stored: {'; '.join(different[:3])}"
    more = len(different) - 3
    return Finding("limit numbers", Level.WARN, f"{text} +{more}" if more > 0 else text, hint)


def _declared(limit: LimitInfo) -> str | None:
    from rowlock.limit_info import declaration

    if limit.declared is None:
        return None
    return declaration(
        limit.declared,
        per=limit.per,
        is_ordered=limit.is_ordered,
        on_dead=limit.on_dead,
        weights=limit.weights,
    )


def is_starved(limit: LimitInfo, lanes: Sequence[DueLane], workers: Sequence[WorkerInfo]) -> bool:
    """Whether jobs have waited long for a limit that is open, and nothing runs there.

    In an order, they may wait for the retry of the first one.
    """
    if limit.declared is None or limit.is_ordered or limit.is_paused or limit.running.value:
        return False
    return limit.opens_at is None and any(
        lane.limit == limit.name
        and lane.seconds >= STARVED_SECONDS_WARN
        and any(map(lane.is_served_by, workers))
        for lane in lanes
    )


def starved_limits(starved: Sequence[str]) -> Finding:
    """Name the limits that are open, and have jobs that have waited for long."""
    if not starved:
        return Finding("limit rooms", Level.OK, "no open limit keeps jobs waiting")
    minutes = int(STARVED_SECONDS_WARN // 60)
    text = f"open, and yet jobs have waited for over {minutes} minutes: {names(starved)}"
    hint = (
        "see whether all slots of the workers are taken with `rowlock top`, and what a job waits "
        "for with `rowlock jobs why ID`"
    )
    return Finding("limit rooms", Level.WARN, text, hint)


def workflows(open: Sequence[OpenWorkflow], stuck: Sequence[OpenWorkflow]) -> Finding:
    """Name the workflows that don't go on without help: dead ones, and those that wait for one."""
    dead = [flow for flow in open if flow.state == "dead"]
    is_exact = len(open) <= config.WORKFLOW_OPEN_EXACT_MAX
    number = show.number(min(len(open), config.WORKFLOW_OPEN_EXACT_MAX), exact=is_exact)
    noun = "workflow" if number == "1" else "workflows"
    if not dead and not stuck:
        return Finding("workflows", Level.OK, f"{number} open {noun}, none is stuck")
    parts: list[str] = []
    if dead:
        parts.append(f"dead: {names([f'{flow.name} {flow.id}' for flow in dead])}")
    if stuck:
        listed = names([f"{flow.name} {flow.id}" for flow in stuck])
        parts.append(f"waiting for a dead job outside of them: {listed}")
    hint = (
        "see why with `rowlock workflows show ID`, and for one that waits with `rowlock jobs why "
        "ID`; continue with `rowlock workflows retry ID`, or `rowlock workflows cancel ID`"
    )
    return Finding("workflows", Level.WARN, f"of {number} open {noun}, {'; '.join(parts)}", hint)


def unserved(lanes: Sequence[DueLane], workers: Sequence[WorkerInfo]) -> Finding:
    """Check that every kind with ready jobs has a worker that serves it."""
    alone = [lane for lane in lanes if not any(map(lane.is_served_by, workers))]
    if not alone:
        return Finding(
            "workers", Level.OK, f"{show.plural(len(workers), 'worker')}; all are served"
        )
    oldest = max(lane.seconds for lane in alone)
    listed = names([f"{lane.kind} in {lane.queue}" for lane in alone])
    text = f"no worker serves {listed}; the oldest job has been ready for {show.age(oldest)}"
    level = _level(oldest, warn=0.0, bad=UNSERVED_SECONDS_BAD)
    hint = "start a worker with these queues and an app that has these tasks"
    return Finding("workers", level, text, hint)
