"""A job enqueued on the user's connection wakes workers when it is committed, and only then."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy
from django.db import transaction
from sqlalchemy import orm

from rowlock.store import Store, open_store
from rowlock.store.postgres.bell import read_news
from tests.store.callers import POSTGRES_LIBRARIES, Client, Library, alchemy_url, on_django
from tests.store.jobs import made

pytestmark = pytest.mark.direct("listens")
HEAR_SECONDS = 20.0


class Ear:
    """Hears the bell of a database."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("LISTEN rowlock")

    def hear(self, count: int = 1) -> list[str]:
        """The queues of the next rings."""
        heard = self.connection.notifies(timeout=HEAR_SECONDS, stop_after=count)
        return [read_news(notice.payload).queue for notice in heard]


@pytest.fixture
def home(emptied_postgres_url: str) -> Iterator[Store]:
    """The app's store."""
    store = open_store(emptied_postgres_url)
    yield store
    store.close()


@pytest.fixture
def ear(emptied_postgres_url: str) -> Iterator[Ear]:
    """A listener of the app's database."""
    ear = Ear(emptied_postgres_url)
    yield ear
    ear.connection.close()


@pytest.fixture
def client(library: Library, emptied_postgres_url: str, home: Store) -> Iterator[Client]:
    """A user's connection on which nothing is committed by itself."""
    with library.connect(emptied_postgres_url, home) as opened:
        yield opened


@pytest.fixture
def session(emptied_postgres_url: str) -> Iterator[orm.Session]:
    """A session of SQLAlchemy."""
    url = alchemy_url(emptied_postgres_url, "psycopg")
    with orm.Session(sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)) as session:
        yield session


every_library = pytest.mark.parametrize("library", POSTGRES_LIBRARIES, ids=str)


@every_library
def test_a_commit_rings(client: Client, home: Store, ear: Ear):
    """Workers are rung for, once a queue, when the transaction is committed."""
    client.begin()
    client.enqueue(home, made(queue="a"), made(queue="a"))
    client.enqueue(home, made(queue="a"))
    client.commit()
    heard = ear.hear()
    home.enqueue([made(queue="next")])

    assert [*heard, *ear.hear()] == ["a", "next"]


@every_library
def test_a_rollback_does_not_ring(client: Client, home: Store, ear: Ear):
    """What was rolled back rings neither then nor at the next commit on that connection."""
    client.begin()
    client.enqueue(home, made(queue="gone"))
    client.rollback()
    client.begin()
    client.enqueue(home, made(queue="kept"))
    client.commit()

    assert ear.hear() == ["kept"]


@every_library
def test_autocommit_rings(library: Library, emptied_postgres_url: str, home: Store, ear: Ear):
    """Without a transaction of the user's the bell is rung at once."""
    with library.connect(emptied_postgres_url, home, autocommit=True) as client:
        client.enqueue(home, made(queue="a", key="k"))

        assert ear.hear() == ["a"]


@every_library
def test_a_duplicate_does_not_ring(client: Client, home: Store, ear: Ear):
    """A key that answers with an older job has no news for anyone."""
    home.enqueue([made(queue="first", key="k")])
    assert ear.hear() == ["first"]
    client.begin()
    client.enqueue(home, made(queue="second", key="k"))
    client.enqueue(home, made(queue="third"))
    client.commit()

    assert ear.hear() == ["third"]


@pytest.mark.parametrize("library", POSTGRES_LIBRARIES[:1], ids=str)
def test_the_notify_can_be_left_out(client: Client, home: Store, ear: Ear):
    """With `notify_in_transaction` off nothing is notified inside the user's transaction."""
    client.enqueue(home, made(queue="quiet"), notify_in_transaction=False)
    client.commit()
    home.enqueue([made(queue="loud")])

    assert ear.hear() == ["loud"]


@pytest.mark.parametrize("library", POSTGRES_LIBRARIES[:1], ids=str)
def test_a_long_queue_name_rings_for_all(client: Client, home: Store, ear: Ear):
    """A name too long to be rung for rings for any queue, as on our own connections."""
    client.enqueue(home, made(queue="ü" * 200))
    client.commit()

    assert ear.hear() == [""]


def test_a_released_savepoint_does_not_ring_yet(session: orm.Session, home: Store, ear: Ear):
    """A session rings for a job of a nested block when the outer transaction is committed."""
    with session.begin_nested():
        home.enqueue([made(queue="nested")], conn=session)
    home.enqueue([made(queue="between")])
    heard = ear.hear()
    session.commit()

    assert [*heard, *ear.hear()] == ["between", "nested"]


def test_a_session_rolled_back_by_closing_is_silent(session: orm.Session, home: Store, ear: Ear):
    """A session that is closed without a commit has nothing to ring for when used again."""
    home.enqueue([made(queue="gone")], conn=session)
    session.close()
    home.enqueue([made(queue="kept")], conn=session)
    session.commit()

    assert ear.hear() == ["kept"]


def test_django_rings_on_commit(emptied_postgres_url: str, home: Store, ear: Ear):
    """Django's bell waits for the outermost block, and drops what an inner one rolled back."""
    with on_django(emptied_postgres_url, True) as client:
        with transaction.atomic():
            with transaction.atomic():
                home.enqueue([made(queue="kept")], conn=client.conn)
            with transaction.atomic():
                home.enqueue([made(queue="gone")], conn=client.conn)
                transaction.set_rollback(True)
            home.enqueue([made(queue="between")])
            heard = ear.hear()
        heard += ear.hear()
        home.enqueue([made(queue="end")])

        assert [*heard, *ear.hear()] == ["between", "kept", "end"]


def test_django_in_manual_mode_notifies(emptied_postgres_url: str, home: Store, ear: Ear):
    """After `set_autocommit(False)` Django has no hook, so the transaction itself notifies."""
    with on_django(emptied_postgres_url, True) as client:
        transaction.set_autocommit(False)
        (job,) = home.enqueue([made(queue="manual")], conn=client.conn)
        before = home.get(job.id)
        transaction.commit()
        transaction.set_autocommit(True)

        assert before is None
        assert ear.hear() == ["manual"]
