"""A worker that serves some tenants sees and takes their jobs only."""

from __future__ import annotations

from rowlock.clock import ManualClock
from rowlock.job import JobState
from rowlock.store import Store
from rowlock.store.ops.manage import job_filter
from tests.store.jobs import claim, enqueue, enqueue_ids, put_in_state, start, state_of


def test_only_the_tenants_asked_for(store: Store):
    """Jobs of other tenants, and of none, stay where they are."""
    ids = {tenant: enqueue(store, tenant=tenant).id for tenant in ("a", "b", "c", None)}

    assert [lease.id for lease in claim(store, tenants=["c", "a"])] == [ids["a"], ids["c"]]
    assert claim(store, tenants=[]) == []
    assert claim(store, tenants=["d"]) == []
    assert [lease.id for lease in claim(store)] == [ids["b"], ids[None]]


def test_tenants_compete_by_priority_and_time(store: Store, clock: ManualClock):
    """Within a queue the order is that of the jobs, whoever they belong to."""
    late = enqueue(store, tenant="a", delay=20).id
    early = enqueue(store, tenant="b", kind="other", delay=10).id
    urgent = enqueue(store, tenant="b", priority=1, delay=30).id
    clock.advance(30)

    assert [lease.id for lease in claim(store, tenants=["a", "b"])] == [urgent, early, late]


def test_tenants_with_kinds_queues_and_limits(store: Store):
    """All filters of a claim hold together."""
    ids = {
        (tenant, kind, queue): enqueue(store, tenant=tenant, kind=kind, queue=queue).id
        for tenant in ("a", "b")
        for kind in ("k", "l")
        for queue in ("p", "q")
    }

    leases = claim(store, tenants=["a"], kinds=["l"], queues=["q", "p"])
    assert [lease.id for lease in leases] == [ids["a", "l", "q"], ids["a", "l", "p"]]
    assert len(claim(store, tenants=["a", "b"], queues={"p": 1})) == 1
    assert len(claim(store, tenants=["a", "b"], queues=["q"], limit=2)) == 2


def test_a_tenants_limit(store: Store):
    """A limit cuts the common order of all tenants."""
    ids = [enqueue(store, tenant=tenant).id for tenant in ("a", "b") * 5]

    assert ids[:4] == [lease.id for lease in claim(store, tenants=["b", "a"], limit=4)]


def test_an_expired_lease_of_a_tenant(store: Store, clock: ManualClock):
    """A claim for some tenants finds their expired leases, and runs no other's."""
    mine, other = start(store, tenant="a"), start(store, tenant="b")
    clock.advance(31)

    assert [lease.id for lease in claim(store, tenants=["a"])] == [mine.id]
    assert [lease.id for lease in claim(store, tenants=["b"])] == [other.id]


def test_creation_order_for_tenants(store: Store, clock: ManualClock):
    """The order of a queue holds for claims of some tenants as well."""
    store.set_order("default", "created")
    lease = start(store, tenant="a")
    store.fail(lease, "boom", delay=5)
    clock.advance(5)
    late = enqueue(store, tenant="a").id

    assert [each.id for each in claim(store, tenants=["a"])] == [lease.id, late]


def test_a_tenants_list(store: Store):
    """A filter by tenant lists that tenant's jobs in any state, and nobody else's."""
    mine = {put_in_state(store, state, tenant="a", queue=state) for state in JobState}
    enqueue_ids(store, 3, tenant="b")
    enqueue_ids(store, 3)

    assert mine == {job.id for job in store.list(job_filter(tenant="a"))}


def test_a_tenants_dead_jobs(store: Store):
    """A bulk retry for a tenant leaves the dead of others."""
    mine = put_in_state(store, JobState.DEAD, tenant="a")
    other = put_in_state(store, JobState.DEAD, tenant="b")
    answer = store.retry_dead(job_filter(tenant="a"))

    assert answer.retried == 1
    assert (state_of(store, mine), state_of(store, other)) == (JobState.READY, JobState.DEAD)
