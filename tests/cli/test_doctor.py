"""`rowlock doctor`: what it looks at, how it judges, and that it shows nobody's queries."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from click.testing import CliRunner

from rowlock import App, WorkerInfo
from rowlock.cli import findings, main
from rowlock.cli.findings import Level
from rowlock.store import migrate
from rowlock.store.ops.health import (
    Connections,
    DeadTuples,
    DueLane,
    ExpiredLeases,
    OldestTransaction,
)
from rowlock.store.postgres.pooler import Pooler
from rowlock.store.statements import Dialect
from tests.cli.conftest import on_terminal

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = 1_000_000


def examine(url: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit code, and by its name each check's level and text."""
    result = CliRunner().invoke(main, ["--database-url", url, "doctor", "--json"])
    document = json.loads(result.stdout)

    assert document["ok"] == (result.exit_code == 0)
    found = {each["check"]: (each["level"], each["text"]) for each in document["findings"]}
    return result.exit_code, found


def test_a_healthy_database(app, run, any_url):
    """Everything is looked at, told line by line, and nothing is bad."""
    app.enqueue("send")
    code, found = examine(any_url)
    text = run("doctor")
    both = {"store", "migrations", "leases", "queues", "workers"}
    sqlite = {"WAL reset", "file system", "journal mode"}
    postgres = {"clock", "pooler", "connections", "vacuum", "transactions"}

    assert 0 == code == text.exit_code
    assert both | (sqlite if "sqlite" in any_url else postgres) == set(found)
    assert text.stdout.startswith("ok   store          ")
    assert (found["workers"][0], "send in default" in found["workers"][1]) == ("warn", True)
    assert "→ start a worker" in text.stdout


def test_served_and_paused(app, run, any_url):
    """A worker that takes the kind makes it well; a paused queue is told, not its jobs."""
    app.enqueue("send", queue="mail")
    app.enqueue("send", queue="still")
    app.pause("still")
    app.store.announce(worker="w", queues=["mail"], kinds=["send"], host="box", pid=1)
    _, found = examine(any_url)

    assert found["workers"] == ("ok", "1 worker; all are served")
    assert found["queues"] == ("warn", "paused: still")


def test_timeouts_in_threads(sqlite_url):
    """Plain functions with a timeout are named, with the executor that ends one alone."""
    words = ["--app", "tests.worker.jobs_app:app", "--database-url", sqlite_url, "doctor"]
    App(sqlite_url).migrate()
    result = CliRunner().invoke(main, [*words, "--json"])
    found = {each["check"]: each for each in json.loads(result.stdout)["findings"]}

    assert ("ok", 'executor="process"' in found["timeouts"]["advice"]) == (
        found["timeouts"]["level"],
        True,
    )
    assert "never_ends" in found["timeouts"]["text"]
    assert "block_the_loop" not in found["timeouts"]["text"]
    assert findings.timeouts_in_threads([]).advice == ""


def test_expired_leases(app, any_url):
    """A lease that is over and that nobody took is told."""
    app.enqueue("send")
    app.store.claim(worker="w", queues=["default"], lease=0.000001)
    _, found = examine(any_url)

    assert found["leases"][0] == "warn"
    assert "1 lease expired" in found["leases"][1]


def test_no_file_yet(tmp_path):
    """A file that is not there is told of, and not made."""
    file = tmp_path / "none.db"
    code, found = examine(f"sqlite:///{file}")

    assert (code, found["migrations"][0]) == (0, "warn")
    assert not file.exists()


def test_network_file_system(tmp_path, monkeypatch):
    """A place where locks do not hold is bad."""
    monkeypatch.setattr("rowlock.store.sqlite.file._mounts", lambda: "server / nfs4 rw")
    code, found = examine(f"sqlite:///{tmp_path / 'x.db'}")

    assert (code, found["store"][0]) == (1, "bad")
    assert "nfs4" in found["store"][1]


def test_not_migrated(empty_postgres_url):
    """A database without our tables is bad, and what to do is told."""
    code, found = examine(empty_postgres_url)

    assert (code, found["migrations"][0]) == (1, "bad")


def test_not_there():
    """A server that does not answer is bad, without a traceback or the password."""
    code, found = examine("postgresql://u:secret@127.0.0.1:1/x?connect_timeout=1")

    assert (code, found["store"][0]) == (1, "bad")
    assert "secret" not in str(found)


@pytest.mark.direct("knows a server's process by its number")
def test_oldest_transaction_is_told_without_its_query(postgres_url):
    """Who holds it is shown with control characters escaped; what it asked is not."""
    name = "reports\x1b[2J"
    with psycopg.connect(postgres_url, application_name=name) as holder:
        holder.execute("SELECT 'a secret of somebody'")
        result = CliRunner().invoke(main, ["--database-url", postgres_url, "doctor"])
        pid = holder.info.backend_pid

    assert f"pid {pid}, application reports" in result.stdout
    assert "idle in transaction" in result.stdout
    assert "secret" not in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("finding", "level", "text"),
    [
        (findings.sqlite_version("3.51.3"), "ok", "fixed"),
        (findings.sqlite_version("3.40.1"), "warn", "3.51.3"),
        (findings.journal_mode("wal"), "ok", "wal"),
        (findings.journal_mode("delete"), "bad", "delete, not wal"),
        (findings.clock_skew(there=0, before=-SECOND, after=SECOND), "ok", "agree"),
        (findings.clock_skew(there=9 * SECOND, before=0, after=0), "warn", "9.0s ahead of"),
        (findings.clock_skew(there=0, before=60 * SECOND, after=60 * SECOND), "bad", "1m behind"),
        (findings.pooler(Pooler.NONE, is_preparing=True), "ok", "none"),
        (findings.pooler(Pooler.SESSION, is_preparing=True), "ok", "session mode"),
        (findings.pooler(Pooler.TRANSACTION, is_preparing=False), "ok", "transaction mode"),
        (findings.pooler(Pooler.TRANSACTION, is_preparing=True), "warn", "prepared statements"),
        (findings.connections(Connections(10, 97)), "ok", "10 of 97"),
        (findings.connections(Connections(80, 97)), "warn", "80 of 97"),
        (findings.connections(Connections(97, 97)), "bad", "97 of 97"),
        (findings.dead_tuples(DeadTuples(5, 10, None)), "ok", "never yet"),
        (findings.dead_tuples(DeadTuples(5, 200_000, 60.0)), "warn", "1m ago"),
        (findings.dead_tuples(DeadTuples(5, 2_000_000, 60.0)), "bad", "2,000,000 dead"),
        (findings.oldest_transaction(None), "ok", "none open"),
        (
            findings.oldest_transaction(OldestTransaction(7, "", "u", "d", "active", 90.0)),
            "warn",
            "open for 1m 30s: pid 7, application -, user u",
        ),
        (
            findings.oldest_transaction(OldestTransaction(None, "", "u", "d", "", 900.0)),
            "bad",
            "prepared",
        ),
        (findings.expired_leases(ExpiredLeases(0, 0.0)), "ok", "none"),
        (findings.expired_leases(ExpiredLeases(2, 5.0)), "warn", "2 leases expired"),
        (findings.expired_leases(ExpiredLeases(2, 500.0)), "bad", "8m 20s ago"),
        (findings.paused_queues(list("abcde")), "warn", "a, b, c +2"),
        (findings.unserved([DueLane("q", "k", 61.0)], []), "bad", "no worker serves k in q"),
        (
            findings.unserved([DueLane("q", "k", 5.0)], [WorkerInfo(id="w", queues=["x"])]),
            "warn",
            "k in q",
        ),
        (findings.unserved([DueLane("q", "k", 5.0)], [WorkerInfo(id="w")]), "ok", "served"),
    ],
)
def test_judgements(finding, level, text):
    """Each check says how bad it is, and unless it is well, what to do."""
    assert finding.level == level
    assert text in finding.text
    assert (level != "ok") == bool(finding.advice)


def test_migrations_are_judged():
    """Missing ones are bad on PostgreSQL; those of a newer version are bad anywhere."""
    known = {each.number: each.checksum for each in migrate.migrations(Dialect.POSTGRES)}
    newer = {**known, max(known) + 1: "x"}
    judge = findings.migrations

    assert Level.OK is judge(Dialect.POSTGRES, known, is_sqlite=False).level
    assert Level.BAD is judge(Dialect.POSTGRES, {}, is_sqlite=False).level
    assert Level.WARN is judge(Dialect.SQLITE, {}, is_sqlite=True).level
    assert Level.BAD is judge(Dialect.POSTGRES, newer, is_sqlite=False).level


def test_silent_workers_do_not_count():
    """A worker that was not heard of for long, or never announced itself, serves nothing."""
    beats = NOW - timedelta(seconds=5)
    alive = WorkerInfo(id="a", started_at=NOW, last_beat_at=beats)
    silent = WorkerInfo(id="b", started_at=NOW, last_beat_at=NOW - timedelta(minutes=5))
    unknown = WorkerInfo(id="c", last_beat_at=beats)

    assert [worker.is_live_at(NOW) for worker in (alive, silent, unknown)] == [
        True,
        False,
        False,
    ]


def test_advice_is_wrapped_on_a_terminal(sqlite_url):
    """What goes on in another line stands below its beginning."""
    with App(sqlite_url) as app:
        app.enqueue("nobody_knows_" + "x" * 40)
    _, written = on_terminal("doctor", url=sqlite_url, COLUMNS="60", NO_COLOR="1")
    lines = [line for line in written.splitlines() if line.strip()]
    at = next(place for place, line in enumerate(lines) if "workers" in line)

    # A path or a name is never broken.
    assert all(len(line) <= 60 for line in lines if max(map(len, line.split())) < 40)
    assert lines[at + 1].startswith(" " * 20)
