"""Workflows on PostgreSQL, while many connections end, cancel, retry and add jobs at once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import psycopg
import pytest

import rowlock
from rowlock import config
from rowlock.errors import InvalidTransition, LeaseLost, NotFound
from rowlock.job import Lease
from rowlock.lifecycle import Failed, Released, Succeeded
from rowlock.store import Settlement
from rowlock.store.ops.workflow_manage import retry_workflow, tend_workflows
from rowlock.store.steps import Statement, Steps, writing
from rowlock.workflow import Growth
from tests.mutants import MUTANTS

THREADS = 4
STEPS = 60
WANTS: tuple[dict[str, Any], ...] = (
    {},
    {"if_dead": "cancel"},
    {"if_dead": "run"},
    {"when": "ended"},
    {"when": "dead"},
)
# Jobs that wait for another number of parents than have not ended as they want, or for none.
MISCOUNTED = """
SELECT job.id::text, job.pending, (
    SELECT count(*)
    FROM rowlock.edge AS edge
        LEFT JOIN rowlock.job AS live ON live.id = edge.parent
        LEFT JOIN rowlock.finished AS ended ON ended.id = edge.parent
    WHERE edge.child = job.id AND NOT edge.is_met
        AND (live.id IS NOT NULL OR (ended.state = 'dead' AND edge.wants < 3)
            OR (ended.state = 'cancelled' AND edge.wants < 4))
) AS wanted
FROM rowlock.job AS job
WHERE job.held_by = 3
"""
# A job that runs, and a parent of it that has not ended.
EARLY = """
SELECT edge.parent::text
FROM rowlock.edge AS edge JOIN rowlock.job AS live ON live.id = edge.parent
WHERE edge.child = %s AND NOT edge.is_met AND edge.wants < 5
"""


class Crowd:
    """Some threads, each with its own store, and what they have done."""

    def __init__(self, url: str, apps: list[rowlock.App], seed: int) -> None:
        self._url = url
        self._apps = apps
        self._seed = seed
        self._lock = threading.Lock()
        self.flows: list[str] = []
        self.jobs: list[str] = []
        self.counts: Counter[str] = Counter()
        self.early: list[tuple[str, str]] = []
        self.errors: list[BaseException] = []

    def run(self) -> None:
        """Let all act at once, until they are done."""
        threads = [
            threading.Thread(target=self._act, args=(number, app))
            for number, app in enumerate(self._apps)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _act(self, number: int, app: rowlock.App) -> None:
        chance = Random(f"{self._seed} {number}")
        try:
            with psycopg.connect(self._url, autocommit=True) as watch:
                for _ in range(STEPS):
                    self._step(chance, app, watch)
        except BaseException as error:  # noqa: BLE001  # the test raises it
            self.errors.append(error)

    def _step(self, chance: Random, app: rowlock.App, watch: psycopg.Connection[Any]) -> None:
        acts = {
            "work": 12, "create": 3, "cancel": 2, "retry": 3, "cancel flow": 1, "retry flow": 2,
            "tend": 1,
        }  # fmt: skip
        act = chance.choices(list(acts), list(acts.values()))[0]
        try:
            match act:
                case "work":
                    self._work(chance, app, watch)
                case "create":
                    self._create(chance, app)
                case "cancel":
                    app.cancel(self._one(chance, self.jobs))
                case "retry":
                    app.retry(self._one(chance, self.jobs))
                case "cancel flow":
                    app.cancel_workflow(self._one(chance, self.flows))
                case "retry flow":
                    app.retry_workflow(self._one(chance, self.flows))
                case _:
                    app.store.run(tend_workflows())
            self.counts[act] += 1
        except (InvalidTransition, NotFound, LeaseLost, IndexError) as error:
            self.counts[type(error).__name__] += 1

    def _one(self, chance: Random, known: list[str]) -> str:
        with self._lock:
            return chance.choice(known)

    def _create(self, chance: Random, app: rowlock.App) -> None:
        task = app.find("node")
        with app.workflow("crowd") as flow:
            nodes: list[Any] = []
            for _ in range(chance.randint(3, 7)):
                after = chance.sample(nodes, min(len(nodes), chance.randint(0, 3)))
                if self.jobs and chance.random() < 0.2:
                    after.append(self._one(chance, self.jobs))
                wants = chance.choice(WANTS) if after else {}
                nodes.append(flow.add(task.job(), after=after, **wants))
        with self._lock:
            self.flows.append(flow.id)
            self.jobs += [node.id for node in nodes]

    def _work(self, chance: Random, app: rowlock.App, watch: psycopg.Connection[Any]) -> None:
        leases = app.store.claim(worker="w", queues=["default"], limit=chance.randint(1, 4))
        for lease in leases:
            for (parent,) in watch.execute(EARLY, [lease.id]).fetchall():
                self.early.append((lease.id, parent))
        settlements: list[Settlement] = []
        for lease in leases:
            how = chance.random()
            if how < 0.55:
                growth = None
                if how < 0.15:
                    plan = Growth(app.find, lease.job, lambda: False)
                    plan.add(app.find("node").job())
                    growth = plan.finished()
                settlements.append(Settlement(lease, Succeeded('"done"'), growth=growth))
            elif how < 0.8:
                settlements.append(Settlement(lease, Failed("Error", "no", permanent=True)))
            else:
                settlements.append(Settlement(lease, Released(0)))
        app.store.settle(settlements)


@pytest.fixture
def apps(postgres_url: str) -> Iterator[list[rowlock.App]]:
    """A store for each thread."""
    with ExitStack() as stack:
        made = [stack.enter_context(rowlock.App(postgres_url)) for _ in range(THREADS)]
        for app in made:
            app.task(name="node", max_attempts=3)(lambda: None)
        made[0].migrate()
        yield made


def miscounted(url: str) -> list[tuple[str, int, int]]:
    """Jobs that wait for another number of jobs than they should, or for none."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(MISCOUNTED).fetchall()
    return [row for row in rows if row[1] != row[2] or row[2] == 0]


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_released_early_or_left(postgres_url: str, apps: list[rowlock.App], seed: int):
    """Settles, cancels, retries, growth and new children of jobs that run, all at once."""
    crowd = Crowd(postgres_url, apps, seed)
    crowd.run()

    assert crowd.errors == []
    assert (crowd.early, miscounted(postgres_url)) == ([], [])
    assert crowd.counts["work"] > STEPS


LOCK_WAITERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


def settle_both_at_once(url: str, apps: list[rowlock.App]) -> list[Lease]:
    """End two parents of one job by statements that begin before either is committed.

    Returns the lease of the job, if it can be claimed afterwards.
    """
    task = apps[0].find("node")
    with apps[0].workflow("pair") as flow:
        pair = flow.map(task.using(queue="pairs").job() for _ in range(2))
        child = flow.add(task.job(), after=pair)
    leases = apps[0].store.claim(worker="w", queues=["pairs"], limit=2)
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as watch:
        holder.execute("SELECT 1 FROM rowlock.job WHERE id = %s FOR UPDATE", [child.id])
        threads = [
            threading.Thread(target=app.store.succeed, args=([lease],))
            for app, lease in zip(apps, leases, strict=False)
        ]
        for thread in threads:
            thread.start()
        while watch.execute(LOCK_WAITERS).fetchall() != [(len(threads),)]:
            assert any(thread.is_alive() for thread in threads)
            time.sleep(0.01)
        holder.rollback()
        for thread in threads:
            thread.join()
    return apps[0].store.claim(worker="w", queues=["default"])


def test_parents_that_end_at_once_release_their_child(postgres_url: str, apps: list[rowlock.App]):
    """By counting. Each sees the other live: by looking, neither would."""
    counted = settle_both_at_once(postgres_url, apps)
    with MUTANTS["released by looking"]():
        looked = settle_both_at_once(postgres_url, apps)

    assert (len(counted), looked) == (1, [])


def test_a_success_since_the_look_is_not_taken_back(
    apps: list[rowlock.App], monkeypatch: pytest.MonkeyPatch
):
    """Another retries the job, and it succeeds, between two statements of a retry of them all."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 1)
    app, other = apps[:2]
    task = app.find("node").using(max_attempts=1)
    with app.workflow("retried") as flow:
        flow.map(task.job() for _ in range(2))
    leases = app.store.claim(worker="w", queues=["default"], limit=2)
    app.store.settle([Settlement(each, Failed("Error", "no", permanent=True)) for each in leases])
    whole = retry_workflow(flow.id)
    seen: list[str] = []

    def steps() -> Steps[int]:
        inner, rows = whole.start(), None
        while True:
            try:
                step = next(inner) if rows is None else inner.send(rows)
            except StopIteration as end:
                return end.value
            rows = yield step
            if isinstance(step, Statement) and step.name == "nodes_to_retry" and rows:
                seen.append(rows[0][0])
                if len(seen) == 2:
                    other.retry(seen[1])
                    held = other.store.claim(worker="w", queues=["default"], limit=2)
                    other.store.succeed([lease for lease in held if lease.id == seen[1]])

    number = app.store.run(writing("retry_workflow", steps))

    assert (number, app.get(seen[1]).state) == (1, "succeeded")
