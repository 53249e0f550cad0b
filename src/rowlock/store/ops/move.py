"""Move: jobs and all that belongs to them, from one database to another, each exactly once.

1. A batch of waiting jobs is held in the source, under a name of its own and a lease that does not
   expire. From then on no worker of the source can claim them, whatever happens to the move. The
   name contains the target, so no other database can be asked whether the batch is there.
2. The jobs are inserted into the target, and the batch's name into its audit, in one transaction.
   From then on workers of the target can claim them.
3. The jobs are removed from the source, which remembers the ids of the new ones in case their
   enqueue is sent again. A process that finds a batch in the source asks the target for its name:
   if it is there, step 3 is left to do; if not, step 2. It does not matter if a job of the batch
   was run and removed in the target meanwhile.
4. Jobs that run in order are held in that order, and none behind a job that still runs in the
   source or waits there: so none arrives before another that comes first.
5. Edges move with the jobs at both of their ends. A job of a workflow waits in the target for each
   parent of which the target does not know that it has ended; what it has counted in the source
   does not matter. A parent that arrives as ended counts there as if it had ended there.
6. Finished jobs, logs and the rest are inserted where they are missing, and removed afterwards:
   doing this twice does no harm. A job that is retried in between stays live: its end is fenced by
   its token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from rowlock import config
from rowlock.columns import JobRow
from rowlock.job import JobError, JobState, encode_errors
from rowlock.store.ops.finish import already_ended, arrived, lock_jobs, removed
from rowlock.store.ops.limits import adopt_chosen
from rowlock.store.ops.manage import cancel_live
from rowlock.store.statements import TABLES
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
from rowlock.workflow_rules import Effect, Wants, effect_of

# In the year 9999: no sweep considers it expired, and it can still be displayed.
FOR_EVER: Final = 253_000_000_000_000_000
# Added to the next time of a schedule that is between two databases.
BEYOND: Final = 200_000_000_000_000_000
FIRST_ID: Final = TABLES["job"].first
_PREFIX: Final = "move-"
_ACTOR: Final = "rowlock move"
# What the target notes about a batch, once and for all: that it is there, or never will be.
_HERE: Final = "move.batch"
_REFUSED: Final = "move.given_back"
_ASKED_COLUMNS: Final = ("id", "tenant", "kind", "key")
# The column of `find_settled` with the last token.
_TOKEN: Final = 7

Record = dict[str, Any]
_decode = msgspec.json.Decoder(Record).decode


class Put(msgspec.Struct, frozen=True):
    """The result of a batch: jobs that now wait in the target, and jobs that it already had.

    `stopped` are jobs whose key another job holds there: they are kept, as cancelled. Of a batch
    that was given back, no job is there or ever will be.
    """

    moved: int = 0
    known: int = 0
    stopped: int = 0
    is_refused: bool = False


class Hold(msgspec.Struct, frozen=True):
    """A batch of jobs that the source holds for one target, identified by that database's id."""

    batch: str
    target: str

    @property
    def worker(self) -> str:
        """The worker name under which its jobs are held."""
        return f"{_PREFIX}{self.batch}/{self.target}"

    @property
    def values(self) -> dict[str, str | int]:
        return {"worker": self.worker, "for_ever": FOR_EVER}

    @classmethod
    def of(cls, worker: str) -> Hold:
        batch, _, target = worker.removeprefix(_PREFIX).partition("/")
        return cls(batch, target)


def counts() -> Op[tuple[int, int]]:
    """How many jobs are live, and how many have ended."""

    def steps() -> Steps[tuple[int, int]]:
        ((live, finished),) = yield Statement("move_counts")
        return live, finished

    return reading("counts", steps)


def take(hold: Hold, *, after: str, limit: int) -> Op[list[Record]]:
    """Hold the next waiting jobs of the source, by id."""
    values = {**hold.values, "after": after, "limit": limit}

    def steps() -> Steps[list[Record]]:
        yield Begin()
        jobs = _records((yield Statement("move_take/job", values)))
        yield from _leave(jobs)
        return jobs

    return writing("take", steps)


def _leave(jobs: Sequence[Record]) -> Steps[None]:
    """Keep the workflows of jobs that are about to move from ending here."""
    workflows = _workflows_of(jobs)
    if workflows:
        yield Statement("move_leave", {"ids": workflows, "for_ever": FOR_EVER})


def _workflows_of(jobs: Iterable[Record]) -> list[str]:
    return sorted({job["workflow"] for job in jobs if job["workflow"] is not None})


class OrderPlace(msgspec.Struct, frozen=True):
    """Where a job that runs in order stands among all of them."""

    id: str = FIRST_ID
    limit_name: str = ""
    limit_key: str = ""
    place: int = 0


def take_ordered(
    hold: Hold, *, after: OrderPlace, limit: int
) -> Op[tuple[list[Record], OrderPlace | None]]:
    """Hold the next waiting jobs that run in order, each after all that come before it.

    Returns:
        The jobs, and where to continue, if there may be more.
    """

    def steps() -> Steps[tuple[list[Record], OrderPlace | None]]:
        yield Begin()
        # The locks first: a job whose claim is being committed is seen by the next statement.
        rows = yield Statement("move_order", {**msgspec.structs.asdict(after), "limit": limit})
        ids = [row[0] for row in rows]
        taken = yield Statement("move_take_order/job", {**hold.values, "ids": ids})
        last = OrderPlace(*rows[-1]) if len(rows) == limit else None
        jobs = _records(taken)
        yield from _leave(jobs)
        return jobs, last

    return writing("take_ordered", steps)


def open_batches() -> Op[list[Hold]]:
    """The batches that the source holds."""

    def steps() -> Steps[list[Hold]]:
        rows = yield Statement("move_batches", {"for_ever": FOR_EVER})
        return [Hold.of(name) for (name,) in rows if name.startswith(_PREFIX)]

    return reading("open_batches", steps)


class HeldBatch(msgspec.Struct, frozen=True):
    """The jobs of a batch, and who waits for whom, as far as they are concerned."""

    jobs: list[Record]
    edges: list[Record]


def jobs_of(hold: Hold) -> Op[HeldBatch]:
    """The jobs of a batch that the source holds."""

    def steps() -> Steps[HeldBatch]:
        # The edges first: what is counted in between shows in the job, and counts in the target.
        edges = _records((yield Statement("move_edges/edge", hold.values)))
        return HeldBatch(_records((yield Statement("move_batch/job", hold.values))), edges)

    return reading("jobs_of", steps)


def edges_of_ended(ids: Sequence[str]) -> Op[list[Record]]:
    """Who waits for ended jobs, and for whom else, if it has moved."""

    def steps() -> Steps[list[Record]]:
        return _records((yield Statement("move_ended_edges/edge", {"ids": list(ids)})))

    return reading("edges_of_ended", steps)


def stacks_of(workflows: Sequence[str]) -> Op[list[Record]]:
    """The shapes of workflows."""

    def steps() -> Steps[list[Record]]:
        return _records((yield Statement("move_stacks/stack", {"ids": list(workflows)})))

    return reading("stacks_of", steps)


def logs_of(ids: Sequence[str]) -> Op[list[Record]]:
    """The log lines of jobs."""

    def steps() -> Steps[list[Record]]:
        return _records((yield Statement("move_log/log", {"ids": list(ids)})))

    return reading("logs_of", steps)


def put(batch: str, held: HeldBatch, logs: Sequence[Record], *, source: str) -> Op[Put]:
    """Insert the jobs of a batch into the target, or none if the batch is there already."""
    jobs = held.jobs
    unleased = {job["id"]: {**job, **_UNLEASED} for job in jobs}

    def steps() -> Steps[Put]:
        yield Begin()
        detail = {"from": source, "jobs": len(unleased)}
        if not (yield _mark(batch, _HERE, detail)):
            return Put(is_refused=(yield from _is_refused(batch)))
        waiting, known_ends = yield from _with_parents(unleased, held.edges)
        yield from _continue_places(jobs)
        # As in an enqueue, the insert comes first: it may wait for the end of a conflicting job.
        inserted = {row[0] for row in (yield from _put("job", list(waiting.values())))}
        known, stopped = yield from _yield_to_others(waiting, inserted)
        moved = inserted - known - stopped
        yield Statement("withdraw", {"ids": sorted(inserted - moved)})
        # What is left in the target of jobs that were retried in the source.
        yield Statement("forget", {"ids": sorted(moved)})
        if stopped:
            now = (yield Statement("clock"))[0][0]
            yield from _put("finished", [_stopped(waiting[id], now) for id in sorted(stopped)])
        yield from _go_on(waiting, moved, stopped, known_ends)
        yield from _cancel(id for id in moved if waiting[id]["cancel_requested"])
        yield from _put("log", logs)
        if moved:
            yield Ring(frozenset(waiting[id]["queue"] for id in moved))
        return Put(len(moved), len(known), len(stopped))

    return writing("put", steps, repeat=steps)


# Held because it waits for other jobs.
_WAITING: Final = 3
_Ends = tuple[Mapping[str, JobState], Sequence[Row]]


def _with_parents(
    jobs: Mapping[str, Record], edges: Sequence[Record]
) -> Steps[tuple[dict[str, Record], _Ends]]:
    """The jobs as they wait in the target, and the parents that have ended there, with the edges.

    One that may run in the source waits too, for the results of parents that are still there.
    """
    nodes = {id for id, job in jobs.items() if job["workflow"] is not None}
    if not nodes:
        return dict(jobs), ({}, [])
    yield Statement("move_lock")
    states = yield from _put_edges(edges, apart_from=nodes)
    found = yield Statement("edges_to", {"ids": sorted(nodes)})
    open_edges = [(parent, child, wants) for parent, child, wants, is_met in found if not is_met]
    parents = sorted({edge[0] for edge in open_edges} - states.keys())
    live, ended = yield from lock_jobs(parents)
    if live:
        yield Statement("watch_again", {"ids": sorted(live)})
    states |= {id: JobState(job.state or "") for id, job in ended.items()}
    placed = dict(jobs)
    of_child: dict[str, list[Row]] = {id: [] for id in nodes}
    for edge in open_edges:
        of_child[edge[1]].append(edge)
    here = live.keys() | states.keys() | nodes
    over: list[Row] = []
    for id, mine in of_child.items():
        if jobs[id]["held_by"] == _WAITING:
            placed[id] = {**jobs[id], "pending": len(mine)}
            over += [edge for edge in mine if edge[0] in states]
            continue
        absent = [edge for edge in mine if edge[0] not in here and edge[2] != Wants.DEATH]
        if absent:
            waits = {"held_by": _WAITING, "pending": len(absent), "place": None}
            placed[id] = {**jobs[id], **waits}
    return placed, (states, over)


def _put_edges(
    edges: Sequence[Record], *, apart_from: Container[str]
) -> Steps[dict[str, JobState]]:
    """Insert edges. Jobs that are here already have more to wait for. Return known ends.

    Args:
        apart_from: Jobs that are about to arrive with them, and count for themselves.
    """
    rows = yield from _put("edge", edges)
    new = {row[0] for row in rows}
    late: list[Row] = [
        (edge["parent"], edge["child"], edge["wants"])
        for edge in edges
        if f"{edge['parent']}/{edge['child']}" in new
        and edge["child"] not in apart_from
        and not edge["is_met"]
    ]
    if not late:
        return {}
    numbers = Counter(edge[1] for edge in late)
    more: list[Row] = [(child, -number) for child, number in sorted(numbers.items())]
    yield Batch("count_down", ("id", "number"), more, {"releases": True})
    live, ended = yield from lock_jobs(sorted({edge[0] for edge in late}))
    if live:
        yield Statement("watch_again", {"ids": sorted(live)})
    states = {id: JobState(job.state or "") for id, job in ended.items()}
    if states:
        yield from already_ended(states, late)
    return states


def _go_on(
    jobs: Mapping[str, Record], moved: set[str], stopped: set[str], known_ends: _Ends
) -> Steps[None]:
    """Let jobs of workflows that have arrived count what has ended here."""
    nodes = {id for id in moved | stopped if jobs[id]["workflow"] is not None}
    if not nodes:
        return
    yield Statement("move_stay", {"ids": _workflows_of(jobs[id] for id in nodes)})
    states, edges = known_ends
    mine = [edge for edge in edges if edge[1] in moved]
    idle = [
        id for id in nodes & moved if jobs[id]["held_by"] == _WAITING and not jobs[id]["pending"]
    ]
    if idle:
        yield Statement("release_waiting", {"ids": sorted(idle)})
    if mine:
        yield from already_ended({edge[0]: states[edge[0]] for edge in mine}, mine)
    if nodes & stopped:
        yield from removed(sorted(nodes & stopped))


def _continue_places(jobs: Sequence[Record]) -> Steps[None]:
    """Have what is enqueued in the target later come behind these jobs, where an order counts."""
    last = max((job["place"] or 0 for job in jobs), default=0)
    if last:
        yield Statement("move_places", {"place": last})


def _yield_to_others(
    jobs: Mapping[str, Record], inserted: set[str]
) -> Steps[tuple[set[str], set[str]]]:
    """The ids of jobs that the target has had, and of those whose key another job holds there.

    The target has had a job if its resend reached the source late. The other job may be live or
    ended.
    """
    clashing = jobs.keys() - inserted
    # Live jobs before ended ones: a job that ends in between is seen by one of the two.
    known = {row[0] for row in (yield Statement("get", {"ids": sorted(clashing)}))}
    asked = [(job["id"], job["tenant"], job["kind"], job["key"]) for job in jobs.values()]
    found = yield Batch("find_settled", _ASKED_COLUMNS, asked)
    tokens: dict[str, int] = {}
    for row in found:
        if row[0] == row[1]:
            tokens[row[0]] = max(row[_TOKEN], tokens.get(row[0], 0))
    rows = yield Statement("get", {"ids": sorted(tokens.keys() & inserted)})
    copies = {row[0]: JobRow._make(row[:-1]) for row in rows}
    ends = {id: copy for id, copy in copies.items() if copy.state is not None}
    known |= {
        id
        for id, token in tokens.items()
        if id in clashing or not _is_revived(jobs[id], ends.get(id), token=token)
    }
    held = {row[0] for row in found if row[0] not in tokens}
    return known, (held | clashing) - known


def _is_revived(job: Record, copy: JobRow | None, *, token: int) -> bool:
    """Whether a job ended in the source, was moved, and was then retried in the source.

    Then it is the same job, later than what the target knows about it. A job that was enqueued
    again also has a later creation time. If only its last token is known, the token decides: the
    tokens of an id that the caller gave start at the time of creation.
    """
    if copy is not None:
        is_same = copy.created_at == job["created_at"]
    else:
        is_same = job["token"] < job["created_at"] or token >= job["created_at"]
    return bool(is_same and token < job["token"])


_UNLEASED: Final[Mapping[str, None]] = {"worker": None, "lease_expires_at": None, "beat_at": None}


def _stopped(job: Record, now: int) -> Record:
    message = f"its key {job['key']!r} was held by another job in the database it was moved to"
    error = JobError(job["attempt"], now, "KeyHeld", message)
    return {
        **job,
        "state": JobState.CANCELLED.value,
        "finished_at": now,
        "expires_at": now + round(config.KEEP_DEAD_SECONDS_DEFAULT * config.SECOND_US),
        "errors": encode_errors([error]),
        "key_hold": None,
        "result": None,
        "fingerprint": None,
    }


def refuse(batch: str) -> Op[bool]:
    """Make sure that a batch will never be put into the target. Return False if it is there."""

    def steps() -> Steps[bool]:
        yield Begin()
        marked = yield _mark(batch, _REFUSED, {})
        return bool(marked) or (yield from _is_refused(batch))

    return writing("refuse", steps, repeat=steps)


def _is_refused(batch: str) -> Steps[bool]:
    rows = yield Statement("move_marked", {"id": batch})
    return rows == [(_REFUSED,)]


def gone(hold: Hold, *, cancelled: Sequence[str] = ()) -> Op[list[str]]:
    """Remove a batch from the source, except jobs that were asked to cancel. Return their ids.

    Args:
        cancelled: Jobs that are already cancelled in the target: they are removed too.
    """

    def steps() -> Steps[list[str]]:
        yield Begin()
        yield Statement("move_remember", {**hold.values, **_remember()})
        rows = yield Statement("move_gone", {**hold.values, "cancelled": list(cancelled)})
        yield Statement("unlog", {"ids": [id for (id,) in rows]})
        return [job["id"] for job in _records((yield Statement("move_batch/job", hold.values)))]

    return writing("gone", steps, repeat=steps)


def _remember() -> dict[str, int]:
    """For how long an enqueue may be sent again without making a second job."""
    return {"remember": round(config.ID_REMEMBERED_SECONDS * config.SECOND_US)}


def is_elsewhere(key_hold: Record) -> bool:
    """Whether an id is remembered because its job moved, not because it ended."""
    return not JobState(key_hold["state"]).is_terminal


def give_back(hold: Hold) -> Op[int]:
    """Let the jobs of a batch wait in the source again. Return how many.

    A job that was asked to cancel meanwhile ends, as when a worker gives it back.
    """

    def steps() -> Steps[int]:
        yield Begin()
        rows = yield Statement("move_release", hold.values)
        yield from _cancel(id for id, _, is_asked, _ in rows if is_asked)
        yield from _stay(rows)
        if rows:
            yield Ring(frozenset(row[1] for row in rows))
        return len(rows)

    return writing("give_back", steps, repeat=steps)


def _stay(rows: Rows) -> Steps[None]:
    """Let jobs of workflows go on in the source, also by cancels that they have missed."""
    nodes = sorted(id for id, _, _, workflow in rows if workflow is not None)
    if not nodes:
        return
    yield Statement("move_stay", {"ids": sorted({row[3] for row in rows if row[3] is not None})})
    found = yield Statement("edges_to", {"ids": nodes})
    edges = [(parent, child, wants) for parent, child, wants, is_met in found if not is_met]
    _, ended = yield from lock_jobs(sorted({edge[0] for edge in edges}))
    states = {id: JobState(job.state or "") for id, job in ended.items()}
    missed = [
        edge
        for edge in edges
        if edge[0] in states and effect_of(states[edge[0]], Wants(edge[2])) is Effect.CANCELS
    ]
    if missed:
        yield from already_ended({edge[0]: states[edge[0]] for edge in missed}, missed)


def _cancel(asked: Iterable[str]) -> Steps[None]:
    """End jobs that are no longer held and that were asked to cancel during a move."""
    for live in (yield Statement("lock_leases", {"ids": sorted(asked)})):
        yield from cancel_live(JobRow._make(live[:-2]), taken=bool(live[-2]))


def freeze_schedules() -> Op[None]:
    """Stop every schedule of the source from firing."""

    def steps() -> Steps[None]:
        yield Statement("move_freeze", {"beyond": BEYOND})

    return writing("freeze_schedules", steps, repeat=steps)


def thaw_schedules(arrived: Sequence[str]) -> Op[int]:
    """Let the schedules that are still in the source fire again. Return how many.

    Args:
        arrived: Names that the target has: they fire there, and are removed here.
    """

    def steps() -> Steps[int]:
        yield Begin()
        yield Statement("move_arrived", {"beyond": BEYOND, "names": list(arrived)})
        return len((yield Statement("move_thaw", {"beyond": BEYOND})))

    return writing("thaw_schedules", steps, repeat=steps)


def _thawed(row: Record) -> Record:
    """A schedule with its original next time. A row of any other table is unchanged."""
    next_at = row.get("next_at", 0)
    return {**row, "next_at": next_at - BEYOND} if next_at >= BEYOND else row


def page(table: str, *, after: str | None, limit: int) -> Op[dict[str, Record]]:
    """Rows of a table by their keys, after a key."""
    first = TABLES[table].first
    values = {"after": first if after is None else after, "limit": limit}

    def steps() -> Steps[dict[str, Record]]:
        rows = yield Statement(f"move_rows/{table}", values)
        return {key: _thawed(_decode(text)) for key, text in rows}

    return reading("page", steps)


def add(table: str, rows: Sequence[Record]) -> Op[int]:
    """Insert the rows that are missing. Return how many were."""

    def steps() -> Steps[int]:
        yield Begin()
        return len((yield from _put(table, rows)))

    return writing("add", steps, repeat=steps)


_CANCELLED_AT: Final = 4


def add_workflows(workflows: Sequence[Record], stacks: Sequence[Record]) -> Op[list[str]]:
    """Insert the workflows that are missing. Return those that were cancelled in the source only.

    One whose key another holds in the target arrives without it.
    """
    rows = [
        {**each, "ended_at": None} if each["ended_at"] == FOR_EVER else each for each in workflows
    ]

    def steps() -> Steps[list[str]]:
        yield Begin()
        inserted = {row[0] for row in (yield from _put("workflow", rows))}
        left = [each for each in rows if each["id"] not in inserted]
        ids = sorted(each["id"] for each in left)
        there = {row[0]: row for row in (yield Statement("workflows", {"ids": ids}))}
        keyless = [{**each, "key": None} for each in left if each["id"] not in there]
        yield from _put("workflow", keyless)
        yield from _put("stack", stacks)
        return [
            each["id"]
            for each in left
            if each["id"] in there
            and each["cancelled_at"] is not None
            and there[each["id"]][_CANCELLED_AT] is None
        ]

    return writing("add_workflows", steps, repeat=steps)


def end_lost() -> Op[int]:
    """Cancel what waits for jobs that were removed in the source. Return their number.

    Everything else must have moved.
    """
    values = {"limit": config.MAINTENANCE_BATCH_ROWS}

    def steps() -> Steps[int]:
        total = 0
        while True:
            yield Begin()
            ids = sorted(row[0] for row in (yield Statement("move_lost", values)))
            yield from removed(ids)
            if ids:
                yield Statement("drop_edges", {"ids": ids})
            yield Commit()
            total += len(ids)
            if len(ids) < config.MAINTENANCE_BATCH_ROWS:
                return total

    return writing("end_lost", steps, repeat=steps)


def drop_workflows() -> Op[None]:
    """Remove workflows that have moved as a whole, and who waited for whom in them."""
    values = {"limit": config.MAINTENANCE_BATCH_ROWS, "for_ever": FOR_EVER}

    def steps() -> Steps[None]:
        while True:
            yield Begin()
            ids = sorted(row[0] for row in (yield Statement("move_left", values)))
            if ids:
                yield Statement("drop_stacks", {"ids": ids})
                yield Statement("move_drop/workflow", {"keys": ids})
            yield Commit()
            if len(ids) < config.MAINTENANCE_BATCH_ROWS:
                break
        yield Statement("move_drop_edges")

    return writing("drop_workflows", steps, repeat=steps)


def adopt_limits(limits: Sequence[Record]) -> Op[None]:
    """Keep what was set and paused in the source, for limits that the target had declared itself.

    What was set or paused in the target counts more.
    """

    def steps() -> Steps[None]:
        yield Begin()
        chosen = {each["name"]: each["chosen"] for each in limits if each["chosen"] is not None}
        yield from adopt_chosen(chosen)
        for each in limits:
            if each["closed_until"] is not None:
                names = ("name", "closed_until", "closed_by")
                yield Statement("move_closed", {name: each[name] for name in names})

    return writing("adopt_limits", steps, repeat=steps)


def drop(table: str, keys: Sequence[str]) -> Op[None]:
    """Remove rows."""

    def steps() -> Steps[None]:
        yield Statement(f"move_drop/{table}", {"keys": list(keys)})

    return writing("drop", steps, repeat=steps)


def add_ended(
    jobs: Sequence[Record], logs: Sequence[Record], edges: Sequence[Record] = ()
) -> Op[None]:
    """Insert ended jobs, unless the target knows more about them.

    Of two ends the later counts, and a job that was retried there stays live.

    Args:
        edges: Who waits for them, and for whom else.
    """
    by_id = {job["id"]: job for job in jobs}

    def steps() -> Steps[None]:
        yield Begin()
        if any(job["workflow"] is not None for job in jobs):
            yield Statement("move_lock")
            yield from _put_edges(edges, apart_from=by_id)
        yield from _continue_places(jobs)
        inserted = {row[0] for row in (yield from _put("finished", jobs))}
        rows = yield Statement("get", {"ids": sorted(by_id.keys() - inserted)})
        there = [JobRow._make(row[:-1]) for row in rows]
        earlier = [copy.id for copy in there if _is_earlier(copy, by_id[copy.id])]
        if earlier:
            yield Statement("move_drop/finished", {"keys": earlier})
            again = yield from _put("finished", [by_id[id] for id in earlier])
            inserted |= {row[0] for row in again}
        # Last: the insert may have waited for a retry of the same job.
        stale = yield from _gone_on(inserted, by_id)
        yield Statement("move_drop/finished", {"keys": sorted(stale)})
        nodes = [by_id[id] for id in sorted(inserted - stale) if by_id[id]["workflow"] is not None]
        yield from arrived([(job["id"], job["state"], job["cause"]) for job in nodes])
        yield from _put("log", logs)

    return writing("add_ended", steps, repeat=steps)


def _is_earlier(copy: JobRow, job: Record) -> bool:
    """Whether the target's copy is an earlier end of the same job."""
    is_same = copy.state is not None and copy.created_at == job["created_at"]
    return bool(is_same and copy.token < job["token"])


def _gone_on(inserted: set[str], jobs: Mapping[str, Record]) -> Steps[set[str]]:
    """Which of these jobs are live in the target, or ended there later and were removed."""
    rows = yield Statement("get", {"ids": sorted(inserted)})
    stale = {row[0] for row in rows if JobRow._make(row[:-1]).state is None}
    asked = [(id, None, jobs[id]["kind"], None) for id in sorted(inserted)]
    found = (yield Batch("find_settled", _ASKED_COLUMNS, asked)) if asked else []
    return stale | {row[0] for row in found if row[_TOKEN] > jobs[row[0]]["token"]}


def drop_ended(jobs: Sequence[Record]) -> Op[None]:
    """Remove ended jobs with their logs, except those that were retried since."""
    ends = sorted((job["id"], job["token"]) for job in jobs)

    def steps() -> Steps[None]:
        yield Begin()
        yield Batch("move_remember_ended", ("id", "token"), ends, _remember())
        gone = yield Batch("move_drop_ended", ("id", "token"), ends)
        yield Statement("unlog", {"ids": [id for (id,) in gone]})

    return writing("drop_ended", steps, repeat=steps)


def _put(table: str, rows: Sequence[Record]) -> Steps[Rows]:
    """Insert the rows that are missing. Return their keys.

    Long rows take more than one statement: 200 jobs of half a MiB in one took 1.5 GiB.
    """
    found: Rows = []
    for part in _parts(msgspec.json.encode(row) for row in rows):
        text = b"[" + b",".join(part) + b"]"
        found += yield Statement(f"move_put/{table}", {"moved": text.decode()})
    return found


def _parts(texts: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Split texts, in order, into parts that fit into one statement. A part has at least one."""
    part: list[bytes] = []
    size = 0
    for text in texts:
        if part and size + len(text) > config.MOVE_STATEMENT_BYTES:
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
    if part:
        yield part


def _mark(batch: str, action: str, detail: Mapping[str, object]) -> Statement:
    values = {"id": batch, "actor": _ACTOR, "action": action, "target": _PREFIX + batch}
    return Statement("move_mark", {**values, "detail": msgspec.json.encode(detail).decode()})


def _records(rows: Rows) -> list[Record]:
    return [_decode(text) for (text,) in rows]
