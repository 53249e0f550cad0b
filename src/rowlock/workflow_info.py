"""What is known of a workflow: its state, its counts, and its shape, as a picture shows it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from rowlock.job import Count, JobState
from rowlock.workflow_rules import WorkflowState


class WorkflowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow as it was when it was read."""

    id: str
    name: str
    state: WorkflowState
    created_at: datetime
    ended_at: datetime | None = None
    """When it was noticed that all its jobs have ended. From then on they are kept for their time.
    """
    deadline: datetime | None = None
    """When what is left of it is cancelled."""
    key: str | None = None
    tenant: str | None = None
    parent: str | None = None
    """The id of the job that began it."""
    meta: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    counts: dict[JobState, Count] = msgspec.field(default_factory=dict[JobState, Count])
    """How many of its jobs are in each state. `ready` has those that are scheduled and retrying."""
    not_needed: Count = Count(0)
    """How many of the cancelled jobs wanted a death that can't come any more."""


class WorkflowPage(msgspec.Struct, frozen=True):
    """One page of workflows, newest first. You can iterate over it."""

    workflows: list[WorkflowInfo]
    next: str | None = None
    """The cursor of the following page, None at the end."""

    def __iter__(self) -> Iterator[WorkflowInfo]:
        return iter(self.workflows)

    def __len__(self) -> int:
        return len(self.workflows)


class WorkflowStack(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a workflow that are alike: of one kind, and waiting for the same stacks."""

    id: str
    kind: str
    after: list[str] = msgspec.field(default_factory=list[str])
    """The ids of the stacks for which its jobs wait."""
    when: str = "succeeded"
    counts: dict[JobState, Count] = msgspec.field(default_factory=dict[JobState, Count])


class WorkflowGraph(msgspec.Struct, frozen=True):
    """The shape of a workflow: its jobs, folded into stacks."""

    workflow: WorkflowInfo
    stacks: list[WorkflowStack]

    def mermaid(self) -> str:
        """The graph in Mermaid's notation."""
        lines = ["flowchart LR"]
        for stack in self.stacks:
            total = sum(count.value for count in stack.counts.values())
            is_exact = all(count.exact for count in stack.counts.values())
            number = f" × {total:,}{'' if is_exact else '+'}" if total > 1 or not is_exact else ""
            states = ", ".join(
                f"{count.value:,}{'' if count.exact else '+'} {state}"
                for state, count in stack.counts.items()
                if count.value
            )
            kind = stack.kind.replace('"', "#quot;")
            lines.append(f'    s{stack.id}["{kind}{number}<br/>{states}"]')
        for stack in self.stacks:
            arrow = "-->" if stack.when == "succeeded" else f"-- {stack.when} -->"
            lines += [f"    s{parent} {arrow} s{stack.id}" for parent in stack.after]
        return "\n".join(lines) + "\n"
