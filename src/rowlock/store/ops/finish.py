"""Finish: move jobs out of the live table, and let the jobs that wait for them know.

Every end of a job comes through here: successes, deaths, cancels, whoever decided them.

1. A plain job needs one statement, and so does a success in a workflow: the same statement lowers
   the counts of the jobs that wait for it, and releases those that wait for no other.
2. All other ends in workflows go step by step, in one transaction: the jobs are moved, then the
   edges to those that wait for them are read, then `workflow_rules` decides. A job that is
   cancelled because of that has consequences of its own.
3. The statements of 1 skip jobs that a workflow has begun to wait for since they were claimed. They
   were changed under a row lock for which such a statement may have waited, and it would not see
   the new edges. Those jobs then end by the steps of 2, whose statements begin later.
4. Whatever a death or a cancel has counted for is marked: the job may be retried and succeed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rowlock import codec, config
from rowlock.columns import JobRow
from rowlock.fingerprint import fingerprint
from rowlock.job import JobError, JobState, decode_errors, decode_policy, encode_errors
from rowlock.lifecycle import Finish, Transition
from rowlock.store.steps import Batch, Begin, Ring, Row, Statement, Steps
from rowlock.workflow_rules import CancelCause, Effect, Wants, effect_of

FINISH_COLUMNS: Final = (
    "id",
    "token",
    "leased",
    "taken",
    "state",
    "result",
    "errors",
    "crashes",
    "keep",
    "fingerprint",
)
REMEMBER_US: Final = int(config.ID_REMEMBERED_SECONDS) * config.SECOND_US
FOR_EVER: Final = -1
# A job that moves between the tables while we look is found on the next look.
_LOOKS: Final = 3

# The error type of a job that was cancelled because of another, or was not needed.
PARENT_ENDED: Final = "ParentEnded"
NOT_NEEDED: Final = "NotNeeded"


# Plain successes of claimed jobs in workflows, (id, result), by their token and how long they are
# kept: nearly always one group.
NodeSuccesses = Mapping[tuple[int, int], Sequence[tuple[str, str | None]]]


def success_row(id: str, token: int, kept: int, result: str | None) -> Row:
    """The row of `finish` for a plain success."""
    return (id, token, True, False, "succeeded", result, None, None, kept, None)


class Ending(NamedTuple):
    """A row of `finish`.

    `is_held`: its id or key must be remembered, beside or after the job. `is_node`: it is known to
    belong to a workflow. `cause`: why it was cancelled, if not by a request.
    """

    row: Row
    is_held: bool
    is_node: bool = False
    cause: CancelCause | None = None

    @property
    def id(self) -> str:
        id: str = self.row[0]
        return id

    @property
    def state(self) -> JobState:
        return JobState(self.row[4])


def ending_of(
    job: JobRow,
    step: Finish,
    *,
    taken: bool,
    leased: bool = True,
    cause: CancelCause | None = None,
) -> Ending:
    """How a job ends."""
    kept = kept_us(step.keep)
    mark = None
    if step.state is JobState.DEAD and step.error is not None:
        mark = fingerprint(job.kind, step.error)
    row = (
        job.id,
        job.token,
        leased,
        taken,
        step.state.value,
        step.result,
        errors_with(job, step),
        step.crashes,
        kept,
        mark,
    )
    return Ending(row, is_held(job, kept), job.workflow is not None, cause)


def kept_us(keep: int | None) -> int:
    """How long a job is kept, as statements take it."""
    return FOR_EVER if keep is None else keep


def is_held(job: JobRow, kept: int) -> bool:
    """Whether an id or key must be remembered beside or after its row.

    In a workflow the workflow remembers its ids.
    """
    is_short = 0 <= kept < REMEMBER_US and job.workflow is None
    return is_short or (job.key_hold is not None and job.key_hold > 0)


def errors_with(job: JobRow, step: Transition) -> str | None:
    """The job's errors with the new one. None keeps the stored ones."""
    if step.error is None:
        return None
    return encode_errors([*decode_errors(job.errors), step.error])


def finish(
    endings: Sequence[Ending],
    claims: Sequence[str] = (),
    *,
    nodes: NodeSuccesses = MappingProxyType({}),
    apart: set[str] | None = None,
) -> Steps[set[str]]:
    """Move jobs out of the live table. Return the ids of those that were still held.

    `claims` are removed with them, if there are any.

    Args:
        nodes: Successes in workflows, whose consequences are counts alone.
        apart: Given if no transaction was begun. It gets the ids of jobs whose end is committed
            before the steps of others begin, which may be undone and tried again.
    """
    over = {"claims": list(claims)}
    plain = [each.row for each in endings if not each.is_held and not each.is_node]
    held = [each.row for each in endings if each.is_held and not each.is_node]
    done: set[str] = set()
    if plain:
        done |= {row[0] for row in (yield Batch("finish", FINISH_COLUMNS, plain, over))}
    if held:
        values = {"remember": REMEMBER_US, **over}
        done |= {row[0] for row in (yield Batch("finish_held", FINISH_COLUMNS, held, values))}
    for (token, keep), rows in nodes.items():
        values = {"token": token, "keep": keep, **over}
        done |= yield from _finish_nodes(rows, values)
    left = [each for each in endings if each.id not in done]
    left += [
        Ending(success_row(id, token, keep, result), False, is_node=True)
        for (token, keep), rows in nodes.items()
        for id, result in rows
        if id not in done
    ]
    if left:
        if apart is not None:
            apart |= done
        yield Begin()
        done |= yield from finish_by_steps(left, claims)
    return done


def _finish_nodes(rows: Sequence[Row], values: Mapping[str, Any]) -> Steps[set[str]]:
    found = yield Batch("finish_nodes", ("id", "result"), rows, values)
    freed = frozenset(row[1] for row in found if row[1] is not None)
    if freed:
        yield Ring(freed)
    done = {row[0] for row in found if row[1] is None}
    return {row[0] for row in rows} if None in done else done


class _End(NamedTuple):
    """A job that has ended or is gone, for those that wait for it."""

    id: str
    state: JobState
    cause: CancelCause | None = None


def finish_by_steps(endings: Sequence[Ending], claims: Sequence[str] = ()) -> Steps[set[str]]:
    """As `finish`, within a transaction, with every consequence."""
    done = yield from _move(endings, claims)
    ended = [_End(each.id, each.state, each.cause) for each in endings if each.id in done]
    yield from _consequences(ended)
    return done


def finish_within(endings: Sequence[Ending], workflow: str) -> Steps[None]:
    """End jobs of a workflow all of which ends, in a transaction. Jobs of others learn of it.

    Its own jobs don't: they are ended in turn, and the chain below the first of them may be long.
    """
    done = yield from _move(endings, ())
    ended = [_End(each.id, each.state, each.cause) for each in endings if each.id in done]
    values = {"ids": [each.id for each in ended], "workflow": workflow}
    edges = (yield Statement("open_edges/beyond", values)) if ended else []
    yield from _consequences(ended, edges)


def _move(endings: Sequence[Ending], claims: Sequence[str]) -> Steps[set[str]]:
    columns = (*FINISH_COLUMNS, "cause")
    over = {"claims": list(claims)}
    done: set[str] = set()
    for start in range(0, len(endings), config.MAINTENANCE_BATCH_ROWS):
        part = endings[start : start + config.MAINTENANCE_BATCH_ROWS]
        held = [(*each.row, each.cause) for each in part if each.is_held]
        others = [(*each.row, each.cause) for each in part if not each.is_held]
        if others:
            done |= {row[0] for row in (yield Batch("finish/steps", columns, others, over))}
        if held:
            values = {"remember": REMEMBER_US, **over}
            done |= {row[0] for row in (yield Batch("finish_held/steps", columns, held, values))}
    return done


def removed(ids: Sequence[str]) -> Steps[None]:
    """Jobs of workflows were removed before they succeeded: what waits for them is cancelled."""
    yield from _consequences([_End(id, JobState.CANCELLED) for id in ids])


def drop_unneeded(ids: Sequence[str]) -> Steps[None]:
    """Cancel jobs that want a death which can't come, and let those that wait for them know."""
    yield from _consequences((yield from _drop(ids)))


def already_ended(states: Mapping[str, JobState], edges: Sequence[Row]) -> Steps[None]:
    """Jobs have begun to wait for jobs that had ended. `edges`: (parent, child, wants)."""
    ended = [_End(id, state) for id, state in states.items()]
    yield from _consequences(ended, [edge for edge in edges if edge[0] in states])


def arrived(ends: Sequence[tuple[str, str, int | None]]) -> Steps[None]:
    """Ended jobs have come from another database: (id, state, cause)."""
    ended = [
        _End(id, JobState(state), None if cause is None else CancelCause(cause))
        for id, state, cause in ends
    ]
    yield from _consequences(ended)


def lock_jobs(ids: Sequence[str]) -> Steps[tuple[dict[str, JobRow], dict[str, JobRow]]]:
    """Lock jobs, live or ended: they end before, and are seen, or afterwards, and see what is new.

    One that is retried between two looks is found by the next. Returns the live and the ended.
    """
    live: dict[str, JobRow] = {}
    ended: dict[str, JobRow] = {}
    left = sorted(ids)
    for _ in range(_LOOKS):
        if not left:
            break
        rows = yield Statement("lock_leases", {"ids": left})
        live |= {row[0]: JobRow._make(row[:-2]) for row in rows}
        left = [id for id in left if id not in live]
        if left:
            rows = yield Statement("lock_finished", {"ids": left})
            ended |= {row[0]: JobRow._make(row[:-1]) for row in rows}
            left = [id for id in left if id not in ended]
    return live, ended


def _consequences(ended: Sequence[_End], edges: Sequence[Row] | None = None) -> Steps[None]:
    """Let the jobs that wait for ended ones count, run or end. A cancelled one is an end too.

    `edges`: those to consider first. None: all that are open.
    """
    while ended:
        ends = {each.id: each for each in ended}
        if edges is None:
            edges = yield Statement("open_edges", {"ids": list(ends)})
        counted: Counter[str] = Counter()
        fewer: Counter[str] = Counter()
        released: set[str] = set()
        doomed: dict[str, _End] = {}
        marked: list[Row] = []
        for parent, child, wants in edges:
            end = ends[parent]
            effect = effect_of(end.state, Wants(wants))
            match effect:
                case Effect.COUNTS:
                    counted[child] += 1
                case Effect.LESS:
                    fewer[child] += 1
                case Effect.RELEASES:
                    released.add(child)
                case Effect.CANCELS:
                    doomed[child] = end
                case Effect.NOTHING:
                    continue
            if end.state is not JobState.SUCCEEDED and effect is not Effect.CANCELS:
                marked.append((parent, child))
        if marked:
            yield Batch("mark_edges", ("parent", "child"), sorted(marked))
        yield from _count(counted)
        unneeded = yield from _count(fewer, releases=False)
        if released:
            yield from _release(sorted(released))
        cancelled = yield from _cancel(doomed)
        cancelled += yield from _drop(unneeded)
        ended, edges = cancelled, None


def _count(numbers: Counter[str], *, releases: bool = True) -> Steps[list[str]]:
    """Lower the counts of jobs that wait, and release those that reach zero, or return them."""
    if not numbers:
        return []
    rows = sorted(numbers.items())
    counted = yield Batch("count_down", ("id", "number"), rows, {"releases": releases})
    at_zero = [(id, queue) for id, queue, pending in counted if pending <= 0]
    if releases and at_zero:
        yield Ring(frozenset(queue for _, queue in at_zero))
    return [id for id, _ in at_zero]


def _release(ids: Sequence[str]) -> Steps[None]:
    rows = yield Statement("release_waiting", {"ids": list(ids)})
    if rows:
        yield Ring(frozenset(row[1] for row in rows))


def _cancel(doomed: dict[str, _End]) -> Steps[list[_End]]:
    """Cancel jobs that wait, and all that can't run without them."""
    if not doomed:
        return []
    by: dict[str, tuple[str, CancelCause]] = {}
    for child, end in doomed.items():
        cause = end.cause if end.cause is CancelCause.NOT_NEEDED else CancelCause.PARENT
        by[child] = (end.id, cause)
    # All at once: a chain of 10,000 would otherwise take 10,000 rounds.
    for child, parent in (yield Statement("descendants", {"ids": sorted(doomed)})):
        if child not in by and parent in by:
            by[child] = (parent, by[parent][1])
    return (yield from _end_waiting(by))


def _drop(unneeded: Sequence[str]) -> Steps[list[_End]]:
    """Cancel jobs that want a death which can't come any more."""
    by = dict.fromkeys(unneeded, ("", CancelCause.NOT_NEEDED))
    return (yield from _end_waiting(by, is_held=True))


def _end_waiting(
    by: dict[str, tuple[str, CancelCause]], *, is_held: bool = False
) -> Steps[list[_End]]:
    """Cancel jobs that still wait for others. `by`: because of which job, and why.

    `is_held`: this transaction knows that they wait, though they count no other any more.
    """
    ended: list[_End] = []
    ids = sorted(by)
    for start in range(0, len(ids), config.MAINTENANCE_BATCH_ROWS):
        part = ids[start : start + config.MAINTENANCE_BATCH_ROWS]
        endings: list[Ending] = []
        for row in (yield Statement("lock_leases", {"ids": part})):
            job, taken, now = JobRow._make(row[:-2]), bool(row[-2]), row[-1]
            if not job.pending and not is_held:
                continue
            parent, cause = by[job.id]
            step = _cancelled_by(job, parent, cause, now=now)
            endings.append(ending_of(job, step, taken=taken, leased=False, cause=cause))
        done = yield from _move(endings, ())
        ended += [_End(id, JobState.CANCELLED, by[id][1]) for id in part if id in done]
    return ended


def _cancelled_by(job: JobRow, parent: str, cause: CancelCause, *, now: int) -> Finish:
    if cause is CancelCause.NOT_NEEDED:
        error = JobError(job.attempt, now, NOT_NEEDED, "no job that it waited for has died")
    else:
        said = f"job {parent}, for which it waited, did not succeed"
        error = JobError(job.attempt, now, PARENT_ENDED, codec.clean_text(said, bytes_max=1024))
    keep = decode_policy(job.policy).keep_for(JobState.CANCELLED)
    return Finish(JobState.CANCELLED, keep, job.crashes, error=error)
