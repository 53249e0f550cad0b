"""Limits: how many jobs run at once, how many start in a time, and whose turn it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from rowlock import config
from rowlock.clock import ManualClock
from rowlock.errors import NotFound, OptionInvalid
from rowlock.job import JobState, Lease
from rowlock.lifecycle import Throttle
from rowlock.limits import Limit, Rate, chosen_numbers
from rowlock.store import Settlement, Store, open_store
from rowlock.store.ops.claim import Claimed, ClaimRequest, LimitOf, View, claim_seen, look
from rowlock.store.options import LimitPlace
from rowlock.store.rotation import Rotation
from tests.mutants import MUTANTS
from tests.store.jobs import claim, claim_one, enqueue, made, state_of, stored
from tests.support.limits import declare, put


class Worker:
    """Looks once, and claims again and again from what it saw, as a worker's child does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rotation = Rotation()
        self._view = View()

    def look(self) -> None:
        """See everything anew."""
        self.rotation.look_again()
        self._view = self._store.run(look(queues=["default"], kinds=None))

    def claim(self, limit: int = 100) -> list[Lease]:
        """Claim from what was seen."""
        request = ClaimRequest(
            "w", {"default": limit}, None, None, limit, 600_000_000, rotation=self.rotation
        )
        claimed: Claimed = self._store.run(claim_seen(request, self._view))
        self._view = msgspec.structs.replace(claimed.view, rooms=self._view.rooms)
        return claimed.leases


@pytest.fixture
def remembering(store: Store, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """A worker for which every walk is a slow one, so that it uses what it knows of keys."""
    monkeypatch.setattr(config, "KEY_SLOW_US", -1)
    return Worker(store)


def keys(leases: list[Lease]) -> dict[str, int]:
    """How many jobs of each key were leased."""
    return dict(Counter(lease.job.limit_key or "" for lease in leases))


def test_no_more_jobs_of_a_key_run_than_its_limit_allows(store: Store):
    """Two of each key run, whoever claims; the others wait, and are ready."""
    declare(store, "stripe", per="customer", concurrency_per_key=2)
    for key in ("acme", "bolt"):
        put(store, "stripe", key, jobs=4)

    first = claim(store, limit=100)
    second = claim(store, worker="w2", limit=100)

    assert (keys(first), second) == ({"acme": 2, "bolt": 2}, [])
    assert store.stats(["default"])[0].counts[JobState.READY].value == 4


@pytest.mark.parametrize("end", ["succeeded", "failed", "released", "expired", "cancelled"])
def test_a_slot_is_free_when_its_lease_is_gone(store: Store, clock: ManualClock, end: str):
    """However a run ends, the next job of its key can start."""
    declare(store, "one", concurrency=1)
    put(store, "one", jobs=2, max_attempts=1)
    lease = claim_one(store, lease=30)
    assert claim(store) == []

    match end:
        case "succeeded":
            store.succeed([lease])
        case "failed":
            store.fail(lease, "no")
        case "released":
            store.release(lease, 60)
        case "expired":
            clock.advance(31)
        case _:
            store.finish_cancelled(lease)

    assert len(claim(store)) == 1


def test_a_total_bounds_all_keys_together(store: Store):
    """Three in all, however many keys and kinds there are."""
    declare(store, "pool", concurrency=3, per="table")
    for kind in ("read", "write"):
        for key in ("a", "b", "c"):
            put(store, "pool", key, kind=kind)

    found = claim(store)

    assert len(found) == 3
    assert claim(store, worker="w2") == []
    store.succeed(found[:1])
    assert len(claim(store, worker="w2")) == 1


def test_a_full_key_does_not_hold_up_others(store: Store):
    """A backlog of one key is passed by, in whatever order the jobs came."""
    declare(store, "stripe", per="customer", concurrency_per_key=1)
    put(store, "stripe", "acme", jobs=50)
    put(store, "stripe", "zeta")

    assert keys(claim(store)) == {"acme": 1, "zeta": 1}


def test_jobs_without_a_limit_are_not_held_up(store: Store):
    """A full limit is nothing to a plain job of the same kind and queue."""
    declare(store, "one", concurrency=1)
    put(store, "one", jobs=3)
    claim_one(store)
    plain = enqueue(store)

    assert [plain.id] == [lease.id for lease in claim(store)]


def test_a_rate_spreads_starts(store: Store, clock: ManualClock):
    """Three at once after a pause, then one every fifth of a second."""
    declare(store, "api", rate=Rate(5, period=1, burst=3))
    put(store, "api", jobs=20)

    assert len(claim(store)) == 3
    clock.advance(0.199)
    assert claim(store) == []
    clock.advance(0.001)
    assert len(claim(store)) == 1
    clock.advance(10)
    assert len(claim(store)) == 3


def test_a_rate_counts_for_each_key(store: Store, clock: ManualClock):
    """A key that has used its rate does not use that of others."""
    declare(store, "api", per="customer", rate_per_key=Rate(1, period=10))
    for key in ("acme", "bolt"):
        put(store, "api", key, jobs=3)

    assert keys(claim(store)) == {"acme": 1, "bolt": 1}
    clock.advance(9.9)
    put(store, "api", "cato")
    assert keys(claim(store)) == {"cato": 1}
    clock.advance(0.1)
    assert keys(claim(store)) == {"acme": 1, "bolt": 1}


def test_a_rate_and_a_number_hold_together(store: Store, clock: ManualClock):
    """Whichever is used up first decides, in total and for each key."""
    declare(
        store,
        "both",
        concurrency=3,
        rate=Rate(2, period=1, burst=2),
        per="customer",
        concurrency_per_key=1,
        rate_per_key=Rate(1, period=5),
    )
    for key in ("a", "b", "c", "d"):
        put(store, "both", key, jobs=5)

    first = claim(store)
    assert keys(first) == {"a": 1, "b": 1}
    clock.advance(0.5)
    assert keys(claim(store)) == {"c": 1}
    clock.advance(0.5)
    assert claim(store) == []
    store.succeed(first[:1])
    assert keys(claim(store)) == {"d": 1}


def test_keys_have_their_turns_by_weight(store: Store):
    """With weights 1, 1 and 3, of any five starts three are of the third, whatever waits."""
    declare(store, "fair", per="tenant", weights={"small": 3})
    for key, jobs in (("big", 90), ("middle", 50), ("small", 40)):
        put(store, "fair", key, jobs=jobs)

    by_tens = [keys(claim(store, limit=10)) for _ in range(3)]
    one_by_one = Counter(claim_one(store).job.limit_key for _ in range(10))

    assert by_tens == [{"big": 2, "middle": 2, "small": 6}] * 3
    assert one_by_one == {"big": 2, "middle": 2, "small": 6}


def test_what_a_key_does_not_use_is_for_others(store: Store):
    """A claim is filled, if there is enough for it."""
    declare(store, "fair", per="tenant")
    put(store, "fair", "a", jobs=2)
    put(store, "fair", "b", jobs=20)

    assert keys(claim(store, limit=10)) == {"a": 2, "b": 8}


@pytest.mark.parametrize(
    "rules", [{"concurrency": 2}, {"concurrency": 3}, {"rate": Rate(1, period=1, burst=3)}]
)
def test_what_a_total_allows_is_shared_by_all_keys(
    store: Store, clock: ManualClock, rules: dict[str, Any]
):
    """A claim that asks for more than may start takes no more of the first key than of others."""
    declare(store, "pool", per="tenant", **rules)
    for key in ("a", "b", "c"):
        put(store, "pool", key, jobs=20)

    served: Counter[str] = Counter()
    for _ in range(6):
        leases = claim(store, limit=50)
        served.update(keys(leases))
        store.succeed(leases)
        clock.advance(10)

    assert max(served.values()) - min(served[key] for key in ("a", "b", "c")) <= 1


def test_an_order_is_that_of_the_enqueue(store: Store, clock: ManualClock):
    """One at a time, and nothing overtakes a job that waits for its retry."""
    declare(store, "hooks", per="account", ordered=True)
    first, second, third = put(store, "hooks", "7", jobs=3, is_ordered=True)
    (other,) = put(store, "hooks", "8", is_ordered=True)

    leases = {lease.id: lease for lease in claim(store, lease=600)}
    assert {first.id, other.id} == set(leases)
    store.fail(leases[first.id], "try again", delay=60)
    assert claim(store) == []
    clock.advance(60)
    again = claim_one(store)
    assert first.id == again.id
    store.succeed([again])
    assert second.id == claim_one(store).id
    assert claim(store) == []
    assert state_of(store, third.id) is JobState.READY


def test_a_job_that_is_not_due_holds_up_its_order(store: Store, clock: ManualClock):
    """Nothing overtakes it, and other keys go on."""
    declare(store, "hooks", per="account", ordered=True)
    (later,) = put(store, "hooks", "7", delay=60, is_ordered=True)
    put(store, "hooks", "7", is_ordered=True)
    (other,) = put(store, "hooks", "8", is_ordered=True)

    assert [other.id] == [lease.id for lease in claim(store, lease=600)]
    clock.advance(60)
    assert [later.id] == [lease.id for lease in claim(store, lease=600)]


def test_an_order_spans_kinds_and_priorities(store: Store):
    """What was enqueued first runs first, also if a worker does not serve its kind."""
    declare(store, "hooks", ordered=True)
    (first,) = put(store, "hooks", kind="write", is_ordered=True)
    (second,) = put(store, "hooks", kind="erase", is_ordered=True)

    assert claim(store, kinds=["erase"]) == []
    lease = claim_one(store)
    assert first.id == lease.id
    store.succeed([lease])
    assert second.id == claim_one(store, kinds=["erase"]).id


def test_an_order_is_that_of_a_call(store: Store):
    """Jobs of one call run as they were given, whatever their kinds, tenants and keys."""
    declare(store, "hooks", ordered=True)
    place = LimitPlace("hooks", "", is_ordered=True)
    given: list[dict[str, Any]] = [
        {"kind": "write", "tenant": "zeta"},
        {"kind": "erase", "key": "k"},
        {"kind": "write", "tenant": "acme"},
        {"kind": "append", "key": "j"},
    ]
    jobs = store.enqueue([made(limit=place, **options) for options in given])

    started = []
    for _ in jobs:
        lease = claim_one(store)
        store.succeed([lease])
        started.append(lease.id)

    assert started == [job.id for job in jobs]


def test_a_dead_job_in_an_order_is_passed_or_stops_it(store: Store):
    """As `on_dead` says; a pause lasts until somebody resumes the key."""
    declare(store, "goes", per="account", ordered=True)
    declare(store, "stops", per="account", ordered=True, on_dead="pause")
    for name in ("goes", "stops"):
        put(store, name, "7", jobs=2, is_ordered=True, queue=name)
        store.fail(claim_one(store, queues=[name]), "no", permanent=True)

    assert len(claim(store, queues=["goes"])) == 1
    assert claim(store, queues=["stops"]) == []
    store.resume_limit("stops", "7")
    assert len(claim(store, queues=["stops"])) == 1


def test_a_retried_dead_job_has_its_old_place(store: Store):
    """It was enqueued before the others of its key."""
    declare(store, "hooks", ordered=True)
    first, second = put(store, "hooks", jobs=2, is_ordered=True)
    store.fail(claim_one(store), "no", permanent=True)
    store.retry(first.id)

    assert first.id == claim_one(store).id
    assert claim(store) == []
    assert state_of(store, second.id) is JobState.READY


def test_a_throttled_job_closes_its_key(store: Store, clock: ManualClock):
    """No attempt is used, it stays first, and other keys go on."""
    declare(store, "stripe", per="customer")
    first, *_ = put(store, "stripe", "acme", jobs=3)
    lease = claim_one(store)
    store.settle([Settlement(lease, Throttle(30_000_000, "429"))])
    put(store, "stripe", "bolt")

    assert keys(claim(store, lease=600)) == {"bolt": 1}
    clock.advance(30)
    again = claim(store, limit=1)
    assert [(first.id, 1)] == [(lease.id, lease.job.attempt) for lease in again]


def test_a_job_with_a_limit_that_is_not_due_waits(store: Store, clock: ManualClock):
    """It takes no turn and no slot until it is due."""
    declare(store, "one", concurrency=1)
    (later,) = put(store, "one", delay=60)
    (now,) = put(store, "one")

    assert state_of(store, later.id) is JobState.SCHEDULED
    assert [now.id] == [lease.id for lease in claim(store)]
    store.succeed([Lease(id=now.id, token=1)])
    assert claim(store) == []
    clock.advance(60)
    assert [later.id] == [lease.id for lease in claim(store)]


def test_the_oldest_ready_job_may_have_a_limit(store: Store, clock: ManualClock):
    """Also if it has become due, and no worker has looked since."""
    declare(store, "one", concurrency=1)
    put(store, "one", delay=60)
    assert store.stats(["default"])[0].oldest_ready_seconds is None

    clock.advance(70)

    assert store.stats(["default"])[0].oldest_ready_seconds == 10


def test_nothing_starts_under_a_limit_that_nobody_has_declared(store: Store):
    """Its numbers are not known, so no number of jobs is safe."""
    put(store, "unknown", jobs=2)
    declare(store, "another", concurrency=1)

    assert claim(store) == []
    declare(store, "unknown", concurrency=1)
    assert len(claim(store)) == 1


def test_the_later_declaration_counts(store: Store):
    """What a deploy declares is used by all; one that is the same changes nothing."""
    declare(store, "pool", concurrency=1)
    put(store, "pool", jobs=5)
    assert len(claim(store)) == 1

    changed = store.declare_limits([Limit("pool", concurrency=3).declared])
    again = store.declare_limits([Limit("pool", concurrency=3).declared])

    assert (changed, again) == (["pool"], [])
    assert len(claim(store)) == 2


def test_what_was_set_outlives_a_deploy(store: Store):
    """Until it is unset: then the declared numbers count again."""
    declare(store, "pool", concurrency=1)
    put(store, "pool", jobs=9)
    store.set_limit("pool", None, chosen_numbers(concurrency=4))
    declare(store, "pool", concurrency=2)
    assert len(claim(store)) == 4

    store.unset_limit("pool")
    assert claim(store) == []
    declare(store, "pool", concurrency=5)
    assert len(claim(store)) == 1


def test_a_key_can_have_numbers_of_its_own(store: Store, clock: ManualClock):
    """More at once, or another rate, for one customer."""
    declare(store, "stripe", per="customer", concurrency_per_key=1)
    for key in ("acme", "bolt"):
        put(store, "stripe", key, jobs=9)
    store.set_limit("stripe", "acme", chosen_numbers(key="acme", concurrency=3))
    store.set_limit("stripe", "bolt", chosen_numbers(key="bolt", rate=Rate(1, period=60)))

    leases = claim(store)
    assert keys(leases) == {"acme": 3, "bolt": 1}
    store.succeed(leases)
    assert keys(claim(store)) == {"acme": 3}
    store.unset_limit("stripe", "bolt")
    assert keys(claim(store)) == {"bolt": 1}


def test_a_limit_and_a_key_can_be_paused(store: Store, clock: ManualClock):
    """For some time, or until somebody resumes them."""
    declare(store, "stripe", per="customer")
    for key in ("acme", "bolt"):
        put(store, "stripe", key, jobs=9)
    store.pause_limit("stripe", "acme", 60, reason="they asked for it")
    assert keys(claim(store, limit=2)) == {"bolt": 2}
    clock.advance(60)
    assert keys(claim(store, limit=2)) == {"acme": 1, "bolt": 1}

    store.pause_limit("stripe")
    assert claim(store) == []
    store.resume_limit("stripe")
    assert len(claim(store, limit=2)) == 2


def test_a_faster_rate_counts_at_once(store: Store, clock: ManualClock):
    """The wait that is left from a slower one is cut short."""
    declare(store, "api", rate=Rate(1, period=3600))
    put(store, "api", jobs=9)
    assert len(claim(store)) == 1
    store.set_limit("api", None, chosen_numbers(rate=Rate(1, period=1)))
    clock.advance(1)

    assert len(claim(store)) == 1


def test_a_limit_that_is_unknown_is_not_found(store: Store):
    """Nothing is written for it."""
    with pytest.raises(NotFound, match="there is no limit 'nope'"):
        store.set_limit("nope", None, chosen_numbers(concurrency=4))
    with pytest.raises(NotFound, match="there is no limit 'nope'"):
        store.pause_limit("nope")


def test_jobs_of_an_order_run_one_at_a_time(store: Store):
    """No number of a key can be set there."""
    declare(store, "hooks", per="account", ordered=True)

    with pytest.raises(OptionInvalid, match="its jobs run in order"):
        store.set_limit("hooks", "7", chosen_numbers(key="7", concurrency=2))


def test_a_job_that_lacks_its_limit_is_sent_there(store: Store):
    """It was sent by name: no attempt is used, and the limit holds for it."""
    declare(store, "stripe", per="customer", concurrency_per_key=1)
    sent = [enqueue(store) for _ in range(3)]

    def place(row: object) -> LimitPlace:
        return LimitPlace("stripe", "acme")

    limits: dict[str, LimitOf] = {"task": place}
    assert claim(store, limits=limits) == []
    lease = claim_one(store, limits=limits)
    assert (sent[0].id, 1) == (lease.id, lease.job.attempt)
    assert claim(store, limits=limits) == []
    assert {stored(store, job.id).limit for job in sent} == {"stripe"}


def test_run_again_waits_at_the_same_limit(store: Store):
    """A job that is enqueued again, or retried, is limited as it was."""
    declare(store, "one", concurrency=1)
    put(store, "one", jobs=2)
    lease = claim_one(store)
    store.succeed([lease])
    again = store.run_again(lease.id)

    assert (stored(store, again.id).limit, stored(store, again.id).limit_key) == ("one", "")
    assert len(claim(store)) == 1


def test_many_jobs_at_once_wait_at_their_limits(store: Store):
    """Also when they are copied, and when only some of them have a limit."""
    declare(store, "stripe", per="customer", concurrency_per_key=1)
    limited = [made(limit=LimitPlace("stripe", str(number % 50))) for number in range(200)]
    store.enqueue([*limited, *(made() for _ in range(100))])

    found = claim(store, limit=1_000)
    assert len(found) == 150
    assert len({lease.job.limit_key for lease in found if lease.job.limit}) == 50


def test_what_a_worker_remembers_keeps_the_limit(store: Store, remembering: Worker):
    """Runs that have ended are not counted again, and those that go on are."""
    declare(store, "stripe", per="customer", concurrency_per_key=2)
    for key in ("acme", "bolt"):
        put(store, "stripe", key, jobs=20)
    remembering.look()
    long, *first = remembering.claim()
    assert len(first) == 3
    assert remembering.claim() == []

    for _ in range(5):
        store.succeed(first)
        first = remembering.claim()
        assert sum(each.job.limit_key != long.job.limit_key for each in first) == 2
        assert len(first) == 3
        assert claim(store, worker="other") == []


def test_what_a_worker_remembers_keeps_the_total(store: Store, remembering: Worker):
    """The starts of others count too, whoever knows of them."""
    declare(store, "pool", concurrency=3, per="table", concurrency_per_key=2)
    for key in ("a", "b", "c"):
        put(store, "pool", key, jobs=20)
    remembering.look()
    for _ in range(5):
        own = remembering.claim(2)
        others = claim(store, worker="other")
        assert (len(own), len(others)) == (2, 1)
        assert remembering.claim() == []
        store.succeed([*own, *others])


def test_a_job_that_came_back_is_found_by_the_next_look(store: Store, remembering: Worker):
    """It lies before what the worker remembers."""
    declare(store, "fair", per="tenant")
    put(store, "fair", "a", jobs=4)
    remembering.look()
    (first,) = remembering.claim(1)
    remembering.claim(1)
    store.release(first)
    remembering.look()

    assert [lease.id for lease in remembering.claim(1)] == [first.id]


def test_what_a_worker_remembers_keeps_the_order(store: Store, remembering: Worker):
    """A job that waits for its retry is still the first of its key."""
    declare(store, "hooks", per="account", ordered=True)
    jobs = put(store, "hooks", "7", jobs=4, is_ordered=True)
    remembering.look()
    for job in jobs[:2]:
        (lease,) = remembering.claim()
        assert lease.id == job.id
        store.succeed([lease])
    (third,) = remembering.claim()
    store.fail(third, "try again", delay=60)

    assert remembering.claim() == []


def test_a_key_that_is_new_is_found_by_the_next_look(store: Store, remembering: Worker):
    """And one that has no jobs left is forgotten."""
    declare(store, "fair", per="tenant")
    put(store, "fair", "a")
    remembering.look()
    remembering.claim()
    remembering.claim()
    put(store, "fair", "b")
    assert remembering.claim() == []
    remembering.look()

    assert keys(remembering.claim()) == {"b": 1}


def test_a_job_that_is_replaced_waits_at_the_new_key(store: Store, clock: ManualClock):
    """Its limit is one of the options that a replacement brings, and so is its time."""
    declare(store, "fair", per="tenant")
    (first,) = put(store, "fair", "a", key="k", delay=60)
    (second,) = put(store, "fair", "b", key="k", if_held="replace")
    assert second.id == first.id
    assert keys(claim(store)) == {"b": 1}

    (ordered,) = put(store, "fair", "c", key="o", is_ordered=True)
    (again,) = put(store, "fair", "c", key="o", is_ordered=True, if_held="replace", delay=60)
    assert again.id == ordered.id
    assert state_of(store, ordered.id) is JobState.SCHEDULED
    assert claim(store) == []


def test_a_worker_that_forgets_what_runs_is_found(
    emptied_postgres_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    """A planted bug: the count begins above a start that has not ended."""
    store = open_store(emptied_postgres_url, clock=clock)
    declare(store, "stripe", per="customer", concurrency_per_key=2)
    put(store, "stripe", "acme", jobs=20)
    monkeypatch.setattr(config, "KEY_SLOW_US", -1)
    with MUTANTS["floor above a living turn"]():
        worker = Worker(store)
        worker.look()
        held = worker.claim()
        found = worker.claim()
    store.close()

    assert (len(held), len(found) > 0) == (2, True)


def test_a_key_that_gives_nothing_does_not_take_the_turn_of_others(store: Store):
    """Its first job is not due, and there is one slot only: the next key has its turn."""
    declare(store, "hooks", per="account", ordered=True)
    for key in ("a", "b"):
        put(store, "hooks", key, delay=60, is_ordered=True)
        put(store, "hooks", key, is_ordered=True)
    (other,) = put(store, "hooks", "c", is_ordered=True)

    assert [other.id] == [lease.id for lease in claim(store, limit=1)]


def test_many_keys_that_give_nothing_are_passed_in_a_few_claims(store: Store):
    """Each claim asks some of them, and the next one goes on behind them."""
    declare(store, "hooks", per="account", ordered=True)
    for number in range(25):
        put(store, "hooks", f"a{number:02}", delay=60, is_ordered=True)
        put(store, "hooks", f"a{number:02}", is_ordered=True)
    (other,) = put(store, "hooks", "b", is_ordered=True)

    found = [lease.id for _ in range(4) for lease in claim(store, limit=1)]

    assert found == [other.id]
