"""The drills' counting of settles: it sees what was accepted, and would see one too many."""

from __future__ import annotations

import pytest

import rowlock
from benchmarks.drills.transitions import Account, account_of, read, watch
from rowlock.testing.database import execute, is_sqlite

# What a row can't be without.
COLUMNS = "id, run_at, created_at, token, rank, kind, queue, payload, lease_expires_at"


@pytest.fixture
def app(any_url):
    app = rowlock.App(any_url)
    app.migrate()
    app.stats()
    watch(any_url)
    yield app
    app.close()


def claim(app: rowlock.App) -> list[rowlock.Lease]:
    return app.store.claim(worker="w", queues=None, limit=10)


def test_every_accepted_settle_counts_once(app):
    """Claims, releases and settles are counted; what was refused is not."""
    app.enqueue("kept")
    app.enqueue("not_kept", keep=0)
    (first, second) = claim(app)
    app.store.release(first)
    app.store.succeed([second])
    with pytest.raises(rowlock.InvalidTransition):
        app.store.succeed([second])
    (again,) = claim(app)
    with pytest.raises(rowlock.LeaseLost):
        app.store.fail(first, "too late")
    app.store.succeed([again])

    assert account_of(read(app.url)) == Account(
        claims=3, settled=2, settled_twice=0, stale=0, overlapping=0
    )


def test_a_job_that_is_settled_twice_is_seen(app):
    """As if there were no fence: the row is put back behind its token, and settled again."""
    job = app.enqueue("twice")
    (lease,) = claim(app)
    table = "rowlock_job" if is_sqlite(app.url) else "rowlock.job"
    execute(app.url, f"CREATE TABLE kept AS SELECT {COLUMNS} FROM {table}")
    app.store.succeed([lease])
    execute(app.url, f"INSERT INTO {table} ({COLUMNS}) SELECT * FROM kept")
    app.store.succeed([lease])

    account = account_of(read(app.url))
    assert job.id == lease.id
    assert (account.claims, account.settled_twice, account.stale) == (1, 1, 1)


def test_a_job_that_is_held_twice_is_seen(app):
    """As if a claim did not look at leases."""
    app.enqueue("twice")
    claim(app)
    table = "rowlock_job" if is_sqlite(app.url) else "rowlock.job"
    execute(app.url, f"UPDATE {table} SET token = token + 1")

    assert account_of(read(app.url)).overlapping == 1
