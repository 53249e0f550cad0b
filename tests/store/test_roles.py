"""Roles and row-level security on a real PostgreSQL: each role does its work, and nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from psycopg import sql

import rowlock
from rowlock import config
from rowlock.limits import TENANT
from rowlock.store import migrate as migrations
from rowlock.store.migrate import roles, row_security
from rowlock.store.ops.schedule import new_schedule
from rowlock.store.ops.tokens import new_token
from rowlock.store.options import new_job
from rowlock.store.statements import Dialect
from tests.conftest import FreshDatabase
from tests.support.databases import create_login, with_user
from tests.support.limits import declare

pytestmark = pytest.mark.direct("logs in as several roles, and our pooler as one")
# Enough for a COPY.
MANY = 300
ROLES = ("migrator", "worker", "producer", "reader")


class Realm:
    """A database with the roles of a schema of its own, and somebody who logs in as each."""

    def __init__(self, url: str) -> None:
        self.url = url
        # Roles are the whole server's, and tests run beside others.
        self.schema = f"realm_{uuid.uuid4().hex[:10]}"
        self.apps: list[rowlock.App] = []

    def execute(self, text: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(text.encode())

    def set_up(self, *, is_guarded: bool) -> None:
        """What `rowlock migrate --sql --roles` prints, run by a superuser; and logins."""
        missing = migrations.migrations(Dialect.POSTGRES)
        self.execute(migrations.by_hand(missing, dialect=Dialect.POSTGRES, schema=self.schema))
        for _ in range(2):
            self.execute(roles(self.schema))
            if is_guarded:
                self.execute(row_security(self.schema))
        with psycopg.connect(self.url, autocommit=True) as connection:
            for role in ROLES:
                login, group = f"{self.schema}_a_{role}", f"{self.schema}_{role}"
                create_login(connection, login, group=group)

    def url_of(self, role: str, *, tenant: str | None = None) -> str:
        parts = urlsplit(with_user(self.url, f"{self.schema}_a_{role}"))
        options = "" if tenant is None else f"options={quote(f'-c rowlock.tenant={tenant}')}"
        query = "&".join(part for part in (parts.query, options) if part)
        return parts._replace(query=query).geturl()

    def app(self, role: str, *, tenant: str | None = None) -> rowlock.App:
        app = rowlock.App(self.url_of(role, tenant=tenant), schema=self.schema)
        self.apps.append(app)
        return app

    def tear_down(self) -> None:
        for app in self.apps:
            app.close()
        with psycopg.connect(self.url, autocommit=True) as connection:
            for role in (*(f"a_{role}" for role in ROLES), *ROLES):
                name = sql.Identifier(f"{self.schema}_{role}")
                connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(name))
                connection.execute(sql.SQL("DROP ROLE {}").format(name))


@pytest.fixture(params=[False, True], ids=["plain", "row security"])
def realm(request: pytest.FixtureRequest, empty_postgres_url: str) -> Iterator[Realm]:
    """The roles, with and without row-level security."""
    made = Realm(empty_postgres_url)
    made.set_up(is_guarded=request.param)
    yield made
    made.tear_down()


@pytest.fixture
def guarded(empty_postgres_url: str) -> Iterator[Realm]:
    """The roles, with row-level security."""
    made = Realm(empty_postgres_url)
    made.set_up(is_guarded=True)
    yield made
    made.tear_down()


def test_the_worker_does_everything_with_jobs(realm: Realm):
    """Enqueue one and many, work, fail, retry, schedule, pause, prune, keep tokens."""
    app = realm.app("worker")

    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task(max_attempts=1)
    def broken() -> None:
        raise RuntimeError

    double.using(key="k", tenant="acme").enqueue(number=1)
    app.enqueue_many([double.job(number=number) for number in range(MANY)])
    dead = broken.enqueue()
    app.pause("other")
    app.schedule("nightly", double, cron="@daily", payload={"number": 1})
    app.store.run(new_token(name="t", scopes=["read"]).add())

    assert app.drain() == MANY + 2
    assert app.get(dead.id).state == rowlock.JobState.DEAD
    assert app.retry_dead().retried == 1
    assert app.cancel(dead.id).outcome == "cancelled"
    app.delete(dead.id)
    app.store.prune()
    assert len(app.list(limit=1_000).jobs) == MANY + 1
    with psycopg.connect(realm.url_of("worker"), autocommit=True) as connection:
        for change in (
            "DELETE FROM {}.migration",
            "UPDATE {}.secret SET value = 'x'",
            "CREATE TABLE {}.own ()",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(change.format(realm.schema).encode())


def test_the_producer_enqueues_and_changes_nothing(realm: Realm):
    """New ones, those that hold a key or an id, many at once; no cancel, pause, claim or token.

    It replaces the payloads and options of waiting jobs, which is a part of an enqueue.
    """
    app = realm.app("producer")
    first = app.enqueue("task", key="k")
    again = app.enqueue("task", key="k")
    resent = app.enqueue("task", id=first.id)
    replaced = app.enqueue("task", {"a": 2}, key="k", if_held="replace")
    many = app.enqueue_many([{"kind": "task"} for _ in range(MANY)])

    assert (first.created, again.created, resent.created) == (True, False, False)
    assert first.id == again.id == resent.id == replaced.id
    assert replaced.payload == {"a": 2}
    assert len({job.id for job in many}) == MANY
    for forbidden in (
        lambda: app.cancel(first.id),
        lambda: app.pause("default"),
        lambda: app.store.claim(worker="w", queues=None),
        lambda: app.schedule("s", "task", cron="@daily"),
        lambda: app.store.run(new_token(name="t", scopes=["admin"]).add()),
    ):
        with pytest.raises(rowlock.Forbidden):
            forbidden()
    assert app.get(first.id).state == rowlock.JobState.READY


def _step(number: int) -> int:
    return number


def test_the_producer_writes_workflows(realm: Realm):
    """Also after jobs that exist, and with a key whose workflow has ended."""
    producer, worker = realm.app("producer"), realm.app("worker")
    step = producer.task(name="step")(_step)
    worker.task(name="step")(_step)
    before = step.enqueue(1)
    for _ in range(2):
        with producer.workflow("flow", key="k") as flow:
            group = flow.map(step.job(number) for number in range(MANY))
            flow.add(step.job(0), after=[*group, before.id])
        states = producer.get_workflow(flow.id)
        worker.drain()
        assert flow.created and states is not None
        assert states.counts[rowlock.JobState.WAITING].value == 1
        ended = realm.app("reader").get_workflow(flow.id)
        assert ended is not None and ended.state is rowlock.WorkflowState.SUCCEEDED
    with pytest.raises(rowlock.Forbidden):
        producer.cancel_workflow(flow.id)


def test_the_shape_of_another_tenants_workflow_is_not_seen(guarded: Realm):
    """Neither who waits for whom, nor what is alike."""
    acme = guarded.app("producer", tenant="acme")
    step = acme.task(name="step")(_step)
    with acme.workflow("flow", tenant="acme") as flow:
        flow.add(step.job(1), after=flow.add(step.job(0)))
    seen = {}
    for tenant in ("acme", "zoo"):
        with psycopg.connect(guarded.url_of("reader", tenant=tenant)) as connection:
            for table in ("workflow", "edge", "stack"):
                text = f"SELECT count(*) FROM {guarded.schema}.{table}"
                (row,) = connection.execute(text.encode()).fetchall()
                seen[tenant, table] = row[0]

    assert {table: number for (tenant, table), number in seen.items() if tenant == "zoo"} == (
        dict.fromkeys(("workflow", "edge", "stack"), 0)
    )
    assert (seen["acme", "workflow"], seen["acme", "edge"]) == (1, 1)


def test_the_reader_looks(realm: Realm):
    """Jobs, counts, workers, why; it adds and changes nothing, and sees no digest."""
    job = realm.app("producer").enqueue("task")
    app = realm.app("reader")

    assert [each.id for each in app.list()] == [job.id]
    assert app.stats()[0].queue == "default"
    assert app.workers() == []
    assert app.why(job.id).text
    for forbidden in (lambda: app.enqueue("task"), lambda: app.delete(job.id)):
        with pytest.raises(rowlock.Forbidden):
            forbidden()
    with psycopg.connect(realm.url_of("reader"), autocommit=True) as connection:
        for hidden in (
            "digest FROM {}.token",
            "answer FROM {}.first_answer",
            "value FROM {}.secret",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT {hidden.format(realm.schema)}".encode())


def test_the_migrator_migrates(fresh_database: FreshDatabase):
    """It needs no right but to be the migrator; afterwards it grants what is new itself."""
    realm = Realm(fresh_database())
    realm.set_up(is_guarded=False)
    try:
        # As if the last version had known no more than the first four migrations.
        realm.execute(f"""
            DELETE FROM {realm.schema}.migration WHERE number > 4;
            DROP TABLE {realm.schema}.event;
            ALTER TABLE {realm.schema}.finished DROP COLUMN fingerprint;
            ALTER TABLE {realm.schema}.worker DROP COLUMN vitals;
            ALTER TABLE {realm.schema}.migration DROP COLUMN needs;
            ALTER TABLE {realm.schema}.job
                DROP COLUMN begun, DROP COLUMN losses, DROP COLUMN interruptions,
                DROP COLUMN quarantined
        """)
        with closing(realm.app("migrator")) as app:
            applied = app.migrate()
        with psycopg.connect(realm.url_of("migrator"), autocommit=True) as connection:
            connection.execute(roles(realm.schema).encode())

        assert applied == list(range(5, len(migrations.migrations(Dialect.POSTGRES)) + 1))
        assert realm.app("reader").store.list_schedules() == []
    finally:
        realm.tear_down()


def test_a_session_is_of_its_tenant(guarded: Realm):
    """Producers and readers see and add what is their tenant's; without one, what is nobody's."""
    acme, zoo = (guarded.app("producer", tenant=name) for name in ("acme", "zoo"))
    own = acme.enqueue("task", {"secret": 1}, tenant="acme", key="k")
    other = zoo.enqueue("task", tenant="zoo", key="k")
    common = guarded.app("producer").enqueue("task")
    with pytest.raises(rowlock.Forbidden):
        acme.enqueue("task", tenant="zoo")
    with pytest.raises(rowlock.Forbidden):
        acme.enqueue("task")

    assert own.created and other.created
    for tenant, seen in (("acme", own), ("zoo", other), (None, common)):
        reader = guarded.app("reader", tenant=tenant)
        assert [job.id for job in reader.list()] == [seen.id]
        assert [job for job in (own, other, common) if job != seen and reader.get(job.id)] == []
    assert len(guarded.app("worker").list().jobs) == 3


def test_log_lines_are_seen_with_their_job(guarded: Realm):
    """And tokens, audits, schedules with their tenant."""
    job = guarded.app("producer", tenant="acme").enqueue("task", tenant="acme")
    worker = guarded.app("worker")
    (lease,) = worker.store.claim(worker="w", queues=None)
    worker.store.log(lease, ["hello"])
    worker.store.succeed([lease])
    scheduled = new_job(kind="task", payload="{}", tenant="acme")
    worker.store.put_schedule(new_schedule("nightly", scheduled, cron="@daily"))

    def seen(tenant: str) -> tuple[int, int]:
        reader = guarded.app("reader", tenant=tenant)
        return len(reader.store.read_log(job.id)), len(reader.store.list_schedules())

    assert (seen("acme"), seen("zoo")) == ((1, 1), (0, 0))


def test_notes_of_claims_are_seen_with_their_jobs(guarded: Realm):
    """A reader counts its own running jobs, and learns nothing of those of others."""
    for tenant in ("acme", "zoo"):
        jobs = [{"kind": "task", "queue": tenant, "tenant": tenant}] * config.CLAIM_NOTED_MIN
        guarded.app("producer", tenant=tenant).enqueue_many(jobs)
        guarded.app("worker").store.claim(worker="w", queues=[tenant], limit=100)
    reader = guarded.app("reader", tenant="acme")
    with psycopg.connect(guarded.url_of("reader", tenant="acme")) as connection:
        notes = connection.execute(f"SELECT queue FROM {guarded.schema}.claim".encode()).fetchall()

    assert len(reader.list(state="running").jobs) == config.CLAIM_NOTED_MIN
    assert notes == [("acme",)]


def test_a_key_of_a_limit_is_seen_by_its_tenant(guarded: Realm):
    """What is remembered about others is not."""
    store = guarded.app("worker").store
    declare(store, "exports", per=TENANT)
    for tenant in ("acme", "zoo"):
        store.pause_limit("exports", tenant)
    reader = guarded.app("reader", tenant="acme")

    assert [key.key for key in reader.limit_keys("exports")] == ["acme"]


@pytest.mark.parametrize("table", ["event", "history", "depth"])
def test_what_is_of_all_tenants_is_not_for_readers_of_one(guarded: Realm, table: str):
    """An event names jobs of every tenant, and no row says whose."""
    with (
        psycopg.connect(guarded.url_of("reader")) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(f"SELECT * FROM {guarded.schema}.{table}".encode())


def test_who_may_not_migrate_is_told(empty_postgres_url: str):
    """The word of the database, as one of our errors."""
    realm = Realm(empty_postgres_url)
    realm.set_up(is_guarded=False)
    realm.execute(f"DELETE FROM {realm.schema}.migration")
    try:
        with pytest.raises(rowlock.Forbidden, match="permission denied") as refused:
            realm.app("reader").migrate()
    finally:
        realm.tear_down()

    assert refused.value.by_database
