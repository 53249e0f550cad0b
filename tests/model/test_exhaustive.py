"""The model itself is sane: every state that two workers and two jobs can reach is looked at.

Breadth first over the model, states that differ only in what no rule reads counted once. Broken
variants of the model must be caught, or the check would prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

import pytest

from rowlock.errors import RowlockError
from rowlock.job import JobState
from tests.model.model import SECOND, UNTIL_STARTED, Entry, Model, New, Rules, Run, Wanted

LEASE = 10 * SECOND
WORKERS = ("w1", "w2")
# The second is asked for while the first may be in flight: they share a key.
JOBS = {
    0: New(key="k", max_attempts=2, rules=Rules(retry=10.0, max_crashes=2)),
    1: New(key="k", max_attempts=1, rules=Rules(retry=10.0)),
    2: New(max_attempts=1, rules=Rules(retry=10.0)),
}
# The second may be in flight beside the first, and replaces it while it waits.
FREED = {
    0: New(key="k", hold=UNTIL_STARTED, max_attempts=2, rules=Rules(retry=10.0)),
    1: New(key="k", hold=UNTIL_STARTED, max_attempts=2, rules=Rules(retry=10.0), replaces=True),
}
ENDINGS = ("succeed", "fail", "release", "cancelled", "crash")
# As deep as runs in some ten seconds: each further step takes three times as long.
DEPTH = 7
# The broken ones go wrong early.
DEPTH_OF_BROKEN = 6

_values_of = attrgetter(*(each.name for each in fields(Entry)))

Belief = dict[tuple[str, int], int]


class InvariantBroken(AssertionError):
    """The model did what the contract forbids."""


@dataclass
class World:
    """The model, what each worker believes to hold, and the last token settled of each job."""

    model: Model
    asked: Mapping[int, New]
    beliefs: Belief = field(default_factory=dict)
    settled: dict[int, int] = field(default_factory=dict)

    def copy(self) -> World:
        model = self.model
        twin = type(model)(
            now=model.now,
            jobs={number: _copied(entry) for number, entry in model.jobs.items()},
            memory=dict(model.memory),
        )
        return World(twin, self.asked, dict(self.beliefs), dict(self.settled))

    def fingerprint(self) -> Any:
        now = self.model.now
        jobs = tuple(_seen(entry, now) for _, entry in sorted(self.model.jobs.items()))
        return jobs, frozenset(self.beliefs.items()), frozenset(self.settled.items())


def _copied(entry: Entry) -> Entry:
    """As `copy` does, in a fraction of its time: most of the time is spent here."""
    return Entry(*_values_of(entry))


def _seen(entry: Entry, now: int) -> Any:
    return (
        entry.number,
        entry.state,
        entry.attempt,
        entry.token,
        entry.crashes,
        entry.is_cancelled,
        entry.is_taken,
        entry.worker,
        entry.run_at - now,
        None if entry.lease is None else max(0, entry.lease - now),
    )


@dataclass(frozen=True)
class Move:
    """One step of the world, by a name that says who did what."""

    verb: str
    who: Any = None
    number: int = -1
    token: int = 0

    def make(self, world: World) -> None:
        model = world.model
        match self.verb:
            case "advance":
                model.advance(LEASE)
            case "enqueue":
                model.enqueue([(self.number, world.asked[self.number])])
            case "claim":
                for view in model.claim(Wanted(self.who, ["q"], lease=LEASE)):
                    world.beliefs[self.who, view["number"]] = view["token"]
            case "beat":
                model.heartbeat([(self.number, self.token)], LEASE)
            case "recover":
                model.recover(0, None)
            case "cancel":
                model.cancel(self.number)
            case "retry":
                model.retry(self.number)
            case "release_worker":
                model.release_worker(self.who)
            case ending:
                model.settle([Run(self.number, self.token, ending)])  # type: ignore[arg-type]
                before = world.settled.get(self.number, 0)
                _must(self.token > before, "a run was settled twice", self)
                world.settled[self.number] = self.token


def moves_of(world: World) -> Iterator[Move]:
    """Everything that anybody could do now, with leases held and lost alike."""
    yield Move("advance")
    yield Move("recover")
    for number in world.asked:
        if number not in world.model.jobs:
            yield Move("enqueue", number=number)
        else:
            yield Move("cancel", number=number)
            yield Move("retry", number=number)
    for worker in WORKERS:
        yield Move("claim", who=worker)
        yield Move("release_worker", who=worker)
    for (worker, number), token in world.beliefs.items():
        yield Move("beat", worker, number, token)
        for ending in ENDINGS:
            yield Move(ending, worker, number, token)


def check_move(before: World, move: Move, after: World, *, is_refused: bool) -> None:
    """The promises about one step."""
    if is_refused:
        _must(before.fingerprint() == after.fingerprint(), "a refused step changed something", move)
    for number, entry in after.model.jobs.items():
        known = before.model.jobs.get(number)
        if known is not None:
            check_change(known, move, entry, now=before.model.now)
    _must(set(before.model.jobs) <= set(after.model.jobs), "a job was lost", move)


def check_change(known: Entry, move: Move, entry: Entry, *, now: int) -> None:
    step = entry.token - known.token
    _must(step == 0 or (step == 1 and move.verb == "claim"), "a token went wrong", move)
    if known.state is not None and move.verb != "retry":
        _must(entry.state is known.state, "a terminal job came back", move)
    if known.state is JobState.SUCCEEDED:
        _must(entry.state is JobState.SUCCEEDED, "a job that succeeded ran again", move)
    if step and not known.is_running:
        _must(known.run_at <= now, "a job was claimed before its time", move)
        _must(not known.is_cancelled, "a cancelled job was claimed", move)
    if known.is_running and (step or not entry.is_running):
        is_theirs = move.number == known.number and move.token == known.token
        is_given_up = move.verb == "release_worker" and move.who == known.worker
        is_expired = (known.lease or 0) <= now
        _must(is_theirs or is_given_up or is_expired, "a lease was taken from its holder", move)
    if known.is_running and known.is_cancelled and not entry.is_running:
        ends = (JobState.CANCELLED, JobState.SUCCEEDED)
        _must(entry.state in ends, "a request to cancel was forgotten", move)


def check_state(world: World) -> None:
    """The promises about every state."""
    live = [entry for entry in world.model.jobs.values() if entry.state is None]
    keys = [entry.asked.slot for entry in live if entry.asked.key is not None and entry.holds_key]
    _must(len(keys) == len(set(keys)), "two live jobs hold one key")
    for entry in world.model.jobs.values():
        _must(0 <= entry.attempt <= entry.max_attempts, "more attempts than allowed")
        _must(not (entry.is_running and entry.state), "a terminal job is running")
        _must((entry.state is None) == (entry.finished_at is None), "an end without its time")
        holders = [
            worker
            for (worker, number), token in world.beliefs.items()
            if entry.is_running and number == entry.number and token == entry.token
        ]
        _must(holders == [entry.worker] if entry.is_running else not holders, "not one holder")


def _must(holds: bool, promise: str, move: Move | None = None) -> None:
    if not holds:
        raise InvariantBroken(f"{promise}: {move}")


def explore(make: Callable[[], Model], depth: int, asked: Mapping[int, New] = JOBS) -> int:
    """Look at every state up to a depth; how many there were."""
    start = World(make(), asked)
    start.model.enqueue([(0, asked[0])])
    seen = {start.fingerprint()}
    front = [start]
    for _ in range(depth):
        reached = []
        for world in front:
            for move in moves_of(world):
                after = world.copy()
                is_refused = False
                try:
                    move.make(after)
                except RowlockError:
                    is_refused = True
                check_move(world, move, after, is_refused=is_refused)
                mark = after.fingerprint()
                if mark not in seen:
                    seen.add(mark)
                    check_state(after)
                    reached.append(after)
        front = reached
    return len(seen)


class NotFenced(Model):
    """A settle asks who runs the job, not under which token."""

    def _held(self, number: int, token: int) -> Entry | None:
        entry = self.jobs.get(number)
        return entry if entry is not None and entry.is_running else None


class NeverGivenUp(Model):
    """Recovery forgets to count the attempts."""

    def _take(self, entries: list[Entry], reason: str, *, is_parked: bool = False) -> int:
        for entry in entries:
            self._give_back(entry, run_at=entry.run_at, is_taken=True)
        return len(entries)


class HastyRecovery(Model):
    """Recovery takes leases that have not expired."""

    def recover(self, older_than: int, queues: Any) -> int:
        return self._take(self._running(queues), "lease expired")


class TokenReturned(Model):
    """A release takes the token back together with the attempt."""

    def _release(self, entry: Entry, seconds: float | None) -> None:
        entry.token -= 1
        super()._release(entry, seconds)


class CarelessRetry(Model):
    """A retry does not look whether its key is in flight again."""

    def _is_in_flight(self, entry: Entry) -> bool:
        return False


class CancelDropped(Model):
    """A release forgets that the job was to be cancelled."""

    def release_worker(self, worker: str) -> int:
        held = [entry for entry in self._running(None) if entry.worker == worker]
        for entry in held:
            self._release(entry, None)
        return len(held)


class CarelessReturn(Model):
    """A job that returns does not look whether a newer one has its key."""

    def _supersede(self, ended: Sequence[tuple[Entry, Entry]]) -> None:
        pass


@pytest.mark.long
def test_every_reachable_state_keeps_the_promises(record_property: Any) -> None:
    """In every state that two workers reach with three jobs, the contract's promises hold."""
    states = explore(Model, DEPTH)

    assert states > 10_000
    record_property("model", f"{states} states to depth {DEPTH}, 0 broken promises")


@pytest.mark.parametrize(
    "broken",
    [NotFenced, NeverGivenUp, HastyRecovery, TokenReturned, CarelessRetry, CancelDropped],
)
def test_a_broken_model_is_caught(broken: type[Model]) -> None:
    """A model with a bug that queues have had breaks a promise within a few steps."""
    with pytest.raises(InvariantBroken):
        explore(broken, DEPTH_OF_BROKEN)


@pytest.mark.long
def test_every_reachable_state_of_freed_keys_keeps_the_promises() -> None:
    """Keys that are free once their job runs are held by one job that waits, at most."""
    assert explore(Model, DEPTH, FREED) > 1_000


def test_a_careless_return_is_caught() -> None:
    """Without the look at newer jobs, two would wait with one key."""
    with pytest.raises(InvariantBroken, match="two live jobs hold one key"):
        explore(CarelessReturn, DEPTH_OF_BROKEN, FREED)
