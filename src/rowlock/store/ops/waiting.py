"""Take ended jobs back. A job of a workflow waits again for the jobs that it still needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rowlock.columns import JobRow
from rowlock.job import JobState
from rowlock.store.ops.finish import lock_jobs, removed
from rowlock.store.steps import Batch, Ring, Row, Rows, Statement, Steps
from rowlock.workflow_rules import Effect, Wants, effect_of

# Its place in the rows of `lock_workflow`.
_CANCELLED_AT: Final = 4


def waiting_for(jobs: Sequence[JobRow]) -> Steps[dict[str, list[str]]]:
    """The jobs that wait for jobs that have not succeeded, and that are theirs to wait for."""
    ids = [job.id for job in jobs if job.workflow is not None and job.state != JobState.SUCCEEDED]
    if not ids:
        return {}
    found: dict[str, list[str]] = {}
    for parent, child in (yield Statement("waiting_children", {"ids": ids})):
        found.setdefault(parent, []).append(child)
    return found


def forget_nodes(jobs: Sequence[JobRow]) -> Steps[None]:
    """Jobs were removed: what waits for them is cancelled, and nothing is known of them now."""
    nodes = [job for job in jobs if job.workflow is not None]
    if nodes:
        yield from removed([job.id for job in nodes if job.state != JobState.SUCCEEDED])
        yield Statement("drop_edges", {"ids": sorted(job.id for job in nodes)})


class Revived(NamedTuple):
    """The ids of jobs that were taken back, and why their workflows refuse that of others."""

    done: set[str]
    refused: dict[str, str]


def revive_jobs(jobs: Sequence[JobRow], payload: str | None = None) -> Steps[Revived]:
    """Take back ended jobs that this transaction has locked, like new ones.

    Jobs whose key is in flight again are left out, and those that a workflow refuses.
    """
    if not jobs:
        return Revived(set(), {})
    workflows = sorted({job.workflow for job in jobs if job.workflow is not None})
    reasons = (yield from _reopen(workflows)) if workflows else {}
    refused = {job.id: reasons[job.workflow] for job in jobs if job.workflow in reasons}
    rows: list[Row] = [(job.id, payload) for job in jobs if job.id not in refused]
    revived = (yield Batch("revive", ("id", "payload"), rows)) if rows else []
    done = {row[0] for row in revived}
    if not done:
        return Revived(done, refused)
    yield Statement("forget", {"ids": sorted(done)})
    nodes = sorted(job.id for job in jobs if job.workflow is not None and job.id in done)
    if nodes:
        yield from _wait_again(nodes)
    yield Ring(frozenset(row[1] for row in revived))
    return Revived(done, refused)


def _reopen(workflows: Sequence[str]) -> Steps[dict[str, str]]:
    """Have workflows be open again, and return why some can't be.

    The sweep that ends them waits for this. A cancellation that was cut short must come to its end
    first: a job of it may wait for one that was cancelled, and nobody would let it know.
    """
    locked = yield Statement("lock_workflow", {"ids": list(workflows)})
    reasons: dict[str, str] = {}
    if any(row[_CANCELLED_AT] is not None for row in locked):
        cancelled = [row[0] for row in locked if row[_CANCELLED_AT] is not None]
        for (id,) in (yield Statement("uncancelled", {"ids": cancelled})):
            reasons[id] = f"its workflow {id} is being cancelled; retry it in a few seconds"
    for mine, other in (yield Statement("key_of_others", {"ids": list(workflows)})):
        reasons[mine] = f"the key of its workflow is held by workflow {other}"
    free = [id for id in workflows if id not in reasons]
    if free:
        yield Statement("reopen_workflows", {"ids": free})
    return reasons


def _wait_again(ids: Sequence[str]) -> Steps[None]:
    """Have jobs that were taken back wait for those that have not ended as they want.

    These are locked first: they end before, and are seen, or afterwards, and see who waits. One
    that has added jobs before has added edges, too.
    """
    live: dict[str, JobRow] = {}
    ended: dict[str, JobRow] = {}
    looked: set[str] = set()
    while True:
        edges = yield Statement("edges_to", {"ids": list(ids)})
        parents = sorted({edge[0] for edge in edges} - looked)
        if not parents:
            break
        more_live, more_ended = yield from lock_jobs(parents)
        live |= more_live
        ended |= more_ended
        looked.update(parents)
    states = {id: JobState(job.state or "") for id, job in ended.items()}
    pending = _pending(edges, set(live), states)
    rows: list[Row] = [(id, number) for id, number in sorted(pending.items()) if number]
    if rows:
        yield Batch("wait_again", ("id", "pending"), rows)
        watched = sorted(live.keys() & {edge[0] for edge in edges if edge[1] in dict(rows)})
        if watched:
            yield Statement("watch_again", {"ids": watched})


def _pending(edges: Rows, live: set[str], states: dict[str, JobState]) -> dict[str, int]:
    """How many jobs each job waits for. A parent that is gone counts as if it had never been."""
    pending: dict[str, int] = {}
    released: set[str] = set()
    for parent, child, wants, is_met in edges:
        pending.setdefault(child, 0)
        if is_met or (parent not in live and parent not in states):
            continue
        if parent in live:
            pending[child] += 1
            continue
        match effect_of(states[parent], Wants(wants)):
            case Effect.RELEASES:
                released.add(child)
            case Effect.NOTHING | Effect.CANCELS:
                # It waits for the retry of its parent.
                pending[child] += 1
            case Effect.COUNTS | Effect.LESS:
                pass
    return {child: 0 if child in released else number for child, number in pending.items()}
