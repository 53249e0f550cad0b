"""Enqueue on the user's own connection: in every library, the job is part of the transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from rowlock import config
from rowlock.errors import OptionInvalid, StoreUnavailable
from rowlock.store import Store, open_store
from tests.conftest import FreshDatabase
from tests.store.callers import (
    POSTGRES_LIBRARIES,
    SQLITE_LIBRARIES,
    Client,
    Library,
    path_of,
)
from tests.store.jobs import made

OWN_TABLE = "CREATE TABLE own (id integer PRIMARY KEY)"
# A clash whose winner is never found: the insert is left out, and nothing stands in its way.
HIDING_KEYS = """
CREATE FUNCTION rowlock.hide() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER hide BEFORE INSERT ON rowlock.job FOR EACH ROW WHEN (new.key = 'hidden')
    EXECUTE FUNCTION rowlock.hide()
"""
EVERY_LIBRARY = [
    *(pytest.param(library, "sqlite", id=library.name) for library in SQLITE_LIBRARIES),
    *(pytest.param(library, "postgres", id=library.name) for library in POSTGRES_LIBRARIES),
]
every_library = pytest.mark.parametrize(("library", "kind"), EVERY_LIBRARY)
PREPARES = pytest.mark.direct("asyncpg prepares, and then executes where it may not be prepared")
every_library_alone = pytest.mark.parametrize(
    ("library", "kind"),
    [
        pytest.param(*each.values, id=each.id, marks=PREPARES if "asyncpg" in str(each.id) else ())
        for each in EVERY_LIBRARY
    ],
)


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest) -> str:
    """The app's database."""
    name = {"sqlite": "scratch_sqlite_url", "postgres": "emptied_postgres_url"}[kind]
    found: str = request.getfixturevalue(name)
    return found


@pytest.fixture
def other_url(kind: str, request: pytest.FixtureRequest) -> str:
    """A database that is not the app's, with the same tables."""
    if kind == "postgres":
        fresh: FreshDatabase = request.getfixturevalue("fresh_database")
        return fresh(request.getfixturevalue("migrated_template"))
    other = f"{request.getfixturevalue('sqlite_url')}-other"
    store = open_store(other)
    store.migrate()
    store.close()
    return other


@pytest.fixture
def home(url: str) -> Iterator[Store]:
    """The app's store, seen from another connection."""
    store = open_store(url)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def client(library: Library, url: str, home: Store) -> Iterator[Client]:
    """A user's connection on which nothing is committed by itself."""
    with library.connect(url, home) as opened:
        yield opened


@pytest.fixture
def autocommit(library: Library, url: str, home: Store) -> Iterator[Client]:
    """A user's connection on which each statement is committed by itself."""
    with library.connect(url, home, autocommit=True) as opened:
        yield opened


def query(url: str, sql: str) -> list[tuple[object, ...]]:
    """Ask a database, past all that is tested here."""
    if url.startswith("sqlite"):
        conn = sqlite3.connect(path_of(url), isolation_level=None)
        rows = conn.execute(sql.replace("rowlock.", "rowlock_")).fetchall()
        conn.close()
        return rows
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


@contextmanager
def refused(url: str, kind: str) -> Iterator[None]:
    """Make the database itself refuse jobs of a kind."""
    make = f"ALTER TABLE rowlock.job ADD CONSTRAINT refused CHECK (kind <> '{kind}')"
    drop = "ALTER TABLE rowlock.job DROP CONSTRAINT refused"
    if url.startswith("sqlite"):
        when = f"BEFORE INSERT ON rowlock_job WHEN new.kind = '{kind}'"
        make = f"CREATE TRIGGER refuse {when} BEGIN SELECT raise(ABORT, 'refused'); END"
        drop = "DROP TRIGGER refuse"
    query(url, make)
    yield
    query(url, drop)


@every_library
def test_a_commit_makes_the_job(client: Client, home: Store):
    """The job is there for others once the user's transaction is committed, and not before."""
    client.begin()
    (job,) = client.enqueue(home, made(payload='{"n": 1}', tags=["a%s"]))
    before = home.get(job.id)
    client.commit()

    assert job.created
    assert before is None
    assert (found := home.get(job.id)) is not None
    assert (found.payload, found.tags) == ({"n": 1}, ["a%s"])


@every_library
def test_a_rollback_leaves_nothing(client: Client, home: Store, url: str):
    """After a rollback there is no job, and its key is free."""
    client.begin()
    (job,) = client.enqueue(home, made(key="k"))
    client.rollback()

    assert home.get(job.id) is None
    assert query(url, "SELECT count(*) FROM rowlock.job") == [(0,)]
    assert home.enqueue([made(key="k")])[0].created


@every_library
def test_a_key_is_held_within_the_transaction(client: Client, home: Store, url: str):
    """Of two jobs with one key in one transaction the second answers with the first."""
    client.begin()
    (first,) = client.enqueue(home, made(key="k"))
    (second,) = client.enqueue(home, made(key="k"))
    client.commit()

    assert (first.created, second.created) == (True, False)
    assert first.id == second.id
    assert [(str(id),) for (id,) in query(url, "SELECT id FROM rowlock.job")] == [(first.id,)]


@every_library
def test_a_key_held_by_others_is_found(client: Client, home: Store):
    """A key that is in flight already is answered with its job, and the transaction goes on."""
    (held,) = home.enqueue([made(key="k")])
    client.begin()
    (found,) = client.enqueue(home, made(key="k"))
    (other,) = client.enqueue(home, made())
    client.commit()

    assert (found.id, found.created) == (held.id, False)
    assert home.get(other.id) is not None


@every_library
def test_a_job_is_replaced_within_the_transaction(client: Client, home: Store):
    """A waiting job has the new payload once the transaction commits, and not before."""
    (held,) = home.enqueue([made(key="k", payload='{"a":1}')])
    client.begin()
    (answer,) = client.enqueue(home, made(key="k", payload='{"a":2}', if_held="replace"))
    client.rollback()
    undone = home.get(held.id)
    client.begin()
    client.enqueue(home, made(key="k", payload='{"a":3}', if_held="replace"))
    client.commit()
    done = home.get(held.id)

    assert (answer.id, answer.created, answer.payload) == (held.id, False, {"a": 2})
    assert undone is not None and undone.payload == {"a": 1}
    assert done is not None and done.payload == {"a": 3}


@every_library
def test_a_savepoint_takes_its_jobs_along(client: Client, home: Store):
    """What was enqueued after a savepoint goes with it; what came before stays."""
    client.begin()
    (kept,) = client.enqueue(home, made())
    client.execute("SAVEPOINT mine")
    (gone,) = client.enqueue(home, made(key="k"))
    client.execute("ROLLBACK TO SAVEPOINT mine")
    client.commit()

    assert home.get(kept.id) is not None
    assert home.get(gone.id) is None


@every_library_alone
def test_autocommit_commits_the_job(autocommit: Client, home: Store):
    """Without a transaction the job is there at once, keyed or not, alone or among many."""
    (plain,) = autocommit.enqueue(home, made())
    (keyed,) = autocommit.enqueue(home, made(key="k"))
    many = autocommit.enqueue(home, *(made() for _ in range(3)))

    assert all(home.get(job.id) is not None for job in (plain, keyed, *many))


@pytest.mark.owner("puts a constraint on our table")
@every_library
def test_many_are_all_or_none_in_autocommit(autocommit: Client, home: Store, url: str):
    """When the database refuses the last of many, none of them is there."""
    jobs = [made(kind="a") for _ in range(config.BATCH_ROWS)]

    with refused(url, "z"), pytest.raises(Exception, match="refused"):
        autocommit.enqueue(home, *jobs, made(kind="z"))

    assert query(url, "SELECT count(*) FROM rowlock.job") == [(0,)]
    assert autocommit.enqueue(home, made())[0].created


@pytest.mark.parametrize(
    ("library", "kind"), [pytest.param(one, "sqlite", id=one.name) for one in SQLITE_LIBRARIES]
)
def test_a_refused_batch_leaves_the_transaction(client: Client, home: Store, url: str):
    """On SQLite, where a failed statement ends no transaction, a failed batch leaves no half."""
    with refused(url, "z"):
        client.begin()
        (kept,) = client.enqueue(home, made())
        with pytest.raises(Exception, match="refused"):
            client.enqueue(home, made(kind="a"), made(kind="z"))
        client.commit()

    assert query(url, "SELECT id FROM rowlock.job") == [(kept.id,)]


@every_library
def test_another_database_is_refused(library: Library, home: Store, other_url: str):
    """A connection to another database is refused, and its transaction can go on."""
    query(other_url, OWN_TABLE)
    with library.connect(other_url, home) as client:
        client.begin()
        client.execute("INSERT INTO own VALUES (1)")
        with pytest.raises(OptionInvalid, match="another database"):
            client.enqueue(home, made(key="k"))
        client.execute("INSERT INTO own VALUES (2)")
        client.commit()

    assert query(other_url, "SELECT id FROM own ORDER BY id") == [(1,), (2,)]
    assert query(other_url, "SELECT count(*) FROM rowlock.job") == [(0,)]


@pytest.mark.owner("puts a trigger on our table")
@pytest.mark.direct("a user's own library prepares statements")
@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize("library", POSTGRES_LIBRARIES, ids=str)
def test_our_own_error_withdraws_what_was_inserted(client: Client, home: Store, url: str):
    """When we give up halfway, the user's transaction goes on without any of the jobs."""
    query(url, HIDING_KEYS)
    client.begin()
    with pytest.raises(StoreUnavailable, match="clashing"):
        client.enqueue(home, made(kind="a"), made(kind="b", key="hidden"))
    (kept,) = client.enqueue(home, made(kind="c"))
    client.commit()
    rows = query(url, "SELECT kind FROM rowlock.job")
    query(url, "DROP TRIGGER hide ON rowlock.job; DROP FUNCTION rowlock.hide")

    assert rows == [(kept.kind,)]


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize("library", POSTGRES_LIBRARIES, ids=str)
def test_a_database_without_tables_is_refused(
    library: Library, home: Store, empty_postgres_url: str
):
    """Where there are no tables of ours, that is found out without a statement that fails."""
    query(empty_postgres_url, OWN_TABLE)
    with library.connect(empty_postgres_url, home) as client:
        client.begin()
        client.execute("INSERT INTO own VALUES (1)")
        with pytest.raises(OptionInvalid, match="another database"):
            client.enqueue(home, made())
        client.commit()

    assert query(empty_postgres_url, "SELECT id FROM own") == [(1,)]


@pytest.mark.owner("makes a table beside ours")
@every_library
def test_the_users_writes_and_the_job_are_one(client: Client, home: Store, url: str):
    """What the user wrote and what was enqueued come and go together."""
    query(url, OWN_TABLE.replace("own", "rowlock.own"))
    table = "rowlock_own" if url.startswith("sqlite") else "rowlock.own"
    for id, ending in ((1, client.commit), (2, client.rollback)):
        client.begin()
        client.execute(f"INSERT INTO {table} VALUES ({id})")
        client.enqueue(home, made(kind=f"kind-{id}"))
        ending()
    rows = query(url, "SELECT id FROM rowlock.own")
    kinds = query(url, "SELECT kind FROM rowlock.job")
    query(url, "DROP TABLE rowlock.own")

    assert (rows, kinds) == ([(1,)], [("kind-1",)])
