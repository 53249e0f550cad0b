"""Many at once: what must happen once happens once, and nobody waits for ever."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from rowlock.errors import InvalidTransition, LeaseLost
from rowlock.job import JobState
from rowlock.store import Store, open_store
from rowlock.store.ops.enqueue import enqueue as enqueue_op
from rowlock.store.ops.manage import job_filter
from rowlock.store.steps import Op, Steps
from tests.store.jobs import (
    EVERY_JOB,
    claim,
    drain,
    enqueue,
    enqueue_ids,
    made,
    start,
    state_of,
    stored,
)
from tests.store.migrating import claim_in_a_process, debounce_in_a_process
from tests.support.processes import FRESH

THREADS = 8


@pytest.fixture
def shared(store_url: str) -> Iterator[Store]:
    """A store by the real clock, for any number of threads."""
    store = open_store(store_url)
    yield store
    store.close()


def together(*actions: Callable[[], Any]) -> list[Any]:
    """Run actions in threads that start at the same moment; their results, in order."""
    gate = threading.Barrier(len(actions))

    def act(action: Callable[[], Any]) -> Any:
        gate.wait(10)
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return [future.result(30) for future in [pool.submit(act, action) for action in actions]]


@pytest.mark.parametrize("kinds", [1, 3])
def test_each_job_is_claimed_once(shared: Store, kinds: int):
    """Of eight threads that drain a queue, exactly one gets each of 500 jobs."""
    jobs = shared.enqueue([made(kind=f"k{number % kinds}") for number in range(500)])

    def drain_as(number: int) -> Callable[[], Any]:
        return lambda: drain(shared, f"w{number}")

    claimed = [id for ids in together(*map(drain_as, range(THREADS))) for id in ids]
    assert len(claimed) == 500
    assert {job.id for job in jobs} == set(claimed)


def test_each_tenants_job_is_claimed_once(shared: Store):
    """Claims for some tenants exclude each other as all claims do."""
    jobs = shared.enqueue([made(tenant=f"t{number % 3}") for number in range(200)])

    def drain_tenants() -> list[str]:
        found: list[str] = []
        while leases := claim(shared, limit=5, tenants=["t0", "t1", "t2"]):
            found += [lease.id for lease in leases]
        return found

    claimed = [id for ids in together(*[drain_tenants] * THREADS) for id in ids]
    assert sorted(job.id for job in jobs) == sorted(claimed)


def test_each_key_is_enqueued_once(shared: Store):
    """Eight threads that enqueue 200 keys four times each, in any order, make 200 jobs."""
    keys = [f"k{number}" for number in range(200)] * 4
    random.Random(7).shuffle(keys)

    def enqueue_share(number: int) -> Callable[[], Any]:
        def act() -> list[tuple[str, bool]]:
            shares = keys[number::THREADS]
            return [(job.id, job.created) for job in (enqueue(shared, key=key) for key in shares)]

        return act

    answers = [each for share in together(*map(enqueue_share, range(THREADS))) for each in share]
    assert Counter(created for _, created in answers) == Counter({True: 200, False: 600})
    assert len({id for id, _ in answers}) == 200
    assert len(shared.list(EVERY_JOB, limit=1_000)) == 200


def test_a_key_goes_round(shared: Store):
    """While jobs of one key are run and enqueued again, never two are in flight."""
    done: list[str] = []

    def produce() -> int:
        return sum(enqueue(shared, key="k").created for _ in range(60))

    def consume() -> None:
        for _ in range(120):
            leases = claim(shared)
            assert len(leases) <= 1
            shared.succeed(leases)
            done.extend(lease.id for lease in leases)

    made_count, other_count, _ = together(produce, produce, consume)
    consume()
    assert made_count + other_count == len(done) == len(set(done))


def test_settle_against_recover(shared: Store):
    """Either the worker settles its job or the sweeper takes it, never both, never neither."""
    ids = enqueue_ids(shared, 40)
    leases = claim(shared, lease=0.000001)

    def succeed() -> set[str]:
        lost: set[str] = set()
        for lease in leases:
            try:
                shared.succeed([lease])
            except LeaseLost:
                lost.add(lease.id)
        return lost

    def recover() -> int:
        return sum(shared.recover() for _ in range(5))

    lost, recovered, others = together(succeed, recover, recover)
    assert len(lost) == recovered + others
    states = {id: state_of(shared, id) for id in ids}
    assert lost == {id for id, state in states.items() if state is JobState.READY}
    assert set(ids) - lost == {id for id, state in states.items() if state is JobState.SUCCEEDED}


def test_cancel_against_claim(shared: Store):
    """A cancel ends a waiting job or flags a running one; no cancelled job is run."""
    ids = enqueue_ids(shared, 60)

    def cancel() -> dict[str, str]:
        return {id: shared.cancel(id).outcome for id in ids}

    outcomes, claimed = together(cancel, lambda: drain(shared, "w1"))
    assert isinstance(outcomes, dict)
    assert {"cancelled", "pending_on_worker"} >= set(outcomes.values())
    assert {id for id in ids if outcomes[id] == "pending_on_worker"} == set(claimed)
    assert all(stored(shared, id).cancel_requested for id in claimed)


def test_cancel_against_settle(shared: Store):
    """The first one wins: a success stays a success, a failure with the flag is cancelled."""
    leases = [start(shared) for _ in range(30)]

    def fail() -> None:
        for lease in leases:
            shared.fail(lease, "boom", delay=0)

    _, outcomes = together(fail, lambda: [shared.cancel(lease.id).outcome for lease in leases])
    assert {state_of(shared, lease.id) for lease in leases} == {JobState.CANCELLED}
    assert {"cancelled", "pending_on_worker"} >= set(outcomes)


def test_bulk_enqueues_in_opposite_order(shared: Store):
    """Batches with the same keys in opposite order don't wait for each other for ever."""
    keys = [f"k{number}" for number in range(150)]

    def enqueue_all(order: list[str]) -> Callable[[], Any]:
        return lambda: [job.created for job in shared.enqueue([made(key=key) for key in order])]

    orders = [keys, keys[::-1], keys[75:] + keys[:75], keys[::-1]]
    answers = together(*map(enqueue_all, orders))
    assert sum(sum(created) for created in answers) == 150
    assert len(shared.list(EVERY_JOB, limit=1_000)) == 150


def test_bulk_settles_in_opposite_order(shared: Store):
    """Two that settle the same leases in opposite order settle each once."""
    enqueue_ids(shared, 50)
    leases = claim(shared)

    def fail_all(order: list[int]) -> Callable[[], Any]:
        def act() -> int:
            count = 0
            for place in order:
                try:
                    shared.fail(leases[place], "boom", permanent=True)
                except InvalidTransition:
                    continue
                count += 1
            return count

        return act

    answers = together(fail_all(list(range(50))), fail_all(list(reversed(range(50)))))
    assert sum(answers) == 50


def test_beats_and_settles_of_one_batch(shared: Store):
    """Heartbeats in one order beside settles in the other don't fail."""
    enqueue_ids(shared, 100)
    leases = claim(shared, limit=100)

    def beat() -> int:
        return max(len(shared.heartbeat(leases)) for _ in range(10))

    together(beat, lambda: shared.heartbeat(leases[::-1]), lambda: shared.succeed(leases[::-1]))
    assert shared.stats(["default"])[0].counts[JobState.SUCCEEDED].value == 100


def test_many_sweepers(shared: Store):
    """Eight that recover at once give each job back once."""
    enqueue_ids(shared, 300, max_attempts=5)
    claim(shared, limit=300, lease=0.000001)
    counts = together(*[shared.recover] * THREADS)

    assert sum(counts) == 300
    assert {len(job.errors) for job in shared.list(EVERY_JOB, limit=1_000, full=True)} == {1}


def test_retry_against_enqueue_of_the_key(shared: Store):
    """A retry and an enqueue that want one key at once end with one job in flight."""
    for number in range(15):
        names = {"key": f"k{number}", "queue": f"q{number}"}
        shared.fail(start(shared, **names), "boom", permanent=True)
        chosen = job_filter(queue=names["queue"])
        retried, job = together(
            lambda chosen=chosen: shared.retry_dead(chosen).retried,
            lambda names=names: enqueue(shared, **names),
        )
        leases = claim(shared, queues=[names["queue"]])

        assert [lease.id for lease in leases] == [job.id]
        assert job.created == (retried == 0)


def test_an_undone_enqueue_leaves_its_key(shared: Store):
    """When the first of two enqueues of a key is undone, the second makes the job."""
    inserted, asking = threading.Event(), threading.Event()

    def undone() -> Steps[None]:
        yield from enqueue_op([made(key="k")]).start()
        inserted.set()
        asking.wait(10)
        raise InterruptedError

    def first() -> None:
        with pytest.raises(InterruptedError):
            shared.run(Op("enqueue", True, undone))

    def second() -> bool:
        inserted.wait(10)
        asking.set()
        return enqueue(shared, key="k").created

    assert together(first, second) == [None, True]
    assert len(shared.list(EVERY_JOB)) == 1


def test_no_claimer_waits_on_anothers_row(emptied_postgres_url: str):
    """On PostgreSQL a claim passes by rows that a transaction under way holds."""
    store = open_store(emptied_postgres_url)
    ids = enqueue_ids(store, 3)
    with psycopg.connect(emptied_postgres_url) as connection:
        connection.execute("SELECT FROM rowlock.job WHERE id = %s FOR UPDATE", [ids[0]])
        claimed = [lease.id for lease in claim(store)]
        recovered = store.recover()
    store.close()

    assert (claimed, recovered) == (ids[1:], 0)


def test_processes_claim_each_job_once(shared: Store, store_url: str):
    """Processes exclude each other as threads do."""
    ids = enqueue_ids(shared, 200)
    claimed = FRESH.Queue()
    processes = [
        FRESH.Process(target=claim_in_a_process, args=(store_url, f"w{number}", claimed))
        for number in range(3)
    ]
    for process in processes:
        process.start()
    found = [id for _ in processes for id in claimed.get(timeout=30)]
    for process in processes:
        process.join(30)

    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(ids) == sorted(found)


def test_processes_debounce_one_job(shared: Store, store_url: str):
    """Of all their enqueues of one key, one job waits, with the payload that came last."""
    done, gate = FRESH.Queue(), FRESH.Barrier(3)
    processes = [
        FRESH.Process(target=debounce_in_a_process, args=(store_url, f"p{number}", gate, done))
        for number in range(3)
    ]
    for process in processes:
        process.start()
    last = [json.loads(done.get(timeout=60)) for _ in processes]
    for process in processes:
        process.join(30)
    (job,) = shared.list(EVERY_JOB, full=True)

    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (job.state, job.key) == (JobState.SCHEDULED, "k")
    assert job.payload in last


def test_no_last_change_is_missed(shared: Store):
    """While jobs of one key are replaced, run and fail, one waits at most, and the last is run."""
    ends = random.Random(7)
    runs: list[dict[str, Any]] = []

    def produce(name: str) -> Callable[[], Any]:
        def act() -> dict[str, Any]:
            payload = {}
            for number in range(60):
                payload = {"from": name, "n": number}
                options = {"key_hold": "until_started", "if_held": "replace"}
                enqueue(shared, key="k", payload=json.dumps(payload), **options)
            return payload

        return act

    def consume() -> None:
        for _ in range(80):
            for lease in claim(shared, limit=1):
                match ends.randrange(4):
                    case 0:
                        shared.fail(lease, "boom", delay=0)
                    case 1:
                        shared.release(lease)
                    case 2:
                        shared.crash([lease], "signal 9")
                    case _:
                        runs.append(lease.job.payload)
                        shared.succeed([lease])

    last = together(produce("a"), produce("b"), consume)[:2]
    waiting = [job for job in shared.list(EVERY_JOB, limit=1_000) if not job.state.is_terminal]
    for lease in claim(shared):
        runs.append(lease.job.payload)
        shared.succeed([lease])

    assert len(waiting) <= 1
    assert runs[-1] in last
    assert {job.state for job in shared.list(EVERY_JOB, limit=1_000)} <= {
        *(JobState.SUCCEEDED, JobState.CANCELLED),
    }


def test_many_jobs_of_one_key_return_at_once(shared: Store):
    """Eight threads give back as many jobs of one key: the newest waits."""
    leases = [start(shared, key="k", key_hold="until_started") for _ in range(THREADS)]
    actions = [lambda lease=lease: shared.fail(lease, "boom", delay=0) for lease in leases]
    together(*actions)
    states = [state_of(shared, lease.id) for lease in leases]

    assert states[:-1] == [JobState.CANCELLED] * (THREADS - 1)
    assert states[-1] is JobState.READY


def test_delete_against_claim(shared: Store):
    """A job is deleted or claimed, never both."""
    ids = enqueue_ids(shared, 40)

    def delete() -> set[str]:
        deleted = set()
        for id in ids:
            try:
                shared.delete(id)
            except InvalidTransition:
                continue
            deleted.add(id)
        return deleted

    deleted, claimed = together(delete, lambda: set(drain(shared, "w1")))
    assert deleted & claimed == set()
    assert set(ids) == deleted | claimed
