"""Which code works on which schema, and how a database in use is migrated."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from rowlock import config
from rowlock.errors import MigrationNeeded, StoreUnavailable
from rowlock.store import migrate as migrations
from rowlock.store import open_store
from rowlock.store.ops.health import check_schema
from rowlock.store.statements import Dialect
from tests.store.jobs import UNKNOWN_ID, claim_one, enqueue, state_of
from tests.store.upgrades import (
    ADDS,
    DROPS,
    NEWEST,
    compatible,
    migrate_by,
    opened,
    release,
)
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.owner("migrates")
# What a lock may cost an enqueue, and what a busy machine adds to it.
STALL_SECONDS_MAX = config.MIGRATION_LOCK_SECONDS + 10


def test_code_works_on_a_schema_to_which_something_was_added(any_url: str):
    """The last release's code goes on: it claims, settles, opens anew, and has nothing to do."""
    with closing(open_store(any_url)) as store:
        store.migrate()
        before = enqueue(store)
        assert migrate_by(any_url, compatible(ADDS)) == [NEWEST + 1]
        store.succeed([claim_one(store)])
        store.run(check_schema(store.engine.dialect))
        first = state_of(store, before.id)
    with closing(opened(any_url)) as store:
        after = enqueue(store)
        store.succeed([claim_one(store)])

        assert store.migrate() == []
        assert (first, state_of(store, after.id)) == ("succeeded", "succeeded")


@pytest.mark.parametrize(
    "later",
    [
        (DROPS,),
        (compatible(ADDS), DROPS),
        (compatible(ADDS), compatible(DROPS, with_code_of=NEWEST + 1)),
    ],
    ids=["at once", "after an addition", "for code that knows the addition"],
)
def test_code_refuses_a_schema_that_needs_more(any_url: str, later: tuple[str, ...]):
    """Neither used nor migrated, by a store that is opened; one that is open is told if it asks."""
    with closing(open_store(any_url)) as old:
        old.migrate()
        old.run(check_schema(old.engine.dialect))
        migrate_by(any_url, *later)
        with pytest.raises(MigrationNeeded, match="upgrade rowlock here"):
            old.run(check_schema(old.engine.dialect))
    for act in (lambda store: store.get(UNKNOWN_ID), lambda store: store.migrate()):
        with closing(open_store(any_url)) as store:
            with pytest.raises(MigrationNeeded, match=f"knows only {NEWEST}") as refused:
                act(store)
            assert refused.value.code == "migration_needed"


def test_what_is_applied_by_hand_says_the_same(empty_postgres_url: str):
    """`rowlock migrate --sql` stores what code must know as well."""
    with release(compatible(ADDS)):
        missing = migrations.migrations(Dialect.POSTGRES)
        script = migrations.by_hand(missing, dialect=Dialect.POSTGRES, schema="rowlock")
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        connection.execute(script.encode())
    with closing(open_store(empty_postgres_url)) as store:
        assert enqueue(store).created


@pytest.mark.parametrize("dialect", list(Dialect))
def test_what_a_migration_needs_is_one_that_is_there(dialect: Dialect):
    """Code can only know what was before; and the word has its place since the eighth."""
    for migration in migrations.migrations(dialect):
        assert migration.needs <= migration.number
        if migration.number <= NEWEST:
            assert migration.needs >= 8 or migration.needs == migration.number


class Producers:
    """Threads that enqueue all the time; how long the longest call took, and what was raised."""

    def __init__(self, url: str, *, threads: int = 2) -> None:
        self._store = opened(url)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._produce) for _ in range(threads)]
        self.made = 0
        self.longest = 0.0
        self.errors: list[Exception] = []

    def __enter__(self) -> Producers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._store.close()

    def _produce(self) -> None:
        while not self._over.wait(0.005):
            start = time.monotonic()
            try:
                enqueue(self._store)
            except Exception as error:  # noqa: BLE001  # whatever it is, the test tells
                self.errors.append(error)
            self.made += 1
            self.longest = max(self.longest, time.monotonic() - start)

    def go_on(self) -> None:
        """Wait until some more are made."""
        before = self.made
        wait_until(lambda: self.made > before + 20, seconds=60)


def test_a_database_is_migrated_while_it_is_used(any_url: str):
    """No enqueue fails or stalls; what was there before is run after."""
    with Producers(any_url) as producers:
        producers.go_on()
        applied = migrate_by(any_url, compatible(ADDS))
        producers.go_on()
    with closing(opened(any_url)) as store:
        leases = store.claim(worker="w", queues=["default"], limit=config.CLAIM_LIMIT_MAX)
        store.succeed(leases)

    assert applied == [NEWEST + 1]
    assert producers.errors == []
    assert producers.made == len(leases)
    assert producers.longest < STALL_SECONDS_MAX


@pytest.mark.direct("knows a backend by its number")
def test_an_open_transaction_stalls_the_migration_and_not_the_queue(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """It gives way after a short time, tells whom it waits for, and is done once that has ended."""
    monkeypatch.setattr(config, "MIGRATION_LOCK_SECONDS", 0.2)
    monkeypatch.setattr(config, "MIGRATION_PAUSE_SECONDS", 0.2)
    applied: list[int] = []
    with psycopg.connect(postgres_url) as holder, Producers(postgres_url) as producers:
        holder.execute("SELECT count(*) FROM rowlock.job")
        holder_pid = holder.info.backend_pid
        migrator = threading.Thread(
            target=lambda: applied.extend(migrate_by(postgres_url, compatible(ADDS)))
        )
        migrator.start()
        told = "the migration is waiting for open transactions"
        wait_until(lambda: caplog.text.count(told) >= 3, seconds=60)
        producers.go_on()
        before = list(applied)
        holder.rollback()
        migrator.join(60)

    assert (before, applied) == ([], [NEWEST + 1])
    assert producers.errors == []
    assert f"backend {holder_pid}" in caplog.text
    # Without a bound the first enqueue would have waited for as long as the transaction was open.
    assert producers.longest < STALL_SECONDS_MAX


def test_who_waited_for_another_migration_sees_what_it_did(empty_postgres_url: str):
    """Also where a transaction sees, by default, only what was there when it began."""
    script = migrations.by_hand(
        migrations.migrations(Dialect.POSTGRES), dialect=Dialect.POSTGRES, schema="rowlock"
    )
    steps = script.removeprefix("BEGIN;").removesuffix("COMMIT;")
    name = urlsplit(empty_postgres_url).path.removeprefix("/")
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = 'serializable'").format(
                sql.Identifier(name)
            )
        )
    applied: list[list[int]] = []
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with (
        closing(open_store(empty_postgres_url)) as store,
        psycopg.connect(empty_postgres_url) as first,
        psycopg.connect(empty_postgres_url, autocommit=True) as looking,
    ):
        first.execute("SELECT pg_advisory_xact_lock(%s)", [migrations.LOCK])
        second = threading.Thread(target=lambda: applied.append(store.migrate()))
        second.start()
        wait_until(lambda: looking.execute(waiting).fetchall()[0][0], seconds=60)
        first.execute(steps.encode())
        first.commit()
        second.join(60)

    assert applied == [[]]


@pytest.mark.direct("knows a backend by its number")
def test_a_migration_gives_up_in_the_end(postgres_url: str, monkeypatch: pytest.MonkeyPatch):
    """With nothing changed, and the processes named that are to be ended."""
    monkeypatch.setattr(config, "MIGRATION_LOCK_SECONDS", 0.05)
    monkeypatch.setattr(config, "MIGRATION_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(config, "MIGRATION_TRIES_MAX", 2)
    with psycopg.connect(postgres_url) as holder:
        holder.execute("SELECT count(*) FROM rowlock.job")
        with pytest.raises(StoreUnavailable, match=str(holder.info.backend_pid)):
            migrate_by(postgres_url, compatible(ADDS))
    with closing(opened(postgres_url)) as store:
        assert enqueue(store).created
