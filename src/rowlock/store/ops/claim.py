"""Claim: lease due jobs, each to exactly one worker.

1. `lanes` is a look without locks, a hint: a lane is (queue, rank, kind), and one probe each tells
   which have a job due. A million jobs of kinds that are not asked for cost one probe.
2. The claim itself is one statement a (queue, rank): atomic, skipping rows that others hold.
3. Order: queues as given, then rank, then run_at, then id.
4. Expired leases are given back first, by the same rules as `recover`, so that they compete at
   their old place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby

from rowlock import config
from rowlock.clock import duration_us
from rowlock.errors import OptionInvalid
from rowlock.job import JobRow, Lease
from rowlock.store import options
from rowlock.store.ops.recover import recover_once
from rowlock.store.steps import Batch, Begin, Op, Row, Rows, Statement, Steps, writing


@dataclass(frozen=True, slots=True)
class KnownPolicy:
    """What a worker knows of a kind, for jobs that were enqueued by name elsewhere."""

    policy: str
    max_attempts: int


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Who wants how many jobs of which queues. `queues` None is every queue, by name."""

    worker: str
    queues: Mapping[str, int] | None
    kinds: list[str] | None
    tenants: list[str] | None
    limit: int
    lease: int
    include_expired: bool = True
    policies: Mapping[str, KnownPolicy] = field(default_factory=dict[str, KnownPolicy])


def claim(
    *,
    worker: str,
    queues: Sequence[str] | Mapping[str, int] | None,
    kinds: Sequence[str] | None = None,
    tenants: Sequence[str] | None = None,
    limit: int = 1,
    lease: float | timedelta = config.LEASE_SECONDS_DEFAULT,
    include_expired: bool = True,
    policies: Mapping[str, KnownPolicy] | None = None,
) -> Op[list[Lease]]:
    """Lease up to `limit` due jobs of these queues, first come first."""
    bound = options.integer(limit, option="limit", low=1, high=config.CLAIM_LIMIT_MAX)
    request = ClaimRequest(
        worker=options.name(worker, option="worker"),
        queues=_queue_limits(queues, bound),
        kinds=options.names(kinds, option="kinds"),
        tenants=options.names(tenants, option="tenants"),
        limit=bound,
        lease=_lease_us(lease),
        include_expired=include_expired,
        policies=policies or {},
    )
    return writing("claim", lambda: _claim(request), looks_first=True)


def _queue_limits(
    queues: Sequence[str] | Mapping[str, int] | None, limit: int
) -> dict[str, int] | None:
    if queues is None:
        return None
    if isinstance(queues, Mapping):
        return {
            options.name(queue, option="queues"): options.integer(
                most, option="queues", low=0, high=config.CLAIM_LIMIT_MAX
            )
            for queue, most in queues.items()
        }
    return dict.fromkeys(options.names(queues, option="queues") or [], limit)


def _lease_us(lease: float | timedelta) -> int:
    microseconds = duration_us(lease, option="lease")
    if microseconds == 0:
        raise OptionInvalid("lease", "must be longer than 0 seconds")
    return microseconds


def _claim(request: ClaimRequest) -> Steps[list[Lease]]:
    queues = request.queues
    if queues is None:
        names = yield Statement("queue_names")
        queues = dict.fromkeys([row[0] for row in names], request.limit)
    lanes = yield from _lanes(request, list(queues))
    if lanes and lanes[0][0] is None:
        yield Begin()
        yield from recover_once(older_than=0, queues=list(queues))
        lanes = yield from _lanes(request, list(queues))
    aged = sorted({row[0] for row in lanes if row[0] is not None and row[3]})
    groups = _groups([row for row in lanes if row[0] is not None], list(queues))
    if len(groups) > 1 or aged:
        yield Begin()
    if aged:
        yield Statement("promote", {"queues": aged})
    return (yield from _claim_groups(request, groups, dict(queues)))


def _lanes(request: ClaimRequest, queues: list[str]) -> Steps[Rows]:
    """The lanes with a job due; a row of Nones comes first if leases have expired."""
    if not queues:
        return []
    values = {"queues": queues, "kinds": request.kinds, "expired": request.include_expired}
    if request.tenants is None:
        rows = yield Statement("lanes", values)
    else:
        rows = yield Statement("tenant_lanes", {**values, "tenants": request.tenants})
    return sorted(rows, key=lambda row: row[0] is not None)


def _groups(lanes: Rows, queues: list[str]) -> list[tuple[str, int, Rows]]:
    """Lanes of the same queue and rank compete by time; such groups are served in order."""
    place = {queue: index for index, queue in enumerate(queues)}
    ordered = sorted(lanes, key=lambda lane: (place[lane[0]], lane[1], lane[2]))
    grouped = groupby(ordered, key=lambda lane: (lane[0], lane[1]))
    return [(queue, rank, list(members)) for (queue, rank), members in grouped]


def _claim_groups(
    request: ClaimRequest, groups: list[tuple[str, int, Rows]], left: dict[str, int]
) -> Steps[list[Lease]]:
    leases: list[Lease] = []
    for queue, rank, lanes in groups:
        limit = min(left[queue], request.limit - len(leases))
        if limit <= 0:
            continue
        rows = yield _claim_statement(request, queue, rank, lanes, limit)
        left[queue] -= len(rows)
        leases += _leases(rows)
    unresolved = [lease for lease in leases if lease.row is not None and not lease.row.policy]
    if unresolved and request.policies:
        yield from _resolve(unresolved, request.policies)
    return leases


def _claim_statement(
    request: ClaimRequest, queue: str, rank: int, lanes: Rows, limit: int
) -> Statement:
    values = {
        "queue": queue,
        "rank": rank,
        "limit": limit,
        "worker": request.worker,
        "lease": request.lease,
    }
    kinds = [lane[2] for lane in lanes]
    if request.tenants is not None:
        tenants = [lane[4] for lane in lanes]
        return Statement("claim_tenants", {**values, "kinds": kinds, "tenants": tenants})
    if len(kinds) == 1:
        return Statement("claim", {**values, "kind": kinds[0]})
    return Statement("claim_mixed", {**values, "kinds": kinds})


def _leases(rows: Rows) -> list[Lease]:
    # An UPDATE returns its rows in no promised order.
    made = [(JobRow._make(row[:-1]), row[-1]) for row in rows]
    made.sort(key=lambda pair: (pair[0].run_at, pair[0].id))
    return [Lease.of_row(row, now=now) for row, now in made]


def _resolve(leases: list[Lease], policies: Mapping[str, KnownPolicy]) -> Steps[None]:
    rows: list[Row] = []
    for lease in leases:
        row = lease.row
        known = policies.get(row.kind) if row is not None else None
        if row is None or known is None:
            continue
        attempts = row.max_attempts or known.max_attempts
        lease.row = row._replace(policy=known.policy, max_attempts=attempts)
        rows.append((lease.id, lease.token, known.policy, known.max_attempts))
    if rows:
        yield Batch("resolve", ("id", "token", "policy", "max_attempts"), sorted(rows))
