"""Many processes work on one SQLite file whose log is folded all the time: does it stay sound?

Libraries before 3.51.3 may corrupt a file when a checkpoint runs beside a writer that starts the
log anew; here thousands of both happen, by processes that know nothing of each other.
"""

from __future__ import annotations

import multiprocessing
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drills.deeds import fold_often
from benchmarks.drills.scene import PAUSE
from rowlock.store import open_store
from rowlock.store.options import new_job

_SPAWN = multiprocessing.get_context("spawn")
_PAYLOAD = '{"text":"' + "x" * 500 + '"}'


@dataclass(frozen=True, slots=True)
class Hammered:
    """What the file was like while it was hammered, and after."""

    jobs: int
    seconds: float
    # How often the log was started anew, as far as a look every few milliseconds could tell.
    restarts: int
    checks: int
    # What an integrity check said, if it was not "ok".
    damage: list[str]
    codes: list[int | None]
    # Jobs that did not end as succeeded.
    missing: int

    def __str__(self) -> str:
        return (
            f"{self.jobs:,} jobs by {len(self.codes)} processes in {self.seconds:.0f} s, SQLite "
            f"{sqlite3.sqlite_version}: the log started anew {self.restarts} times or more, "
            f"{self.checks} integrity checks, {len(self.damage)} bad; missing {self.missing}, "
            f"exit codes {set(self.codes)}"
        )


def hammer(path: Path, *, jobs: int, processes: int = 8, check_seconds: float = 5.0) -> Hammered:
    """Let each process enqueue, claim and settle its share, while integrity is checked."""
    url = f"sqlite:///{path}"
    with closing(open_store(url)) as store:
        store.stats()
    start = time.monotonic()
    share = jobs // processes
    workers = [
        _SPAWN.Process(target=_work, args=(url, number, share)) for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    salts: set[bytes] = set()
    damage: list[str] = []
    checks, check_at = 0, start + check_seconds
    while any(worker.is_alive() for worker in workers):
        PAUSE.wait(0.002)
        salts.add(_salt(path))
        if time.monotonic() > check_at:
            damage += _check(path)
            checks, check_at = checks + 1, time.monotonic() + check_seconds
    damage += _check(path)
    for worker in workers:
        worker.join()
    found = _count_succeeded(path)
    return Hammered(
        jobs=share * processes,
        seconds=time.monotonic() - start,
        restarts=len(salts) - 1,
        checks=checks + 1,
        damage=damage,
        codes=[worker.exitcode for worker in workers],
        missing=share * processes - found,
    )


def _work(url: str, number: int, count: int) -> None:
    fold_often()
    queue = f"q{number}"
    with closing(open_store(url)) as store:
        for _ in range(count):
            store.enqueue([new_job(kind="blow", payload=_PAYLOAD, queue=queue)])
            leases = store.claim(worker=queue, queues=[queue], limit=10)
            store.succeed(leases)


def _salt(path: Path) -> bytes:
    """Of the log's header; another one after each time that it was started anew."""
    try:
        return Path(f"{path}-wal").read_bytes()[16:24]
    except FileNotFoundError:
        return b""


def _check(path: Path) -> list[str]:
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        rows = connection.execute("PRAGMA integrity_check").fetchall()
    return [str(text) for (text,) in rows if text != "ok"]


def _count_succeeded(path: Path) -> int:
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        sql = "SELECT count(*) FROM rowlock_finished WHERE state = 'succeeded'"
        return int(connection.execute(sql).fetchone()[0])
