"""The witness: triggers of the run record every committed change of a job's row.

A trigger writes in the transaction that it watches. So a change that was rolled back is not
recorded, and a committed one can't be missed. The changes of one job are in order, because its row
is locked meanwhile. On PostgreSQL the name of the connection also shows who made them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from rowlock.chaos.jobs import EFFECTS
from rowlock.testing.database import execute, is_sqlite, stream


class What(StrEnum):
    """The changes that are recorded."""

    INSERTED = "inserted"
    # Leased, or given another token.
    CLAIMED = "claimed"
    # A lease was extended.
    BEATEN = "beaten"
    # Its run was marked as begun.
    MARKED = "marked"
    # Its cancellation was requested.
    FLAGGED = "flagged"
    # A running job went back into the queue: released, failed, crashed or lost.
    RETURNED = "returned"
    # It waits for no other job any more.
    RELEASED = "released"
    # The jobs that it waits for were counted, though it waits for none, or below zero.
    RECOUNTED = "recounted"
    # It left the live table. `lease` shows whether it was running.
    DELETED = "deleted"
    # It was written to the finished jobs, unless it is not kept.
    FINISHED = "finished"
    # A finished job was overwritten, which must never happen.
    CHANGED = "changed"


class CommittedChange(NamedTuple):
    """One change: the row after it, and some values from before it.

    Times are the database's, in microseconds. `lease` is when the lease expires, or would have.
    """

    at: int
    actor: str | None
    what: What
    job: str
    token: int
    attempt: int
    was_token: int | None = None
    was_attempt: int | None = None
    max_attempts: int | None = None
    run_at: int | None = None
    lease: int | None = None
    is_taken: bool = False
    # Whether the errors of a job that came back have changed.
    is_noted: bool = False
    # Whether the job's number of crashes has grown.
    is_crash: bool = False
    # The worker that holds it or held it last: one life of one process.
    worker: str | None = None
    is_cancelled: bool = False
    state: str | None = None
    # Of a finished job: what went wrong with it, as it is stored.
    errors: str | None = None
    kind: str = ""
    tenant: str | None = None
    key: str | None = None
    meta: str | None = None
    limit_name: str | None = None
    limit_key: str | None = None
    # Its place in an order, and when its last run was claimed, by the clock of that claim.
    place: int | None = None
    started_at: int | None = None


class FinishedRow(NamedTuple):
    """A finished job at the end."""

    job: str
    state: str
    token: int


_COLUMNS: Final = CommittedChange._fields
_NOTED: Final = ", ".join(_COLUMNS)
_NULL: Final = "NULL"
_FALSE: Final = "false"
_IS_CRASH: Final = "NEW.crashes > OLD.crashes"
_IS_NOTED: Final = "coalesce(NEW.errors, '') <> coalesce(OLD.errors, '')"

# For each change: its table, event and condition, then the row to record, and its old values.
_LEASED: Final = "OLD.lease_expires_at IS NOT NULL"
_FREE: Final = "OLD.lease_expires_at IS NULL"
_TAKES: Final = f"NEW.token <> OLD.token OR ({_FREE} AND NEW.lease_expires_at IS NOT NULL)"
_KEEPS: Final = f"NEW.token = OLD.token AND {_LEASED} AND NEW.lease_expires_at IS NOT NULL"
_WAITS: Final = "coalesce(OLD.held_by, 0) = 3 AND coalesce(NEW.held_by, 0) <> 3"
_COUNTS: Final = (
    "NEW.pending < 0 OR (coalesce(NEW.pending, 0) <> coalesce(OLD.pending, 0) "
    "AND coalesce(OLD.held_by, 0) <> 3 AND coalesce(NEW.held_by, 0) <> 3)"
)
_FINISHED_CHANGES: Final = "UPDATE OF state, token, attempt, errors, result"


class _Watch(NamedTuple):
    what: What
    table: str
    event: str
    when: str = ""


_WATCHED: Final = (
    _Watch(What.INSERTED, "job", "INSERT"),
    _Watch(What.CLAIMED, "job", "UPDATE", _TAKES),
    _Watch(What.FLAGGED, "job", "UPDATE", "NEW.cancel_requested <> OLD.cancel_requested"),
    _Watch(What.RETURNED, "job", "UPDATE", f"{_LEASED} AND NEW.lease_expires_at IS NULL"),
    _Watch(What.MARKED, "job", "UPDATE", f"{_KEEPS} AND NEW.begun AND NOT OLD.begun"),
    _Watch(What.RELEASED, "job", "UPDATE", _WAITS),
    _Watch(What.RECOUNTED, "job", "UPDATE", _COUNTS),
    _Watch(What.DELETED, "job", "DELETE"),
    _Watch(What.FINISHED, "finished", "INSERT"),
    _Watch(What.CHANGED, "finished", _FINISHED_CHANGES),
)
# Only useful where the name of the connection shows who sent the heartbeat.
_BEATEN: Final = _Watch(
    What.BEATEN, "job", "UPDATE", f"{_KEEPS} AND NEW.lease_expires_at <> OLD.lease_expires_at"
)

_SQLITE_NOW: Final = "CAST((julianday('now') - 2440587.5) * 86400000000 AS integer)"
_POSTGRES_ACTOR: Final = "current_setting('application_name')"
_POSTGRES_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


def watch(url: str, *, schema: str) -> None:
    """Record the changes of a migrated database from now on, and create a table for effects."""
    execute(url, *(_sqlite() if is_sqlite(url) else _postgres(schema)))


def _sqlite() -> Iterator[str]:
    typed = ", ".join(_COLUMNS)
    yield f"CREATE TABLE chaos_witness (number integer PRIMARY KEY, {typed})"
    yield f"CREATE TABLE {EFFECTS} (job text, token integer)"
    for each in _WATCHED:
        when = f"WHEN {each.when} " if each.when else ""
        insert = _insert("chaos_witness", each, now=_SQLITE_NOW, actor=_NULL)
        yield (
            f"CREATE TRIGGER chaos_{each.what} AFTER {each.event} ON rowlock_{each.table} {when}"
            f"BEGIN {insert}; END"
        )


def _postgres(schema: str) -> Iterator[str]:
    yield (
        f"CREATE TABLE {schema}.chaos_witness (number bigserial PRIMARY KEY, at bigint, "
        "actor text, what text, job uuid, token bigint, attempt integer, was_token bigint, "
        "was_attempt integer, max_attempts integer, run_at bigint, lease bigint, "
        "is_taken boolean, is_noted boolean, is_crash boolean, worker text, "
        "is_cancelled boolean, state text, errors text, kind text, tenant text, key text, "
        "meta text, limit_name text, limit_key text, place bigint, started_at bigint)"
    )
    yield f"CREATE TABLE {schema}.{EFFECTS} (job uuid, token bigint)"
    for each in (*_WATCHED, _BEATEN):
        function = f"{schema}.chaos_{each.what}"
        insert = _insert(f"{schema}.chaos_witness", each, now=_POSTGRES_NOW, actor=_POSTGRES_ACTOR)
        yield (
            f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$ "
            f"BEGIN {insert}; RETURN NULL; END $$"
        )
        when = f"WHEN ({each.when}) " if each.when else ""
        yield (
            f"CREATE TRIGGER chaos_{each.what} AFTER {each.event} ON {schema}.{each.table} "
            f"FOR EACH ROW {when}EXECUTE FUNCTION {function}()"
        )


def _insert(table: str, watch: _Watch, *, now: str, actor: str) -> str:
    """Return the statement of a trigger."""
    row = "OLD" if watch.event == "DELETE" else "NEW"
    has_old = watch.event.startswith("UPDATE") and watch.table == "job"
    is_live = watch.table == "job"
    # For a lease that was ended: when it would have expired.
    lease = "OLD.lease_expires_at" if watch.what is What.RETURNED else f"{row}.lease_expires_at"
    values = {
        "at": now,
        "actor": actor,
        "what": f"'{watch.what}'",
        "job": f"{row}.id",
        "token": f"{row}.token",
        "attempt": f"{row}.attempt",
        "was_token": "OLD.token" if has_old else _NULL,
        "was_attempt": "OLD.attempt" if has_old else _NULL,
        "max_attempts": f"{row}.max_attempts",
        "run_at": "OLD.run_at" if has_old else f"{row}.run_at",
        "lease": lease if is_live else _NULL,
        "is_taken": f"{row}.lease_taken",
        "is_noted": _IS_NOTED if has_old else _FALSE,
        "is_crash": _IS_CRASH if has_old else _FALSE,
        "worker": "OLD.worker" if watch.what is What.RETURNED else f"{row}.worker",
        "is_cancelled": f"{row}.cancel_requested",
        "state": _NULL if is_live else f"{row}.state",
        "errors": _NULL if is_live else f"{row}.errors",
        "kind": f"{row}.kind",
        "tenant": f"{row}.tenant",
        "key": f"{row}.key",
        "meta": f"{row}.meta",
        "limit_name": f"{row}.limit_name",
        "limit_key": f"{row}.limit_key",
        "place": f"{row}.place",
        "started_at": f"{row}.started_at",
    }
    noted = ", ".join(values[column] for column in _COLUMNS)
    return f"INSERT INTO {table} ({_NOTED}) VALUES ({noted})"  # noqa: S608  # ours


def read(url: str, *, schema: str) -> Iterator[CommittedChange]:
    """Yield the changes, those of one job in order."""
    table = "chaos_witness" if is_sqlite(url) else f"{schema}.chaos_witness"
    for row in stream(url, f"SELECT {_NOTED} FROM {table} ORDER BY number"):  # noqa: S608  # ours
        at, actor, what, job, *rest = row
        event = CommittedChange(at, actor, What(what), str(job), *rest)
        yield event


def settled(url: str, *, schema: str) -> Iterator[FinishedRow]:
    """Yield the finished jobs."""
    for job, state, token in stream(url, _select("id, state, token", "finished", url, schema)):
        yield FinishedRow(str(job), state, token)


def live(url: str, *, schema: str) -> list[str]:
    """Return the ids of the jobs that are not finished."""
    return [str(row[0]) for row in stream(url, _select("id", "job", url, schema))]


def effects(url: str, *, schema: str) -> Iterator[tuple[str, int]]:
    """Yield the rows that handlers wrote in the transactions of their success."""
    table = EFFECTS if is_sqlite(url) else f"{schema}.{EFFECTS}"
    for job, token in stream(url, f"SELECT job, token FROM {table}"):  # noqa: S608  # ours
        yield str(job), token


def _select(columns: str, table: str, url: str, schema: str) -> str:
    name = f"rowlock_{table}" if is_sqlite(url) else f"{schema}.{table}"
    return f"SELECT {columns} FROM {name}"  # noqa: S608  # ours


def unfinished(url: str, *, schema: str) -> int:
    """Return how many jobs are not finished."""
    count: int = execute(url, _select("count(*)", "job", url, schema))[0][0]
    return count
