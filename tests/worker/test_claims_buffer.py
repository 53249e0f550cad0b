"""Which of the leased jobs is next."""

from __future__ import annotations

import pytest

from rowlock.columns import JobRow
from rowlock.job import Lease
from rowlock.task import Tasks
from rowlock.worker.claims import Buffer
from rowlock.worker.run import Run

TASKS = Tasks()


@TASKS.task
def step() -> None: ...


def run_of(name: str, *, queue: str = "q", priority: int = 0, is_alone: bool = False) -> Run:
    """A run that is told by its worker's name."""
    fields = dict.fromkeys(JobRow._fields)
    fields |= {"id": name, "kind": "step", "queue": queue, "rank": -priority, "token": 1}
    fields |= {"payload": "{}", "attempt": 1, "losses": 0, "quarantined": is_alone}
    row = JobRow(**fields)  # type: ignore[arg-type]  # columns that nobody reads
    return Run(Lease.of_row(row, now=0), step)


def names(buffer: Buffer, *, full: set[str] = frozenset()) -> str:
    """What comes out of it, in order."""
    popped = iter(lambda: buffer.pop(lambda queue: queue not in full), None)
    return "".join(run.lease.id for run in popped)


def filled(*runs: Run, strict: list[str] | None = None) -> Buffer:
    buffer = Buffer(strict=strict)
    for run in runs:
        buffer.put(run)
    return buffer


def test_a_queue_is_served_by_priority_then_in_order():
    """What is urgent passes what waits already."""
    runs = [run_of("a"), run_of("b"), run_of("c", priority=5), run_of("d", priority=-1)]

    assert names(filled(*runs)) == "cabd"


def test_queues_take_turns():
    """One job of a calm queue waits for one of a busy one, not for all of them."""
    busy = [run_of(name, queue="busy") for name in "abcdef"]
    calm = [run_of(name, queue="calm") for name in "xy"]

    assert names(filled(*busy, *calm)) == "axbycdef"


def test_strict_order_serves_the_first_queue_first():
    """As the queues were named, whenever they came."""
    runs = [run_of("x", queue="later"), run_of("a", queue="first"), run_of("b", queue="first")]

    assert names(filled(*runs, strict=["first", "later"])) == "abx"


def test_a_queue_without_a_slot_is_passed_over():
    """The others go on."""
    buffer = filled(run_of("a", queue="full"), run_of("b", queue="free"))

    assert names(buffer, full={"full"}) == "b"
    assert (len(buffer), buffer.waiting("full"), buffer.waiting("free")) == (1, 1, 0)


def test_what_must_run_alone_waits_apart():
    """Nobody's turn; it is asked for."""
    buffer = filled(run_of("a"), run_of("x", is_alone=True))

    assert names(buffer) == "a"
    (alone,) = buffer.alone
    buffer.remove(alone)

    assert (alone.lease.id, len(buffer), buffer.alone) == ("x", 0, [])


@pytest.mark.parametrize("is_alone", [False, True])
def test_one_can_be_taken_out(is_alone):
    """It was cancelled, or has waited for too long."""
    run = run_of("b", is_alone=is_alone)
    buffer = filled(run_of("a"), run, run_of("c"))
    buffer.remove(run)

    assert [run.lease.id for run in buffer] == ["a", "c"]
    assert (len(buffer), buffer.waiting("q"), buffer.alone) == (2, 2, [])
    assert names(buffer) == "ac"
    assert list(buffer) == []
