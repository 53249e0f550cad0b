"""A child's leases as its supervisor reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from rowlock.ids import new_id
from rowlock.job import Lease
from rowlock.worker.shared_memory import DeadlineKind, SharedLeases, SlotState

SLOTS = 300


@pytest.fixture
def sides() -> Iterator[tuple[SharedLeases, SharedLeases]]:
    """The child's and the supervisor's view of the same memory."""
    descriptor = SharedLeases.make_descriptor(SLOTS)
    child, supervisor = SharedLeases(descriptor, SLOTS), SharedLeases(descriptor, SLOTS)
    os.close(descriptor)
    yield child, supervisor
    child.close()
    supervisor.close()


def leases(count: int) -> list[Lease]:
    return [Lease(id=new_id(), token=token, worker="one") for token in range(1, count + 1)]


def test_an_empty_table_has_no_slots(sides: tuple[SharedLeases, SharedLeases]) -> None:
    """Nor after everything that was held has been dropped."""
    child, supervisor = sides
    assert list(supervisor.slots()) == []

    for lease in (held := leases(SLOTS)):
        child.hold(lease)
    for lease in held:
        child.drop(lease)

    assert list(supervisor.slots()) == []


def test_every_held_lease_is_seen(sides: tuple[SharedLeases, SharedLeases]) -> None:
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
    assert (
        seen[held[1].id].deadline_kind,
        seen[held[1].id].deadline,
    ) == (DeadlineKind.TIMEOUT, 5.0)
    assert SlotState.ENDED is seen[held[2].id].state
    assert supervisor.started() == 2


def test_what_is_dropped_is_gone_and_the_rest_stays(
    sides: tuple[SharedLeases, SharedLeases],
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
    sides: tuple[SharedLeases, SharedLeases],
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
    assert states == {(running.id, SlotState.LOST, True), (ended.id, SlotState.ENDED, False)}

    child.end(running)
    assert SlotState.LOST in {slot.state for slot in supervisor.slots()}
    child.drop(running)
    assert [slot.id for slot in supervisor.slots()] == [ended.id]


class Interrupted:
    """The memory of a table; before a chosen access to it somebody else does something."""

    def __init__(self, memory: Any, interruptions: dict[int, list[Callable[[], object]]]) -> None:
        self._memory = memory
        self._interruptions = interruptions
        self.accesses = 0

    def _interrupt(self) -> None:
        for act in self._interruptions.get(self.accesses, []):
            act()
        self.accesses += 1

    def __getitem__(self, place: Any) -> Any:
        self._interrupt()
        return self._memory[place]

    def __setitem__(self, place: Any, value: Any) -> None:
        self._interrupt()
        self._memory[place] = value

    def close(self) -> None:
        self._memory.close()


# More than a start needs, so that both steps of the supervisor also come after it.
ACCESSES = 12


def start_lease(child: SharedLeases, lease: Lease) -> Callable[[], bool]:
    child.hold(lease)
    return lambda: child.start(lease)


def start_limited(child: SharedLeases, lease: Lease) -> Callable[[], bool]:
    child.hold(lease)
    return lambda: child.start(lease, deadline=5.0)


def start_in_block(child: SharedLeases, lease: Lease) -> Callable[[], bool]:
    before, after = new_id(), new_id()
    block = child.hold_block([before, lease.id, after], lease.token)
    assert block is not None
    for number, id in ((0, before), (2, after)):
        other = Lease(id=id, token=lease.token)
        block.part(number, other)
        child.drop(other)
    block.part(1, lease)

    def start() -> bool:
        block._map = child._map
        return block.start(1)

    return start


@pytest.mark.parametrize("held", [start_lease, start_limited, start_in_block])
def test_no_revoked_lease_is_begun_whatever_comes_first(
    sides: tuple[SharedLeases, SharedLeases],
    held: Callable[[SharedLeases, Lease], Callable[[], bool]],
) -> None:
    """The supervisor marks and reads, the child starts: in every order of their steps, a job that
    the supervisor gives back is not begun, and one that began before the mark is not given back.
    """
    child, supervisor = sides
    memory = child._map
    seen: set[tuple[bool, bool]] = set()
    for marked in range(ACCESSES):
        for read in range(marked, ACCESSES):
            (lease,) = leases(1)
            start = held(child, lease)
            given_back: set[str] = set()

            def give_back(given_back: set[str] = given_back) -> None:
                given_back |= {slot.id for slot in supervisor.slots() if slot.is_revoked}

            interruptions: dict[int, list[Callable[[], object]]] = {}
            interruptions.setdefault(marked, []).append(supervisor.revoke)
            interruptions.setdefault(read, []).append(give_back)
            child._map = interrupted = Interrupted(memory, interruptions)  # type: ignore[assignment]  # it does what a map does
            is_begun = start()
            child._map = memory
            for place in range(interrupted.accesses, ACCESSES):
                for act in interruptions.get(place, []):
                    act()
            is_given_back = lease.id in given_back

            assert not (is_begun and is_given_back), (marked, read)
            if marked >= interrupted.accesses:
                assert is_begun
            if read == 0:
                assert is_given_back
            assert is_begun or child.is_revoked(lease)
            seen.add((is_begun, is_given_back))
            child.drop(lease)

    assert seen == {(True, False), (False, True), (False, False)}


def test_what_is_held_after_the_mark_is_not_revoked(
    sides: tuple[SharedLeases, SharedLeases],
) -> None:
    """A child that goes on may claim and begin other jobs, though the old ones go back."""
    child, supervisor = sides
    old, running, new = leases(3)
    child.hold(old)
    child.hold(running)
    assert child.start(running)
    supervisor.revoke()
    child.hold(new)

    revoked = {slot.id for slot in supervisor.slots() if slot.is_revoked}

    assert revoked == {old.id}
    assert [child.is_revoked(lease) for lease in (old, running, new)] == [True, False, False]
    assert [child.start(lease) for lease in (old, running, new)] == [False, True, True]


def test_the_pulse_changes_and_is_never_nothing(
    sides: tuple[SharedLeases, SharedLeases],
) -> None:
    """Nothing is what it was before the loop ran."""
    child, supervisor = sides
    assert supervisor.last_pulse() == 0

    pulses = []
    for _ in range(600):
        child.pulse()
        pulses.append(supervisor.last_pulse())

    assert 0 not in pulses
    assert all(before != after for before, after in pairwise(pulses))


def test_a_cancelled_run_that_has_not_begun_gets_no_deadline(
    sides: tuple[SharedLeases, SharedLeases],
) -> None:
    """It never will: it must not look as if it had."""
    child, supervisor = sides
    (lease,) = leases(1)
    child.hold(lease)
    child.must_end_by(lease, 5.0)

    assert [slot.state for slot in supervisor.slots()] == [SlotState.HELD]


def test_a_block_is_seen_as_its_leases(sides: tuple[SharedLeases, SharedLeases]) -> None:
    """Each with its id, the common token, and its own state."""
    child, supervisor = sides
    ids = [new_id() for _ in range(SLOTS)]
    block = child.hold_block(ids, 2**40)
    assert block is not None
    block.start(0)
    block.start(1)
    block.end(1)

    seen = {slot.id: slot for slot in supervisor.slots()}
    states = [seen[id].state for id in ids]
    assert {slot.token for slot in seen.values()} == {2**40}
    assert {slot.deadline_kind for slot in seen.values()} == {DeadlineKind.NONE}
    assert states == [SlotState.STARTED, SlotState.ENDED, *[SlotState.HELD] * (SLOTS - 2)]


def test_parts_of_a_block_are_dropped_apart(sides: tuple[SharedLeases, SharedLeases]) -> None:
    """What has left a block is dropped by its lease, the rest by the numbers."""
    child, supervisor = sides
    ids = [new_id() for _ in range(10)]
    block = child.hold_block(ids, 3)
    assert block is not None
    lease = Lease(id=ids[4], token=3)
    block.part(4, lease)
    block.start(4)
    block.drop(0, 4)
    block.drop(5, 3)

    assert [slot.id for slot in supervisor.slots()] == [ids[4], *ids[8:]]
    child.end(lease)
    child.drop(lease)
    block.drop(8, 2)
    assert list(supervisor.slots()) == []


def test_places_are_used_again(sides: tuple[SharedLeases, SharedLeases]) -> None:
    """However they were given back, all of them make room for one block."""
    child, supervisor = sides
    for _ in range(5):
        block = child.hold_block([new_id() for _ in range(SLOTS - 60)], 1)
        assert block is not None
        single = leases(60)
        for lease in single:
            child.hold(lease)
        block.drop(100, 7)
        block.drop(107, SLOTS - 167)
        for lease in single:
            child.drop(lease)
        block.drop(0, 100)

    ids = [new_id() for _ in range(SLOTS)]
    assert child.hold_block(ids, 1) is not None
    assert [slot.id for slot in supervisor.slots()] == ids


def test_a_block_without_room_side_by_side_is_not_held(
    sides: tuple[SharedLeases, SharedLeases],
) -> None:
    """Its leases are held one by one then."""
    child, supervisor = sides
    held = leases(SLOTS)
    for lease in held:
        child.hold(lease)
    for lease in held[::2]:
        child.drop(lease)

    assert child.hold_block([new_id(), new_id()], 1) is None
    assert len(list(supervisor.slots())) == SLOTS // 2
