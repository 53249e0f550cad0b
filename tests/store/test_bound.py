"""Verbs for somebody bound to a tenant: another's jobs are not there, and stay as they are."""

from __future__ import annotations

import random

import pytest

from rowlock import config
from rowlock.errors import NotFound, OptionInvalid
from rowlock.job import Beat, Count, JobState, Lease, Progress
from rowlock.lifecycle import Failed, Succeeded
from rowlock.store.ops.enqueue import enqueue as enqueue_op
from rowlock.store.ops.hold import Report, report
from rowlock.store.ops.look import get
from rowlock.store.ops.manage import cancel, delete, retry
from rowlock.store.ops.schedule import (
    list_schedules,
    new_schedule,
    pause_schedule,
    run_schedule_now,
)
from rowlock.store.ops.settle import Settlement, settle
from rowlock.store.ops.stats import tenant_stats
from rowlock.store.ops.why import why
from tests.store.jobs import enqueue, made, one_in_each_state, put_in_state, start, state_of, stored

CHANCE = random.Random(1)


@pytest.mark.parametrize("verb", [cancel, retry, delete, why])
@pytest.mark.parametrize("state", list(JobState))
def test_another_tenants_job_is_not_there(store, verb, state):
    """Whatever its state; and nothing of it changes."""
    for tenant in ("zoo", None):
        id = put_in_state(store, state, tenant=tenant, queue=str(tenant))
        before = stored(store, id)
        with pytest.raises(NotFound):
            store.run(verb(id, tenant="acme"))

        assert before == stored(store, id)
        assert None is store.run(get(id, tenant="acme"))


def test_ones_own_job_is(store):
    """With the same answers as for those who are not bound."""
    ids = one_in_each_state(store, tenant="acme")

    assert store.run(get(ids[JobState.DEAD], tenant="acme")).tenant == "acme"
    assert store.run(why(ids[JobState.DEAD], tenant="acme")).code == "finished"
    assert store.run(cancel(ids[JobState.READY], tenant="acme")).outcome == "cancelled"
    assert JobState.READY is store.run(retry(ids[JobState.DEAD], tenant="acme")).state
    store.run(delete(ids[JobState.SUCCEEDED], tenant="acme"))
    assert None is state_of(store, ids[JobState.SUCCEEDED])


def test_nobody_is_told_of_the_jobs_of_others(store):
    """`why` counts one's own: as if there were no others."""
    store.announce(worker="w", queues=[], kinds=[], host="h", pid=1)
    for tenant in ("zoo", None, "acme"):
        enqueue(store, tenant=tenant)
        enqueue(store, tenant=tenant, priority=5)
    last = [enqueue(store, tenant=tenant).id for tenant in ("zoo", "acme")]
    alone = enqueue(store, tenant="lone", priority=-5).id
    theirs = [store.run(why(id, tenant=of)) for id, of in zip(last, ("zoo", "acme"), strict=True)]
    next_one = store.run(why(alone, tenant="lone"))

    assert [told.ahead for told in theirs] == [Count(2)] * 2
    assert {told.text for told in theirs} == {
        "jobs of its tenant are before it: 1 of a higher priority and 1 earlier"
    }
    assert (next_one.code, next_one.ahead) == ("next", None)
    assert next_one.text.startswith("nothing: it is next of its tenant, ready since ")
    assert store.run(why(alone)).ahead == Count(8)


def test_an_id_of_another_is_refused_as_a_whole(store):
    """No job of the same call is enqueued; a resend of one's own is found."""
    theirs = put_in_state(store, JobState.READY, tenant="zoo")
    ours = [made(tenant="acme"), made(tenant="acme", id=theirs)]
    with pytest.raises(OptionInvalid, match="id"):
        store.run(enqueue_op(ours, tenant="acme"))

    assert None is state_of(store, ours[0].id)
    again = made(tenant="zoo", id=theirs)
    assert [job.created for job in store.run(enqueue_op([again], tenant="zoo"))] == [False]


def test_leases_of_another_can_not_be_settled(store):
    """They are lost to whoever is bound elsewhere; one's own of the same call are settled."""
    ours, theirs = start(store, tenant="acme", queue="a"), start(store, tenant="zoo", queue="z")
    settlements = [
        Settlement(Lease(id=ours.id, token=ours.token), Succeeded()),
        Settlement(Lease(id=theirs.id, token=theirs.token), Failed("E", "m", permanent=True)),
    ]
    missed = store.run(settle(settlements, chance=CHANCE, tenant="acme"))
    again = store.run(settle(settlements, chance=CHANCE, tenant="acme"))

    assert [lease.id for lease in missed.lost] == [theirs.id]
    assert list(missed.repeated) == []
    assert (
        [lease.id for lease in again.lost],
        [lease.id for lease in again.repeated],
    ) == ([theirs.id], [ours.id])
    assert JobState.SUCCEEDED is state_of(store, ours.id)
    assert JobState.RUNNING is state_of(store, theirs.id)


def test_an_ended_job_of_another_is_lost(store):
    """Also one whose row is gone, and only its id remembered: nothing is told of it."""
    theirs = start(store, tenant="zoo", queue="z")
    store.succeed([theirs])
    settlement = Settlement(Lease(id=theirs.id, token=theirs.token), Succeeded())
    missed = store.run(settle([settlement], chance=CHANCE, tenant="acme"))

    assert ([lease.id for lease in missed.lost], list(missed.repeated)) == ([theirs.id], [])


def test_a_report_beats_and_notes(store, clock):
    """Progress and lines of leases that are kept; none of those that are lost."""
    lease, lost = start(store, queue="a"), start(store, queue="b")
    store.release(lost)
    store.cancel(lease.id)
    beats = store.run(
        report(
            [
                Report(Lease(id=lease.id, token=lease.token), Progress(0.5, "half"), ["one"]),
                Report(Lease(id=lost.id, token=lost.token), Progress(0.5), ["two"]),
            ],
            lease=60,
        )
    )
    clock.advance(59)

    assert beats == [Beat.CANCEL_REQUESTED, Beat.LOST]
    assert stored(store, lease.id).progress == Progress(0.5, "half")
    assert [line.text for line in store.read_log(lease.id)] == ["one"]
    assert store.read_log(lost.id) == []
    assert store.recover() == 0


def test_a_report_on_anothers_lease_changes_nothing(store):
    """It is lost to whoever is bound elsewhere."""
    theirs = start(store, tenant="zoo")
    before = stored(store, theirs.id)
    told = Report(Lease(id=theirs.id, token=theirs.token), Progress(0.5), ["line"])
    beats = store.run(report([told], lease=500, tenant="acme"))

    assert beats == [Beat.LOST]
    assert before == stored(store, theirs.id)


def test_schedules_of_another_are_not_there(store):
    """Neither listed, nor run, nor paused."""
    for tenant in ("acme", "zoo", None):
        job = made(tenant=tenant)
        store.put_schedule(new_schedule(f"of {tenant}", job, cron="@daily"))

    assert [each.name for each in store.run(list_schedules(tenant="acme"))] == ["of acme"]
    assert store.run(run_schedule_now("of acme", tenant="acme")).tenant == "acme"
    assert store.run(pause_schedule("of acme", tenant="acme")).is_paused
    for name in ("of zoo", "of None"):
        with pytest.raises(NotFound):
            store.run(run_schedule_now(name, tenant="acme"))
        with pytest.raises(NotFound):
            store.run(pause_schedule(name, tenant="acme"))


def test_stats_of_a_tenant(store, clock, monkeypatch):
    """Its own jobs by queue and state; what is paused; zeros for names; marked where cut."""
    one_in_each_state(store, tenant="acme")
    one_in_each_state(store, tenant="zoo", queue="theirs")
    store.pause("other")
    clock.advance(5)
    (stats,) = store.run(tenant_stats("acme"))
    named = store.run(tenant_stats("acme", ["other", "default"]))
    monkeypatch.setattr(config, "LIST_SCAN_ROWS_MAX", 3)
    (cut,) = store.run(tenant_stats("acme", ["default"]))

    assert {state: Count(1) for state in JobState} == stats.counts
    assert (stats.queue, stats.is_paused) == ("default", False)
    assert stats.oldest_ready_seconds == pytest.approx(5)
    assert [
        (each.queue, sum(count.value for count in each.counts.values()), each.is_paused)
        for each in named
    ] == [("default", len(JobState), False), ("other", 0, True)]
    assert {count.exact for count in cut.counts.values()} == {True, False}
