"""Compares two source trees of rowlock by turns: what a job costs in CPU time, on both sides.

    python -m benchmarks.turns /path/of/before/src src --store postgres --jobs 30000 --turns 5

Each turn runs every tree once, on a fresh database, with one worker process. A machine that is busy
or changes its speed then slows all trees alike, and the medians of their ratios can be trusted when
single figures can't. Printed per tree: the medians of CPU microseconds per job of the worker and of
the database server, of enqueuing in one process, jobs per second, and bytes of WAL per job.

An agent, one process per tree, does everything that depends on the tree's code.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

WARM_JOBS = 2_000
ONE_BY_ONE_JOBS = 1_000
LOOK_SECONDS = 0.1
STILL_SECONDS = 120.0


class Agent:
    """A process that runs the code of one tree."""

    def __init__(self, tree: Path, url: str) -> None:
        root = Path(__file__).resolve().parents[1]
        self.environment = {
            **os.environ,
            "PYTHONPATH": f"{tree}{os.pathsep}{root}",
            "ROWLOCK_DATABASE_URL": url,
            "ROWLOCK_SCRATCH_SCHEMA": "rowlock",
        }
        self._process = self._started(
            [sys.executable, "-m", "benchmarks.turns", "--agent"], pipe=True
        )
        self.worker = self._started([sys.executable, "-m", "rowlock.bench.worker", "1"], pipe=False)

    def _started(self, command: list[str], *, pipe: bool) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if pipe else subprocess.DEVNULL,
            text=True,
        )

    def ask(self, call: str, number: int = 0) -> dict[str, Any]:
        """Have it do one thing, and return its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([call, number]), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def wait(self) -> None:
        """Wait until no job is left."""
        end = time.monotonic() + STILL_SECONDS
        while self.ask("left")["left"]:
            assert time.monotonic() < end, "the worker does not drain the queue"
            time.sleep(LOOK_SECONDS)

    def close(self) -> None:
        for process in (self.worker, self._process):
            assert process.stdin is not None
            process.stdin.close()
            process.wait(STILL_SECONDS)


def serve() -> None:
    """The agent: one line of JSON in, one line out."""
    from rowlock.bench.tasks import PAYLOAD, bench_app, noop

    app = bench_app(None, schema="rowlock")
    app.migrate()
    for line in sys.stdin:
        call, number = json.loads(line)
        began, used = time.perf_counter(), time.process_time()
        left = False
        if call == "many":
            app.enqueue_many([noop.job(**PAYLOAD) for _ in range(number)])
        elif call == "one":
            for _ in range(number):
                noop.enqueue(**PAYLOAD)
        elif call == "pause":
            app.pause("default")
        elif call == "resume":
            app.resume("default")
        else:
            left = any(app.list(state=state, limit=1).jobs for state in ("ready", "running"))
        answer = {
            "seconds": time.perf_counter() - began,
            "cpu": time.process_time() - used,
            "left": left,
        }
        print(json.dumps(answer), flush=True)


class Postgres:
    """A server of its own, with a fresh database per agent."""

    def __init__(self) -> None:
        # Not above: an agent runs with another tree, which may not have it there.
        from rowlock.testing.postgres import ThrowAwayPostgres

        self._server = ThrowAwayPostgres()
        self._server.start()
        self._base = self._server.url
        self._admin = psycopg.connect(self._base, autocommit=True)
        self._number = 0
        row = self._admin.execute("SHOW data_directory").fetchone()
        assert row is not None
        self._pid = int((Path(row[0]) / "postmaster.pid").read_text().split()[0])

    def url(self) -> str:
        self._number += 1
        name = f"turn{self._number}"
        self._admin.execute(f"CREATE DATABASE {name}".encode())
        head, _, _ = self._base.rpartition("/")
        return f"{head}/{name}"

    def cpu(self) -> float:
        return _cpu_of(self._pid)

    def wal(self) -> int:
        row = self._admin.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        self._admin.close()
        self._server.stop()


class Sqlite:
    """A fresh file per agent."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="rowlock-turns")
        self._number = 0

    def url(self) -> str:
        self._number += 1
        return f"sqlite:///{self._directory.name}/turn{self._number}.db"

    def cpu(self) -> float:
        return 0.0

    def wal(self) -> int:
        return 0

    def close(self) -> None:
        self._directory.cleanup()


@contextmanager
def place(store: str) -> Iterator[Postgres | Sqlite]:
    made = Postgres() if store == "postgres" else Sqlite()
    try:
        yield made
    finally:
        made.close()


def measure(tree: Path, where: Postgres | Sqlite, jobs: int) -> dict[str, float]:
    """Enqueue and drain once with the code of a tree."""
    agent = Agent(tree, where.url())
    try:
        agent.ask("many", WARM_JOBS)
        agent.wait()
        agent.ask("pause")
        agent.ask("one", ONE_BY_ONE_JOBS // 10)
        one = agent.ask("one", ONE_BY_ONE_JOBS)
        many = agent.ask("many", jobs)
        total = jobs + ONE_BY_ONE_JOBS + ONE_BY_ONE_JOBS // 10
        worker, server, wal = _used(agent), where.cpu(), where.wal()
        began = time.perf_counter()
        agent.ask("resume")
        agent.wait()
        took = time.perf_counter() - began
        return {
            "worker µs": (_used(agent) - worker) / total * 1e6,
            "server µs": (where.cpu() - server) / total * 1e6,
            "WAL B": (where.wal() - wal) / total,
            "jobs/s": total / took,
            "one by one µs": one["seconds"] / ONE_BY_ONE_JOBS * 1e6,
            "one by one CPU µs": one["cpu"] / ONE_BY_ONE_JOBS * 1e6,
            "many CPU µs": many["cpu"] / jobs * 1e6,
        }
    finally:
        agent.close()


def _used(agent: Agent) -> float:
    return _cpu_of(agent.worker.pid)


def _cpu_of(pid: int) -> float:
    """The CPU time of a process and its family."""
    from rowlock.testing.processes import cpu_seconds

    return cpu_seconds(pid) or 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("trees", nargs="*", type=Path)
    parser.add_argument("--store", choices=["postgres", "sqlite"], default="postgres")
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--agent", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.agent:
        serve()
        return
    trees = [tree.resolve() for tree in given.trees]
    found: dict[Path, list[dict[str, float]]] = {tree: [] for tree in trees}
    with place(given.store) as where:
        for turn in range(given.turns):
            # The order alternates, so that no tree always comes after the other.
            for tree in trees if turn % 2 == 0 else trees[::-1]:
                found[tree].append(measure(tree, where, given.jobs))
    for name in found[trees[0]][0]:
        medians = [statistics.median(each[name] for each in found[tree]) for tree in trees]
        ratios = [f"{median / medians[0]:.2f}" for median in medians[1:] if medians[0]]
        shown = "  ".join(f"{median:>10,.1f}" for median in medians)
        print(f"{name:>20}  {shown}  {' '.join(ratios)}")


if __name__ == "__main__":
    main()
