"""What must hold in workflows, by rules of their own: who waits for whom is known from producers
and handlers, and which jobs have ended, from commits. Counts and edges in the database are not
believed.

23. A job is released when the ends of those that it waits for allow it, not before, and once.
24. None is left waiting when they do, and none is cancelled because of others without need.
25. An ended job is kept while a job of its workflow is live, which may need its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rowlock.store.ops.workflows import Draft
from tests.model.workflows import EFFECTS, WANTS, Want
from tests.simulation.database import Change

WAITING = 3
# The ops that end jobs of a workflow because all of it ends.
CANCEL_FLOW = "cancel_workflow"
# Those that take ended jobs back.
REVIVERS = {"retry", "retry_dead", "retry_workflow"}


@dataclass(slots=True)
class FlowNode:
    """A job that waits for others, or has waited."""

    wants: Want = "wait"
    parents: set[str] = field(default_factory=set)
    # Those that have not ended as it wants, and those whose death or cancel has counted.
    counted: set[str] = field(default_factory=set)
    met: set[str] = field(default_factory=set)
    # Because of an end it can't run any more, or is not needed.
    is_doomed: bool = False

    @property
    def must_wait(self) -> bool:
        return bool(self.counted) and not self.is_doomed


Problem = tuple[int, str]


class FlowJudge:
    """Sees every commit, and what producers and handlers want."""

    def __init__(self) -> None:
        self._nodes: dict[str, FlowNode] = {}
        self._children: dict[str, set[str]] = {}
        # Every job there ever was: "live", how it ended, or "gone".
        self._states: dict[str, str] = {}
        self._waiting: set[str] = set()
        self._flows: dict[str, set[str]] = {}
        self._flow_of: dict[str, str] = {}
        self._drafts: dict[str, Draft] = {}
        self._growth: dict[tuple[str, int], Draft] = {}
        self._may_be_cancelled: set[str] = set()
        self.released = 0
        self.grown = 0

    # What is wanted

    def asked(self, draft: Draft) -> None:
        """A producer wants a workflow."""
        for job in draft.nodes:
            self._drafts[job.id] = draft
        if draft.deadline_us is not None:
            self._may_be_cancelled.add(draft.id)

    def is_asked(self, id: str) -> bool:
        return id in self._drafts

    def grows(self, id: str, token: int, draft: Draft) -> None:
        """A run adds jobs, if it succeeds."""
        self._growth[id, token] = draft
        for job in draft.nodes:
            self._drafts[job.id] = draft

    def may_cancel(self, workflow: str) -> None:
        """Somebody asks to cancel it."""
        self._may_be_cancelled.add(workflow)

    # What is

    def waits(self, id: str) -> bool:
        """Whether a live job waits for others, and must."""
        node = self._nodes.get(id)
        return node is not None and self._states.get(id) == "live" and node.must_wait

    def is_doomed(self, id: str) -> bool:
        node = self._nodes.get(id)
        return node is not None and node.is_doomed

    def stuck(self) -> Iterator[str]:
        """Live jobs that wait for the retry of cancelled ones, which nobody removes."""
        for id in sorted(self._waiting):
            if any(self._states[parent] == "cancelled" for parent in self._nodes[id].counted):
                yield id

    def committed(self, op: str, changes: Sequence[Change]) -> Iterator[Problem]:
        """Take what was committed. Yield what is wrong."""
        was_waiting = set(self._waiting)
        seen = _Seen.of(changes)
        yield from self._note(op, [each for each in changes if each.id not in seen.vain])
        touched = self._insert(seen)
        touched |= self._apply(op, seen)
        if op in REVIVERS:
            self._revive(seen.inserted & seen.dropped.keys())
            touched |= seen.inserted
        yield from self._compare(op, sorted(touched | seen.moved), was_waiting, seen)
        for id, end in seen.ended.items():
            if end.state == "succeeded":
                yield from self._check_growth(id, end.token)

    def _note(self, op: str, changes: Sequence[Change]) -> Iterator[Problem]:
        """The states of jobs, as their rows say."""
        for change in changes:
            id = change.id
            if change.what in "iu":
                self._states[id] = "live"
                (self._waiting.add if change.held_by == WAITING else self._waiting.discard)(id)
                self._join(id, change.workflow)
            if change.what == "u":
                if change.new_pending < 0:
                    yield 23, f"{id} waits for {change.new_pending} jobs, by {op}"
                is_apart = WAITING not in (change.old_held_by, change.held_by)
                if is_apart and change.pending != change.new_pending:
                    yield 23, f"{id} was released a second time, by {op}"
            elif change.what == "d":
                self._states[id] = "gone"
                self._waiting.discard(id)
        for change in changes:
            if change.what == "I":
                self._states[change.id] = change.state or ""
            elif change.what == "D" and self._states.get(change.id) != "live":
                self._states[change.id] = "gone"
                yield from self._check_kept(op, change)

    def _join(self, id: str, workflow: str | None) -> None:
        if workflow is not None and id not in self._flow_of:
            self._flow_of[id] = workflow
            self._flows.setdefault(workflow, set()).add(id)

    def _check_kept(self, op: str, change: Change) -> Iterator[Problem]:
        if op != "prune" or change.state == "dead" or change.workflow is None:
            return
        live = [id for id in self._flows.get(change.workflow, ()) if self._states[id] == "live"]
        if live:
            yield 25, f"{change.id} was pruned, and {min(live)} of its workflow is live"

    def _insert(self, seen: _Seen) -> set[str]:
        """New jobs wait for those that their drafts say. Return these jobs."""
        new = {id for id in seen.inserted if id not in self._nodes and id in self._drafts}
        for id, (state, token, _) in seen.ended.items():
            draft = self._growth.get((id, token)) if state == "succeeded" else None
            if draft is not None and any(job.id in new for job in draft.nodes):
                self._grow(id, draft)
        for id in new:
            node = self._nodes[id] = FlowNode()
            for parent, child, wants in self._drafts[id].edges:
                if child == id:
                    node.wants = WANTS[wants - 1]
                    self._connect(parent, child)
            node.counted = set(node.parents)
        for id in new:
            for parent in sorted(self._nodes[id].parents):
                if parent not in seen.ended and (state := self._states[parent]) in EFFECTS:
                    self._affect(id, parent, state)
        return new

    def _connect(self, parent: str, child: str) -> None:
        self._nodes[child].parents.add(parent)
        self._children.setdefault(parent, set()).add(child)

    def _grow(self, id: str, draft: Draft) -> None:
        """What waits for a job that adds others waits for the last of them, too."""
        self.grown += 1
        for child in sorted(self._children.get(id, ())):
            node = self._nodes[child]
            if id not in node.met:
                for sink, _ in draft.sinks:
                    self._connect(sink, child)
                    if id in node.counted:
                        node.counted.add(sink)

    def _apply(self, op: str, seen: _Seen) -> set[str]:
        """Let jobs learn of the ends of others. Return them."""
        touched: set[str] = set()
        for id, (state, _, cause) in seen.ended.items():
            is_all = op == CANCEL_FLOW and cause is None
            for child in sorted(self._children.get(id, ())):
                is_own = self._flow_of.get(child) == self._flow_of.get(id)
                if not is_all or not is_own:
                    self._affect(child, id, state)
                    touched.add(child)
        for id, state in seen.dropped.items():
            if id in seen.inserted:
                continue
            for child in sorted(self._children.pop(id, ())):
                node = self._nodes[child]
                if state != "succeeded":
                    self._affect(child, id, "cancelled")
                for known in (node.parents, node.counted, node.met):
                    known.discard(id)
                touched.add(child)
        return touched

    def _affect(self, child: str, parent: str, state: str) -> None:
        node = self._nodes[child]
        if parent in node.met:
            return
        effect = EFFECTS[state][node.wants]
        if state != "succeeded" and effect in ("count", "less", "release"):
            node.met.add(parent)
        if parent not in node.counted:
            return
        if effect == "release":
            node.counted.clear()
        elif effect in ("count", "less"):
            node.counted.discard(parent)
            node.is_doomed |= effect == "less" and not node.counted
        elif effect == "cancel":
            node.is_doomed = True

    def _revive(self, ids: set[str]) -> None:
        for id in ids & self._nodes.keys():
            node = self._nodes[id]
            node.is_doomed = False
            node.counted = set()
            is_freed = False
            for parent in node.parents - node.met:
                state = self._states[parent]
                effect = "none" if state == "live" else EFFECTS[state][node.wants]
                is_freed |= effect == "release"
                if effect in ("none", "cancel"):
                    node.counted.add(parent)
            if is_freed:
                node.counted.clear()

    def _compare(
        self, op: str, ids: Sequence[str], was_waiting: set[str], seen: _Seen
    ) -> Iterator[Problem]:
        for id in ids:
            node = self._nodes.get(id)
            if node is None:
                continue
            is_waiting = id in self._waiting
            if self._states[id] == "live":
                is_fresh = id in was_waiting or id in seen.inserted
                self.released += id in was_waiting and not is_waiting
                if is_waiting and not node.must_wait:
                    yield 24, f"{id} is left waiting by {op}, which has ended all it waits for"
                elif not is_waiting and is_fresh and node.must_wait:
                    left = sorted(node.counted)
                    yield 23, f"{id} was released by {op}, but waits for {left}"
            elif id in seen.ended and seen.ended[id].cause is not None and not node.is_doomed:
                yield 24, f"{id} was cancelled by {op}, but the jobs that it waits for allow it"

    def _check_growth(self, id: str, token: int) -> Iterator[Problem]:
        """A run has succeeded: what it has added is there, unless its workflow was cancelled."""
        draft = self._growth.get((id, token))
        if draft is None or self._flow_of.get(id, draft.id) in self._may_be_cancelled:
            return
        missing = [job.id for job in draft.nodes if job.id not in self._states]
        if missing:
            yield 24, f"{id} has succeeded, and {missing} of its jobs are not there"


class _End(NamedTuple):
    """How a job ended: its state, its last token, and why, if it was cancelled."""

    state: str
    token: int
    cause: int | None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a commit did to rows."""

    inserted: set[str]
    ended: dict[str, _End]
    # Removed jobs, and how they had ended.
    dropped: dict[str, str]
    # Those whose place in the queue may have changed.
    moved: set[str]
    # Made and removed again before anyone sees it.
    vain: set[str]

    @classmethod
    def of(cls, changes: Sequence[Change]) -> _Seen:
        by = {what: {each.id: each for each in changes if each.what == what} for what in "iudID"}
        vain = by["i"].keys() & by["d"].keys() - by["I"].keys()
        ended = {id: _End(each.state or "", each.token, each.cause) for id, each in by["I"].items()}
        gone = dict.fromkeys(by["d"].keys() - by["I"].keys() - vain, "cancelled")
        dropped = {id: each.state or "" for id, each in by["D"].items()}
        inserted = set(by["i"]) - vain
        return cls(inserted, ended, gone | dropped, set(by["u"]) | set(by["I"]), set(vain))
