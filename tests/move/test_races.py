"""A move meets others in the same rows, in PostgreSQL, where they wait for each other."""

from __future__ import annotations

import threading

import psycopg
import pytest

import rowlock
from rowlock import config
from rowlock.ids import new_id
from rowlock.job import JobState
from rowlock.move import Mover
from rowlock.store.statements import TABLES
from tests.support.postgres import is_any_waiting
from tests.worker.waiting import wait_until

_SHARED = ", ".join(sorted({*TABLES["job"].columns} & {*TABLES["finished"].columns}))
_END = f"""
    WITH gone AS (DELETE FROM rowlock.job WHERE id = %s RETURNING *)
    INSERT INTO rowlock.finished ({_SHARED}, state, finished_at)
    SELECT {_SHARED}, 'succeeded', created_at FROM gone
"""


@pytest.mark.parametrize("urls", ["sqlite-postgres"], indirect=True)
def test_a_resend_that_meets_the_end_of_its_job_is_no_second_job(
    apps: tuple[rowlock.App, rowlock.App],
    urls: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
):
    """Its insert waits for the transaction that ends the job, and must look again."""
    monkeypatch.setattr(config, "ID_REMEMBERED_SECONDS", 0)
    old, new = apps
    id = new_id()
    old.enqueue("logging", {"n": 1}, id=id)
    Mover(old.store, new.store).run()
    old.enqueue("logging", {"n": 1}, id=id)
    mover = Mover(old.store, new.store)
    moving = threading.Thread(target=mover.run)

    with psycopg.connect(urls[1]) as connection:
        connection.execute(_END, [id])
        moving.start()
        wait_until(lambda: is_any_waiting(urls[1]))
        connection.commit()
        moving.join()

    assert [each.state for each in new.list()] == [JobState.SUCCEEDED]
    assert (mover.moved.known, mover.moved.stopped) == (1, 0)
