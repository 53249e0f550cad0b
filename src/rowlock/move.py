"""Mover: moves a queue to another database while producers and workers keep running.

It can be stopped or killed at any time and started again: its whole state is in the databases.
`store.ops.move` explains why no job is lost or run twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rowlock import config
from rowlock.errors import NotFound, OptionInvalid
from rowlock.ids import new_id
from rowlock.store import Store
from rowlock.store.ops import move
from rowlock.store.ops.health import instance
from rowlock.store.ops.manage import cancel
from rowlock.store.ops.recover import Seen, sweep
from rowlock.store.ops.schedule import pause_schedule
from rowlock.store.ops.tokens import revoke_token
from rowlock.store.ops.workflow_manage import cancel_workflow
from rowlock.worker.trouble import Trouble, insist

logger: logging.Logger = logging.getLogger("rowlock.move")

_NEVER = threading.Event()
# Copied unchanged, and left in the source, because workers there still need them.
_COPIED = ("queue", "job_limit", "limit_key", "token", "key_hold", "first_answer", "audit")

# The columns that can be large, of any table.
_LARGE = ("payload", "result", "errors", "answer")
# One edge as JSON.
_EDGE_BYTES = 130


@dataclass(slots=True)
class Moved:
    """How much has arrived in the target.

    `known` jobs were there already. `stopped` jobs arrived as cancelled, because another job held
    their key.
    """

    jobs: int = 0
    finished: int = 0
    schedules: int = 0
    known: int = 0
    stopped: int = 0
    waiting_for: int = 0


class BatchRows:
    """The size of a batch: few rows at first, then as many as the limits allow."""

    def __init__(self) -> None:
        self.limit: int = max(1, config.MOVE_BATCH_ROWS // 10)

    def note(self, jobs: Sequence[move.Record], *, edges: int = 0) -> None:
        """Learn from a batch that was read, with `edges` of who waits for whom."""
        if jobs:
            parts = (job.get(name) or "" for job in jobs for name in _LARGE)
            size = sum(len(part) for part in parts) + _EDGE_BYTES * edges
            average = max(1, size // len(jobs))
            most = min(config.MOVE_BATCH_ROWS, config.MOVE_BATCH_BYTES // average)
            self.limit = max(1, min(2 * self.limit, most))


class Mover:
    """Moves everything from `source` to `target`.

    Args:
        on_progress: Called whenever something has moved.
        rest: Waits for some seconds. It raises to end the move.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        *,
        on_progress: Callable[[Moved], None] = lambda _: None,
        rest: Callable[[float], object] = _NEVER.wait,
    ) -> None:
        self._source = source
        self._target = target
        self._on_progress = on_progress
        self._rest = rest
        self.moved: Moved = Moved()
        self._name = ""
        self._target_name = ""
        self._is_copied = False
        self._rows = BatchRows()
        self._ended_rows = BatchRows()
        self._revoked: set[str] = set()
        self._adopted: set[str] = set()
        self._cancelled: set[str] = set()
        self._seen: Seen = {}
        self._sweep_at = 0.0

    def counts(self) -> tuple[int, int]:
        """Count the live and the finished jobs of the source. Reads them all."""
        return self._source.run(move.counts())

    def run(self, *, follow: bool = False) -> Moved:
        """Move until nothing is left. With `follow`, continue for producers that switch late.

        Raises:
            OptionInvalid: Both are the same database, or jobs are on their way to a third one.
            StoreUnavailable: One database was unavailable for a minute. Start again when it is
                back.
        """
        self._name_both()
        trouble = Trouble("jobs can't be moved", log=logger)
        while True:
            is_done = insist(
                self._round,
                trouble,
                patience_seconds=config.MOVE_PATIENCE_SECONDS,
                rest=self._rest,
            )
            if is_done and not follow:
                return self.moved
            self._rest(config.MOVE_LOOK_SECONDS)

    def give_back(self) -> int:
        """Undo the unfinished part: jobs that are not in the target are available again here.

        Raises:
            OptionInvalid: As for `run`.
        """
        self._name_both()
        returned = 0
        for hold in self._open_batches():
            if self._target.run(move.refuse(hold.batch)):
                returned += self._source.run(move.give_back(hold))
            else:
                self._bring_to_end(hold)
        arrived = [name for page in self._pages(self._target, "schedule") for name in page]
        return returned + self._source.run(move.thaw_schedules(arrived))

    def _name_both(self) -> None:
        self._name, there = self._source.run(instance()), self._target.run(instance())
        if self._name == there:
            raise OptionInvalid("target", "is the database that the jobs are in; give another URL")
        # Leaves out what changes when a database is restored from a dump.
        self._target_name = there.partition("/")[0]

    def _open_batches(self) -> list[move.Hold]:
        holds = self._source.run(move.open_batches())
        if any(hold.target != self._target_name for hold in holds):
            raise OptionInvalid(
                "target",
                "is not the database that jobs are on their way to; finish that move first, "
                "or undo it with --give-back, each with its URL",
            )
        return holds

    def _round(self) -> bool:
        """Move all that can be moved now. Return whether nothing is left."""
        for hold in self._open_batches():
            # None: another mover has finished it meanwhile.
            held = self._source.run(move.jobs_of(hold))
            if held.jobs:
                self._put(hold, held)
        if not self._is_copied:
            self._copy_all()
        self._source.run(move.freeze_schedules())
        self._move_schedules()
        self._move_waiting()
        self._move_ordered()
        self._move_ended()
        live, finished = self.counts()
        self.moved.waiting_for = live
        self._on_progress(self.moved)
        if live:
            self._sweep()
        if live or finished:
            self._is_copied = False
            return False
        if not self._is_copied:
            self._copy_all()
            self._target.run(move.end_lost())
            self._source.run(move.drop_workflows())
            # Last, because workers in the source still fold it.
            self._move_history()
            self._is_copied = True
        return True

    def _sweep(self) -> None:
        """Recover expired leases as a worker would, because no worker may be running."""
        if time.monotonic() >= self._sweep_at:
            self._seen = self._source.run(sweep(self._source.local, self._seen))
            self._sweep_at = time.monotonic() + config.SWEEP_SECONDS

    def _move_waiting(self) -> None:
        after: str | None = move.FIRST_ID
        while after is not None:
            hold = move.Hold(new_id(), self._target_name)
            limit = self._rows.limit
            jobs = self._source.run(move.take(hold, after=after, limit=limit))
            self._rows.note(jobs)
            if jobs:
                self._is_copied = False
                self._put(hold, self._held(hold, jobs))
            after = max(job["id"] for job in jobs) if len(jobs) == limit else None

    def _move_ordered(self) -> None:
        after: move.OrderPlace | None = move.OrderPlace()
        while after is not None:
            hold = move.Hold(new_id(), self._target_name)
            jobs, after = self._source.run(
                move.take_ordered(hold, after=after, limit=self._rows.limit)
            )
            self._rows.note(jobs)
            if jobs:
                self._is_copied = False
                self._put(hold, self._held(hold, jobs))

    def _held(self, hold: move.Hold, jobs: list[move.Record]) -> move.HeldBatch:
        """A batch that was just taken, with who waits for whom."""
        if all(job["workflow"] is None for job in jobs):
            return move.HeldBatch(jobs, [])
        held = self._source.run(move.jobs_of(hold))
        self._rows.note(held.jobs, edges=len(held.edges))
        return held

    def _put(self, hold: move.Hold, held: move.HeldBatch) -> None:
        jobs = held.jobs
        put = self._target.run(move.put(hold.batch, held, self._logs_of(jobs), source=self._name))
        if put.is_refused:
            # Another process has given it back. It waits in the source again, for the next batch.
            self._source.run(move.give_back(hold))
            return
        self.moved.known += put.known
        self.moved.stopped += put.stopped
        self._bring_to_end(hold)
        self.moved.jobs += len(jobs)
        self._on_progress(self.moved)

    def _bring_to_end(self, hold: move.Hold) -> None:
        cancelled: list[str] = []
        while asked := self._source.run(move.gone(hold, cancelled=cancelled)):
            # Before the source forgets the request, as nothing else records it.
            for id in asked:
                self._cancel(id)
            cancelled += asked

    def _cancel(self, id: str) -> None:
        try:
            self._target.run(cancel(id))
        except NotFound as error:
            logger.info("job %s can no longer be cancelled: %s", id, error)

    def _copy_all(self) -> None:
        for table in _COPIED:
            for rows in self._pages(self._source, table):
                records = list(rows.values())
                if table == "key_hold":
                    # For rows that have moved, the target has the newer state.
                    records = [each for each in records if not move.is_elsewhere(each)]
                self._target.run(move.add(table, records))
                if table == "token":
                    self._revoke(rows)
                if table == "job_limit":
                    self._adopt_limits(rows)
        self._copy_workflows()

    def _copy_workflows(self) -> None:
        for rows in self._pages(self._source, "workflow"):
            stacks = self._source.run(move.stacks_of(list(rows)))
            cancelled = self._target.run(move.add_workflows(list(rows.values()), stacks))
            for id in cancelled:
                # Once: it may be retried in the target.
                if id not in self._cancelled:
                    self._target.run(cancel_workflow(id))
                    self._cancelled.add(id)

    def _revoke(self, tokens: Mapping[str, move.Record]) -> None:
        """Revoke the tokens that were revoked in the source after they were copied."""
        revoked = {id for id, token in tokens.items() if token["revoked_at"] is not None}
        for id in sorted(revoked - self._revoked):
            self._target.run(revoke_token(id))
        self._revoked |= revoked

    def _adopt_limits(self, limits: Mapping[str, move.Record]) -> None:
        """Keep what was set at run time. Once per limit: after that, the target decides."""
        fresh = [limit for name, limit in limits.items() if name not in self._adopted]
        if fresh:
            self._target.run(move.adopt_limits(fresh))
            self._adopted |= limits.keys()

    def _move_schedules(self) -> None:
        while rows := self._page("schedule"):
            self._target.run(move.add("schedule", list(rows.values())))
            for name, row in rows.items():
                # A worker of the target may have declared it there earlier.
                if row["is_paused"]:
                    self._target.run(pause_schedule(name))
            self._source.run(move.drop("schedule", list(rows)))
            self.moved.schedules += len(rows)
            self._on_progress(self.moved)

    def _move_history(self) -> None:
        while rows := self._page("history"):
            self._target.run(move.add("history", list(rows.values())))
            self._source.run(move.drop("history", list(rows)))

    def _move_ended(self) -> None:
        while rows := self._page("finished", limit=self._ended_rows.limit):
            jobs = list(rows.values())
            self._ended_rows.note(jobs)
            self._target.run(move.add_ended(jobs, self._logs_of(jobs), self._edges_of(jobs)))
            self._source.run(move.drop_ended(jobs))
            self.moved.finished += len(rows)
            self._on_progress(self.moved)

    def _edges_of(self, jobs: list[move.Record]) -> list[move.Record]:
        nodes = [job["id"] for job in jobs if job["workflow"] is not None]
        return self._source.run(move.edges_of_ended(nodes)) if nodes else []

    def _page(self, table: str, *, limit: int = config.MOVE_BATCH_ROWS) -> dict[str, move.Record]:
        return self._source.run(move.page(table, after=None, limit=limit))

    @staticmethod
    def _pages(store: Store, table: str) -> Iterator[dict[str, move.Record]]:
        after: str | None = None
        size = BatchRows()
        while rows := store.run(move.page(table, after=after, limit=size.limit)):
            yield rows
            size.note(list(rows.values()))
            after = max(rows)

    def _logs_of(self, jobs: list[move.Record]) -> list[move.Record]:
        logged = [job["id"] for job in jobs if job["log_lines"]]
        return self._source.run(move.logs_of(logged)) if logged else []
