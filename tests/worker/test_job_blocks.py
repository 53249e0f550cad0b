"""Jobs of a block, run one after the other: a handler can't tell that it has no task of its own."""

from __future__ import annotations

import asyncio
import contextvars
import os
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rowlock
from rowlock.context import Release
from rowlock.lifecycle import Failed, Released, Succeeded
from rowlock.store.ops.claim import ID
from rowlock.worker.job_blocks import BlockKinds, JobBlock, Suspended, run_block
from rowlock.worker.report import running_fields, running_lease
from tests.support.blocks import EndsRecord, HeldRecord, block_of

pytestmark = pytest.mark.asyncio

FOREVER = float("inf")
VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


async def run(
    block: JobBlock, *, until: float = FOREVER, most: int = 1000
) -> tuple[EndsRecord, Suspended | None]:
    """Run a block in a task of its own, as an engine does, to its first suspension at most."""
    ends = EndsRecord()

    async def turn() -> Suspended | None:
        return run_block(block, ends, until=until, most=most)

    return ends, await asyncio.create_task(turn())


async def run_to_end(block: JobBlock) -> tuple[EndsRecord, Any]:
    """Run a block whose first handler suspends, and that one to its end, in one task."""
    ends = EndsRecord()

    async def turn() -> Any:
        suspended = run_block(block, ends, until=FOREVER, most=1000)
        assert suspended is not None
        return await suspended.rest

    return ends, await asyncio.create_task(turn())


def records(block: JobBlock) -> list[tuple[str, int]]:
    assert isinstance(block.held, HeldRecord)
    return block.held.written


def ids(block: JobBlock) -> list[str]:
    return [row[ID] for row in block.rows]


async def test_each_slot_says_what_its_handler_does():
    """It says started before the call, and ended after it, before the next one starts."""
    seen: list[list[tuple[str, int]]] = []

    async def work() -> None:
        seen.append(list(records(block)))

    block = block_of(work, [{}, {}])
    ends, _ = await run(block)

    assert seen == [
        [("started", 0)],
        [("started", 0), ("ended", 0), ("started", 1)],
    ]
    assert records(block)[-1] == ("ended", 1)
    assert ends.bare == ids(block)


async def test_arguments_are_typed():
    """They come from the payload, as for any run."""
    seen: list[tuple[int, bytes]] = []

    async def work(number: int, data: bytes = b"x") -> None:
        seen.append((number, data))

    await run(block_of(work, [{"number": 1}, {"number": 2, "data": "eXk="}]))

    assert seen == [(1, b"x"), (2, b"yy")]


async def test_no_context_leaks_into_the_next_run():
    """Each handler has a context of its own, with its own job."""
    seen: list[tuple[str, str]] = []

    async def work(number: int) -> None:
        lease = running_lease()
        assert lease is not None
        seen.append((VARIABLE.get(), lease.id))
        VARIABLE.set(str(number))

    block = block_of(work, [{"number": number} for number in range(3)])
    await run(block)

    assert seen == [("unset", id) for id in ids(block)]
    assert VARIABLE.get() == "unset"
    assert running_lease() is None


async def test_a_run_has_the_fields_of_its_job():
    """For its log records, as any run has."""
    seen: list[dict[str, Any]] = []

    async def work() -> None:
        seen.append(running_fields())

    block = block_of(work, [{}])
    await run(block)

    (id,) = ids(block)
    fields = {"job_id": id, "worker": "me", "kind": "work", "queue": "default", "attempt": 1}
    assert seen == [fields]


async def test_a_suspended_run_keeps_its_task_and_context():
    """Before and after it has waited they are the same, and so is its lease."""
    seen: list[Any] = []

    async def work() -> None:
        VARIABLE.set("mine")
        seen.append((asyncio.current_task(), running_lease()))
        await asyncio.sleep(0)
        seen.append((asyncio.current_task(), running_lease()))
        assert VARIABLE.get() == "mine"

    await run_to_end(block_of(work, [{}]))

    assert seen[0] == seen[1]
    assert seen[0][0] is not asyncio.current_task()


async def test_a_timeout_inside_a_handler_works():
    """It cancels the task of the handler, which is the one that it was begun in."""

    async def work() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            return "timed out"
        return "slept"

    _, result = await run_to_end(block_of(work, [{}]))

    assert result == "timed out"


async def test_a_task_group_inside_a_handler_works():
    """Its children are awaited by the handler, and their exceptions reach it."""
    seen: list[str] = []

    async def child() -> None:
        seen.append(VARIABLE.get())
        raise ValueError

    async def work() -> str:
        VARIABLE.set("mine")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
        except ExceptionGroup:
            return "failed"
        return "done"

    _, result = await run_to_end(block_of(work, [{}]))

    assert (result, seen) == ("failed", ["mine"])


async def test_a_block_ends_where_a_handler_suspends():
    """Those before it have succeeded, those after it have not begun."""

    async def work(waits: bool) -> None:
        if waits:
            await asyncio.sleep(60)

    block = block_of(work, [{"waits": number == 2} for number in range(5)])
    ends, suspended = await run(block)

    assert suspended is not None
    assert suspended.run.lease.id == ids(block)[2]
    assert (suspended.run.is_begun, suspended.run.has_begun) == (True, True)
    assert ends.bare == ids(block)[:2]
    assert list(block.waiting_ids()) == ids(block)[3:]
    suspended.rest.close()  # type: ignore[attr-defined]  # it is never awaited here


class Waits:
    """Awaited by a generator, as old libraries do."""

    def __await__(self) -> Any:
        yield
        return "waited"


@types.coroutine
def _waits() -> Any:
    yield
    return "waited"


@pytest.mark.parametrize("awaited", [Waits, _waits])
async def test_a_handler_may_await_anything(awaited):
    """Generators yield to the loop too."""

    async def work() -> str:
        return await awaited()

    _, result = await run_to_end(block_of(work, [{}]))

    assert result == "waited"


class Odd(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize(
    ("error", "type"),
    [
        (ValueError("no"), "ValueError"),
        (SystemExit(3), "SystemExit"),
        (GeneratorExit("no"), "GeneratorExit"),
        (asyncio.CancelledError(), "RuntimeError"),
        # A coroutine can't raise it: Python turns it into another.
        (StopIteration("no"), "RuntimeError"),
    ],
)
async def test_an_exception_is_the_outcome_of_its_run(error, type):
    """Those before and after it succeed."""

    async def work(number: int) -> None:
        if number == 1:
            raise error

    block = block_of(work, [{"number": number} for number in range(3)])
    ends, _ = await run(block)

    ((id, outcome),) = ends.outcomes
    assert isinstance(outcome, Failed)
    assert (id, outcome.type) == (ids(block)[1], type)
    assert ends.bare == [ids(block)[0], ids(block)[2]]


async def test_a_traceback_starts_with_the_handler():
    """The frames of the worker are left out."""

    async def work() -> None:
        raise ValueError("no")

    ends, _ = await run(block_of(work, [{}]))

    ((_, outcome),) = ends.outcomes
    assert isinstance(outcome, Failed)
    assert "rowlock/worker" not in outcome.traceback
    assert "in work" in outcome.traceback


@pytest.mark.parametrize("error", [KeyboardInterrupt, Odd])
async def test_what_is_no_outcome_ends_the_loop(error):
    """As it does from a run in a task: those that succeeded before it are handed over."""

    async def work(number: int) -> None:
        if number == 1:
            raise error

    block = block_of(work, [{"number": number} for number in range(3)])
    ends = EndsRecord()
    with pytest.raises(error):
        run_block(block, ends, until=FOREVER, most=1000)

    assert ends.bare == ids(block)[:1]
    assert ends.outcomes == [(ids(block)[1], None)]
    assert list(block.waiting_ids()) == ids(block)[2:]


async def test_a_release_is_an_outcome():
    """As for any run."""

    async def work() -> None:
        raise Release(delay=5)

    ends, _ = await run(block_of(work, [{}]))

    ((_, outcome),) = ends.outcomes
    assert outcome == Released(5_000_000, None)


async def test_a_payload_that_does_not_fit_is_an_outcome():
    """The handler is not called."""
    called: list[int] = []

    async def work(number: int) -> None:
        called.append(number)

    ends, _ = await run(block_of(work, [{"number": "x"}, {"number": 1}]))

    ((_, outcome),) = ends.outcomes
    assert isinstance(outcome, Failed)
    assert outcome.type == "PayloadMisfit"
    assert called == [1]


async def test_results_are_outcomes():
    """One that can't be stored is a success with a problem, one that was never run a failure."""

    async def nothing() -> None: ...

    makers: list[Callable[[], Any]] = [lambda: 1, lambda: None, object, nothing]

    async def work(number: int) -> Any:
        return makers[number]()

    block = block_of(work, [{"number": number} for number in range(4)])
    ends, _ = await run(block)

    one, odd, coroutine = [outcome for _, outcome in ends.outcomes]
    assert one == Succeeded("1")
    assert isinstance(odd, Succeeded)
    assert (odd.result, odd.problem is None) == (None, False)
    assert isinstance(coroutine, Failed)
    assert coroutine.type == "TypeError"
    assert ends.bare == [ids(block)[1]]


async def test_a_turn_ends_with_its_time():
    """After the handler that took too long, so that the loop comes to everything else."""
    block = block_of(_nothing, [{}, {}, {}])
    ends, _ = await run(block, until=0.0)

    assert ends.bare == ids(block)[:1]
    assert len(block) == 2


async def test_a_turn_ends_after_so_many():
    """Jobs of other queues come next."""
    block = block_of(_nothing, [{}, {}, {}])
    ends, _ = await run(block, most=2)

    assert ends.bare == ids(block)[:2]
    assert len(block) == 1


async def _nothing() -> None: ...


async def test_a_revoked_job_is_not_begun():
    """Its supervisor gives it back, because the loop was blocked."""
    called: list[int] = []

    async def work(number: int) -> None:
        called.append(number)

    block = block_of(work, [{"number": number} for number in range(3)])
    assert isinstance(block.held, HeldRecord)
    block.held.revoked_from = 1
    ends, _ = await run(block)

    assert called == [0]
    assert ends.bare == ids(block)[:1]
    assert list(block.waiting_ids()) == ids(block)[1:]


async def test_a_cancelled_task_is_not_used_for_the_next_run():
    """A handler that cancels its own task and returns does not disturb the one after it."""

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    block = block_of(work, [{}, {}])
    ends = EndsRecord()

    async def turn() -> None:
        run_block(block, ends, until=FOREVER, most=1000)

    await asyncio.wait([asyncio.create_task(turn())])

    assert ends.bare == ids(block)[:1]


async def test_a_cancelled_run_cleans_up():
    """The cancellation reaches the handler where it waits, in its own context."""
    seen: list[str] = []

    async def work() -> None:
        VARIABLE.set("mine")
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(VARIABLE.get())

    block = block_of(work, [{}])
    task = asyncio.create_task(run_to_end(block))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    assert (task.cancelled(), seen) == (True, ["mine"])


async def test_a_forked_copy_that_comes_back_is_ended():
    """It must not go on with the block."""
    copies: list[int] = []

    async def work() -> None:
        copies.append(os.fork())

    block = block_of(work, [{}])
    home = os.getpid()
    await run(block)
    if os.getpid() != home:  # pragma: no cover  # only if it was not ended
        os._exit(0)

    (copy,) = copies
    _, status = await asyncio.to_thread(os.waitpid, copy, 0)
    assert os.waitstatus_to_exitcode(status) == 1


async def test_jobs_can_leave_a_block():
    """Each as a run with its own lease; nothing is left of it then."""
    block = block_of(_nothing, [{}, {}, {}])
    await run(block, most=1)
    runs = block.waiting_runs()

    assert [run.lease.id for run in runs] == ids(block)[1:]
    assert {run.lease.token for run in runs} == {7}
    assert (len(block), records(block)[-2:]) == (0, [("parted", 1), ("parted", 2)])


@pytest.fixture
def app() -> Iterator[rowlock.App]:
    """Tasks of all kinds. Its database is never opened."""
    app = rowlock.App("sqlite:///never.db")

    @app.task
    async def plain() -> None: ...

    @app.task
    def threaded() -> None: ...

    @app.task
    async def noted(ctx: rowlock.Context) -> None: ...

    for name, options in (
        ("slot", {"executor": "process"}),
        ("limited", {"timeout": 5}),
        ("once", {"max_attempts": 1}),
        ("forgotten", {"keep": 0}),
    ):
        app.task(name=name, **options)(_nothing)
    yield app
    app.close()


async def test_kinds_of_blocks(app):
    """Coroutines in this process that take no context, and whose jobs are plain."""
    kinds = BlockKinds(app)

    assert [task.name for task in app if task.name in kinds] == ["plain"]
    assert "unknown" not in kinds


async def test_a_kind_that_suspends_is_left_out_for_a_while(app, monkeypatch):
    """It gains nothing from blocks. If its handlers change, it is tried again."""
    now = [0.0]
    monkeypatch.setattr("rowlock.worker.job_blocks.time.monotonic", lambda: now[0])
    kinds = BlockKinds(app)
    kinds.note("plain", runs=500, has_suspended=True)
    is_in_after_one = "plain" in kinds
    for _ in range(10):
        kinds.note("plain", runs=1, has_suspended=True)
    is_in_after_many = "plain" in kinds
    now[0] = 3600.0

    assert (is_in_after_one, is_in_after_many, "plain" in kinds) == (True, False, True)
