"""The settler: what it writes together."""

from __future__ import annotations

import logging

import pytest

import rowlock
from rowlock import JobState
from rowlock.lifecycle import NotBegun, Succeeded
from rowlock.store import Settlement
from rowlock.worker.counts import ProcessCounts
from rowlock.worker.settler import Settler

pytestmark = pytest.mark.asyncio


async def test_two_runs_of_a_job_are_not_settled_together(any_url, caplog):
    """One that lost its lease unnoticed ends just when the next one does: neither is held up."""
    caplog.set_level(logging.WARNING, logger="rowlock.worker")
    settled: list[Settlement] = []
    async with rowlock.App(any_url) as app:
        job = await app.aenqueue("work")
        (old,) = await app.store.aclaim(worker="w", queues=None)
        await app.store.arelease_worker("w")
        (new,) = await app.store.aclaim(worker="w", queues=None)
        settler = Settler(
            app.store,
            counts=ProcessCounts(),
            lease=30,
            on_settled=settled.extend,
            on_settled_bare=lambda _: None,
        )
        settler.put(Settlement(old, NotBegun()))
        settler.put(Settlement(new, Succeeded()))
        settler.close()
        await settler.run()
        found = await app.aget(job.id)

    assert found is not None
    assert (found.state, found.token) == (JobState.SUCCEEDED, 2)
    assert [each.lease.token for each in settled] == [1, 2]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "lost its lease" in caplog.text
