"""Whether jobs of workflows waited for each other as they should. Pure.

Who waits for whom is known from the journals of those that wrote the workflows or added to them.
The witness records which jobs ended, and in which order: a claim sees the end of every job that let
its job go, so that end has a lower number.

A workflow with a dead job and others that wait for its retry is stuck, and cancelled at the end of
a run. Only jobs that wait for that death, or for jobs that are cancelled with them, may be left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rowlock.chaos.journal import JournalLine, Word
from rowlock.chaos.witness import CommittedChange, What

# The ends of a parent that let a job go, by what it wants: all of its parents must have one of
# these ends, but for "dead", where one of them is enough.
_ALLOWED: Final = {
    "wait": {"succeeded"},
    "cancel": {"succeeded"},
    "run": {"succeeded", "dead"},
    "ended": {"succeeded", "dead", "cancelled"},
}
# The ends of a parent with which a job is cancelled.
_DOOMED: Final = {"wait": {"cancelled"}, "cancel": {"cancelled", "dead"}, "run": {"cancelled"}}
STUCK: Final = "stuck"

Finding = tuple[int, str]


@dataclass(slots=True)
class FlowRecord:
    """A job of a workflow."""

    flow: str
    wants: str
    parents: list[str]
    releases: int = 0
    is_claimed: bool = False


@dataclass(slots=True)
class FlowRules:
    """Judges jobs of workflows. Takes journals first, then commits in order, then `close`."""

    nodes: dict[str, FlowRecord] = field(default_factory=dict[str, FlowRecord])
    # The workflows that were cancelled by request, and those that were stuck.
    _cancelled: set[str] = field(default_factory=set[str])
    _stuck: set[str] = field(default_factory=set[str])
    # By job and token: the last of the jobs that this run adds.
    _sinks: dict[tuple[str, int], list[str]] = field(
        default_factory=dict[tuple[str, int], list[str]]
    )
    _ends: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    _asked: set[str] = field(default_factory=set[str])

    def hear(self, line: JournalLine) -> None:
        """Take a line of a journal."""
        match line.word:
            case Word.NODE:
                flow, wants, *parents = line.rest.split()
                self.nodes[line.job] = FlowRecord(flow, wants, parents)
            case Word.SINK:
                self._sinks.setdefault((line.rest, line.token), []).append(line.job)
            case Word.CANCEL_FLOW:
                (self._stuck if line.rest == STUCK else self._cancelled).add(line.job)
            case Word.CANCEL:
                self._asked.add(line.job)
            case _:
                pass

    def may_be_cancelled(self, job: str) -> bool:
        """Whether nothing may have been added to the workflow of a job, since it was cancelled."""
        node = self.nodes.get(job)
        return node is not None and node.flow in self._cancelled

    def see(self, event: CommittedChange) -> Iterator[Finding]:
        """Take an event of the witness. Yield what is wrong."""
        node = self.nodes.get(event.job)
        match event.what:
            case What.FINISHED:
                self._ends[event.job] = (event.state or "", event.token)
            case What.CLAIMED if node is not None and not node.is_claimed:
                node.is_claimed = True
                if not self._may_run(node):
                    shown = ", ".join(self._shown(each) for each in self._parents(node))
                    yield 23, f"{event.job} ({node.wants}) was claimed, after {shown}"
            case What.RELEASED if node is not None:
                node.releases += 1
                if node.releases > 1:
                    yield 23, f"{event.job} was released {node.releases} times"
            case What.RECOUNTED:
                yield 23, f"{event.job} counts jobs that it does not wait for"
            case _:
                pass

    def _parents(self, node: FlowRecord) -> Iterator[str]:
        """The jobs that a job waits for, with those that they have added."""
        left = list(node.parents)
        for parent in left:
            yield parent
            _, token = self._ends.get(parent, ("", 0))
            left += self._sinks.get((parent, token), ())

    def _states(self, node: FlowRecord) -> list[str]:
        return [self._ends.get(parent, ("live", 0))[0] for parent in self._parents(node)]

    def _shown(self, job: str) -> str:
        return f"{job} ({self._ends.get(job, ('live', 0))[0]})"

    def _may_run(self, node: FlowRecord) -> bool:
        states = self._states(node)
        if node.wants == "dead":
            return "dead" in states
        return set(states) <= _ALLOWED[node.wants]

    def close(self) -> Iterator[Finding]:
        """Yield what is wrong with jobs that never ran."""
        for job, node in self.nodes.items():
            state, _ = self._ends.get(job, ("", 0))
            if state != "cancelled" or node.is_claimed or job in self._asked:
                continue
            if node.flow not in self._cancelled and not self._is_due(node):
                shown = ", ".join(self._shown(each) for each in self._parents(node))
                yield 24, f"{job} ({node.wants}) was left waiting and cancelled, after {shown}"

    def _is_due(self, node: FlowRecord) -> bool:
        """Whether a job that never ran had to be cancelled."""
        states = self._states(node)
        if node.wants == "dead":
            return "dead" not in states
        if _DOOMED.get(node.wants, set()) & set(states):
            return True
        # With a stuck workflow, jobs are cancelled that wait for others of it.
        return node.flow in self._stuck and self._is_stuck(node)

    def _is_stuck(self, node: FlowRecord) -> bool:
        for parent in self._parents(node):
            state, _ = self._ends.get(parent, ("", 0))
            if state == "dead" and node.wants == "wait":
                return True
            other = self.nodes.get(parent)
            if state == "cancelled" and other is not None and not other.is_claimed:
                return True
        return False

    @property
    def released(self) -> int:
        """How many jobs were released."""
        return sum(node.releases > 0 for node in self.nodes.values())
