"""The rules of workflows: what the end of a job means for the jobs that wait for it. No I/O.

| a parent      | success, "wait" | success, "cancel" | success, "run" | any end | death    |
|---------------|-----------------|-------------------|----------------|---------|----------|
| succeeded     | counts          | counts            | counts         | counts  | one less |
| died          | nothing         | cancelled         | counts         | counts  | released |
| was cancelled | cancelled       | cancelled         | cancelled      | counts  | one less |
| was removed   | cancelled       | cancelled         | cancelled      | counts  | one less |

The columns are what a child wants, with `if_dead` in quotes, the entries what becomes of it.

A child counts the parents that have not ended as it wants, and is released at zero. A child that
wants a death is released by the first. When none of its parents can die any more, it is not needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum, StrEnum, auto
from typing import Final, Literal, NamedTuple

from rowlock import config
from rowlock.errors import OptionInvalid, shown
from rowlock.job import JobState

When = Literal["succeeded", "ended", "dead"]
IfDead = Literal["wait", "cancel", "run"]


class Wants(IntEnum):
    """The end of a parent that a child waits for. The values are stored."""

    SUCCESS = 1
    """And it waits for a dead parent to be retried."""
    SUCCESS_OR_CANCEL = 2
    """And it is cancelled if the parent dies."""
    SUCCESS_OR_DEATH = 3
    ANY_END = 4
    DEATH = 5


class Effect(Enum):
    """What the end of a parent does to a child."""

    COUNTS = auto()
    """One less to wait for. At zero the child is released."""
    LESS = auto()
    """One less to wait for. At zero the child is not needed, and is cancelled."""
    RELEASES = auto()
    CANCELS = auto()
    NOTHING = auto()


class CancelCause(IntEnum):
    """Why a job of a workflow was cancelled, if not by a request. The values are stored."""

    PARENT = 1
    """Because of the end of a job that it waited for."""
    NOT_NEEDED = 2


class WorkflowState(StrEnum):
    """The state of a workflow, from the states of its jobs."""

    WAITING = "waiting"
    """All its live jobs wait for jobs outside of it."""
    RUNNING = "running"
    """A job runs, or can run."""
    SUCCEEDED = "succeeded"
    """All jobs have succeeded, or were not needed."""
    DEAD = "dead"
    """No job can run, and a job is dead. Retry it, and the workflow continues."""
    CANCELLED = "cancelled"
    """No job can run, and a job was cancelled."""

    @property
    def has_stopped(self) -> bool:
        """Whether nothing of it runs, or will run without help."""
        return self not in (WorkflowState.RUNNING, WorkflowState.WAITING)


_BY_DEATH: Final[Mapping[Wants, Effect]] = {
    Wants.SUCCESS: Effect.NOTHING,
    Wants.SUCCESS_OR_CANCEL: Effect.CANCELS,
    Wants.SUCCESS_OR_DEATH: Effect.COUNTS,
    Wants.ANY_END: Effect.COUNTS,
    Wants.DEATH: Effect.RELEASES,
}


def effect_of(state: JobState, wants: Wants) -> Effect:
    """What the end of a parent in `state` does to a child. A removed parent counts as cancelled."""
    if state is JobState.DEAD:
        return _BY_DEATH[wants]
    if wants is Wants.DEATH:
        return Effect.LESS
    if state is JobState.SUCCEEDED or wants is Wants.ANY_END:
        return Effect.COUNTS
    return Effect.CANCELS


def wants_of(when: str, if_dead: str) -> Wants:
    """The stored form of `when` and `if_dead`."""
    if when not in ("succeeded", "ended", "dead"):
        raise OptionInvalid("when", f"must be 'succeeded', 'ended' or 'dead', not {shown(when)}")
    if if_dead not in ("wait", "cancel", "run"):
        raise OptionInvalid("if_dead", f"must be 'wait', 'cancel' or 'run', not {shown(if_dead)}")
    if when == "succeeded":
        choices = {"wait": Wants.SUCCESS, "cancel": Wants.SUCCESS_OR_CANCEL}
        return choices.get(if_dead, Wants.SUCCESS_OR_DEATH)
    if if_dead != "wait":
        raise OptionInvalid("if_dead", f"does nothing with when={when!r}; leave it out")
    return Wants.ANY_END if when == "ended" else Wants.DEATH


def state_of_workflow(*, active: bool, waiting: bool, dead: bool, cancelled: bool) -> WorkflowState:
    """The state of a workflow.

    Args:
        active: A job runs or can run, now or at its time.
        waiting: A job waits for others.
        cancelled: A job was cancelled that was needed.
    """
    if active:
        return WorkflowState.RUNNING
    if dead:
        return WorkflowState.DEAD
    if cancelled:
        return WorkflowState.CANCELLED
    return WorkflowState.WAITING if waiting else WorkflowState.SUCCEEDED


class Order(NamedTuple):
    """Places of nodes, parents before children, or a circle of nodes that wait for each other."""

    places: list[int]
    circle: list[int]


def in_order(parents: Sequence[Sequence[int]]) -> Order:
    """Sort nodes by the places of their parents. The order of the others stays as it is."""
    left = [len(set(before)) for before in parents]
    children: list[list[int]] = [[] for _ in parents]
    for place, before in enumerate(parents):
        for parent in set(before):
            children[parent].append(place)
    ready = [place for place, number in enumerate(left) if not number]
    for place in ready:
        for child in children[place]:
            left[child] -= 1
            if not left[child]:
                ready.append(child)
    if len(ready) == len(parents):
        return Order(ready, [])
    # Each node that is left has a parent that is left: going up, one is met again.
    path, seen = list[int](), dict[int, int]()
    place = next(place for place, number in enumerate(left) if number)
    while place not in seen:
        seen[place] = len(path)
        path.append(place)
        place = next(parent for parent in parents[place] if left[parent])
    circle = path[seen[place] :][::-1]
    first = circle.index(min(circle))
    return Order([], circle[first:] + circle[:first])


class FoldedNode(NamedTuple):
    """A node, for `fold`: its kind, what it wants of its parents, and their places before it."""

    kind: str
    wants: int
    parents: Sequence[int]


class Fold(NamedTuple):
    """Which stack each node is in, and the stacks: (stack, parent, wants, kind)."""

    stacks: list[int]
    rows: list[tuple[int, int, int, str]]


def fold(nodes: Sequence[FoldedNode], *, root: int = 0) -> Fold:
    """Put nodes that are alike into stacks, for a picture that a person can read.

    Alike are nodes of one kind that wait for the same stacks. If there are too many such stacks:
    nodes of one kind at the same depth. If there are still too many: nodes of one kind.

    Args:
        root: The stack of the job that adds these nodes. It comes before the first of them.
    """
    depths: list[int] = []
    for node in nodes:
        depths.append(1 + max((depths[place] for place in node.parents), default=-1))
    exact: list[int] = []

    def of_parents(place: int) -> object:
        node = nodes[place]
        before = sorted({exact[parent] for parent in node.parents} or {root})
        return (node.kind, node.wants, before)

    keys: tuple[Callable[[int], object], ...] = (
        of_parents,
        lambda place: (nodes[place].kind, root, depths[place]),
        lambda place: (nodes[place].kind, "any depth"),
    )
    for key in keys:
        exact = []
        for place in range(len(nodes)):
            exact.append(_number(key(place)))
        if len(set(exact)) <= config.WORKFLOW_STACKS_MAX:
            break
    rows: dict[tuple[int, int], tuple[int, int, int, str]] = {}
    for place, node in enumerate(nodes):
        stack = exact[place]
        rows.setdefault((stack, 0), (stack, 0, node.wants, node.kind))
        before = {exact[parent] for parent in node.parents} or {root}
        for parent in before - {0, stack}:
            rows.setdefault((stack, parent), (stack, parent, node.wants, node.kind))
    return Fold(exact, list(rows.values()))


def root_of(kind: str) -> int:
    """The stack of a job that begins a workflow by adding jobs to itself."""
    return _number(("begins", kind))


def _number(key: object) -> int:
    """The same positive number for the same key, in every process."""
    digest = hashlib.sha256(repr(key).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1 or 1
