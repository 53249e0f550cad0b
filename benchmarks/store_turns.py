"""Compares two source trees by turns: what a job costs PostgreSQL from its enqueue to its end.

    python -m benchmarks.store_turns /path/of/before/src src --jobs 50000 --turns 5

No worker runs. An agent, one process per tree, enqueues the jobs of a turn and then claims and
settles them in blocks, as a worker does. Printed per tree: the medians of CPU microseconds of the
server and bytes of WAL per job. After the last turn it prints the sizes of tables and indexes, dead
rows, and the share of updates that touched no index.

Other questions:

    --block 8       claims of eight jobs each
    --holders 3     so many other workers hold a block of jobs meanwhile
    --held          a transaction is open elsewhere from the first turn to the last
    --fail          every fourth job fails, and is retried at once
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.turns import Postgres

QUEUE = "default"
SIZES = """
SELECT relation.relname, pg_relation_size(relation.oid)
FROM pg_class AS relation JOIN pg_namespace AS space ON space.oid = relation.relnamespace
WHERE space.nspname = 'rowlock' AND relation.relname ~ '^(job|claim|finished)(_|$)'
    AND relation.relkind IN ('r', 'i')
ORDER BY 1
"""
ROWS = """
SELECT relname, n_live_tup, n_dead_tup, n_tup_upd, n_tup_hot_upd
FROM pg_stat_user_tables
WHERE schemaname = 'rowlock' AND relname IN ('job', 'claim', 'finished')
ORDER BY 1
"""


def serve(url: str, block: int, holders: int, *, fail: bool) -> None:
    """The agent: a number of jobs per line in, a line out when they have ended."""
    from rowlock.bench.tasks import PAYLOAD, bench_app, noop

    app = bench_app(url, schema="rowlock")
    app.migrate()
    for line in sys.stdin:
        jobs = int(line)
        app.enqueue_many([noop.job(**PAYLOAD) for _ in range(jobs)])
        spent = drain(app.store, block, holders, fail=fail)
        print(json.dumps(spent), flush=True)


def drain(store: Any, block: int, holders: int, *, fail: bool) -> list[float]:
    """Claim and settle until nothing is left. Returns what each look took, in seconds."""
    from rowlock.store.ops.claim import ClaimRequest, claim_seen, look

    held = [
        store.claim(worker=f"holder-{number}", queues=[QUEUE], limit=block, begun=False)
        for number in range(holders)
    ]
    request = ClaimRequest("worker", {QUEUE: block}, None, None, block, 60_000_000)
    looks: list[float] = []
    while (view := store.run(look(queues=[QUEUE], kinds=None))).lanes:
        looks.append(view.spent)
        while view.lanes and len(looks) < 10_000:
            claimed = store.run(claim_seen(request, view))
            settle(store, claimed.leases, fail=fail)
            view = claimed.view
            if holders:
                looks.append(store.run(look(queues=[QUEUE], kinds=None)).spent)
    for leases in held:
        settle(store, leases, fail=False)
    return looks


def settle(store: Any, leases: Sequence[Any], *, fail: bool) -> None:
    failed = [lease for lease in leases[::4] if lease.row.attempt == 1] if fail else []
    for lease in failed:
        store.fail(lease, "no", delay=0)
    names = {lease.id for lease in failed}
    good = [lease for lease in leases if lease.id not in names]
    if good:
        store.succeed(good)


class Agent:
    """A process that runs the code of one tree on a database of its own."""

    def __init__(self, tree: Path, url: str, options: Sequence[str]) -> None:
        root = Path(__file__).resolve().parents[1]
        self.url = url
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.store_turns", "--agent", url, *options],
            env={**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{root}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def work(self, jobs: int) -> list[float]:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(jobs, file=self._process.stdin, flush=True)
        looks: list[float] = json.loads(self._process.stdout.readline())
        return looks

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@contextmanager
def held_transaction(url: str, *, is_wanted: bool) -> Iterator[None]:
    """A transaction that has written and stays open."""
    if not is_wanted:
        yield
        return
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT pg_current_xact_id(), count(*) FROM pg_class")
        yield


def measure(agent: Agent, where: Postgres, jobs: int) -> dict[str, float]:
    server, wal = where.cpu(), where.wal()
    looks = agent.work(jobs)
    return {
        "server µs": (where.cpu() - server) / jobs * 1e6,
        "WAL B": (where.wal() - wal) / jobs,
        "look µs": statistics.median(looks) * 1e6,
    }


def show_tables(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        for name, live, dead, updates, hot in connection.execute(ROWS):
            print(
                f"{name:>22}  {live:>9,} rows {dead:>9,} dead {updates:>9,} updates {hot:>9,} hot"
            )
        for name, size in connection.execute(SIZES):
            print(f"{name:>22}  {size / 1e6:>9,.1f} MB")


def compare(given: argparse.Namespace, options: Sequence[str]) -> None:
    where = Postgres()
    agents = [Agent(tree.resolve(), where.url(), options) for tree in given.trees]
    found: list[list[dict[str, float]]] = [[] for _ in agents]
    for agent in agents:
        agent.work(2_000)
    with ExitStack() as held:
        for agent in agents:
            held.enter_context(held_transaction(agent.url, is_wanted=given.held))
        for turn in range(given.turns):
            # The order alternates, so that no tree always comes after the other.
            for place in range(len(agents)) if turn % 2 == 0 else reversed(range(len(agents))):
                found[place].append(measure(agents[place], where, given.jobs))
    for name in found[0][0]:
        medians = [statistics.median(each[name] for each in figures) for figures in found]
        ends = [f"{figures[0][name]:,.1f} → {figures[-1][name]:,.1f}" for figures in found]
        shown = "  ".join(f"{median:>10,.1f}" for median in medians)
        print(f"{name:>10}  {shown}   first → last: {'   '.join(ends)}")
    for agent in agents:
        agent.close()
        show_tables(agent.url)
    where.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("trees", nargs="*", type=Path)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--block", type=int, default=500)
    parser.add_argument("--holders", type=int, default=0)
    parser.add_argument("--held", action="store_true")
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("--agent", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.agent:
        serve(given.agent, given.block, given.holders, fail=given.fail)
        return
    fail = ["--fail"] if given.fail else []
    compare(given, ["--block", str(given.block), "--holders", str(given.holders), *fail])


if __name__ == "__main__":
    main()
