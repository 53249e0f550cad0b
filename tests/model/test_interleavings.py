"""Whatever two verbs do to the same job at once, it looks as if one had come after the other.

Each pair runs in both orders: one is held after each of its steps and before its COMMIT, the other
meets it there; then the held one goes on, or dies. On SQLite writers exclude each other, so that
there is one point to hold at, and the other must wait for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from rowlock.errors import InvalidTransition, NotFound
from rowlock.job import QUEUED_STATES, Beat, CancelOutcome, Job, JobState, Lease, Policy
from rowlock.lifecycle import Failed, Succeeded
from rowlock.lifecycle import Outcome as Ending
from rowlock.store import JobFilter, Settlement, Store
from rowlock.store.local_state import LocalState
from rowlock.store.ops import bulk as many
from rowlock.store.ops import claim as claims
from rowlock.store.ops import hold, manage, recover, settle
from rowlock.store.ops.enqueue import enqueue
from rowlock.store.options import KeyHold, new_job
from rowlock.store.steps import Op
from tests.model.conftest import Bench
from tests.model.interleave import Outcome, race

LEASE_SECONDS = 30
STEPS_MAX = 30
BEFORE_COMMIT = 1_000
SECOND = 1_000_000
GIVEN_UP = Failed("Error", "boom", permanent=True)


@dataclass
class Scene:
    """Two verbs that are about to meet, and what must be true afterwards.

    `agree` judges both outcomes where both ended; `survive` the one that ended where the other
    was abandoned.
    """

    one: Op[Any]
    other: Op[Any]
    agree: Callable[[Outcome, Outcome], bool]
    survive: Callable[[Outcome], bool] = lambda outcome: True


def made(store: Store, **options: Any) -> Job:
    options.setdefault("policy", Policy(retry=["fixed", 5.0]))
    (job,) = store.enqueue([new_job(kind="a", payload="{}", queue="q", **options)])
    return job


def started(store: Store, **options: Any) -> Lease:
    made(store, **options)
    (lease,) = store.claim(worker="w0", queues=["q"], lease=LEASE_SECONDS)
    return lease


def dead(store: Store, **options: Any) -> Job:
    lease = started(store, **options)
    store.fail(lease, "boom", permanent=True)
    return lease.job


def claiming(worker: str, limit: int = 2) -> Op[list[Lease]]:
    return claims.claim(LocalState(), worker=worker, queues=["q"], limit=limit, lease=LEASE_SECONDS)


def enqueuing(**options: Any) -> Op[list[Job]]:
    return enqueue([new_job(kind="a", payload="{}", queue="q", **options)])


def settling(lease: Lease, ending: Ending) -> Op[settle.Settled]:
    return settle.settle([Settlement(lease, ending)], chance=random.Random(0))


def is_applied(outcome: Outcome) -> bool:
    """Whether a settle did what it was asked for."""
    return outcome.is_ok and not outcome.value.lost and not outcome.value.repeated


def state_of(store: Store, id: str) -> JobState | None:
    job = store.get(id)
    return None if job is None else job.state


def live_with_key(store: Store) -> list[Job]:
    found = store.list(JobFilter(key="k"))
    return [job for job in found if not job.state.is_terminal]


# The scenes


def claim_and_claim(bench: Bench, store: Store) -> Scene:
    """Two claim the same two jobs."""
    made(store), made(store)

    def agree(one: Outcome, other: Outcome) -> bool:
        leases = [*one.value, *other.value]
        running = store.list(JobFilter(), state="running")
        return {(lease.id, lease.token) for lease in leases} == {
            (job.id, job.token) for job in running
        } and len(leases) == len(running)

    return Scene(claiming("w1"), claiming("w2"), agree)


def claim_and_claim_of_many_kinds(bench: Bench, store: Store) -> Scene:
    """Two claim the same jobs of two kinds, by the statement for several lanes."""
    store.enqueue([new_job(kind=kind, payload="{}", queue="q") for kind in "abab"])
    scene = claim_and_claim(bench, store)
    return Scene(claiming("w1", 3), claiming("w2", 3), scene.agree)


def enqueue_one_key(hold_for: KeyHold) -> Callable[[Bench, Store], Scene]:
    def scene(bench: Bench, store: Store) -> Scene:
        """Two enqueue the same key."""

        def agree(one: Outcome, other: Outcome) -> bool:
            (first,), (second,) = one.value, other.value
            return (
                first.id == second.id
                and first.created != second.created
                and len(live_with_key(store)) == 1
            )

        def survive(outcome: Outcome) -> bool:
            (job,) = outcome.value
            return job.created and [job.id] == [each.id for each in live_with_key(store)]

        one, other = (enqueuing(key="k", key_hold=hold_for) for _ in range(2))
        return Scene(one, other, agree, survive)

    return scene


def enqueue_many_keys(bench: Bench, store: Store) -> Scene:
    """Two enqueue the same keys in opposite orders."""
    keys = ["k1", "k2", "k3"]

    def bulk(names: list[str]) -> Op[list[Job]]:
        return enqueue([new_job(kind="a", payload="{}", queue="q", key=name) for name in names])

    def agree(one: Outcome, other: Outcome) -> bool:
        pairs = zip(one.value, reversed(other.value), strict=True)
        return (
            all(first.id == second.id for first, second in pairs)
            and sum(job.created for job in [*one.value, *other.value]) == 3
        )

    def survive(outcome: Outcome) -> bool:
        return all(job.created for job in outcome.value)

    return Scene(bulk(keys), bulk(keys[::-1]), agree, survive)


def resend_and_succeed(keep: int | None) -> Callable[[Bench, Store], Scene]:
    def scene(bench: Bench, store: Store) -> Scene:
        """An enqueue is repeated by its id while the job ends."""
        lease = started(store, policy=Policy(keep=keep))

        def is_same(outcome: Outcome) -> bool:
            if isinstance(outcome.value, settle.Settled):
                return is_applied(outcome)
            return bool([(lease.id, False)] == [(job.id, job.created) for job in outcome.value])

        def agree(one: Outcome, other: Outcome) -> bool:
            ended = None if keep == 0 else JobState.SUCCEEDED
            return is_same(one) and is_same(other) and state_of(store, lease.id) is ended

        return Scene(enqueuing(id=lease.id), settling(lease, Succeeded()), agree, is_same)

    return scene


def key_and_succeed(hold_for: KeyHold, keep: int | None) -> Callable[[Bench, Store], Scene]:
    def scene(bench: Bench, store: Store) -> Scene:
        """A key that outlives the flight is enqueued while its job ends."""
        lease = started(store, key="k", key_hold=hold_for, policy=Policy(keep=keep))

        def agree(one: Outcome, other: Outcome) -> bool:
            (job,) = one.value
            is_same = job.id == lease.id and not job.created
            return is_applied(other) and not live_with_key(store) and is_same

        return Scene(enqueuing(key="k"), settling(lease, Succeeded()), agree)

    return scene


def key_in_flight_and_succeed(bench: Bench, store: Store) -> Scene:
    """A key in flight is enqueued while its job ends: answered by it, or free again."""
    lease = started(store, key="k")

    def agree(one: Outcome, other: Outcome) -> bool:
        (job,) = one.value
        live = [each.id for each in live_with_key(store)]
        return is_applied(other) and (live == [job.id] if job.created else job.id == lease.id)

    return Scene(enqueuing(key="k"), settling(lease, Succeeded()), agree)


def settle_and_settle(bench: Bench, store: Store) -> Scene:
    """A run is settled twice at once: as a success, and as a failure."""
    lease = started(store)

    def agree(one: Outcome, other: Outcome) -> bool:
        return is_applied(one) != is_applied(other) and is_own(one) and is_own(other)

    def is_own(outcome: Outcome) -> bool:
        # One that dies may have committed: then the other is told so, not that the lease is lost.
        return outcome.is_ok and not outcome.value.lost

    endings = settling(lease, Succeeded()), settling(lease, Failed("Error", "boom"))
    return Scene(*endings, agree, is_own)


def settle_and_recover(ending: Ending) -> Callable[[Bench, Store], Scene]:
    def scene(bench: Bench, store: Store) -> Scene:
        """A run whose lease has expired ends while it is recovered."""
        lease = started(store)
        bench.clock.advance(LEASE_SECONDS + 1)

        def agree(one: Outcome, other: Outcome) -> bool:
            return is_applied(one) != bool(other.value) and not one.value.repeated

        return Scene(settling(lease, ending), recover.recover(), agree)

    return scene


def heartbeat_and_recover(bench: Bench, store: Store) -> Scene:
    """A lease that has expired is extended while it is recovered."""
    lease = started(store)
    bench.clock.advance(LEASE_SECONDS + 1)

    def agree(one: Outcome, other: Outcome) -> bool:
        is_kept = bool(one.value == [Beat.KEPT])
        is_running = state_of(store, lease.id) is JobState.RUNNING
        is_left = bool(other.value == 0)
        return is_kept == is_running == is_left

    return Scene(hold.heartbeat([lease]), recover.recover(), agree)


def recover_and_recover(bench: Bench, store: Store) -> Scene:
    """Two recover the same lease."""
    lease = started(store)
    bench.clock.advance(LEASE_SECONDS + 1)

    def agree(one: Outcome, other: Outcome) -> bool:
        job = store.get(lease.id)
        return one.value + other.value == 1 and job is not None and len(job.errors) == 1

    return Scene(recover.recover(), recover.recover(), agree)


def recover_and_claim(bench: Bench, store: Store) -> Scene:
    """A lease that has expired is recovered while another claims."""
    lease = started(store)
    bench.clock.advance(LEASE_SECONDS + 1)

    def agree(one: Outcome, other: Outcome) -> bool:
        job = store.get(lease.id)
        assert job is not None
        tokens = [held.token for held in other.value]
        return len(job.errors) == 1 and job.token == (2 if tokens else 1)

    return Scene(recover.recover(), claiming("w1"), agree)


def cancel_and_claim(bench: Bench, store: Store) -> Scene:
    """A ready job is cancelled while it is claimed."""
    job = made(store)

    def agree(one: Outcome, other: Outcome) -> bool:
        state = state_of(store, job.id)
        if one.value.outcome is CancelOutcome.CANCELLED:
            return not other.value and state is JobState.CANCELLED
        stored = store.get(job.id)
        return len(other.value) == 1 and stored is not None and stored.cancel_requested

    return Scene(manage.cancel(job.id), claiming("w1"), agree)


def cancel_and_settle(ending: Ending, end: JobState) -> Callable[[Bench, Store], Scene]:
    def scene(bench: Bench, store: Store) -> Scene:
        """A running job is cancelled while its run ends."""
        lease = started(store)

        def agree(one: Outcome, other: Outcome) -> bool:
            return is_applied(other) and one.is_ok and state_of(store, lease.id) is end

        return Scene(manage.cancel(lease.id), settling(lease, ending), agree)

    return scene


def cancel_and_recover(bench: Bench, store: Store) -> Scene:
    """A job whose worker is lost is cancelled while it is recovered."""
    lease = started(store)
    bench.clock.advance(LEASE_SECONDS + 1)

    def agree(one: Outcome, other: Outcome) -> bool:
        # Recovery leaves a row that another holds for the next time.
        store.recover()
        return one.is_ok and state_of(store, lease.id) is JobState.CANCELLED

    return Scene(manage.cancel(lease.id), recover.recover(), agree)


def retry_and_enqueue(bulk: bool) -> Callable[[Bench, Store], Scene]:
    def scene(bench: Bench, store: Store) -> Scene:
        """A dead job is retried while another with its key is enqueued."""
        job = dead(store, key="k")

        def is_retried(outcome: Outcome) -> bool:
            return outcome.is_ok and (not bulk or outcome.value.retried == 1)

        def agree(one: Outcome, other: Outcome) -> bool:
            (answer,) = other.value
            is_refused = bulk or isinstance(one.error, InvalidTransition)
            live = [each.id for each in live_with_key(store)]
            return live == [answer.id] and (
                answer.id == job.id if is_retried(one) else answer.created and is_refused
            )

        op: Op[Any] = many.retry_dead(JobFilter()) if bulk else manage.retry(job.id)
        return Scene(op, enqueuing(key="k"), agree)

    return scene


def retry_and_retry(bench: Bench, store: Store) -> Scene:
    """A dead job is retried twice at once."""
    job = dead(store)

    def agree(one: Outcome, other: Outcome) -> bool:
        is_once = one.is_ok != other.is_ok
        return is_once and state_of(store, job.id) is JobState.READY

    return Scene(manage.retry(job.id), manage.retry(job.id), agree)


def retry_and_settle(ending: Ending, end: JobState) -> Callable[[Bench, Store], Scene]:
    def scene(bench: Bench, store: Store) -> Scene:
        """A running job is retried while its run ends: it is there all the time."""
        lease = started(store)

        def is_known(outcome: Outcome) -> bool:
            return outcome.is_ok or isinstance(outcome.error, InvalidTransition)

        def agree(one: Outcome, other: Outcome) -> bool:
            state = JobState.READY if one.is_ok else end
            return is_applied(other) and is_known(one) and state_of(store, lease.id) is state

        return Scene(manage.retry(lease.id), settling(lease, ending), agree, is_known)

    return scene


def prune_and_retry(bench: Bench, store: Store) -> Scene:
    """A dead job is retried while its retention ends."""
    job = dead(store, policy=Policy(keep_dead=SECOND))
    bench.clock.advance(2)

    def agree(one: Outcome, other: Outcome) -> bool:
        if other.is_ok:
            return one.value == 0 and state_of(store, job.id) is JobState.READY
        is_gone = state_of(store, job.id) is None
        return one.value == 1 and isinstance(other.error, NotFound) and is_gone

    return Scene(manage.prune(), manage.retry(job.id), agree)


def delete_and_claim(bench: Bench, store: Store) -> Scene:
    """A ready job is deleted while it is claimed."""
    job = made(store)

    def agree(one: Outcome, other: Outcome) -> bool:
        if one.is_ok:
            return not other.value and state_of(store, job.id) is None
        return isinstance(one.error, InvalidTransition) and len(other.value) == 1

    return Scene(manage.delete(job.id), claiming("w1"), agree)


def delete_and_succeed(bench: Bench, store: Store) -> Scene:
    """A running job is deleted while its run ends."""
    lease = started(store)

    def agree(one: Outcome, other: Outcome) -> bool:
        end = None if one.is_ok else JobState.SUCCEEDED
        is_allowed = one.is_ok or isinstance(one.error, InvalidTransition)
        return is_applied(other) and is_allowed and state_of(store, lease.id) is end

    return Scene(manage.delete(lease.id), settling(lease, Succeeded()), agree)


def release_and_settle(bench: Bench, store: Store) -> Scene:
    """A worker's leases are given back while one of its runs ends."""
    lease = started(store)

    def agree(one: Outcome, other: Outcome) -> bool:
        return (one.value == 1) != is_applied(other) and not other.value.repeated

    return Scene(recover.release_worker("w0"), settling(lease, Succeeded()), agree)


def holders(store: Store) -> list[Job]:
    """The jobs that wait with the key."""
    found = store.list(JobFilter(key="k"), full=True)
    return [job for job in found if job.state in QUEUED_STATES]


def return_and_enqueue(bulk: bool, **options: Any) -> Callable[[Bench, Store], Scene]:
    def scene(bench: Bench, store: Store) -> Scene:
        """A job whose key is free comes back while the key is enqueued."""
        lease = started(store, key="k", key_hold="until_started")
        bench.clock.advance(LEASE_SECONDS + 1)

        def agree(one: Outcome, other: Outcome) -> bool:
            (answer,) = other.value
            state = state_of(store, lease.id)
            is_left = bulk and one.value == 0
            return (
                (is_left or (bool(one.value) if bulk else is_applied(one)))
                and [answer.id] == [job.id for job in holders(store)]
                and answer.created == (answer.id != lease.id)
                and (state is not JobState.CANCELLED or answer.created)
            )

        op: Op[Any] = recover.recover() if bulk else settling(lease, Failed("Error", "boom"))
        again = enqueuing(key="k", key_hold="until_started", **options)
        return Scene(op, again, agree, lambda _: len(holders(store)) <= 1)

    return scene


def return_and_return(bench: Bench, store: Store) -> Scene:
    """Two jobs of one key come back: the newer one waits, unless it ends with its process."""
    older, newer = (started(store, key="k", key_hold="until_started") for _ in range(2))

    def agree(one: Outcome, other: Outcome) -> bool:
        (job,) = holders(store)
        ended = state_of(store, older.id)
        is_done = is_applied(one) and is_applied(other)
        return is_done and job.id == newer.id and ended is JobState.CANCELLED

    fail = Failed("Error", "boom")
    return Scene(settling(older, fail), settling(newer, fail), agree)


def replace_and_claim(bench: Bench, store: Store) -> Scene:
    """A waiting job is replaced while it is claimed: the run has the change, or its successor."""
    job = made(store, key="k", key_hold="until_started")
    options = {"key": "k", "key_hold": "until_started", "if_held": "replace"}

    def agree(one: Outcome, other: Outcome) -> bool:
        (answer,) = one.value
        seen = [lease.job.priority for lease in other.value if lease.id == job.id]
        if answer.created:
            return seen == [0] and [each.id for each in holders(store)] == [answer.id]
        # A claim skips a row that another has locked.
        return answer.id == job.id and answer.priority == 7 and seen in ([7], [])

    return Scene(enqueuing(priority=7, **options), claiming("w1"), agree)


def replace_and_replace(bench: Bench, store: Store) -> Scene:
    """A waiting job is replaced twice at once: the change that came last stays."""
    job = made(store, key="k")

    def agree(one: Outcome, other: Outcome) -> bool:
        (first,), (second,) = one.value, other.value
        (stored,) = holders(store)
        return (
            first.id == second.id == job.id == stored.id
            and (first.priority, second.priority) == (1, 2)
            and stored.priority in (1, 2)
        )

    one, other = (enqueuing(key="k", if_held="replace", priority=each) for each in (1, 2))
    return Scene(one, other, agree)


def replace_many(bench: Bench, store: Store) -> Scene:
    """Two replace the same jobs in opposite orders, and none waits for the other forever."""
    keys = ["k1", "k2", "k3"]
    store.enqueue([new_job(kind="a", payload="{}", queue="q", key=name) for name in keys])

    def bulk(names: list[str], priority: int) -> Op[Any]:
        options = {"queue": "q", "if_held": "replace", "priority": priority}
        return enqueue([new_job(kind="a", payload="{}", key=name, **options) for name in names])  # type: ignore[arg-type]  # of several types

    def agree(one: Outcome, other: Outcome) -> bool:
        jobs = [*one.value, *other.value]
        priorities = {job.priority for job in store.list(JobFilter())}
        return not any(job.created for job in jobs) and priorities in ({1}, {2})

    return Scene(bulk(keys, 1), bulk(keys[::-1], 2), agree)


SCENES: dict[str, Callable[[Bench, Store], Scene]] = {
    "claim || claim": claim_and_claim,
    "claim || claim of many kinds": claim_and_claim_of_many_kinds,
    "key || key in flight": enqueue_one_key("in_flight"),
    "key || key for a period": enqueue_one_key(60),
    "key || key while kept": enqueue_one_key("kept"),
    "keys || keys in bulk": enqueue_many_keys,
    "key || key until started": enqueue_one_key("until_started"),
    "fail || key until started": return_and_enqueue(bulk=False),
    "fail || replace": return_and_enqueue(bulk=False, if_held="replace"),
    "recover || key until started": return_and_enqueue(bulk=True),
    "fail || fail of one key": return_and_return,
    "replace || claim": replace_and_claim,
    "replace || replace": replace_and_replace,
    "replace || replace in bulk": replace_many,
    "resend || succeed": resend_and_succeed(60 * SECOND),
    "resend || succeed, not kept": resend_and_succeed(0),
    "key for a period || succeed": key_and_succeed(60, 60 * SECOND),
    "key for a period || succeed, not kept": key_and_succeed(60, 0),
    "key while kept || succeed": key_and_succeed("kept", 60 * SECOND),
    "key in flight || succeed": key_in_flight_and_succeed,
    "settle || settle": settle_and_settle,
    "succeed || recover": settle_and_recover(Succeeded()),
    "fail || recover": settle_and_recover(Failed("Error", "boom")),
    "heartbeat || recover": heartbeat_and_recover,
    "recover || recover": recover_and_recover,
    "recover || claim": recover_and_claim,
    "cancel || claim": cancel_and_claim,
    "cancel || succeed": cancel_and_settle(Succeeded(), JobState.SUCCEEDED),
    "cancel || fail": cancel_and_settle(Failed("Error", "boom"), JobState.CANCELLED),
    "cancel || recover": cancel_and_recover,
    "retry || key": retry_and_enqueue(bulk=False),
    "retry all || key": retry_and_enqueue(bulk=True),
    "retry || retry": retry_and_retry,
    "retry || fail for good": retry_and_settle(GIVEN_UP, JobState.DEAD),
    "retry || succeed": retry_and_settle(Succeeded(), JobState.SUCCEEDED),
    "prune || retry": prune_and_retry,
    "delete || claim": delete_and_claim,
    "delete || succeed": delete_and_succeed,
    "release worker || succeed": release_and_settle,
}


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=2) as executor:
        yield executor


@pytest.fixture(params=SCENES)
def make_scene(request: pytest.FixtureRequest) -> Callable[[Bench, Store], Scene]:
    return SCENES[request.param]


@pytest.fixture(params=["first", "second"])
def is_swapped(request: pytest.FixtureRequest) -> bool:
    """Which of the two is held."""
    return bool(request.param == "second")


@pytest.fixture(params=["goes on", "dies"])
def is_abandoned(request: pytest.FixtureRequest) -> bool:
    """What becomes of the held one."""
    return bool(request.param == "dies")


def meet(
    bench: Bench,
    store: Store,
    make_scene: Callable[[Bench, Store], Scene],
    *,
    threads: ThreadPoolExecutor,
    pause_after: int,
    is_whole: bool,
    is_swapped: bool,
    is_abandoned: bool,
) -> tuple[bool, bool]:
    """Play a scene once and judge it; whether the pause was the last, and the other waited."""
    bench.clear()
    scene = make_scene(bench, store)
    tokens = bench.tokens(store)
    held, free = (scene.other, scene.one) if is_swapped else (scene.one, scene.other)
    played = race(
        store,
        held,
        free,
        threads=threads,
        pause_after=pause_after,
        is_whole=is_whole,
        is_abandoned=is_abandoned,
        is_waiting=bench.is_any_waiting if store is bench.postgres else None,
    )

    assert played.starts == 1, "the held verb lost a race against one that waited for it"
    assert bench.problems(store, tokens) == []
    if is_abandoned:
        assert scene.survive(played.second), played
    else:
        ends = (played.second, played.first) if is_swapped else (played.first, played.second)
        assert scene.agree(*ends), played
    return played.is_last, played.has_waited


@pytest.mark.parametrize("is_whole", [False, True], ids=["as it commits", "in one transaction"])
def test_two_verbs_at_once_on_postgres(
    bench: Bench,
    threads: ThreadPoolExecutor,
    make_scene: Any,
    *,
    is_whole: bool,
    is_swapped: bool,
    is_abandoned: bool,
) -> None:
    """Held after each step in turn, a verb and its rival end as if one had come after the other."""
    for pause_after in range(STEPS_MAX):
        is_last, _ = meet(
            bench,
            bench.postgres,
            make_scene,
            threads=threads,
            pause_after=pause_after,
            is_whole=is_whole,
            is_swapped=is_swapped,
            is_abandoned=is_abandoned,
        )
        if is_last:
            return

    pytest.fail("a verb with more steps than were tried")


def test_two_verbs_at_once_on_sqlite(
    bench: Bench, threads: ThreadPoolExecutor, make_scene: Any, is_swapped: bool, is_abandoned: bool
) -> None:
    """A writer waits for the one that is about to commit, then sees what that one left."""
    _, has_waited = meet(
        bench,
        bench.sqlite,
        make_scene,
        threads=threads,
        pause_after=BEFORE_COMMIT,
        is_whole=True,
        is_swapped=is_swapped,
        is_abandoned=is_abandoned,
    )

    assert has_waited
