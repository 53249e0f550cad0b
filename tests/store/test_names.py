"""Names are values, never SQL: any text up to 200 characters passes through every verb."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rowlock.clock import ManualClock
from rowlock.job import Beat, CancelOutcome, JobState
from rowlock.store import Store
from rowlock.store.ops.manage import job_filter
from tests.store.jobs import enqueue, made, stored

NAMES = [
    "it's",
    'a "quoted" name',
    "100%",
    "%s",
    "%(x)s",
    "'; DROP TABLE rowlock.job; --",
    "\\",
    "\\x00",
    ":name",
    "::text",
    "$1",
    "{now}",
    "{0!r:>{width}}",
    '["a"]',
    "null",
    "1",
    " ",
    "\n\t\r",
    "{a,b}",
    "rowlock.job",
    "e\u0301",
    "\u00e9",
    "\u202e\u200b",
    "\ufffd\uffff",
    "\U0001f600" * 200,
]


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_is_a_name(store: Store, clock: ManualClock, name: str):
    """Enqueue, claim, beat, settle, recover, list, count: each finds the job by that very name."""
    names = {"kind": name, "queue": name, "tenant": name, "key": name}
    job = enqueue(store, **names, tags=[name], meta={name: name})
    duplicate = enqueue(store, **names)
    store.announce(worker=name, queues=[name], kinds=[name], host=name, pid=1)
    store.set_order(name, "created")
    store.pause(name)
    paused = store.claim(worker=name, queues=[name])
    store.resume(name)
    (lease,) = store.claim(worker=name, queues=[name], kinds=[name], tenants=[name])
    beats = store.heartbeat([lease])
    store.progress(lease, fraction=0.5, text=name)
    store.log(lease, [name])
    (worker,) = store.workers()
    released = store.release_worker(name)
    (again,) = store.claim(worker=name, queues={name: 1}, kinds=[name, "other"])
    clock.advance(1_000)
    recovered = store.recover(queues=[name])
    (last,) = store.claim(worker=name, queues=None)
    store.fail(last, name, permanent=True)
    (stats,) = store.stats([name])

    assert (duplicate.id, duplicate.created) == (job.id, False)
    assert (paused, beats) == ([], [Beat.KEPT])
    assert {job.id} == {lease.id, again.id, last.id}
    assert (name, [name], [name], [job.id]) == (
        worker.id,
        worker.queues,
        worker.kinds,
        worker.running,
    )
    assert (released, recovered) == (1, 1)
    assert (stats.queue, stats.counts[JobState.DEAD].value) == (name, 1)
    found = stored(store, job.id)
    assert (found.kind, found.queue, found.tenant, found.key) == (name, name, name, name)
    assert ([name], {name: name}, name) == (found.tags, found.meta, found.worker)
    assert [line.text for line in store.read_log(job.id)] == [name]
    assert found.errors[-1].message == name


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_is_found_again(store: Store, clock: ManualClock, name: str):
    """Filters, bulk retries, adoption and queue listings compare names exactly."""
    names = {"kind": name, "queue": name, "tenant": name, "key": name}
    job, other = store.enqueue(
        [made(**names, tags=["x", name]), made(queue="o", kind="o", tenant="o", tags=["o"])]
    )
    filters = [job_filter(**{field: name}) for field in (*names, "tag")]
    live = [[found.id for found in store.list(chosen)] for chosen in filters]
    store.claim(worker="w1", queues=[name])
    clock.advance(timedelta(hours=1))
    parked = store.adopt_orphans([name], action="park")
    dead = [[found.id for found in store.list(chosen, state="dead")] for chosen in filters]
    retried = [store.retry_dead(filters[place]).retried for place in (0, 0)]
    answer = store.cancel(job.id)
    ended = [[found.id for found in store.list(chosen)] for chosen in filters]

    assert [[job.id]] * 5 == live == dead == ended
    assert (parked, retried) == (1, [1, 0])
    assert CancelOutcome.CANCELLED is answer.outcome
    assert sorted([name, "o"]) == [queue.queue for queue in store.stats()]
    assert JobState.READY is stored(store, other.id).state


def test_names_alike_are_apart(store: Store):
    """Names that a locale would take for equal are different keys and queues."""
    names = ["e\u0301", "\u00e9", "E", "e", "e ", " e"]
    jobs = store.enqueue([made(key=name, queue=name) for name in names])

    assert [job.created for job in jobs] == [True] * len(names)
    assert [queue.queue for queue in store.stats()] == sorted(names)
    for name, job in zip(names, jobs, strict=True):
        assert [lease.id for lease in store.claim(worker="w", queues=[name], limit=9)] == [job.id]
