"""Jobs of one lane that were claimed together, and run one after the other without a task each.

Most jobs of a coroutine that does not suspend need nothing of their own: their rows go from the
claim to the settle as they came. A no-op costs a quarter of what it costs as a `Run` in a task.

1. The slot of a job says `STARTED` before its handler is called, and `ENDED` once that returned.
2. Every handler has a context of its own, a copy of the engine's, for all of its steps.
3. Handlers are called in a task. One that suspends keeps that task, becomes a `Run` as any other,
   and is cancelled like any other; another task continues with the block. Handlers that do not
   suspend share a task with those before and after them.
4. Whatever is not a plain success becomes a `Run` with an outcome, and goes the ordinary way: an
   exception, a result that can't be stored, a lease that is revoked.
5. Jobs that have not begun can leave a block at any time, as runs, each with its own lease.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextvars import Context as Variables
from contextvars import copy_context
from types import CoroutineType, TracebackType
from typing import Any, NamedTuple, Protocol

from rowlock import config
from rowlock.errors import PayloadInvalid
from rowlock.job import Lease
from rowlock.lifecycle import Outcome, Succeeded
from rowlock.store.ops.claim import ID, PAYLOAD, ClaimedBlock, is_plain
from rowlock.store.steps import Row
from rowlock.task import Task
from rowlock.worker.report import RunSettlement, note_running_row
from rowlock.worker.run import RAISED, PayloadMisfit, Run, success
from rowlock.worker.runner import end_if_forked, outcome_of_error
from rowlock.worker.shared_memory import HeldBlock

_Step = tuple["CoroutineType[Any, Any, Any] | None", Any]


class _Forks:
    """How many forks lie between this process and the one that it began as.

    Asking the system for the process's id took 0.2 µs after every handler.
    """

    def __init__(self) -> None:
        self.count = 0
        os.register_at_fork(after_in_child=self._note)

    def _note(self) -> None:
        self.count += 1


_FORKS = _Forks()


class JobBlock:
    """Leased jobs of one lane that have not all begun, in their order."""

    def __init__(self, claimed: ClaimedBlock, task: Task[..., Any], held: HeldBlock) -> None:
        self.claimed: ClaimedBlock = claimed
        self.task: Task[..., Any] = task
        self.held: HeldBlock = held
        self.queue: str = claimed.lane.queue
        self.rank: int = claimed.lane.rank
        self.rows: Sequence[Row] = claimed.rows
        # The number of the first job that has not begun.
        self.next: int = 0
        self.claimed_at: float = time.monotonic()

    def __len__(self) -> int:
        """How many jobs have not begun."""
        return len(self.rows) - self.next

    @property
    def keys(self) -> Iterator[tuple[str, int]]:
        """The ids and tokens of all jobs of the block."""
        token = self.claimed.token
        return ((row[ID], token) for row in self.rows)

    def waiting_ids(self) -> Iterator[str]:
        """The jobs that have not begun."""
        return (row[ID] for row in self.rows[self.next :])

    def run_of(self, number: int) -> Run:
        """The run of one of its jobs, which leaves the block."""
        run = Run(self.claimed.lease_of(self.rows[number]), self.task)
        run.claimed_at = self.claimed_at
        self.held.part(number, run.lease)
        return run

    def waiting_runs(self) -> list[Run]:
        """The runs of all jobs that have not begun. The block is empty after that."""
        first, self.next = self.next, len(self.rows)
        return [self.run_of(number) for number in range(first, self.next)]


class BareSuccesses(NamedTuple):
    """Jobs side by side in a block that returned None, and how many seconds each took."""

    block: JobBlock
    first: int
    seconds: list[float]

    @property
    def rows(self) -> Sequence[Row]:
        return self.block.rows[self.first : self.first + len(self.seconds)]

    def join(self, more: BareSuccesses) -> bool:
        """Take those in that come right behind these. Returns whether they do."""
        is_next = more.block is self.block and more.first == self.first + len(self.seconds)
        if is_next:
            self.seconds.extend(more.seconds)
        return is_next

    def settlements(self) -> list[RunSettlement]:
        """The same as an ordinary settlement per job. The block still holds the leases."""
        lease_of = self.block.claimed.lease_of
        return [
            RunSettlement(lease_of(row), Succeeded(), seconds=seconds)
            for row, seconds in zip(self.rows, self.seconds, strict=True)
        ]

    def part(self, leases: Iterable[Lease]) -> None:
        """Have each job leave the block with its lease, to be dropped on its own."""
        for number, lease in enumerate(leases, self.first):
            self.block.held.part(number, lease)

    def drop(self) -> None:
        """Note that all of them are settled."""
        self.block.held.drop(self.first, len(self.seconds))


class Suspended(NamedTuple):
    """A run whose handler waits for something after its first step, and the rest of it."""

    run: Run
    rest: Awaitable[Any]


class BlockEnds(Protocol):
    """What happens with the jobs of a block that were run."""

    def succeeded(self, done: BareSuccesses) -> None:
        """They returned None."""
        ...

    def ended(self, run: Run, outcome: Outcome | None) -> None:
        """One ended differently. No outcome: an exception that ends the loop passes."""
        ...


def run_block(block: JobBlock, ends: BlockEnds, *, until: float, most: int) -> Suspended | None:
    """Run jobs of a block until one suspends, `until` has passed, or `most` were run.

    It also ends when the lease of the next one is revoked, or when a handler has cancelled the
    task, which belongs to the handlers before it only. To be called in a task with a context of
    its own.
    """
    clock, forks = time.monotonic, _FORKS
    task, held, rows = block.task, block.held, block.rows
    function, arguments = task.function, task.schema.arguments
    current = asyncio.current_task()
    assert current is not None
    home, copies = os.getpid(), forks.count
    first, number = block.next, block.next
    stop = min(len(rows), number + most)
    seconds: list[float] = []
    started = clock()
    try:
        while number < stop and held.start(number):
            row = rows[number]
            note_running_row(block.claimed, row)
            variables = copy_context()
            number += 1
            try:
                coroutine, found = variables.run(_first_step, function, arguments, row[PAYLOAD])
            except BaseException as error:  # noqa: BLE001  # those that are no outcome are raised
                coroutine, found = None, error
            if forks.count != copies:
                end_if_forked(home, row[ID])
            now = clock()
            if coroutine is None and found is None:
                held.end(number - 1)
                seconds.append(now - started)
            else:
                _hand_over(block, first, seconds, ends)
                first, seconds, block.next = number, [], number
                run = _begun(block.run_of(number - 1), started)
                if coroutine is not None:
                    return Suspended(run, _Rest(coroutine, variables, found))
                _end(run, found, ends)
                # An exception knows this frame.
                del found
            if now >= until or current.cancelling():
                break
            started = now
    finally:
        block.next = number
        _hand_over(block, first, seconds, ends)
    return None


def _hand_over(block: JobBlock, first: int, seconds: list[float], ends: BlockEnds) -> None:
    if seconds:
        ends.succeeded(BareSuccesses(block, first, seconds))


def _begun(run: Run, started_at: float) -> Run:
    run.started_at = started_at
    run.has_begun = run.is_begun = True
    return run


def _end(run: Run, found: Outcome | BaseException, ends: BlockEnds) -> None:
    if not isinstance(found, BaseException):
        ends.ended(run, found)
    elif isinstance(found, (*RAISED, asyncio.CancelledError)):
        ends.ended(run, outcome_of_error(found, run))
    else:
        ends.ended(run, None)
        raise found


def _first_step(
    function: Callable[..., CoroutineType[Any, Any, Any]],
    arguments_of: Callable[[str], dict[str, Any]],
    payload: str,
) -> _Step:
    """Call a handler, in its context, until it ends or suspends.

    Returns its coroutine and what it waits for, or None and its outcome, which is None if it has
    returned None.
    """
    try:
        arguments = arguments_of(payload)
    except PayloadInvalid as error:
        # A job of a block has no errors yet.
        raise PayloadMisfit(error, misfits=0) from None
    coroutine = function(**arguments)
    try:
        return coroutine, coroutine.send(None)
    except StopIteration as end:
        return None, None if end.value is None else success(end.value)


class _Rest:
    """The rest of a coroutine whose first step was made, to be awaited by the same task.

    A coroutine that has begun can't be awaited. Its steps are made in its own context.
    """

    def __init__(
        self, coroutine: CoroutineType[Any, Any, Any], variables: Variables, awaited: object
    ) -> None:
        self._coroutine = coroutine
        self._variables = variables
        # What the first step waits for, until the task has it.
        self._awaited: list[object] = [awaited]

    def __await__(self) -> Generator[Any, Any, Any]:
        return self  # type: ignore[return-value]  # has all methods of one that are used

    def __iter__(self) -> _Rest:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        if self._awaited:
            return self._awaited.pop()
        return self._variables.run(self._coroutine.send, value)

    def throw(
        self, kind: Any, value: BaseException | None = None, trace: TracebackType | None = None
    ) -> Any:
        self._awaited.clear()
        return self._variables.run(self._coroutine.throw, kind if value is None else value)

    def close(self) -> None:
        self._variables.run(self._coroutine.close)


class BlockKinds:
    """The kinds whose jobs run as blocks: of plain jobs, and of coroutines that take no context.

    A kind of which most runs suspend is left out for a while: each of them needs a task anyway, and
    its steps go through `_Rest`.
    """

    def __init__(self, tasks: Iterable[Task[..., Any]]) -> None:
        self._kinds = {task.name for task in tasks if _may_be_block(task)}
        # How large a part of its runs suspends, by kind: a moving average.
        self._shares: dict[str, float] = {}
        self._left_out: dict[str, float] = {}

    def __contains__(self, kind: object) -> bool:
        if kind not in self._kinds:
            return False
        assert isinstance(kind, str)
        until = self._left_out.get(kind)
        if until is None:
            return True
        if time.monotonic() < until:
            return False
        del self._left_out[kind]
        return True

    def note(self, kind: str, *, runs: int, has_suspended: bool) -> None:
        """Runs of a kind have made their first steps, and the last one has suspended or not."""
        share = self._shares.get(kind, _SHARE_AT_FIRST) * 0.9 ** (runs - has_suspended)
        if has_suspended:
            share += 0.1 * (1 - share)
        self._shares[kind] = share
        if share > 0.5:
            self._shares[kind] = _SHARE_AT_FIRST
            self._left_out[kind] = time.monotonic() + config.BLOCK_RETRY_SECONDS


# Two that suspend are enough to leave a kind out, if none before them did not.
_SHARE_AT_FIRST = 0.4


def _may_be_block(task: Task[..., Any]) -> bool:
    function = task.function
    while isinstance(function, functools.partial):
        function = function.func
    # Not `is_async` alone: a function can be marked as one, and return anything.
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return (
        bool(flags & inspect.CO_COROUTINE)
        and task.settings.executor != "process"
        and task.schema.context_parameter is None
        and task.settings.limit is None
        and is_plain(task.known_policy())
    )
