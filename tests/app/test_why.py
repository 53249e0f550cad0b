"""`app.why`: what a job waits for."""

from __future__ import annotations

import uuid

import pytest

import rowlock


def announce(app: rowlock.App, *, queues: list[str], kinds: list[str]) -> None:
    app.store.announce(worker="w", queues=queues, kinds=kinds, host="h", pid=1)


def test_each_reason_is_told(app, clock):
    """From enqueue to end, the first thing that stands in the way of a job."""
    job = app.enqueue("work", delay=60, queue="mail", max_attempts=2)
    told = [app.why(job.id)]
    clock.advance(60)
    told.append(app.why(job.id))
    announce(app, queues=["mail"], kinds=["other"])
    told.append(app.why(job.id))
    announce(app, queues=["default"], kinds=["work"])
    told.append(app.why(job.id))
    announce(app, queues=[], kinds=["work"])
    told.append(app.why(job.id))
    app.enqueue("work", queue="mail", priority=5)
    told.append(app.why(job.id))
    app.pause("mail")
    told.append(app.why(job.id))
    app.resume("mail")
    leases = app.store.claim(worker="w", queues=["mail"], limit=2)
    told.append(app.why(job.id))
    (lease,) = [lease for lease in leases if lease.id == job.id]
    app.store.fail(lease, "boom")
    told.append(app.why(job.id))
    app.cancel(job.id)
    told.append(app.why(job.id))

    assert [
        "not_due",
        "no_worker",
        "unknown_kind",
        "unserved_queue",
        "next",
        "behind",
        "paused",
        "running",
        "backoff",
        "finished",
    ] == [each.code for each in told]
    assert "boom" in str(told[8])
    assert "1 jobs of a higher priority" in str(told[5])


@pytest.mark.asyncio
async def test_an_unknown_job_is_not_found(app):
    """In both colours."""
    with pytest.raises(rowlock.NotFound):
        await app.awhy(uuid.uuid4())
    await app.aclose()
