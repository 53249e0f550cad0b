"""Workflows: jobs that wait for jobs, written all or none.

1. A workflow and its jobs are written in one transaction, with the edges between them. An id that
   is known means that the same workflow was sent before. A key that an open workflow holds means
   that this one is not needed.
2. A job can wait for one that exists already. That one is locked first, and looked at in the next
   statement: whoever ends it does so before, and is seen, or afterwards, and sees the new edge. A
   live one becomes part of the workflow, unless it belongs to another.
3. A node whose key another job holds is that other job: what waits for the node waits for it.
4. A job that succeeds can add jobs. What waited for it then waits for the last of them, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from rowlock import config
from rowlock.columns import JobRow
from rowlock.errors import NotFound
from rowlock.inputs import renamed_inputs
from rowlock.job import JobState
from rowlock.store.ops.enqueue import Answers, Copied, enqueue_within, insert_nodes
from rowlock.store.ops.finish import already_ended, drop_unneeded, lock_jobs
from rowlock.store.options import NewJob
from rowlock.store.steps import Batch, Begin, Copy, Op, Ring, Row, Statement, Steps, writing
from rowlock.workflow_rules import Wants, root_of

_EDGE_COLUMNS: Final = ("parent", "child", "wants")
_STACK_COLUMNS: Final = ("workflow", "stack", "parent", "wants", "kind")


class Edge(NamedTuple):
    """A job waits for another. `wants` is the stored form of the end that it waits for."""

    parent: str
    child: str
    wants: int


class Stack(NamedTuple):
    """Nodes that are alike wait for nodes that are alike. Parent 0: they are there."""

    stack: int
    parent: int
    wants: int
    kind: str


@dataclass(slots=True)
class Draft:
    """A workflow to write, or a part to add to one.

    `root`: the stack of the job that adds these, or 0. `outside`: jobs that exist already and that
    others here wait for. `unneeded`: jobs that want the death of no job. `sinks`: jobs for which
    none of the others waits, with their stacks.
    """

    id: str
    name: str
    key: str | None = None
    tenant: str | None = None
    parent: str | None = None
    deadline_us: int | None = None
    meta: str | None = None
    root: int = 0
    is_resend: bool = False
    nodes: list[NewJob] = field(default_factory=list[NewJob])
    edges: list[Edge] = field(default_factory=list[Edge])
    stacks: list[Stack] = field(default_factory=list[Stack])
    outside: set[str] = field(default_factory=set[str])
    unneeded: list[str] = field(default_factory=list[str])
    sinks: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def without_sends(self) -> Draft:
        """The same, for another process: whether its jobs were sent is of no use there."""
        return replace(self, nodes=[job._replace(first_send=None) for job in self.nodes])


class Written(NamedTuple):
    """The id of a workflow, and whether it is new."""

    id: str
    created: bool


def enqueue_workflow(draft: Draft) -> Op[Written]:
    """Write a workflow, all of it or nothing."""
    return writing(
        "enqueue_workflow",
        lambda: _enqueue(draft, is_repeat=False),
        repeat=lambda: _enqueue(draft, is_repeat=True),
    )


def _enqueue(draft: Draft, *, is_repeat: bool) -> Steps[Written]:
    yield Begin()
    values = _values_of(draft)
    # Another one may take over the key of a workflow that has ended before this one does.
    while not (yield Statement("add_workflow", values)):
        known = yield from _known(draft)
        if known is not None:
            # A repeat finds what its first try has written.
            return Written(known, created=is_repeat and known == draft.id)
    yield from put_nodes(draft, draft.id)
    return Written(draft.id, created=True)


def _values_of(draft: Draft) -> dict[str, object]:
    return {
        "id": draft.id,
        "name": draft.name,
        "key": draft.key,
        "tenant": draft.tenant,
        "parent": draft.parent,
        "deadline": draft.deadline_us,
        "meta": draft.meta,
    }


def _known(draft: Draft) -> Steps[str | None]:
    """The workflow that is there already: by its id, or because it holds the key and is open."""
    if (yield Statement("workflows", {"ids": [draft.id]})):
        return draft.id
    holders = yield Statement(
        "workflow_of_key", {"name": draft.name, "key": draft.key, "tenant": draft.tenant}
    )
    for (holder,) in holders:
        if (yield Statement("live_of_workflow", {"workflow": holder})):
            found: str = holder
            return found
        # It has ended, and nobody has noted that yet.
        yield from note_end(holder)
    return None


def note_end(workflow: str) -> Steps[None]:
    """Note that a workflow has ended, in a transaction that has locked it."""
    values = {"workflow": workflow, "limit": config.MAINTENANCE_BATCH_ROWS}
    while len((yield Statement("keep_nodes", values))) == config.MAINTENANCE_BATCH_ROWS:
        pass
    yield Statement("note_ended", values)


def put_nodes(draft: Draft, workflow: str, waiting: Sequence[Row] = ()) -> Steps[None]:
    """Write the jobs of a draft and their edges, in a transaction. They belong to `workflow`.

    `waiting`: the edges from a job that adds these. What waits for it waits for the sinks, too.
    """
    known = yield from _look_outside(draft, workflow)
    nodes = draft.nodes
    if any(job.node is None or job.node.workflow != workflow for job in nodes):
        nodes = [_within(job, workflow) for job in nodes]
    held = [job for job in nodes if job.key is not None]
    others = [job for job in nodes if job.key is None]
    instead = yield from _put_held(held)
    is_given = draft.is_resend or any(job.is_resend for job in others)
    yield from insert_nodes(others, is_given=is_given)
    edges = draft.edges
    if instead:
        found = yield from _look_at(sorted(set(instead.values())), workflow, draft.tenant)
        known.update(found)
        edges = _rerouted(edges, instead)
        yield from _count_once(draft.edges, edges, instead)
        yield from _rename_inputs(nodes, instead)
    yield from _put_edges(edges)
    if waiting and draft.sinks:
        edges = [*edges, *(yield from _wait_for_sinks(draft, workflow, waiting, instead))]
    if draft.stacks:
        rows: list[Row] = [(workflow, *stack) for stack in draft.stacks]
        yield Batch("add_stacks", _STACK_COLUMNS, rows)
    # Last: what is cancelled by this has consequences for all that waits.
    if known:
        yield from already_ended(known, edges)
    if draft.unneeded:
        yield from drop_unneeded(draft.unneeded)
    due = frozenset(job.queue for job in nodes if job.node is None or not job.node.pending)
    if due:
        yield Ring(due)


def new_nodes(nodes: Sequence[NewJob]) -> Copied:
    """The jobs of a workflow as they were written, each made when it is read."""
    return Copied(nodes, [(0, 0)] * len(nodes), Answers())


def grow(job: JobRow, draft: Draft) -> Steps[JobRow]:
    """Add jobs to the workflow of a job that succeeds, or to one that begins with it.

    What waits for the job then waits for the last of them, too. The caller has locked the job, and
    ends it afterwards, in this transaction. Returns the job as it is stored now.
    """
    if not draft.nodes:
        return job
    if job.workflow is None:
        yield Statement("add_workflow", _values_of(draft))
        yield Statement("begin_workflow", {"id": job.id, "workflow": draft.id, "stack": draft.root})
        stack = (draft.id, draft.root, 0, 1, job.kind)
        yield Batch("add_stacks", _STACK_COLUMNS, [stack])
        job = job._replace(workflow=draft.id, stack=draft.root)
    else:
        found = yield Statement("lock_workflow", {"ids": [job.workflow]})
        if found and found[0][4] is not None:
            # It was cancelled: nothing is added to it any more.
            return job
    assert job.workflow is not None
    waiting = yield Statement("open_edges", {"ids": [job.id]})
    yield from put_nodes(draft, job.workflow, waiting)
    return job


def _wait_for_sinks(
    draft: Draft, workflow: str, waiting: Sequence[Row], instead: Mapping[str, str]
) -> Steps[list[Edge]]:
    """Have what waits for a job wait for the sinks that it adds. Return the new edges."""
    sinks = sorted({instead.get(sink, sink) for sink, _ in draft.sinks})
    wants = {child: Wants(each) for _, child, each in waiting}
    known: set[tuple[str, str]] = set()
    if instead:
        # One of the sinks may be a job for which they wait already: even the one that adds it.
        rows = yield Statement("edges_to", {"ids": sorted(wants)})
        known = {(parent, child) for parent, child, _, _ in rows}
    added = [
        Edge(sink, child, each)
        for child, each in sorted(wants.items())
        for sink in sinks
        if (sink, child) not in known
    ]
    yield from _put_edges(added)
    numbers = Counter(edge.child for edge in added)
    # They have as many more to wait for.
    more: list[Row] = [(child, -number) for child, number in sorted(numbers.items())]
    if more:
        yield Batch("count_down", ("id", "number"), more, {"releases": True})
    if Wants.DEATH in wants.values():
        # A success is not what these wait for.
        yield Statement("watch_again", {"ids": sinks})
    children = yield Statement("stacks_of", {"ids": sorted(wants)})
    stacks: list[Row] = [
        (workflow, stack, parent, wants[child], kind)
        for child, stack, kind in children
        for parent in sorted({parent for _, parent in draft.sinks})
        if stack is not None and stack != parent
    ]
    if stacks:
        yield Batch("add_stacks", _STACK_COLUMNS, list(dict.fromkeys(stacks)))
    return added


def _within(job: NewJob, workflow: str) -> NewJob:
    assert job.node is not None
    return job._replace(node=job.node._replace(workflow=workflow))


def _look_outside(draft: Draft, workflow: str) -> Steps[dict[str, JobState]]:
    """Lock jobs that others are to wait for. Return those that have ended."""
    if not draft.outside:
        return {}
    return (yield from _look_at(sorted(draft.outside), workflow, draft.tenant))


def _look_at(ids: list[str], workflow: str, tenant: str | None) -> Steps[dict[str, JobState]]:
    live, ended = yield from lock_jobs(ids)
    for id in ids:
        job = live.get(id) or ended.get(id)
        if job is None or job.tenant != tenant:
            raise NotFound(f"there is no job {id} to wait for")
    if live:
        yield from _watch("watch", [live[id] for id in sorted(live)], workflow)
    # One that has not succeeded may be retried.
    lost = [job for job in ended.values() if job.state != JobState.SUCCEEDED]
    if lost:
        yield from _watch("watch_ended", lost, workflow)
    return {id: JobState(job.state or "") for id, job in ended.items()}


def _watch(statement: str, jobs: Sequence[JobRow], workflow: str) -> Steps[None]:
    """Have jobs that are locked belong to the workflow, unless they belong to another."""
    rows: list[Row] = [(job.id, root_of(job.kind)) for job in jobs]
    yield Batch(statement, ("id", "stack"), rows, {"workflow": workflow})
    kinds = {job.kind for job in jobs if job.workflow is None}
    stacks: list[Row] = [(workflow, root_of(kind), 0, 1, kind) for kind in sorted(kinds)]
    if stacks:
        yield Batch("add_stacks", _STACK_COLUMNS, stacks)


def _put_held(held: Sequence[NewJob]) -> Steps[dict[str, str]]:
    """Write jobs that have keys. Return the ids of the jobs that hold their keys instead."""
    if not held:
        return {}
    answers = yield from enqueue_within(held, is_resend=False, answers=Answers(is_lean=True))
    pairs = zip(held, answers, strict=True)
    return {job.id: answer.id for job, answer in pairs if answer.id != job.id}


def _count_once(
    drawn: Sequence[Edge], edges: Sequence[Edge], instead: Mapping[str, str]
) -> Steps[None]:
    """Have jobs count a job once that holds the keys of several of their parents."""
    fewer = Counter(edge.child for edge in drawn if edge.child not in instead)
    fewer.subtract(edge.child for edge in edges)
    rows: list[Row] = [(child, number) for child, number in sorted(fewer.items()) if number]
    if rows:
        yield Batch("count_down", ("id", "number"), rows, {"releases": True})


def _put_edges(edges: Sequence[Edge]) -> Steps[None]:
    for start in range(0, len(edges), config.COPY_ROWS_MAX):
        part: list[Row] = [*edges[start : start + config.COPY_ROWS_MAX]]
        instead = partial(Batch, "add_edges", _EDGE_COLUMNS, part)
        if len(part) < config.COPY_ROWS_MIN:
            yield instead()
        else:
            yield Copy("edge", _EDGE_COLUMNS, part, instead)


def _rerouted(edges: Sequence[Edge], instead: Mapping[str, str]) -> list[Edge]:
    """The edges, if some nodes are other jobs. What those wait for does not change."""
    return list(
        dict.fromkeys(
            Edge(instead.get(edge.parent, edge.parent), edge.child, edge.wants)
            for edge in edges
            if edge.child not in instead
        )
    )


def _rename_inputs(nodes: Sequence[NewJob], instead: Mapping[str, str]) -> Steps[None]:
    """Have jobs take the results of the jobs that are there instead of some nodes."""
    rows: list[Row] = []
    for job in nodes:
        if job.node is None or job.node.inputs is None or job.id in instead:
            continue
        stored = renamed_inputs(job.node.inputs, instead)
        if stored != job.node.inputs:
            rows.append((job.id, stored))
    if rows:
        yield Batch("set_inputs", ("id", "inputs"), rows)
