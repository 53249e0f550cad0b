"""The primary is lost and its standby takes over, while jobs are made and run: what is lost?

A synchronous standby has all that was acknowledged: PostgreSQL tells nobody before. An asynchronous
one lacks what was on its way: so much is lost, in jobs and in outcomes, as the standby was behind.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import psycopg

import rowlock
from benchmarks.drills.scene import PAUSE, Scene, until
from benchmarks.drills.transitions import Account
from rowlock.ids import new_id
from rowlock.testing import ThrowAwayPostgres

LEASE_SECONDS = 5
DRAIN_SECONDS_MAX = 60.0
TROUBLE = ("trying again until it works", "while the database is away")


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What a failover has cost."""

    acknowledged: int
    # Of those, how many had to be sent again: their first answer was an error.
    resent: int
    # Acknowledged, and not succeeded in the end: the standby never had them.
    lost: int
    # Not finished, though the workers had nothing else to do.
    stuck: int
    begun_again: int
    # Longest times without an enqueue that was acknowledged, and without a job that began.
    enqueue_gap_seconds: float
    run_gap_seconds: float
    # How often one worker has said that it has trouble, at most, by what it could not do.
    told: dict[str, int]
    account: Account

    def __str__(self) -> str:
        account = self.account
        return (
            f"acknowledged {self.acknowledged:,}, of those sent again {self.resent}, "
            f"lost {self.lost}, stuck {self.stuck}, begun more than once {self.begun_again}, "
            f"no enqueue for {self.enqueue_gap_seconds:.1f} s, "
            f"no start for {self.run_gap_seconds:.1f} s; "
            f"accepted settles {account.settled:,}, settled twice {account.settled_twice}, "
            f"stale {account.stale}, held twice {account.overlapping}; "
            f"trouble told by one worker at most {max(self.told.values(), default=0)} times"
        )


def failover(
    place: Path,
    *,
    before_seconds: float,
    away_seconds: float,
    after_seconds: float,
    workers: int = 2,
    producers: int = 8,
    is_synchronous: bool = True,
    behind_seconds: float = 0.0,
) -> TakenOver:
    """End the primary as a crash would, wait, promote the standby, go on for a while.

    `behind_seconds`: what the standby lacks, if it is asynchronous; on one machine, it lacks next
    to nothing by itself.
    """
    logs = [f"worker-{number}.log" for number in range(workers)]
    with pair() as (primary, standby), Scene(_url(primary, standby), place) as scene:
        if is_synchronous:
            make_synchronous(primary)
        with ExitStack() as running, Producers(scene, producers) as made:
            for log in logs:
                running.enter_context(
                    scene.worker("-c", "10", "--lease", str(LEASE_SECONDS), log=log)
                )
            until(lambda: len(scene.lines()) > 10)
            PAUSE.wait(before_seconds)
            if behind_seconds:
                stop_following(standby)
                PAUSE.wait(behind_seconds)
            primary.stop(immediate=True)
            PAUSE.wait(away_seconds)
            standby.promote()
            at_least = len(made.acknowledged) + 10 * producers
            until(lambda: len(made.acknowledged) >= at_least, DRAIN_SECONDS_MAX)
            PAUSE.wait(after_seconds)
            made.stop()
            stuck = scene.drain(DRAIN_SECONDS_MAX)
        found = [scene.app.get(id) for id in made.acknowledged]
        lines = scene.lines()
        starts = Counter(line[1] for line in lines if line[0] == "start")
        return TakenOver(
            acknowledged=len(found),
            resent=len(set(made.resent)),
            lost=sum(job is None or job.state != "succeeded" for job in found),
            stuck=stuck,
            begun_again=sum(count > 1 for count in starts.values()),
            enqueue_gap_seconds=_longest(made.moments),
            run_gap_seconds=_longest([float(line[3]) for line in lines if line[0] == "start"]),
            told=_told(scene.log(log) for log in logs),
            account=scene.account(),
        )


@contextmanager
def pair() -> Iterator[tuple[ThrowAwayPostgres, ThrowAwayPostgres]]:
    """A primary, and a standby that follows it."""
    with (
        ThrowAwayPostgres(durable=True) as primary,
        ThrowAwayPostgres(durable=True, standby_of=primary) as standby,
    ):
        yield primary, standby


def make_synchronous(primary: ThrowAwayPostgres) -> None:
    """Have the primary acknowledge only what its standby has, from now on."""
    with psycopg.connect(primary.url, autocommit=True) as connection:
        # Not among the settings of its start: the standby would have copied it, and would wait
        # for a standby of its own.
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        connection.execute("SELECT pg_reload_conf()")
        until(lambda: _is_synchronous(connection))


def stop_following(standby: ThrowAwayPostgres) -> None:
    """Have a standby fall behind, as one does whose network is slow."""
    with psycopg.connect(standby.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
        connection.execute("SELECT pg_reload_conf()")
        until(lambda: not connection.execute("SELECT pid FROM pg_stat_wal_receiver").fetchall())


def _is_synchronous(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
    # This backend has read the setting, and so has the one that feeds the standby.
    row = connection.execute(
        "SELECT current_setting('synchronous_standby_names'), sync_state FROM pg_stat_replication"
    ).fetchone()
    return row == ("*", "sync")


def _url(*servers: ThrowAwayPostgres) -> str:
    # A standby has the password of its primary.
    user = urlsplit(servers[0].url).netloc.rpartition("@")[0]
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"postgresql://{user}@{hosts}/postgres?target_session_attrs=read-write"


class Producers:
    """Threads that make a job every few milliseconds, and send it until it is acknowledged."""

    def __init__(self, scene: Scene, count: int) -> None:
        self._app = rowlock.App(scene.url)
        self._payload = {"journal": str(scene.journal)}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._produce) for _ in range(count)]
        self.acknowledged: list[str] = []
        self.resent: list[str] = []
        self.moments: list[float] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._app.close()

    def stop(self) -> None:
        """Make nothing more; what was begun is sent until it is acknowledged."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        while not self._over.wait(0.01):
            id = new_id()
            while not self._is_acknowledged(id):
                PAUSE.wait(0.05)
            self.acknowledged.append(id)
            self.moments.append(time.monotonic())

    def _is_acknowledged(self, id: str) -> bool:
        try:
            self._app.enqueue("append", self._payload, id=id)
        except rowlock.StoreUnavailable:
            # It may have been committed all the same.
            self.resent.append(id)
            return False
        return True


def _longest(moments: list[float]) -> float:
    return max((late - early for early, late in itertools.pairwise(sorted(moments))), default=0.0)


def _told(logs: Iterator[str]) -> dict[str, int]:
    told: Counter[str] = Counter()
    for log in logs:
        lines = [line for line in log.splitlines() if any(word in line for word in TROUBLE)]
        # `TIME LEVEL LOGGER: what can't be done, trying again ...`
        whats = (line.split(": ", 1)[1] for line in lines)
        told |= Counter(what.split(",")[0].split(" while ")[0] for what in whats)
    return dict(told)
