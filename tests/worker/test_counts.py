"""The counts: what a process settled is counted once, by what became of it, a batch at a time."""

from __future__ import annotations

import pytest

from rowlock import config
from rowlock.columns import JobRow
from rowlock.events import EventType
from rowlock.job import Lease
from rowlock.lifecycle import Failed, Outcome, Released, Succeeded
from rowlock.store import Settlement
from rowlock.store.ops.settle import Settled
from rowlock.store.options import new_job
from rowlock.tally import Ended, RunEnd, Sums
from rowlock.worker.counts import ProcessCounts
from rowlock.worker.report import RunSettlement


def run(
    number: int = 1, outcome: Outcome | None = None, *, seconds: float | None = 0.02, **fields
) -> Settlement:
    id = f"00000000-0000-7000-8000-{number:012x}"
    row = dict.fromkeys(JobRow._fields) | {
        "id": id, "kind": "send", "queue": "mail", "run_at": 1_000, "started_at": 4_000,
        "attempt": 1, "token": 1, **fields,
    }  # fmt: skip
    lease = Lease(id=id, token=1)
    lease.row = JobRow(**row)
    outcome = outcome or Succeeded()
    if seconds is None:
        return Settlement(lease, outcome)
    return RunSettlement(lease, outcome, seconds=seconds)


def ended(settlement: Settlement, end: RunEnd) -> Ended:
    lease = settlement.lease
    return Ended(lease.id, "send", "mail", None, end, 1, 3_000, 99_000_000, "OSError")


def sums(counts: ProcessCounts) -> Sums:
    return counts.totals.tally.get(("mail", "send")) or Sums()


@pytest.mark.parametrize("count", [1, 10, config.TALLY_TIMED_MAX + 1, 1_000])
def test_successes_are_all_counted(count: int):
    """And timed, all of them or some that stand for the others."""
    counts = ProcessCounts()
    for _ in range(20):
        counts.settled([run(number) for number in range(count)])

    assert 20 * count == sums(counts).of(RunEnd.SUCCEEDED)
    assert 20 * count == sums(counts).run.count == sums(counts).wait.count
    assert 0.015 <= (sums(counts).run.quantile(0.99) or 0) <= 0.02
    assert 0.002 <= (sums(counts).wait.quantile(0.5) or 0) <= 0.003


def test_what_was_missed_is_not_counted():
    """Leases that others have, and runs that were settled before."""
    counts = ProcessCounts()
    kept, lost, again = run(1), run(2), run(3)
    counts.settled([kept, lost, again], Settled(lost=[lost.lease], repeated=[again.lease]))

    assert sums(counts).total == 1


def test_a_failure_is_counted_by_what_became_of_it():
    """As the database decided, timed as this process did."""
    counts = ProcessCounts()
    failed, released = run(1, Failed("OSError", "no")), run(2, Released(), seconds=None)
    settled = Settled(ended=[ended(failed, RunEnd.DEAD), ended(released, RunEnd.RELEASED)])
    counts.settled([failed, run(3), released], settled)

    assert sums(counts).ends == [1, 0, 1, 0, 1]
    assert sums(counts).run.count == 2
    assert (sums(counts).run.quantile(1) or 0) <= 0.02


def test_a_failure_found_written_is_not_taken_for_a_success():
    """After a lost answer nobody tells what became of it."""
    counts = ProcessCounts()
    counts.settled([run(1, Failed("OSError", "no"))], Settled())

    assert sums(counts).total == 0


def test_lost_leases_and_follow_ups_are_counted():
    """By queue, and by queue and kind."""
    counts = ProcessCounts()
    counts.lost([run(1).lease, run(2).lease, Lease(id=run(3).lease.id, token=1)])
    parent = run(4)
    follow_ups = [new_job(kind="next", payload="{}", queue="shop")]
    counts.settled([Settlement(parent.lease, Succeeded(), follow_ups)])

    assert counts.totals.lost == {"mail": 2}
    assert counts.totals.enqueued == {("shop", "next"): 1}


def test_few_things_are_told_one_by_one():
    """And many by their numbers."""
    counts = ProcessCounts()
    counts.settled([run(1), run(2)])
    few = counts._box.take()
    counts.settled([run(number) for number in range(500)])
    many = counts._box.take()

    assert [(event.type, event.count) for event in few] == [(EventType.SUCCEEDED, 1)] * 2
    assert [(event.job_id, event.count) for event in many] == [(None, 500)]
