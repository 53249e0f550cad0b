"""A child's leases as its supervisor reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from rowlock.ids import new_id
from rowlock.job import Lease
from rowlock.worker.table import DeadlineKind, LeaseTable, SlotState

SLOTS = 300


@pytest.fixture
def sides() -> Iterator[tuple[LeaseTable, LeaseTable]]:
    """The child's and the supervisor's view of the same memory."""
    descriptor = LeaseTable.make_descriptor(SLOTS)
    child, supervisor = LeaseTable(descriptor, SLOTS), LeaseTable(descriptor, SLOTS)
    os.close(descriptor)
    yield child, supervisor
    child.close()
    supervisor.close()


def leases(count: int) -> list[Lease]:
    return [Lease(id=new_id(), token=token, worker="one") for token in range(1, count + 1)]


def test_an_empty_table_has_no_slots(sides: tuple[LeaseTable, LeaseTable]) -> None:
    """Nor after everything that was held has been dropped."""
    child, supervisor = sides
    assert [] == list(supervisor.slots())

    for lease in (held := leases(SLOTS)):
        child.hold(lease)
    for lease in held:
        child.drop(lease)

    assert [] == list(supervisor.slots())


def test_every_held_lease_is_seen(sides: tuple[LeaseTable, LeaseTable]) -> None:
    """In the first, the last and all other places of a full table, whatever its state."""
    child, supervisor = sides
    held = leases(SLOTS)
    for lease in held:
        child.hold(lease)
    child.start(held[0])
    child.start(held[1], deadline=5.0)
    child.start(held[2])
    child.end(held[2])

    seen = {slot.id: slot for slot in supervisor.slots()}

    assert {lease.id: lease.token for lease in held} == {
        id: slot.token for id, slot in seen.items()
    }
    assert SlotState.STARTED is seen[held[0].id].state
    assert (DeadlineKind.TIMEOUT, 5.0) == (
        seen[held[1].id].deadline_kind,
        seen[held[1].id].deadline,
    )
    assert SlotState.ENDED is seen[held[2].id].state
    assert 2 == supervisor.started()


def test_what_is_dropped_is_gone_and_the_rest_stays(
    sides: tuple[LeaseTable, LeaseTable],
) -> None:
    """Holes between taken slots are passed over."""
    child, supervisor = sides
    held = leases(SLOTS)
    for lease in held:
        child.hold(lease)
    for lease in held[::2]:
        child.drop(lease)

    assert {lease.id for lease in held[1::2]} == {slot.id for slot in supervisor.slots()}


def test_a_run_that_lost_its_lease_is_seen_until_it_ends(
    sides: tuple[LeaseTable, LeaseTable],
) -> None:
    """With its deadline; what has not begun is gone with its lease."""
    child, supervisor = sides
    waiting, running, ended = leases(3)
    for lease in (waiting, running, ended):
        child.hold(lease)
    for lease in (running, ended):
        child.start(lease, deadline=5.0)
    child.end(ended)
    for lease in (waiting, running):
        child.lose(lease)

    states = {(slot.id, slot.state, slot.is_overdue(6.0)) for slot in supervisor.slots()}
    assert {(running.id, SlotState.LOST, True), (ended.id, SlotState.ENDED, False)} == states

    child.end(running)
    assert SlotState.LOST in {slot.state for slot in supervisor.slots()}
    child.drop(running)
    assert [ended.id] == [slot.id for slot in supervisor.slots()]
