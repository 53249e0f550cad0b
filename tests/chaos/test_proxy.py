"""The faulty proxy does to a connection what it is told to."""

from __future__ import annotations

import psycopg
import pytest

from rowlock.chaos.proxy import FaultyProxy, Mode


def ask(connection: psycopg.Connection, question: str) -> object:
    row = connection.execute(question.encode()).fetchone()
    assert row is not None
    return row[0]


@pytest.fixture
def proxy(postgres_server):
    with FaultyProxy(postgres_server) as proxy:
        yield proxy


def test_it_passes_on_and_delays(proxy):
    """What goes through arrives, at once or a little later."""
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        assert ask(connection, "SELECT 1") == 1
        proxy.mode = Mode.DELAY
        assert ask(connection, "SELECT 2") == 2


def test_it_cuts_and_refuses(proxy):
    """A cut is a reset for those that are connected; refusing is one for those that come."""
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError):
            ask(connection, "SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxy.url)
    proxy.mode = Mode.PASS
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        assert ask(connection, "SELECT 1") == 1


def test_it_swallows_one_answer(proxy, postgres_url):
    """The server has done what was asked; the client sees only that its connection is gone."""
    url = psycopg.conninfo.make_conninfo(
        proxy.url, dbname=psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
    )
    proxy.swallow_answer(b"CREATE TABLE", skip=1)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE first ()")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("CREATE TABLE second ()")
    with psycopg.connect(url, autocommit=True) as connection:
        assert (
            ask(connection, "SELECT count(*) FROM pg_tables WHERE tablename IN ('first', 'second')")
            == 2
        )
    assert proxy.swallowed == 1


@pytest.mark.parametrize("prepare", [False, True])
def test_it_swallows_the_answer_to_a_commit(proxy, postgres_url, prepare):
    """Neither reads nor what is inside of a transaction: what commits, and it is committed."""
    url = psycopg.conninfo.make_conninfo(
        proxy.url, dbname=psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE taken (number integer)")
        connection.execute("INSERT INTO taken VALUES (0)", prepare=prepare)
        proxy.swallow_commit()
        assert ask(connection, "SELECT count(*) FROM taken") == 1
        connection.execute("BEGIN")
        connection.execute("INSERT INTO taken VALUES (1)")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("COMMIT")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO taken VALUES (0)", prepare=prepare)
        proxy.swallow_commit()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("INSERT INTO taken VALUES (0)", prepare=prepare)
    with psycopg.connect(url, autocommit=True) as connection:
        assert ask(connection, "SELECT count(*) FROM taken") == 4
    assert proxy.swallowed == 2
