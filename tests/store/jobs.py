"""Short forms of what most tests of the store do first."""

from __future__ import annotations

from typing import Any

from rowlock.ids import new_id
from rowlock.job import Job, JobState, Lease, Policy
from rowlock.store import NewJob, Store
from rowlock.store.ops.manage import job_filter
from rowlock.store.ops.workflows import Draft
from rowlock.store.options import NodePlace, new_job

EVERY_JOB = job_filter()
UNKNOWN_ID = "01890000-0000-7000-8000-000000000000"


def made(*, kind: str = "task", payload: str = "{}", **options: Any) -> NewJob:
    """A job to enqueue."""
    return new_job(kind=kind, payload=payload, **options)


def enqueue(store: Store, **options: Any) -> Job:
    """Enqueue one job."""
    (job,) = store.enqueue([made(**options)])
    return job


def enqueue_ids(store: Store, count: int, **options: Any) -> list[str]:
    """Enqueue several jobs alike; their ids, oldest first."""
    return [job.id for job in store.enqueue([made(**options) for _ in range(count)])]


def claim(store: Store, *, worker: str = "w1", limit: int = 100, **options: Any) -> list[Lease]:
    """Claim from the default queue."""
    options.setdefault("queues", ["default"])
    return store.claim(worker=worker, limit=limit, **options)


def drain(store: Store, worker: str) -> list[str]:
    """Claim from the default queue until nothing is left; the ids."""
    found: list[str] = []
    while leases := claim(store, worker=worker, limit=7):
        found += [lease.id for lease in leases]
    return found


def claim_one(store: Store, **options: Any) -> Lease:
    """Claim the one job that must be there."""
    (lease,) = claim(store, limit=1, **options)
    return lease


def start(store: Store, **options: Any) -> Lease:
    """Enqueue a job and claim it."""
    job = enqueue(store, **options)
    lease = claim_one(store, queues=[job.queue])
    assert job.id == lease.id
    return lease


def kept_for(seconds: float | None) -> Policy:
    """A policy that keeps finished jobs so long."""
    return Policy(keep=None if seconds is None else round(seconds * 1_000_000))


def stored(store: Store, id: str) -> Job:
    """The job as it is stored now."""
    job = store.get(id)
    assert job is not None
    return job


def state_of(store: Store, id: str) -> JobState | None:
    """The job's state; None if it is gone."""
    job = store.get(id)
    return None if job is None else job.state


def put_in_state(store: Store, state: JobState, **options: Any) -> str:
    """A job in the given state; its id."""
    if state is JobState.WAITING:
        return put_waiting(store, **options)
    if state in (JobState.READY, JobState.SCHEDULED):
        return enqueue(store, delay=0 if state is JobState.READY else 60, **options).id
    lease = start(store, **options)
    match state:
        case JobState.RETRYING:
            store.fail(lease, "boom", delay=60)
        case JobState.SUCCEEDED:
            store.succeed([lease])
        case JobState.DEAD:
            store.fail(lease, "boom", permanent=True)
        case JobState.CANCELLED:
            store.finish_cancelled(lease)
    assert state is state_of(store, lease.id)
    return lease.id


def put_waiting(store: Store, **options: Any) -> str:
    """A job that waits for one that never comes, so that nothing else is there; its id."""
    job = made(**options)
    workflow = new_id()
    node = job._replace(node=NodePlace(workflow, stack=1, pending=1))
    store.enqueue_workflow(Draft(workflow, "waits", tenant=job.tenant, nodes=[node]))
    return job.id


def one_in_each_state(store: Store, **options: Any) -> dict[JobState, str]:
    """A job in each state, by its id; the ready one last, since a claim would take it."""
    states = sorted(JobState, key=lambda state: state is JobState.READY)
    return {state: put_in_state(store, state, **options) for state in states}
