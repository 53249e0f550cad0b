"""Blocks of jobs without a database, and a record of what happens to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from rowlock.ids import new_id
from rowlock.job import Lease
from rowlock.lifecycle import Outcome
from rowlock.store.ops.claim import BOTTOM, ID, ClaimedBlock, Lane
from rowlock.task import Task, Tasks
from rowlock.worker.job_blocks import BareSuccesses, JobBlock
from rowlock.worker.run import Run

DAY_US = 24 * 3600 * 10**6


class HeldRecord:
    """The slots of a block, as a list of what was written."""

    def __init__(self) -> None:
        self.written: list[tuple[str, int]] = []
        # Slots from this one on are revoked.
        self.revoked_from: int | None = None

    def start(self, number: int) -> bool:
        self.written.append(("started", number))
        return self.revoked_from is None or number < self.revoked_from

    def end(self, number: int) -> None:
        self.written.append(("ended", number))

    def is_revoked(self) -> bool:
        return self.revoked_from is not None

    def part(self, number: int, lease: Lease) -> None:
        self.written.append(("parted", number))

    def drop(self, first: int, count: int) -> None:
        self.written += [("dropped", number) for number in range(first, first + count)]


class EndsRecord:
    """How the jobs of a block ended."""

    def __init__(self) -> None:
        self.bare: list[str] = []
        self.outcomes: list[tuple[str, Outcome | None]] = []

    def succeeded(self, done: BareSuccesses) -> None:
        self.bare += [row[ID] for row in done.rows]

    def ended(self, run: Run, outcome: Outcome | None) -> None:
        self.outcomes.append((run.lease.id, outcome))


def block_of(
    function: Callable[..., Any], payloads: Sequence[dict[str, Any]], *, queue: str = "default"
) -> JobBlock:
    """A block of jobs of a function, leased under token 7."""
    task: Task[..., Any] = Tasks().task(name="work")(function)
    lane = Lane(queue, 0, task.name, BOTTOM)
    rows = [
        (new_id(), json.dumps(payload), 20, "{}", number, 0, 1, 7, None, number)
        for number, payload in enumerate(payloads)
    ]
    claimed = ClaimedBlock(lane, "me", 30_000_000, 7, DAY_US, rows)
    return JobBlock(claimed, task, HeldRecord())
