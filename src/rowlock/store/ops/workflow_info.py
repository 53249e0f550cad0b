"""Look at workflows: their states, their counts, their shape, their jobs. Bounded, no locks."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from rowlock import codec, config
from rowlock.clock import from_us, maybe_from_us
from rowlock.columns import JobRow
from rowlock.errors import NotFound, OptionInvalid
from rowlock.ids import parse_id
from rowlock.job import TERMINAL_STATES, Count, Job, JobState, Page, listed_job_of, state_of
from rowlock.store import options
from rowlock.store.ops.manage import is_visible_to
from rowlock.store.steps import Op, Row, Rows, Statement, Steps, reading
from rowlock.workflow_info import WorkflowGraph, WorkflowInfo, WorkflowPage, WorkflowStack
from rowlock.workflow_rules import Wants, WorkflowState, state_of_workflow

_LAST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"
_LAST_STACK: Final = 2**63 - 1
_WHENS: Final = {Wants.ANY_END: "ended", Wants.DEATH: "dead"}


class _Row(NamedTuple):
    """A row of `workflow`."""

    id: str
    created_at: int
    ended_at: int | None
    deadline: int | None
    cancelled_at: int | None
    parent: str | None
    name: str
    key: str | None
    tenant: str | None
    meta: str | None
    now: int


def get_workflow(id: str | UUID, *, tenant: str | None = None) -> Op[WorkflowInfo | None]:
    """A workflow by its id. None if it does not exist, or was removed.

    Args:
        tenant: Only a workflow of this tenant; another tenant's is not found.
    """
    workflow = parse_id(id)

    def steps() -> Steps[WorkflowInfo | None]:
        return (yield from read_workflow(workflow, tenant))

    return reading("get_workflow", steps)


def read_workflow(id: str, tenant: str | None = None) -> Steps[WorkflowInfo | None]:
    """As `get_workflow`, within another verb."""
    rows = yield Statement("workflows", {"ids": [id]})
    found = [_Row._make(row) for row in rows]
    if not found or not is_visible_to(found[0].tenant, caller=tenant):
        return None
    return (yield from _with_counts(found, most=config.COUNT_EXACT_MAX))[0]


def unknown_workflow(id: str) -> NotFound:
    """The error for a workflow that does not exist, or that the caller may not see."""
    return NotFound(f"there is no workflow {id} (it is removed with the last of its jobs)")


def list_workflows(
    *,
    name: str | None = None,
    state: str | WorkflowState | None = None,
    tenant: str | None = None,
    limit: int = config.LIST_LIMIT_DEFAULT,
    cursor: str | None = None,
) -> Op[WorkflowPage]:
    """A page of workflows, newest first.

    Args:
        name: Only those of this name.
        state: Only those in this state.
        tenant: Only those of this tenant.
        limit: The most workflows on this page, at most 1,000.
        cursor: The `next` of the page before.
    """
    options.integer(limit, option="limit", low=1, high=config.LIST_LIMIT_MAX)
    wanted = None if state is None else options.choice(WorkflowState, state, option="state")
    before = _LAST_ID if cursor is None else parse_id(cursor, option="cursor")

    def steps() -> Steps[WorkflowPage]:
        last, found = before, list[WorkflowInfo]()
        for _ in range(_PAGES_READ):
            rows = yield Statement("list_workflows", {"before": last, "scan": limit})
            read = [_Row._make(row) for row in rows]
            fitting = [row for row in read if _fits(row, name, tenant)]
            for info in (yield from _with_counts(fitting, most=config.WORKFLOW_LIST_COUNT_MAX)):
                if wanted is None or info.state is wanted:
                    found.append(info)
                    if len(found) == limit:
                        return WorkflowPage(found, info.id)
            if len(rows) < limit:
                return WorkflowPage(found)
            last = read[-1].id
        return WorkflowPage(found, last)

    return reading("list_workflows", steps)


# A page reads at most so many times its limit, however few of them match.
_PAGES_READ: Final = 20


def _fits(row: _Row, name: str | None, tenant: str | None) -> bool:
    return name in (None, row.name) and is_visible_to(row.tenant, caller=tenant)


def _with_counts(found: Sequence[_Row], *, most: int) -> Steps[list[WorkflowInfo]]:
    if not found:
        return []
    ids = [row.id for row in found]
    rows = yield Statement("workflow_counts", {"ids": ids, "most": most + 1})
    counts = {id: _Counts.of(own, most) for id, own in _by_first(rows)}
    return [_info(row, counts[row.id]) for row in found]


def _by_first(rows: Rows) -> Iterator[tuple[Any, list[Row]]]:
    grouped: dict[Any, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row[0], []).append(row[1:])
    yield from grouped.items()


class _Counts(NamedTuple):
    """How many jobs are in each state."""

    states: dict[JobState, Count]
    not_needed: Count

    @classmethod
    def of(cls, rows: Sequence[Row], most: int) -> _Counts:
        """From rows of counts: where jobs are held or how they ended, how many, how many run."""
        counts = {held: (int(total), int(running)) for held, total, running, _ in rows}
        active = [counts[held] for held in ("lane", "room", "outside")]
        running = sum(each[1] for each in active)
        queued = sum(each[0] - each[1] for each in active)
        is_exact = all(each[0] <= most for each in active)
        states = {
            JobState.WAITING: _bounded(counts["waiting"][0], most),
            JobState.READY: Count(min(queued, most), exact=is_exact),
            JobState.RUNNING: Count(min(running, most), exact=is_exact),
        }
        for state in (JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED):
            states[state] = _bounded(counts[state.value][0], most)
        unneeded = next(int(row[3]) for row in rows if row[0] == JobState.CANCELLED)
        return cls(states, _bounded(unneeded, most))


def _bounded(number: int, most: int) -> Count:
    return Count(min(number, most), exact=number <= most)


def _info(row: _Row, counts: _Counts) -> WorkflowInfo:
    states = counts.states
    needed = states[JobState.CANCELLED].value - counts.not_needed.value
    state = state_of_workflow(
        active=bool(states[JobState.READY].value or states[JobState.RUNNING].value),
        waiting=bool(states[JobState.WAITING].value),
        dead=bool(states[JobState.DEAD].value),
        cancelled=needed > 0,
    )
    return WorkflowInfo(
        id=row.id,
        name=row.name,
        state=state,
        created_at=from_us(row.created_at),
        ended_at=maybe_from_us(row.ended_at),
        deadline=maybe_from_us(row.deadline),
        key=row.key,
        tenant=row.tenant,
        parent=row.parent,
        meta=codec.decode(row.meta) if row.meta else {},
        counts=states,
        not_needed=counts.not_needed,
    )


class OpenWorkflow(NamedTuple):
    """A workflow of which not all jobs are known to have ended: its state at a time."""

    id: str
    name: str
    tenant: str | None
    state: WorkflowState
    has_waiting: bool
    at: int


def open_workflows() -> Op[list[OpenWorkflow]]:
    """The open workflows with their states, oldest first, up to a bound."""
    most = config.WORKFLOW_OPEN_EXACT_MAX
    values = {"limit": most + 1, "most": config.WORKFLOW_LIST_COUNT_MAX}

    def steps() -> Steps[list[OpenWorkflow]]:
        return [
            OpenWorkflow(
                id,
                name,
                tenant,
                state_of_workflow(
                    active=bool(active),
                    waiting=bool(waiting),
                    dead=bool(dead),
                    cancelled=bool(cancelled),
                ),
                bool(waiting),
                at,
            )
            for id, name, tenant, active, waiting, dead, cancelled, at in (
                yield Statement("open_states", values)
            )
        ]

    return reading("open_workflows", steps)


def workflow_graph(id: str | UUID, *, tenant: str | None = None) -> Op[WorkflowGraph]:
    """The shape of a workflow: stacks of jobs that are alike, and which waits for which.

    Args:
        tenant: Only a workflow of this tenant; another tenant's is not found.
    """
    workflow = parse_id(id)

    def steps() -> Steps[WorkflowGraph]:
        info = yield from read_workflow(workflow, tenant)
        if info is None:
            raise unknown_workflow(workflow)
        limit = {"workflow": workflow, "limit": config.LIST_SCAN_ROWS_MAX}
        rows = yield Statement("stacks", limit)
        most = config.COUNT_EXACT_MAX
        counted = yield Statement("stack_counts", {"workflow": workflow, "most": most + 1})
        counts = {stack: _Counts.of(own, most).states for stack, own in _by_first(counted)}
        stacks: dict[int, WorkflowStack] = {}
        for stack, parent, wants, kind in rows:
            known = stacks.setdefault(
                stack,
                WorkflowStack(
                    id=str(stack),
                    kind=kind,
                    when=_WHENS.get(Wants(wants), "succeeded"),
                    counts=counts.get(stack, {}),
                ),
            )
            if parent:
                known.after.append(str(parent))
        return WorkflowGraph(info, _in_order(list(stacks.values())))

    return reading("workflow_graph", steps)


def _in_order(stacks: list[WorkflowStack]) -> list[WorkflowStack]:
    """Parents before children. Jobs that were added in circles of stacks come where they fit."""
    left = {stack.id: stack for stack in stacks}
    listed: list[WorkflowStack] = []
    while left:
        ready = [each for each in left.values() if not any(parent in left for parent in each.after)]
        for stack in ready or [next(iter(left.values()))]:
            listed.append(stack)
            del left[stack.id]
    return listed


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a page of a workflow's jobs ended: which part of them, and the last of it."""

    part: int
    stack: int
    id: str


# The parts of a workflow's jobs, in the order of a page: statements, and their values.
_PARTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("ended_nodes", {"state": "dead"}),
    ("live_nodes", {}),
    ("live_nodes/held", {"held": 1}),
    ("live_nodes/held", {"held": 2}),
    ("live_nodes/held", {"held": 3}),
    ("ended_nodes", {"state": "cancelled"}),
    ("ended_nodes", {"state": "succeeded"}),
)


def workflow_jobs(
    id: str | UUID,
    *,
    stack: str | None = None,
    state: str | JobState | None = None,
    limit: int = config.LIST_LIMIT_DEFAULT,
    cursor: str | None = None,
    tenant: str | None = None,
) -> Op[Page]:
    """A page of the jobs of a workflow: dead ones first, then live ones, then the others.

    Args:
        stack: Only those of this stack.
        state: Only those in this state.
        limit: The most jobs on this page, at most 1,000.
        cursor: The `next` of the page before.
        tenant: Only a workflow of this tenant; another tenant's is not found.
    """
    workflow = parse_id(id)
    options.integer(limit, option="limit", low=1, high=config.LIST_LIMIT_MAX)
    wanted = None if state is None else options.choice(JobState, state, option="state")
    start = _place_of(cursor)
    chosen = None if stack is None else _stack_of(stack)

    def steps() -> Steps[Page]:
        rows = yield Statement("workflows", {"ids": [workflow]})
        if not rows or not is_visible_to(_Row._make(rows[0]).tenant, caller=tenant):
            raise unknown_workflow(workflow)
        jobs: list[Job] = []
        for part in range(start.part, len(_PARTS)):
            statement, values = _PARTS[part]
            if wanted is not None and not _may_have(values, wanted):
                continue
            place = start if part == start.part else _Place(part, -1, _FIRST_ID)
            while True:
                found = yield Statement(
                    statement, _page_values(workflow, place, values, chosen, limit)
                )
                read = [(JobRow._make(row[:-1]), row[-1]) for row in found]
                for row, now in read:
                    place = _Place(part, row.stack or 0, row.id)
                    if wanted is not None and state_of(row, now=now) is not wanted:
                        continue
                    jobs.append(listed_job_of(row, now=now))
                    if len(jobs) == limit:
                        return Page(jobs, _text_of(place))
                if len(read) < limit:
                    break
        return Page(jobs)

    return reading("workflow_jobs", steps)


def _may_have(values: dict[str, Any], state: JobState) -> bool:
    if "state" in values:
        return bool(values["state"] == state.value)
    if state is JobState.WAITING:
        return values.get("held") == 3
    return state not in TERMINAL_STATES and values.get("held") != 3


def _page_values(
    workflow: str, place: _Place, values: dict[str, Any], stack: int | None, limit: int
) -> dict[str, Any]:
    first = place.stack if stack is None or place.stack >= stack else stack
    after_id = place.id if first == place.stack else _FIRST_ID
    return {
        "workflow": workflow,
        "after_stack": first,
        "after_id": after_id,
        "last_stack": _LAST_STACK if stack is None else stack,
        "limit": limit,
        **values,
    }


def _stack_of(text: str) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        raise OptionInvalid("stack", "must be the id of a stack") from None


def _place_of(cursor: str | None) -> _Place:
    if cursor is None:
        return _Place(0, -1, _FIRST_ID)
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        place = msgspec.json.decode(raw, type=_Place)
        parse_id(place.id)
    except (ValueError, TypeError, binascii.Error, msgspec.MsgspecError, OptionInvalid):
        raise OptionInvalid("cursor", "must be the `next` of an earlier page") from None
    return place


def _text_of(place: _Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")
