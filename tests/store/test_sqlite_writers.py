"""Many processes on one SQLite file: nobody is refused, nothing is lost, the log stays short."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from rowlock import config
from rowlock.store import open_store
from rowlock.store.sqlite.engine import SqliteEngine
from tests.store.sqlite_processes import (
    count_jobs,
    enqueue_many,
    enqueue_until_killed,
    is_sound,
    job,
    look,
    read_many,
    run_all,
    url_of,
    write_as_a_stranger,
)
from tests.support.processes import FRESH
from tests.worker.waiting import wait_until

WRITES = 10_000 if os.environ.get("ROWLOCK_LONG") else 200


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.mark.timeout(600)
def test_eight_processes_write_without_an_error(path):
    """Eight processes that open a new file at once and write one by one all succeed."""
    codes = run_all(enqueue_many, [(path, WRITES)] * 8)

    assert codes == [0] * 8
    assert count_jobs(path) == 8 * WRITES
    assert is_sound(path)


@pytest.mark.timeout(600)
def test_writers_beside_readers_and_a_stranger(path):
    """An application that writes to the same file, and readers, disturb nobody, nor the file."""
    enqueue_many(path, 1)
    processes = [(enqueue_many, WRITES)] * 3 + [(write_as_a_stranger, WRITES), (read_many, 200)]

    codes = run_all(_call, [(target, path, count) for target, count in processes])

    assert codes == [0] * 5
    assert count_jobs(path) == 3 * WRITES + 1
    assert look(path, "SELECT count(*) FROM own") == [WRITES]
    assert is_sound(path)


def _call(target, path, count):
    target(path, count)


def test_the_log_is_folded_by_us_only(path):
    """SQLite itself never checkpoints; we do, before anyone else's connection would."""
    with closing(open_store(url_of(path))) as store, closing(sqlite3.connect(path)) as other:
        sizes = []
        for _ in range(60):
            store.enqueue([job() for _ in range(100)])
            sizes.append(Path(f"{path}-wal").stat().st_size)
        frames = other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]

    assert frames < 1_000
    assert max(sizes) < config.SQLITE_WAL_BYTES_KEPT
    assert path.stat().st_size > 1024 * 1024
    assert config.SQLITE_WAL_FRAMES == 750


@pytest.mark.parametrize("writes", [False, True])
def test_every_connection_is_safe(path, writes):
    """Readers' and writers' connections sync fully, map no memory, leave the log to us."""
    with closing(open_store(url_of(path))) as store:
        assert isinstance(store.engine, SqliteEngine)
        session = store.engine.new_session()
        with session.transaction(writes=writes):
            execute = session.connection.execute
            found = {
                name: execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "mmap_size", "wal_autocheckpoint")
            }

    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "mmap_size": 0,
        "wal_autocheckpoint": 0,
    }


def test_a_long_reader_holds_up_the_log_but_not_the_writers(path):
    """The log grows under a reader, writers go on, and it shrinks once the reader has ended."""
    wal = Path(f"{path}-wal")
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM rowlock_job").fetchone()
            slowest = max(_seconds_to_enqueue(store, 200) for _ in range(80))
            grown = wal.stat().st_size
            reader.execute("COMMIT")
        for _ in range(20):
            store.enqueue([job() for _ in range(200)])
        shrunk = wal.stat().st_size

    assert grown > config.SQLITE_WAL_BYTES_KEPT
    assert slowest < 2
    assert shrunk <= config.SQLITE_WAL_BYTES_KEPT


def _seconds_to_enqueue(store, count):
    start = time.monotonic()
    store.enqueue([job() for _ in range(count)])
    return time.monotonic() - start


def test_trouble_with_folding_is_not_trouble_with_the_job(path, monkeypatch, caplog):
    """A job is acknowledged once it is committed, whatever becomes of the checkpoint after it."""
    monkeypatch.setattr(config, "SQLITE_WAL_FRAMES", 1)
    monkeypatch.setattr(config, "SQLITE_CHECKPOINT_BUSY_MILLISECONDS", "no number; DROP")
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])

    assert count_jobs(path) == 1
    assert "could not be folded" in caplog.text


@pytest.mark.timeout(300)
def test_a_killed_writer_loses_nothing(path):
    """Processes killed at any moment leave a sound file with every acknowledged job in it."""
    acknowledged: list[str] = []
    for turn in range(20):
        acknowledged += _ids_until_kill(path, lines=turn * 3 % 17 + 1)
        assert is_sound(path)

    stored = set(look(path, "SELECT id FROM rowlock_job"))
    assert [id for id in acknowledged if id not in stored] == []
    assert len(acknowledged) >= 20


def _ids_until_kill(path: Path, *, lines: int) -> list[str]:
    note = path.with_name("acknowledged")
    note.write_text("")
    process = FRESH.Process(target=enqueue_until_killed, args=(path, note))
    process.start()
    try:
        wait_until(lambda: len(note.read_text().splitlines()) >= lines)
    finally:
        process.kill()
        process.join()
    return note.read_text().splitlines()


def test_long_maintenance_lets_others_write(path):
    """Between two transactions of one long verb the turn is free for another connection."""
    with closing(open_store(url_of(path))) as store, closing(open_store(url_of(path))) as other:
        assert isinstance(store.engine, SqliteEngine)
        session = store.engine.new_session()
        with session.transaction(writes=True):
            session.end(writes=True, is_good=True)
            other.enqueue([job()])
            session.begin(writes=True)

    assert count_jobs(path) == 1


def test_the_file_is_the_one_it_was_opened_with(path, monkeypatch):
    """A relative path is resolved when the store is opened, not at each call."""
    monkeypatch.chdir(path.parent)
    with closing(open_store("sqlite:///jobs.db")) as store:
        (path.parent / "elsewhere").mkdir()
        monkeypatch.chdir(path.parent / "elsewhere")
        store.enqueue([job()])

    assert count_jobs(path) == 1
    assert list((path.parent / "elsewhere").iterdir()) == []
