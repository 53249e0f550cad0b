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

A worker can have the jobs of one lane as a block (`ClaimedBlock`): rows as they came, with the few
columns that a plain run needs. Jobs that have more than these come as leases beside it.

An idle worker claims without a look from a lane that a notification names. The same statement sees
to it that the queue is not paused, not ordered by age, and has no job of a higher priority.

Jobs with a limit are in no lane: see `rooms`. Within a queue and rank, rooms and lanes come first
by turns. A job whose kind has a limit that its row lacks (it was sent by name, or before there was
one) is sent to its room instead of being run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from rowlock import config
from rowlock.chance import CHANCE
from rowlock.clock import duration_us
from rowlock.columns import BLOCK, RARE, JobRow
from rowlock.errors import OptionInvalid
from rowlock.ids import new_id
from rowlock.job import ClaimNote, Lease, decode_policy, resolve_policy
from rowlock.lifecycle import Transition, decide
from rowlock.store import options
from rowlock.store.local_state import LocalState
from rowlock.store.ops.inputs import read_inputs
from rowlock.store.ops.recover import Recovery, recover_once
from rowlock.store.ops.rooms import admit, claim_room, look_at_rooms
from rowlock.store.ops.settle import apply, held_of, kept_of
from rowlock.store.options import LimitPlace
from rowlock.store.rotation import Rotation, WaitingRoom
from rowlock.store.steps import (
    Batch,
    Begin,
    Commit,
    Op,
    Ring,
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


class LimitOf(Protocol):
    """Finds the limit of a job whose kind has one. None: it has no key there."""

    def __call__(self, row: JobRow, /) -> LimitPlace | None: ...


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
    # Kinds whose jobs may come as blocks.
    block_kinds: Container[str] = ()
    # By kind, for jobs that were enqueued without the limit.
    limits: Mapping[str, LimitOf] = msgspec.field(default_factory=dict[str, LimitOf])
    # Slots that are free, in all and by queue: the most jobs with a limit to lease. None: `limit`.
    free: int | None = None
    queue_free: Mapping[str, int] | None = None
    rotation: Rotation = msgspec.field(default_factory=Rotation)

    def limited_most(self, queue: str, taken: int) -> int:
        """How many jobs of a queue that have a limit to lease at most, after others were taken."""
        most = self.limit if self.free is None else self.free
        own = most if self.queue_free is None else self.queue_free.get(queue, 0)
        return min(most - taken, own)


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
    limits: Mapping[str, LimitOf] | None = None,
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
        limits: By kind, the limit of a job that was enqueued without it. It is sent there.
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
        limits=limits or {},
        rotation=local.rotation,
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

    `spent` is how many seconds the look took in the database. `rooms`: where jobs wait at limits.
    `overdue`: queues with jobs to be let into their rooms.
    """

    lanes: Sequence[Lane] = ()
    due_in: float | None = None
    spent: float = 0.0
    rooms: Sequence[WaitingRoom] = ()
    overdue: Sequence[str] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to claim."""
        return bool(self.lanes or self.rooms or self.overdue)

    @property
    def places(self) -> list[tuple[str, int, str]]:
        """The queue, rank and kind of what can be claimed."""
        lanes = [(lane.queue, lane.rank, lane.kind) for lane in self.lanes]
        return lanes + [(room.queue, room.rank, room.kind) for room in self.rooms]


# The places of some columns in a row of a block. The last two are the rare ones, and the time.
ID, PAYLOAD, ATTEMPT, RUN_AT, TOKEN = map(
    BLOCK.index, ("id", "payload", "attempt", "run_at", "token")
)
_POLICY, _MAX_ATTEMPTS = BLOCK.index("policy"), BLOCK.index("max_attempts")
_RARE, NOW = len(BLOCK), len(BLOCK) + 1
_by_time = itemgetter(RUN_AT, ID)
_sort_of = itemgetter(_POLICY, TOKEN, _MAX_ATTEMPTS, _RARE)
_decode_rare = msgspec.json.Decoder(list[str | int | bool | None]).decode


class ClaimedBlock(NamedTuple):
    """Plain jobs of one lane, in its order, all under one token and with the same policy.

    Plain: they have no rare column (a tenant, a key, tags, errors and so on), more than one
    attempt, no time limit, and are kept long enough that no id must be remembered after the row.
    """

    lane: Lane
    worker: str
    lease_us: int
    token: int
    # How long they are kept, as `finish_bare` takes it.
    keep: int
    rows: Sequence[Row]
    claim: ClaimNote | None = None

    def lease_of(self, row: Row) -> Lease:
        """The lease of one of the jobs, with its whole row."""
        worker, lease_us = self.worker, self.lease_us
        return _lease_of(row, self.lane, worker=worker, lease_us=lease_us, claim=self.claim)


def _lease_of(
    row: Row, lane: Lane, *, worker: str, lease_us: int, claim: ClaimNote | None
) -> Lease:
    id, payload, max_attempts, policy, run_at, created_at, attempt, token, rare, now = row
    whole = JobRow(
        id=id,
        kind=lane.kind,
        queue=lane.queue,
        rank=lane.rank,
        tenant=None,
        key=None,
        key_hold=None,
        payload=payload,
        max_attempts=max_attempts,
        tags=None,
        meta=None,
        policy=policy,
        run_at=run_at,
        created_at=created_at,
        attempt=attempt,
        started_at=now,
        lease_expires_at=now + lease_us,
        worker=worker,
        token=token,
    )
    if rare is not None:
        found: dict[str, Any] = dict(zip(RARE, _decode_rare(rare), strict=True))
        whole = whole._replace(**found)
    return Lease.of_row(whole, now=now, claim=claim)


class Claimed(NamedTuple):
    """Leases and blocks, and what is left of the view to claim."""

    leases: list[Lease]
    blocks: list[ClaimedBlock]
    view: View


def look(*, queues: Sequence[str] | None, kinds: Sequence[str] | None) -> Op[View]:
    """Find the lanes of these queues (None: all) and kinds that have due jobs."""
    values = {"kinds": None if kinds is None else list(kinds)}
    if queues is None:
        statement = Statement("lanes_anywhere", values)
    else:
        statement = Statement("lanes", {**values, "queues": list(queues), "expired": False})

    def steps() -> Steps[View]:
        rows = yield statement
        return (yield from _with_rooms(_view(rows), rows, queues, kinds))

    return reading("look", steps)


def _with_rooms(
    view: View, rows: Rows, queues: Sequence[str] | None, kinds: Sequence[str] | None
) -> Steps[View]:
    """The view with what waits at limits, if there are any."""
    if not _ends(rows).has_limits:
        return view
    found = yield from look_at_rooms(queues, kinds)
    return msgspec.structs.replace(
        view, rooms=found.rooms, overdue=found.overdue, due_in=_sooner(view.due_in, found.due_in)
    )


def claim_seen(request: ClaimRequest, view: View) -> Op[Claimed]:
    """Lease from the lanes of a view, in the order of the request's queues."""
    assert request.queues is not None
    limits = request.queues

    def steps() -> Steps[Claimed]:
        seen = yield from _admitted(request, view)
        lanes = [lane for lane in seen.lanes if limits.get(lane.queue, 0) > 0]
        rooms = [room for room in seen.rooms if limits.get(room.queue, 0) > 0]
        taken = _Taken()
        yield from _claim_lanes(request, lanes, rooms, dict(limits), taken)
        left = [lane for lane in seen.lanes if (lane.queue, lane.rank) not in taken.spent]
        return Claimed(
            taken.leases,
            taken.blocks,
            msgspec.structs.replace(
                seen,
                lanes=_behind(left, taken),
                rooms=[room for room in seen.rooms if room not in taken.spent_rooms],
                due_in=_sooner(seen.due_in, taken.open_in),
                spent=seen.spent + taken.spent_on_rooms,
            ),
        )

    return writing("claim", steps)


def _sooner(one: float | None, other: float | None) -> float | None:
    return min((wait for wait in (one, other) if wait is not None), default=None)


def _admitted(request: ClaimRequest, view: View) -> Steps[View]:
    """The view after jobs that have become due are let into their rooms."""
    if not view.overdue:
        return view
    yield Begin()
    yield from admit(view.overdue)
    queues = None if request.queues is None else list(request.queues)
    found = yield from look_at_rooms(queues, request.kinds)
    return msgspec.structs.replace(
        view, rooms=found.rooms, overdue=found.overdue, due_in=_sooner(view.due_in, found.due_in)
    )


class _Taken(msgspec.Struct):
    """What a claim has brought so far. `spent`: each queue and rank with fewer jobs than requested.

    `last` is the last job of a lane that came as a block, and maybe as leases beside it.
    """

    leases: list[Lease] = msgspec.field(default_factory=list[Lease])
    blocks: list[ClaimedBlock] = msgspec.field(default_factory=list[ClaimedBlock])
    spent: set[tuple[str, int]] = msgspec.field(default_factory=set[tuple[str, int]])
    last: dict[tuple[str, int, str], Floor] = msgspec.field(
        default_factory=dict[tuple[str, int, str], Floor]
    )
    count: int = 0
    # Rooms that have nothing else to give, and in how many seconds one of their keys opens.
    spent_rooms: set[WaitingRoom] = msgspec.field(default_factory=set[WaitingRoom])
    open_in: float | None = None
    # How many seconds the database took to look for keys.
    spent_on_rooms: float = 0.0


def _behind(lanes: Sequence[Lane], taken: _Taken) -> list[Lane]:
    """The lanes, each from behind the jobs that were claimed from it."""
    last = {
        (lease.row.queue, lease.row.rank, lease.row.kind): (lease.row.run_at, lease.row.id)
        for lease in taken.leases
        if lease.row is not None
    }
    last |= taken.last
    floors = [last.get((lane.queue, lane.rank, lane.kind)) for lane in lanes]
    return [
        lane if floor is None or lane.by_age else msgspec.structs.replace(lane, floor=floor)
        for lane, floor in zip(lanes, floors, strict=True)
    ]


def _claim(
    request: ClaimRequest, doubt: Callable[[int], Mapping[str, int]], recovery: Recovery
) -> Steps[list[Lease]]:
    request.rotation.look_again()
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
    if not rows:
        return []
    view = yield from _with_rooms(_view(rows), rows, list(queues), request.kinds)
    view = yield from _admitted(msgspec.structs.replace(request, queues=queues), view)
    taken = _Taken()
    yield from _claim_lanes(request, view.lanes, view.rooms, dict(queues), taken)
    return taken.leases


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
    has_limits: bool


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
    request: ClaimRequest,
    lanes: Sequence[Lane],
    rooms: Sequence[WaitingRoom],
    left: dict[str, int],
    taken: _Taken,
) -> Steps[None]:
    """Claim from lanes and rooms, at most `left` of each queue."""
    aged = sorted({lane.queue for lane in lanes if lane.by_age})
    groups = _groups(lanes, rooms, list(left))
    if aged:
        yield from _promote(aged)
    elif len(groups) > 1 or rooms:
        yield Begin()
    for group in groups:
        for part in group.parts(rooms_first=bool(rooms) and request.rotation.rooms_first()):
            limit = min(left[group.queue], request.limit - taken.count)
            if limit <= 0:
                continue
            before = taken.count
            if isinstance(part, WaitingRoom):
                yield from _claim_room(request, part, limit, taken)
            else:
                yield from _claim_group(request, part, limit, taken)
            left[group.queue] -= taken.count - before
    if request.policies:
        yield from _resolve(taken.leases, request.policies)
    if request.limits:
        yield from _send_to_rooms(taken, request.limits)
    yield from _give_inputs(taken)


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


class _Group(NamedTuple):
    """The lanes and rooms of one queue and rank. Lanes compete by time."""

    queue: str
    lanes: list[Lane]
    rooms: list[WaitingRoom]

    def parts(self, *, rooms_first: bool) -> list[WaitingRoom | list[Lane]]:
        """What to claim from, in order."""
        lanes = [self.lanes] if self.lanes else []
        return [*self.rooms, *lanes] if rooms_first else [*lanes, *self.rooms]


def _groups(lanes: Sequence[Lane], rooms: Sequence[WaitingRoom], queues: list[str]) -> list[_Group]:
    """Group what has the same queue and rank. Groups are served in order."""
    place = {queue: index for index, queue in enumerate(queues)}
    groups: dict[tuple[int, int], _Group] = {}

    def group(each: Lane | WaitingRoom) -> _Group:
        key = (place[each.queue], each.rank)
        return groups.setdefault(key, _Group(each.queue, [], []))

    for lane in sorted(lanes, key=lambda lane: lane.kind):
        group(lane).lanes.append(lane)
    for room in sorted(rooms, key=lambda room: (room.kind, room.limit)):
        group(room).rooms.append(room)
    return [groups[key] for key in sorted(groups)]


def _claim_room(request: ClaimRequest, room: WaitingRoom, limit: int, taken: _Taken) -> Steps[None]:
    """Claim jobs that have a limit: never ahead of a free slot."""
    most = min(limit, request.limited_most(room.queue, taken.count))
    if most <= 0:
        return
    values = {
        "worker": request.worker,
        "lease": request.lease,
        "begun": request.begun,
        "tenants": request.tenants,
    }
    claimed = yield from claim_room(room, most, values, request.rotation)
    taken.spent_on_rooms += claimed.spent
    taken.leases += claimed.leases
    taken.count += len(claimed.leases)
    if claimed.is_spent:
        taken.spent_rooms.add(room)
        taken.open_in = _sooner(taken.open_in, claimed.open_in)
    elif not claimed.leases:
        # There are more keys to visit.
        taken.open_in = 0.0


def _claim_group(
    request: ClaimRequest, lanes: Sequence[Lane], limit: int, taken: _Taken
) -> Steps[None]:
    """Claim from lanes of one queue and rank."""
    first = lanes[0]
    can_be_block = len(lanes) == 1 and request.tenants is None
    if can_be_block and first.kind in request.block_kinds and limit >= config.CLAIM_BLOCK_MIN:
        statement = Statement(_name("claim_block", first), _lane_values(request, first, limit))
        rows = sorted((yield statement), key=_by_time)
        note = _note_of(statement, [row[ID] for row in rows])
        _take_block(request, first, rows, note, taken)
    else:
        statement = _claim_statement(request, lanes, limit)
        rows = yield statement
        taken.leases += _leases(rows, statement)
    taken.count += len(rows)
    if len(rows) < limit:
        taken.spent.add((first.queue, first.rank))


def _take_block(
    request: ClaimRequest,
    lane: Lane,
    rows: Sequence[Row],
    note: ClaimNote | None,
    taken: _Taken,
) -> None:
    """Take the largest group of plain jobs, nearly always all, as a block, the others as leases."""
    if not rows:
        return
    taken.last[lane.queue, lane.rank, lane.kind] = (rows[-1][RUN_AT], rows[-1][ID])
    sorts = Counter(map(_sort_of, rows))
    plain = [sort for sort in sorts if _is_plain(*sort)]
    most = max(plain, key=sorts.__getitem__) if plain else None
    others = rows if most is None else ()
    if most is not None:
        if len(sorts) > 1:
            others = [row for row in rows if _sort_of(row) != most]
            rows = [row for row in rows if _sort_of(row) == most]
        policy, token = most[:2]
        keep = kept_of(decode_policy(policy))
        assert keep is not None
        block = ClaimedBlock(lane, request.worker, request.lease, token, keep, rows, note)
        taken.blocks.append(block)
    taken.leases += [
        _lease_of(row, lane, worker=request.worker, lease_us=request.lease, claim=note)
        for row in others
    ]


def _is_plain(policy: str | None, token: int, max_attempts: int | None, rare: str | None) -> bool:
    """Whether jobs with these values may be run and settled as a block."""
    if policy is None or max_attempts is None or rare is not None:
        return False
    return is_plain(KnownPolicy(policy, max_attempts))


def is_plain(known: KnownPolicy) -> bool:
    """Whether jobs with this policy may be run and settled as a block."""
    policy = decode_policy(known.policy)
    is_bare = not policy.is_partial and policy.timeout is None and kept_of(policy) is not None
    # Whether a job has expired is looked at before its own run.
    never_expires = policy.expires is None and policy.expires_at is None
    return is_bare and never_expires and known.max_attempts != 1


def _claim_statement(request: ClaimRequest, lanes: Sequence[Lane], limit: int) -> Statement:
    if len(lanes) == 1 and request.tenants is None:
        return Statement(_name("claim", lanes[0]), _lane_values(request, lanes[0], limit))
    values: dict[str, Any] = {**_values(request, lanes[0], limit)}
    kinds = [lane.kind for lane in lanes]
    if request.tenants is not None:
        tenants = [lane.tenant for lane in lanes]
        return Statement("claim_tenants", {**values, "kinds": kinds, "tenants": tenants})
    floors = {
        "floors_at": [lane.floor[0] for lane in lanes],
        "floors_id": [lane.floor[1] for lane in lanes],
    }
    return Statement("claim_mixed", {**values, "kinds": kinds, **floors})


def _name(statement: str, lane: Lane) -> str:
    return f"{statement}/hinted" if lane.is_hinted else statement


def _values(request: ClaimRequest, lane: Lane, limit: int) -> dict[str, Any]:
    return {
        "queue": lane.queue,
        "rank": lane.rank,
        "limit": limit,
        "worker": request.worker,
        "lease": request.lease,
        "begun": request.begun,
    }


def _lane_values(request: ClaimRequest, lane: Lane, limit: int) -> dict[str, Any]:
    """What a claim of a single lane needs. SQLite changes rows in place, and notes nothing."""
    at, id = lane.floor
    floor = {"kind": lane.kind, "floor_at": at, "floor_id": id}
    note = {"claim": new_id(), "noted_min": config.CLAIM_NOTED_MIN}
    return {**_values(request, lane, limit), **floor, **note}


def _note_of(statement: Statement, ids: Sequence[str]) -> ClaimNote | None:
    """The row under which the leases of many jobs are noted. None: each is in job_lease."""
    claim: str | None = statement.values.get("claim")
    if claim is None or len(ids) < config.CLAIM_NOTED_MIN:
        return None
    return ClaimNote(claim, set(ids))


def _leases(rows: Rows, statement: Statement) -> list[Lease]:
    # An UPDATE does not promise any order of the rows that it returns.
    made = [(JobRow._make(row[:-1]), row[-1]) for row in rows]
    made.sort(key=lambda pair: (pair[0].run_at, pair[0].id))
    note = _note_of(statement, [row.id for row, _ in made])
    return [Lease.of_row(row, now=now, claim=note) for row, now in made]


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


def _give_inputs(taken: _Taken) -> Steps[None]:
    """Complete the payloads of jobs that get results of others. End those that can't run."""
    unusable = yield from read_inputs(taken.leases)
    if not unusable:
        return
    yield Begin()
    decided: list[tuple[JobRow, Transition]] = []
    for lease, outcome in unusable:
        row = lease.row
        assert row is not None and row.started_at is not None
        step = decide(held_of(row), outcome, now=row.started_at, chance=CHANCE)
        decided.append((row, step))
    yield from apply(decided, taken=False)
    gone = {each.lease.id for each in unusable}
    taken.leases = [lease for lease in taken.leases if lease.id not in gone]


_ROOM_COLUMNS: Final = ("id", "token", "limit_name", "limit_key", "is_ordered")


def _send_to_rooms(taken: _Taken, limits: Mapping[str, LimitOf]) -> Steps[None]:
    """Give back jobs whose kind has a limit that their row lacks, to wait at that limit."""
    rows: list[Row] = []
    for lease in taken.leases:
        row = lease.row
        if row is None or row.limit_name is not None or row.kind not in limits:
            continue
        place = limits[row.kind](row)
        if place is not None:
            rows.append((lease.id, lease.token, *place))
    if not rows:
        return
    yield Batch("send_to_room", _ROOM_COLUMNS, sorted(rows))
    sent = {row[0] for row in rows}
    queues = {each.row.queue for each in taken.leases if each.id in sent and each.row is not None}
    taken.leases = [lease for lease in taken.leases if lease.id not in sent]
    yield Ring(frozenset(queues))
