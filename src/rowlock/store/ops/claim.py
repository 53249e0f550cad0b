"""Claim: lease due jobs, each to exactly one worker.

1. `lanes` is a look without locks, a hint: a lane is (queue, rank, kind), and one probe per lane
   finds its head. A million jobs of kinds that were not requested cost one probe.
2. The claim itself is one statement per (queue, rank): atomic, skipping rows that others hold.
3. Order: queues as given, then rank, then run_at, then id.
4. Expired leases are given back first, by the same rules as `recover`, so that they compete at
   their old place.

A worker looks and claims in two calls, and may claim several times from one look (`View`). A claim
starts at the head that the look found, or behind the jobs that this worker has claimed since. The
reason: while any transaction is open, claimed jobs leave dead index entries, and walking over them
again and again is what makes queues in databases collapse. Jobs below that start (given back,
committed late, locked by a claim that was undone) are found by the next look, which always starts
at the very beginning.

An idle worker claims without a look from a lane that a notification names. The same statement sees
to it that the queue is not paused, not ordered by age, and has no job of a higher priority.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import NamedTuple

import msgspec

from rowlock import config
from rowlock.clock import duration_us
from rowlock.columns import JobRow
from rowlock.errors import OptionInvalid
from rowlock.job import Lease, resolve_policy
from rowlock.store import options
from rowlock.store.local_state import LocalState
from rowlock.store.ops.recover import Recovery, recover_once
from rowlock.store.steps import (
    Batch,
    Begin,
    Commit,
    Op,
    Row,
    Rows,
    Statement,
    Steps,
    reading,
    writing,
)

# Where a claim of a lane starts: at a job's (run_at, id).
Floor = tuple[int, str]
BOTTOM: Floor = (-(2**63), "00000000-0000-0000-0000-000000000000")


class KnownPolicy(msgspec.Struct, frozen=True):
    """What a worker knows about a kind, for jobs that were enqueued by name elsewhere."""

    policy: str
    max_attempts: int


class ClaimRequest(msgspec.Struct, frozen=True):
    """How many jobs of which queues a worker wants. `queues` None: every queue, by name."""

    worker: str
    queues: Mapping[str, int] | None
    kinds: list[str] | None
    tenants: list[str] | None
    limit: int
    lease: int
    include_expired: bool = True
    policies: Mapping[str, KnownPolicy] = msgspec.field(default_factory=dict[str, KnownPolicy])
    begun: bool = False


def claim(
    local: LocalState,
    /,
    *,
    worker: str,
    queues: Sequence[str] | Mapping[str, int] | None,
    kinds: Sequence[str] | None = None,
    tenants: Sequence[str] | None = None,
    limit: int = 1,
    lease: float | timedelta = config.LEASE_SECONDS_DEFAULT,
    include_expired: bool = True,
    policies: Mapping[str, KnownPolicy] | None = None,
    begun: bool = True,
    on_refused: Callable[[], None] | None = None,
) -> Op[list[Lease]]:
    """Lease up to `limit` due jobs, each to this worker alone.

    Args:
        worker: The name of the worker. No other process may use it.
        queues: In the order of preference. A mapping gives each queue a limit of its own. None:
            every queue.
        kinds: Only these kinds. None: all.
        tenants: Only these tenants' jobs. None: all.
        limit: At most 10,000.
        lease: How long until others may take the job, in seconds or as a timedelta.
        include_expired: Give back the expired leases of others first.
        policies: By kind, for jobs that were enqueued by name where the kind was not known.
        begun: Whether the claim is the beginning of each run. Otherwise the caller marks the runs
            that need it with `begin` before their handlers are called.
        on_refused: Called for each expired lease whose end the database refuses for the first time.
    """
    watch = local.clock_watch
    since = watch.monotonic()
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
        begun=begun,
    )
    # The names of the queues, and the lanes.
    looks = 2 if queues is None else 1

    def doubt(now: int) -> Mapping[str, int]:
        watch.note(now, since=since)
        return watch.doubt()

    recovery = Recovery(
        local.set_aside, on_refused=on_refused, refusals_max=config.CLAIM_REFUSALS_MAX
    )
    return writing(
        "claim",
        lambda: _claim(request, doubt, recovery),
        looks_first=looks,
        on_refused=recovery.refused,
    )


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


class Lane(msgspec.Struct, frozen=True):
    """The waiting jobs of one kind in one queue with one rank, from `floor` on: (run_at, id).

    `is_hinted`: a notification named it, and nobody has looked at it.
    """

    queue: str
    rank: int
    kind: str
    floor: Floor
    by_age: bool = False
    tenant: str | None = None
    is_hinted: bool = False


class View(msgspec.Struct, frozen=True):
    """The result of a look: lanes with due jobs, and in how many seconds another will be due.

    `spent` is how many seconds the look took in the database.
    """

    lanes: Sequence[Lane] = ()
    due_in: float | None = None
    spent: float = 0.0


class Claimed(NamedTuple):
    """Leases, and what is left of the view to claim."""

    leases: list[Lease]
    view: View


def look(*, queues: Sequence[str] | None, kinds: Sequence[str] | None) -> Op[View]:
    """Find the lanes of these queues (None: all) and kinds that have due jobs."""
    values = {"kinds": None if kinds is None else list(kinds)}
    if queues is None:
        statement = Statement("lanes_anywhere", values)
    else:
        statement = Statement("lanes", {**values, "queues": list(queues), "expired": False})

    def steps() -> Steps[View]:
        return _view((yield statement))

    return reading("look", steps)


def claim_seen(request: ClaimRequest, view: View) -> Op[Claimed]:
    """Lease from the lanes of a view, in the order of the request's queues."""
    assert request.queues is not None
    limits = request.queues

    def steps() -> Steps[Claimed]:
        lanes = [lane for lane in view.lanes if limits.get(lane.queue, 0) > 0]
        spent: set[tuple[str, int]] = set()
        leases = yield from _claim_lanes(request, lanes, dict(limits), spent)
        left = [lane for lane in view.lanes if (lane.queue, lane.rank) not in spent]
        return Claimed(leases, msgspec.structs.replace(view, lanes=_behind(left, leases)))

    return writing("claim", steps)


def _behind(lanes: Sequence[Lane], leases: Sequence[Lease]) -> list[Lane]:
    """The lanes, each from behind the jobs that were claimed from it."""
    last = {
        (lease.row.queue, lease.row.rank, lease.row.kind): (lease.row.run_at, lease.row.id)
        for lease in leases
        if lease.row is not None
    }
    floors = [last.get((lane.queue, lane.rank, lane.kind)) for lane in lanes]
    return [
        lane if floor is None or lane.by_age else msgspec.structs.replace(lane, floor=floor)
        for lane, floor in zip(lanes, floors, strict=True)
    ]


def _claim(
    request: ClaimRequest, doubt: Callable[[int], Mapping[str, int]], recovery: Recovery
) -> Steps[list[Lease]]:
    queues = request.queues
    if queues is None:
        names = yield Statement("queue_names")
        queues = dict.fromkeys([row[0] for row in names], request.limit)
    rows = yield from _lanes(request, list(queues))
    if rows and request.include_expired:
        end = _ends(rows)
        doubted = doubt(end.now)
        if end.is_late:
            yield from recover_once(queues=list(queues), doubt=doubted, recovery=recovery)
            rows = yield from _lanes(request, list(queues))
    lanes = _view(rows).lanes if rows else ()
    return (yield from _claim_lanes(request, lanes, dict(queues), set()))


def _lanes(request: ClaimRequest, queues: list[str]) -> Steps[Rows]:
    """The lanes of these queues, and the row that ends a look."""
    if not queues:
        return []
    values = {"queues": queues, "kinds": request.kinds, "expired": request.include_expired}
    if request.tenants is None:
        return (yield Statement("lanes", values))
    return (yield Statement("lanes/tenant", {**values, "tenants": request.tenants}))


class _Look(NamedTuple):
    """A row of a look: a lane, or the summary of the look, which has no queue."""

    queue: str | None
    rank: int
    kind: str
    by_age: bool
    run_at: int
    id: str
    tenant: str | None
    now: int
    is_late: bool
    spent: int


def _ends(rows: Rows) -> _Look:
    return next(look for look in map(_Look._make, reversed(rows)) if look.queue is None)


def _view(rows: Rows) -> View:
    end = _ends(rows)
    lanes: list[Lane] = []
    due_in: float | None = None
    for head in map(_Look._make, rows):
        if head.queue is None:
            continue
        if head.run_at > end.now:
            wait = (head.run_at - end.now) / config.SECOND_US
            due_in = wait if due_in is None else min(due_in, wait)
            continue
        by_age = bool(head.by_age)
        floor = BOTTOM if by_age else (head.run_at, head.id)
        lanes.append(Lane(head.queue, head.rank, head.kind, floor, by_age, head.tenant))
    return View(lanes, due_in, end.spent / config.SECOND_US)


def _claim_lanes(
    request: ClaimRequest, lanes: Sequence[Lane], left: dict[str, int], spent: set[tuple[str, int]]
) -> Steps[list[Lease]]:
    """Claim from lanes. `spent` receives each queue and rank with fewer jobs than requested."""
    aged = sorted({lane.queue for lane in lanes if lane.by_age})
    groups = _groups(lanes, list(left))
    if aged:
        yield from _promote(aged)
    elif len(groups) > 1:
        yield Begin()
    return (yield from _claim_groups(request, groups, left, spent))


def _promote(queues: Sequence[str]) -> Steps[None]:
    """Move all due retries to the places of their age. The claim continues in the last transaction.

    All of them, because the oldest may be the last to have become due. A hundred thousand of them
    in one transaction would hold up SQLite's other writers for a second.
    """
    values = {"queues": queues, "limit": config.MAINTENANCE_BATCH_ROWS}
    while True:
        yield Begin()
        promoted = yield Statement("promote", values)
        if len(promoted) < config.MAINTENANCE_BATCH_ROWS:
            return
        yield Commit()


def _groups(lanes: Sequence[Lane], queues: list[str]) -> list[list[Lane]]:
    """Group lanes of the same queue and rank, which compete by time. Groups are served in order."""
    place = {queue: index for index, queue in enumerate(queues)}
    ordered = sorted(lanes, key=lambda lane: (place[lane.queue], lane.rank, lane.kind))
    return [list(group) for _, group in groupby(ordered, key=lambda lane: (lane.queue, lane.rank))]


def _claim_groups(
    request: ClaimRequest,
    groups: list[list[Lane]],
    left: dict[str, int],
    spent: set[tuple[str, int]],
) -> Steps[list[Lease]]:
    leases: list[Lease] = []
    for lanes in groups:
        queue = lanes[0].queue
        limit = min(left[queue], request.limit - len(leases))
        if limit <= 0:
            continue
        rows = yield _claim_statement(request, lanes, limit)
        left[queue] -= len(rows)
        if len(rows) < limit:
            spent.add((queue, lanes[0].rank))
        leases += _leases(rows)
    if request.policies:
        yield from _resolve(leases, request.policies)
    return leases


def _claim_statement(request: ClaimRequest, lanes: Sequence[Lane], limit: int) -> Statement:
    first = lanes[0]
    values = {
        "queue": first.queue,
        "rank": first.rank,
        "limit": limit,
        "worker": request.worker,
        "lease": request.lease,
        "begun": request.begun,
    }
    kinds = [lane.kind for lane in lanes]
    if request.tenants is not None:
        tenants = [lane.tenant for lane in lanes]
        return Statement("claim_tenants", {**values, "kinds": kinds, "tenants": tenants})
    if len(lanes) == 1:
        at, id = first.floor
        name = "claim/hinted" if first.is_hinted else "claim"
        return Statement(name, {**values, "kind": first.kind, "floor_at": at, "floor_id": id})
    floors = {
        "floors_at": [lane.floor[0] for lane in lanes],
        "floors_id": [lane.floor[1] for lane in lanes],
    }
    return Statement("claim_mixed", {**values, "kinds": kinds, **floors})


def _leases(rows: Rows) -> list[Lease]:
    # An UPDATE does not promise any order of the rows that it returns.
    made = [(JobRow._make(row[:-1]), row[-1]) for row in rows]
    made.sort(key=lambda pair: (pair[0].run_at, pair[0].id))
    return [Lease.of_row(row, now=now) for row, now in made]


def _resolve(leases: list[Lease], policies: Mapping[str, KnownPolicy]) -> Steps[None]:
    """Give jobs that were enqueued by name the known policy of their kind."""
    rows: list[Row] = []
    for lease in leases:
        row = lease.row
        known = policies.get(row.kind) if row is not None else None
        policy = None if row is None or known is None else resolve_policy(row.policy, known.policy)
        if row is None or known is None or policy is None:
            continue
        attempts = row.max_attempts or known.max_attempts
        lease.row = row._replace(policy=policy, max_attempts=attempts)
        rows.append((lease.id, lease.token, policy, known.max_attempts))
    if rows:
        yield Batch("resolve", ("id", "token", "policy", "max_attempts"), sorted(rows))
