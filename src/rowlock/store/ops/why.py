"""Why a job is not running: the first reason that applies now.

A paused queue comes before the due time, which passes by itself. Only live workers count: those
with a recent heartbeat. The jobs ahead in the queue are counted only for kinds that a worker runs:
jobs that no worker takes delay nothing. A caller bound to a tenant is shown only its own jobs.

Of a limit, what lasts longest comes first: nobody has declared it, it is paused, another job is
first in its order, it is full, its rate is used up, other keys have their turn.

A job that waits for others is stuck if one of them is dead, or waits for one that is stuck. How far
that is followed is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from rowlock import config
from rowlock.clock import from_us
from rowlock.columns import JobRow
from rowlock.ids import parse_id
from rowlock.job import Count, Job, JobState, WorkerVitals, job_of, state_of
from rowlock.lifecycle import SUPERSEDED, Held
from rowlock.store.ops.limit_info import (
    KeyState,
    StoredLimit,
    count_of_key,
    key_states,
    other_keys,
    rooms_of,
    stored_limit,
)
from rowlock.store.ops.limits import FOR_EVER_US
from rowlock.store.ops.look import vitals_of
from rowlock.store.ops.manage import is_visible_to, unknown_job
from rowlock.store.ops.settle import held_of
from rowlock.store.steps import Batch, Op, Row, Rows, Statement, Steps, reading
from rowlock.suggest import nearest
from rowlock.tokens import takes_jobs_of
from rowlock.why import WaitedFor, Why, WhyCode
from rowlock.workflow_rules import Wants

# Lanes counted by one statement, which reads at most this many times the bound of a count.
_LANES = 20
_FIRST_ID = "00000000-0000-0000-0000-000000000000"
# Jobs that are named of those that another waits for.
_NAMED = 3
# How far up a dead job is looked for that keeps others waiting, and among how many at each level.
_LEVELS = 20
_LEVEL_JOBS = 100
# The job could start, if a worker had a slot for it.
_IN_TURN = (WhyCode.NEXT, WhyCode.BEHIND, WhyCode.LIMIT_TURN)


def why(id: str | UUID, *, tenant: str | None = None) -> Op[Why]:
    """Why a job is not running: the first thing that keeps it from running. Raises `NotFound`.

    Args:
        tenant: Only a job of this tenant; another tenant's is not found.
    """
    id = parse_id(id)

    def steps() -> Steps[Why]:
        rows = yield Statement("get", {"ids": [id]})
        row = JobRow._make(rows[0][:-1]) if rows else None
        if row is None or not is_visible_to(row.tenant, caller=tenant):
            raise unknown_job(id)
        job = job_of(row, now=rows[0][-1])
        if job.state.is_terminal:
            return _taken(job, now=from_us(rows[0][-1]))
        if job.state is JobState.RUNNING:
            answer = _taken(job, now=from_us(rows[0][-1]), held=held_of(row))
            is_known = row.begun or held_of(row).is_marked
            if is_known or tenant is not None:
                return answer
            return (yield from _perhaps_not_begun(answer))
        if job.state is JobState.WAITING:
            return (yield from _for_jobs(job))
        counted = yield Batch("count_queues", ("queue",), [(job.queue,)], {"cap": 1})
        if counted[0][-1]:
            return _why(job, WhyCode.PAUSED, f"its queue {job.queue!r} is paused")
        if job.state is not JobState.READY:
            return _early(job)
        return (yield from _waiting(job, row, tenant))

    return reading("why", steps)


def _why(job: Job, code: WhyCode, text: str) -> Why:
    return Why(id=job.id, state=job.state, code=code, text=text, kind=job.kind, queue=job.queue)


def _taken(job: Job, *, now: datetime, held: Held | None = None) -> Why:
    """The reason of a job that has ended or is held by a worker."""
    replace = msgspec.structs.replace
    if job.state.is_terminal:
        text = f"it has ended: {job.state} since {_shown(job.finished_at)}"
        if job.state is JobState.DEAD and job.last_error is not None:
            text += f", after {_brief(job.last_error)}"
        elif job.errors and job.errors[-1].type == SUPERSEDED:
            text += f", {job.errors[-1].message}, which has its key"
        answer = _why(job, WhyCode.FINISHED, text)
        return replace(answer, since=job.finished_at, error=job.last_error)
    until = job.lease_expires_at
    text = f"worker {job.worker} holds it until {_shown(until)}"
    if held is not None and held.begun:
        text = f"worker {job.worker} runs it and holds it until {_shown(until)}"
    elif held is not None and held.is_marked:
        text += ", and has not begun to run it"
    if until is not None and until <= now:
        text = f"worker {job.worker} held it until {_shown(until)}; it will soon be taken away"
    if job.cancel_requested:
        text += ", and it was asked to cancel"
    answer = _why(job, WhyCode.RUNNING, text)
    return replace(answer, worker=job.worker, since=job.started_at, until=until)


def _perhaps_not_begun(answer: Why) -> Steps[Why]:
    """Say whether its worker may hold it ahead of a slot: it holds more jobs than it has slots.

    Workers don't mark every run as begun, so nothing is known about a run without a mark.
    """
    workers = yield Statement("workers")
    leased = yield Statement("leased", {"limit": config.COUNT_EXACT_MAX})
    held = _held(leased).get(answer.worker or "", {})
    for vitals in [vitals_of(row[7]) for row in workers if row[0] == answer.worker]:
        own, slots = vitals.queue_slots.get(answer.queue), vitals.slots
        if own is not None and held.get(answer.queue, 0) > own.slots:
            what = f"{held[answer.queue]:,} jobs of this queue for {own.slots:,} slots"
        elif slots is not None and sum(held.values()) > slots:
            what = f"{sum(held.values()):,} jobs for {slots:,} slots"
        else:
            continue
        text = f"{answer.text}; it holds {what}, so this one may not have begun"
        return msgspec.structs.replace(answer, text=text)
    return answer


def _held(leased: Rows) -> dict[str, dict[str, int]]:
    """How many jobs each worker holds of each queue."""
    held: dict[str, dict[str, int]] = {}
    for worker, queue, count in leased:
        held.setdefault(worker, {})[queue] = count
    return held


def _early(job: Job) -> Why:
    """The reason of a job that is not due yet."""
    replace = msgspec.structs.replace
    if job.state is JobState.SCHEDULED:
        answer = _why(job, WhyCode.NOT_DUE, f"it is not due until {_shown(job.run_at)}")
        return replace(answer, until=job.run_at)
    error = _brief(job.last_error or "a lost run")
    answer = _why(job, WhyCode.BACKOFF, f"it waits until {_shown(job.run_at)}, after {error}")
    return replace(answer, until=job.run_at, error=job.last_error)


def _brief(error: str) -> str:
    """The beginning of an error's first line. The whole error is in a field of its own."""
    return error.partition("\n")[0][: config.LOGGED_ERROR_CHARACTERS_MAX]


def _shown(moment: datetime | None) -> str:
    return "?" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


class _Server(NamedTuple):
    """What a worker takes. Without kinds, or without queues, it takes all."""

    id: str
    kinds: frozenset[str]
    queues: frozenset[str]
    vitals: WorkerVitals

    def knows(self, kind: str) -> bool:
        return not self.kinds or kind in self.kinds

    def serves(self, queue: str) -> bool:
        return not self.queues or queue in self.queues

    def full_slots(self, queue: str, held: Mapping[str, int]) -> _Full | None:
        """Its slots for a queue, if all of them are taken by jobs that it holds."""
        own = self.vitals.queue_slots.get(queue)
        if own is not None and held.get(queue, 0) >= own.slots:
            return _Full(own.slots, 1, is_queue=True)
        slots = self.vitals.slots
        return _Full(slots, 1) if slots is not None and sum(held.values()) >= slots else None


class _Full(NamedTuple):
    """Slots that are all taken: of one queue, or of whole workers."""

    slots: int
    workers: int
    is_queue: bool = False


def _waiting(job: Job, row: JobRow, tenant: str | None) -> Steps[Why]:
    """The reason of a ready job: no worker takes it, or others come first."""
    workers = yield Statement("workers")
    now: int = (yield Statement("clock"))[0][0]
    taking = [worker for worker in workers if takes_jobs_of(worker[0], job.tenant)]
    alive = list(_alive(taking, now=now))
    knowing = [server for server in alive if server.knows(job.kind)]
    serving = [server for server in knowing if server.serves(job.queue)]
    if not serving:
        return _unserved(job, alive, knowing)
    leased = yield Statement("leased", {"limit": config.COUNT_EXACT_MAX})
    full = _full(serving, job.queue, leased)
    is_bound = tenant is not None
    if row.limit_name is not None:
        answer = yield from _at_limit(_Limited(job, row, tenant), row.limit_name, now)
        if full is None or answer.code not in _IN_TURN:
            return answer
        return _without_slot(answer, full, is_bound=is_bound)
    lanes = yield Statement("all_lanes", {"queues": [job.queue]})
    run = _run_by(serving, lanes)
    higher = yield from _count(
        [(*lane[:3], now + 1, _FIRST_ID) for lane in run if lane[1] < row.rank], tenant=tenant
    )
    same = [(*lane[:3], row.run_at, row.id) for lane in run if lane[1] == row.rank]
    earlier = yield from _count(same, tenant=tenant)
    answer = _in_line(job, higher, earlier, is_bound=is_bound)
    return answer if full is None else _without_slot(answer, full, is_bound=is_bound)


def _run_by(serving: list[_Server], lanes: Rows) -> list[Row]:
    """The lanes of kinds that one of these workers knows."""
    if not all(server.kinds for server in serving):
        return list(lanes)
    known = frozenset[str]().union(*(server.kinds for server in serving))
    return [lane for lane in lanes if lane[2] in known]


def _full(serving: list[_Server], queue: str, leased: Rows) -> _Full | None:
    """The slots of all these workers for a queue, if none of them is free."""
    held = _held(leased)
    found = [server.full_slots(queue, held.get(server.id, {})) for server in serving]
    full = [each for each in found if each is not None]
    if len(full) < len(serving):
        return None
    slots = sum(each.slots for each in full)
    return _Full(slots, len(full), is_queue=all(each.is_queue for each in full))


def _without_slot(answer: Why, full: _Full, *, is_bound: bool) -> Why:
    """The reason when no slot is free: the job could not start even as the next one."""
    replace = msgspec.structs.replace
    workers = f"{full.workers} live worker{'' if full.workers == 1 else 's'}"
    whose = f"of queue {answer.queue!r} on {workers}" if full.is_queue else f"of {workers}"
    # A caller bound to a tenant is not shown how much runs for others.
    text = "no slot is free" if is_bound else f"all {full.slots:,} slots {whose} are taken"
    if answer.code is not WhyCode.NEXT:
        return replace(answer, text=f"{answer.text}; and {text}")
    counts = {} if is_bound else {"slots": full.slots, "workers": full.workers}
    since = f"it is next{' of its tenant' if is_bound else ''}, ready since {_shown(answer.since)}"
    return replace(answer, code=WhyCode.FULL, text=f"{text}; {since}", **counts)


def _alive(workers: Rows, *, now: int) -> Iterable[_Server]:
    decode = msgspec.json.Decoder(frozenset[str]).decode
    silent = now - int(config.WORKER_SILENT_SECONDS) * config.SECOND_US
    return (
        _Server(row[0], decode(row[6]), decode(row[5]), vitals_of(row[7]))
        for row in workers
        if row[2] >= silent
    )


def _unserved(job: Job, alive: list[_Server], knowing: list[_Server]) -> Why:
    if not alive:
        return _why(job, WhyCode.NO_WORKER, "there is no live worker")
    if not knowing:
        known = {kind for server in alive for kind in server.kinds}
        answer = _why(job, WhyCode.UNKNOWN_KIND, f"no live worker knows the kind {job.kind!r}")
        return _with_nearest(answer, job.kind, known)
    known = {queue for server in knowing for queue in server.queues}
    text = f"no live worker that knows it serves the queue {job.queue!r}"
    return _with_nearest(_why(job, WhyCode.UNSERVED_QUEUE, text), job.queue, known)


def _with_nearest(answer: Why, name: str, known: Iterable[str]) -> Why:
    close = nearest(name, known, most=3)
    hint = f"; the nearest they have: {', '.join(map(repr, close))}" if close else ""
    return msgspec.structs.replace(answer, text=answer.text + hint, nearest=close)


def _count(places: list[Row], *, tenant: str | None) -> Steps[Count]:
    """Count the jobs, of a tenant or all, ahead of these places in their lanes, up to a bound."""
    total, most = 0, config.COUNT_EXACT_MAX
    values: dict[str, object] = {"cap": most + 1}
    name = "count_before"
    if tenant is not None:
        name, values["tenant"] = "count_before/tenant", tenant
    columns = ("queue", "rank", "kind", "run_at", "id")
    for start in range(0, len(places), _LANES):
        batch = places[start : start + _LANES]
        counted = yield Batch(name, columns, batch, values)
        total += sum(row[0] for row in counted)
        if total > most:
            return Count(most, exact=False)
    return Count(total)


def _in_line(job: Job, higher: Count, earlier: Count, *, is_bound: bool) -> Why:
    total = higher.value + earlier.value
    whose = " of its tenant" if is_bound else ""
    if not total:
        text = f"nothing: it is next{whose}, ready since {_shown(job.run_at)}"
        answer = _why(job, WhyCode.NEXT, text)
        return msgspec.structs.replace(answer, since=job.run_at)
    is_exact = higher.exact and earlier.exact and total <= config.COUNT_EXACT_MAX
    parts = [
        f"{'' if count.exact else 'more than '}{count.value:,} {what}"
        for count, what in ((higher, "of a higher priority"), (earlier, "earlier"))
        if count.value
    ]
    text = f"jobs{whose} are before it: {' and '.join(parts)}"
    ahead = Count(min(total, config.COUNT_EXACT_MAX), exact=is_exact)
    answer = _why(job, WhyCode.BEHIND, text)
    return msgspec.structs.replace(answer, since=job.run_at, ahead=ahead)


# At a limit


class _Limited(NamedTuple):
    """A job that waits for its limit, and the tenant to which the caller is bound."""

    job: Job
    row: JobRow
    tenant: str | None

    @property
    def key(self) -> str:
        return self.row.limit_key or ""

    def place(self, *, has_keys: bool) -> str:
        """Where it waits, for people."""
        return f"{self.row.limit_name}/{self.key}" if has_keys else f"{self.row.limit_name}"

    def why(self, code: WhyCode, text: str, **details: Any) -> Why:
        answer = _why(self.job, code, text)
        return msgspec.structs.replace(answer, limit=self.row.limit_name, **details)


def _at_limit(waits: _Limited, name: str, now: int) -> Steps[Why]:
    """The reason of a job that is due and waits for its limit."""
    rule = yield from stored_limit(name, now)
    if rule is None:
        text = f"no worker has declared its limit {name!r} in this database yet"
        return waits.why(WhyCode.LIMIT_UNKNOWN, text)
    (state,) = yield from key_states(name, [waits.key], now, cap=config.COUNT_EXACT_MAX + 1)
    closed = _closed(waits, rule, state, now)
    if closed is not None:
        return closed
    if rule.declared.is_ordered:
        first = (yield Statement("first_in_order", {"limit_name": name, "key": waits.key}))[0]
        if first[0] != waits.row.id:
            return _behind_first(waits, first)
    rooms = yield from rooms_of(name)
    ahead = yield from _ahead_at_limit(waits, rooms)
    if state.concurrency is not None and state.running >= state.concurrency:
        full = _KeyRoom(state.running, state.concurrency, state.oldest)
        return _limit_full(waits, full, ahead, has_keys=True)
    total = rule.numbers.concurrency
    if total is not None and rule.running >= total:
        values = {"limit_name": name, "cap": config.COUNT_EXACT_MAX}
        oldest = (yield Statement("longest_under_limit", values))[0][0]
        return _limit_full(waits, _KeyRoom(rule.running, total, oldest), ahead, has_keys=False)
    if max(state.open_at, rule.open_at) > now:
        return _rate_used(waits, rule, state, ahead)
    keys = yield from other_keys(rooms, waits.key)
    return _in_turn(waits, ahead, keys, has_keys=rule.declared.per is not None)


class _KeyRoom(NamedTuple):
    """How many jobs run of how many that may, and since when the longest."""

    running: int
    allowed: int
    oldest: int | None


def _closed(waits: _Limited, rule: StoredLimit, state: KeyState, now: int) -> Why | None:
    """The reason if the limit or the key is paused: the pause that lasts longer."""
    is_key = state.closed_until > rule.closed_until
    until, reason = rule.closed_until, rule.closed_by
    if is_key:
        until, reason = state.closed_until, state.closed_by
    if until <= now:
        return None
    end = None if until >= FOR_EVER_US else from_us(until)
    has_keys = is_key and rule.declared.per is not None
    what = f"limit {waits.place(has_keys=has_keys)} is paused"
    text = f"{what} until it is resumed" if end is None else f"{what} until {_shown(end)}"
    if reason is not None and waits.tenant is None:
        text += f": {_brief(reason)}"
    details: dict[str, Any] = {"limit_key": waits.key} if has_keys else {}
    # A reason may be from a job of somebody else.
    details["reason"] = reason if waits.tenant is None else None
    return waits.why(WhyCode.LIMIT_CLOSED, text, until=end, **details)


def _behind_first(waits: _Limited, first: Row) -> Why:
    """The reason of a job that is not the first in the order of its key."""
    id, tenant, lease_expires_at, run_at, worker, is_due = first
    what = f"job {id}" if is_visible_to(tenant, caller=waits.tenant) else "another job"
    if lease_expires_at is not None:
        now_does = "runs" if waits.tenant is not None else f"runs on worker {worker}"
    elif is_due:
        now_does = "is ready"
    else:
        now_does = f"waits until {_shown(from_us(run_at))}"
    text = f"it waits for {what}, which is before it in the order and {now_does}"
    named = id if what != "another job" else None
    return waits.why(WhyCode.LIMIT_ORDER, text, limit_key=waits.key, waits_for=named)


def _ahead_at_limit(waits: _Limited, rooms: list[Row]) -> Steps[Count]:
    """Count the jobs of its key that come first: of a higher priority, or earlier."""
    row = waits.row
    higher = [room for room in rooms if room[1] < row.rank]
    same = [room for room in rooms if room[1] == row.rank]
    first = yield from count_of_key(higher, waits.key, tenant=waits.tenant)
    place = (row.run_at, row.id)
    second = yield from count_of_key(same, waits.key, before=place, tenant=waits.tenant)
    total = first.value + second.value
    is_exact = first.exact and second.exact and total <= config.COUNT_EXACT_MAX
    return Count(min(total, config.COUNT_EXACT_MAX), exact=is_exact)


def _limit_full(waits: _Limited, full: _KeyRoom, ahead: Count, *, has_keys: bool) -> Why:
    details: dict[str, Any] = {"limit_key": waits.key} if has_keys else {}
    place = waits.place(has_keys=has_keys and waits.key != "")
    if waits.tenant is not None:
        # Others may run there, and are not counted for a caller bound to a tenant.
        text = f"as many jobs run at limit {place} as may"
    else:
        since = None if full.oldest is None else from_us(full.oldest)
        text = f"{full.running:,} of {full.allowed:,} run at limit {place}"
        text += f", the longest since {_shown(since)}"
        details |= {"running": full.running, "allowed": full.allowed, "since": since}
    text += _and_ahead(ahead)
    return waits.why(WhyCode.LIMIT_FULL, text, ahead=ahead, **details)


def _rate_used(waits: _Limited, rule: StoredLimit, state: KeyState, ahead: Count) -> Why:
    is_key = state.open_at >= rule.open_at
    at = from_us(max(state.open_at, rule.open_at))
    place = waits.place(has_keys=is_key)
    text = f"limit {place} takes the next job at {_shown(at)}{_and_ahead(ahead)}"
    details: dict[str, Any] = {"limit_key": waits.key} if is_key else {}
    return waits.why(WhyCode.LIMIT_RATE, text, until=at, ahead=ahead, **details)


def _in_turn(waits: _Limited, ahead: Count, keys: Count, *, has_keys: bool) -> Why:
    """The reason of a job whose limit is open: others come first, or it is next."""
    is_bound = waits.tenant is not None
    if has_keys and keys.value:
        number = "other" if is_bound else f"up to {_at_least(keys)} other"
        text = f"{number} keys of limit {waits.row.limit_name} have their turn first"
        shown = {"keys": None if is_bound else keys, "ahead": ahead, "limit_key": waits.key}
        return waits.why(WhyCode.LIMIT_TURN, text + _and_ahead(ahead), **shown)
    answer = _in_line(waits.job, Count(0), ahead, is_bound=is_bound)
    return msgspec.structs.replace(answer, limit=waits.row.limit_name)


def _and_ahead(ahead: Count) -> str:
    if not ahead.value:
        return ""
    return f"; {_at_least(ahead)} {'is' if ahead.value == 1 else 'are'} before it"


def _at_least(count: Count) -> str:
    return f"{'' if count.exact else 'more than '}{count.value:,}"


# In a workflow


def _for_jobs(job: Job) -> Steps[Why]:
    """The reason of a job that waits for others."""
    most = config.COUNT_EXACT_MAX
    counted = yield Statement("parents_of", {"id": job.id, "most": most + 1})
    total, wants = counted[0][0], Wants(counted[0][1])
    dead, levels = yield from _dead_above(job.id, wants)
    named = dead[:_NAMED] if levels == 0 else []
    if len(named) < _NAMED:
        live = yield from _live_parents([job.id], Wants.DEATH, limit=_NAMED - len(named))
        named = [*named, *live]
    parents, left = _up_to(total, most), _up_to(job.waits_for, most)
    code, waits_for = WhyCode.WAITS_FOR_JOBS, None
    text = _text_of_jobs(wants, parents, left, named)
    if dead:
        code, waits_for = WhyCode.STUCK, dead[0].id
        text = _text_of_dead(dead, levels)
    answer = _why(job, code, text)
    return msgspec.structs.replace(
        answer, waits_for=waits_for, parents=parents, unmet=left, jobs=named
    )


def _up_to(number: int, most: int) -> Count:
    return Count(min(number, most), exact=number <= most)


def _dead_above(id: str, wants: Wants) -> Steps[tuple[list[WaitedFor], int]]:
    """Ended jobs without which this one can't run, and how many jobs are between them."""
    if wants is Wants.DEATH:
        # It can be released by the death of another one.
        return [], 0
    level, seen = [id], {id}
    for between in range(_LEVELS):
        rows = yield Statement("stuck_parents", {"ids": level, "limit": _NAMED + 1})
        if rows:
            found = [WaitedFor(id=row[0], kind=row[1], state=JobState(row[2])) for row in rows]
            return found, between
        above = yield from _live_parents(
            level, Wants.ANY_END, limit=_LEVEL_JOBS, variant="live_parents/waiting"
        )
        level = sorted({each.id for each in above} - seen)
        seen.update(level)
        if not level:
            break
    return [], 0


def _live_parents(
    ids: list[str], wants: Wants, *, limit: int, variant: str = ""
) -> Steps[list[WaitedFor]]:
    """Live jobs that others wait for. Those that can run come first."""
    found: list[WaitedFor] = []
    for name in [variant] if variant else ["live_parents", "live_parents/waiting"]:
        values = {"ids": ids, "wants": int(wants), "limit": limit - len(found)}
        for row in (yield Statement(name, values)):
            job = JobRow._make(row[:-1])
            state = state_of(job, now=row[-1])
            found.append(WaitedFor(id=job.id, kind=job.kind, state=state))
        if len(found) >= limit:
            break
    return found


_DOES = {
    JobState.RUNNING: "runs",
    JobState.WAITING: "waits",
    JobState.DEAD: "is dead",
    JobState.READY: "is ready",
    JobState.SCHEDULED: "is scheduled",
    JobState.RETRYING: "is retrying",
}


def _text_of_jobs(wants: Wants, parents: Count, left: Count, named: list[WaitedFor]) -> str:
    number = _at_least(left)
    if left.value != parents.value:
        number += f" of {_at_least(parents)}"
    noun = "job" if parents.value == 1 else "jobs"
    match wants:
        case Wants.DEATH:
            text = f"it runs only if one of {number} {noun} dies"
        case Wants.ANY_END:
            text = f"it waits for the end of {number} {noun}"
        case _:
            text = f"it waits for {number} {noun}"
    listed = [f"{each.kind} {each.id} {_DOES.get(each.state, each.state)}" for each in named]
    if left.value > len(named):
        listed.append("…")
    return f"{text}: {', '.join(listed)}" if named else text


def _text_of_dead(dead: list[WaitedFor], levels: int) -> str:
    first, others = dead[0], len(dead) - 1
    text = f"it waits for {first.kind} {first.id}, which is {first.state}: retry or delete it"
    if levels:
        between = "1 job" if levels == 1 else f"{levels} jobs"
        text = f"through {between}, {text}"
    if others >= _NAMED:
        return f"{text}; so are others that it waits for"
    return f"{text}; {others} more {'is' if others == 1 else 'are'} like it" if others else text
