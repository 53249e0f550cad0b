"""Errors of the drivers: which of them mean "away, try again" and which mean "refused"."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import struct
import threading
from contextlib import closing

import psycopg
import pytest

from rowlock.errors import RowlockError, StoreRefused, StoreUnavailable
from rowlock.store import open_store
from rowlock.store.postgres.errors import is_login_refused, mapped, meaning_of
from rowlock.store.sqlite.file import SqliteFile
from tests.store.jobs import enqueue
from tests.store.sqlite_processes import job
from tests.store.triggers import SAID, allow, refuse

pytestmark = pytest.mark.owner("puts a trigger on our table")


@pytest.fixture
def url(any_url: str) -> str:
    """A database of the test's own: it gets triggers."""
    open_store(any_url).close()
    return any_url


def test_a_row_that_a_trigger_refuses(url):
    """The error has a class of its own, says what the database said, and holds no payload."""
    with closing(open_store(url)) as store:
        enqueue(store)
        refuse(url, table="job", when="NEW.key = 'bad'")
        with pytest.raises(StoreRefused) as caught:
            enqueue(store, key="bad", payload='{"secret":"hunter2"}')
        enqueue(store, key="good")
        with pytest.raises(StoreRefused):
            store.enqueue([job() for _ in range(300)] + [job(key="bad")])
        allow(url, table="job")
        enqueue(store, key="bad")

    assert (caught.value.code, caught.value.reason) == ("store_refused", SAID)
    assert SAID in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("how", ["ABORT", "ROLLBACK"])
def test_a_refusal_is_nobody_elses(sqlite_url, how):
    """Async callers of SQLite share transactions, also one that a trigger undoes as a whole."""
    with closing(open_store(sqlite_url)) as store:
        enqueue(store)
    refuse(sqlite_url, table="job", when="NEW.key = 'bad'", how=how)

    async def main():
        store = open_store(sqlite_url)
        jobs = [job(key="bad") if number == 5 else job() for number in range(10)]
        answers = await asyncio.gather(
            *[store.aenqueue([each]) for each in jobs], return_exceptions=True
        )
        await store.aclose()
        return answers

    answers = asyncio.run(main())

    assert [at for at, each in enumerate(answers) if isinstance(each, Exception)] == [5]
    assert isinstance(answers[5], StoreRefused)


def test_a_text_too_long_for_sqlite_is_refused(sqlite_url, monkeypatch):
    """SQLite has a limit for the length of a value: trying again does not help."""
    connect = SqliteFile.connect

    def limited(self, turn):
        connection = connect(self, turn)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        return connection

    with closing(open_store(sqlite_url)) as store:
        monkeypatch.setattr(SqliteFile, "connect", limited)
        with pytest.raises(StoreRefused, match="too big"):
            enqueue(store, payload=f'{{"text":"{"x" * 200_000}"}}')
        enqueue(store)


@pytest.mark.direct("the timeout is set for the session")
def test_a_timeout_of_the_server_is_worth_another_try(postgres_url):
    """`statement_timeout` is the operator's: the server was slow, or somebody held a lock."""
    with (
        closing(open_store(f"{postgres_url}?options=-c%20statement_timeout%3D200ms")) as store,
        psycopg.connect(postgres_url) as other,
    ):
        enqueue(store)
        other.execute("LOCK TABLE rowlock.job")
        with pytest.raises(StoreUnavailable):
            enqueue(store)
        other.rollback()
        enqueue(store)


@pytest.mark.parametrize(
    "error",
    [
        *(psycopg.errors.CheckViolation, psycopg.errors.RaiseException, psycopg.DataError),
        *(psycopg.errors.NotNullViolation, psycopg.errors.StringDataRightTruncation),
        *(psycopg.errors.ProgramLimitExceeded, psycopg.errors.UndefinedFunction),
    ],
)
def test_what_postgresql_refuses(error):
    """Of the data, or of a trigger: the same again would be refused again."""
    meaning = meaning_of(error("no"), is_closed=False)

    assert type(mapped(error("no"), meaning, shown_url="u")) is StoreRefused


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (psycopg.errors.InvalidPassword("Passwort-Authentifizierung fehlgeschlagen"), True),
        (psycopg.errors.InvalidAuthorizationSpecification("Rolle existiert nicht"), True),
        (psycopg.errors.InvalidCatalogName('role "x" does not exist'), False),
        (psycopg.errors.TooManyConnections("zu viele Verbindungen"), False),
        (psycopg.errors.CannotConnectNow("authentication failed for user"), False),
        (psycopg.OperationalError('password authentication failed for user "x"'), True),
        (psycopg.OperationalError("Connection refused"), False),
    ],
)
def test_a_login_that_is_refused_is_known_by_its_code(error, expected):
    """In any language; the text counts only where there is no code."""
    assert is_login_refused(error) is expected


def test_a_password_that_is_missing_is_known_without_words():
    """libpq says so itself, in the language of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def ask_for_password() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                # AuthenticationCleartextPassword.
                connection.sendall(b"R" + struct.pack("!ii", 8, 3))
                connection.recv(1024)

        asking = threading.Thread(target=ask_for_password)
        asking.start()
        port = server.getsockname()[1]
        url = f"postgresql://me@127.0.0.1:{port}/db?sslmode=disable&gssencmode=disable"
        with pytest.raises(psycopg.OperationalError) as caught:
            psycopg.connect(url, passfile="/dev/null")
        asking.join()
    error = psycopg.OperationalError("irgendwas", pgconn=caught.value.pgconn)

    assert is_login_refused(error)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        *(("SQLITE_BUSY", StoreUnavailable), ("SQLITE_BUSY_SNAPSHOT", StoreUnavailable)),
        *(("SQLITE_LOCKED", StoreUnavailable), ("SQLITE_FULL", StoreUnavailable)),
        *(("SQLITE_IOERR_WRITE", StoreUnavailable), ("SQLITE_CANTOPEN", StoreUnavailable)),
        *(("SQLITE_READONLY", StoreUnavailable), ("SQLITE_NOMEM", StoreUnavailable)),
        *(("SQLITE_INTERRUPT", StoreUnavailable), ("SQLITE_CORRUPT", StoreUnavailable)),
        *(("SQLITE_CONSTRAINT_TRIGGER", StoreRefused), ("SQLITE_CONSTRAINT_CHECK", StoreRefused)),
        *(("SQLITE_TOOBIG", StoreRefused), ("SQLITE_MISMATCH", StoreRefused)),
        *(("SQLITE_ERROR", StoreRefused), (None, StoreUnavailable)),
    ],
)
def test_the_codes_of_sqlite(tmp_path, code, expected):
    """What the disk and other processes do is worth another try, what a row does is not."""
    error = sqlite3.OperationalError("no")
    if code is not None:
        error.sqlite_errorname = code
    found: RowlockError = SqliteFile(tmp_path / "jobs.db").mapped(error)

    assert type(found) is expected
