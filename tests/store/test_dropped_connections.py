"""Idle connections that the server has closed, for every verb: nobody hears of it.

A pooler, a firewall, a restart or `pg_terminate_backend` closes them. What was sent on such a
connection and not committed is undone with it, so the verb is begun anew on another one.
"""

from __future__ import annotations

import asyncio
import inspect
import select
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from rowlock.chaos.proxy import FaultyProxy
from rowlock.errors import StoreUnavailable
from rowlock.job import JobState, Lease
from rowlock.lifecycle import Succeeded
from rowlock.store import JobFilter, Settlement, Store, open_store
from rowlock.store.local_state import LocalState
from rowlock.store.methods import Verb
from rowlock.store.ops import dead, events, hold, recover
from rowlock.store.ops.claim import ClaimRequest, claim_seen
from rowlock.store.ops.claim import look as look_for_lanes
from rowlock.store.ops.limits import ChosenNumbers, DeclaredLimit, LimitNumbers
from rowlock.store.ops.schedule import new_schedule
from rowlock.store.options import new_job
from rowlock.store.postgres import engine
from rowlock.store.postgres.connections import BoundedConnection
from rowlock.store.steps import Op
from tests.store.jobs import enqueue, made, put_in_state, start, stored
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.direct("ends the process behind a connection")


def _schedule(store: Store) -> str:
    cron = {"cron": "@hourly", "timezone": "UTC", "missed": "once"}
    store.put_schedule(new_schedule("s", new_job(kind="k", payload="{}"), **cron))
    return "s"


def _limit(store: Store) -> str:
    store.declare_limits([_DECLARED])
    return _DECLARED.name


def _dead(store: Store) -> str:
    return put_in_state(store, JobState.DEAD)


_DECLARED = DeclaredLimit("pool", LimitNumbers(concurrency=1))
Call = Callable[[Store, Any], Any]


# What each needs, and how it is called.
def _workflow(store: Store) -> str:
    id = put_in_state(store, JobState.WAITING)
    workflow = stored(store, id).workflow
    assert workflow is not None
    return workflow


VERBS: dict[str, tuple[Callable[[Store], Any], Call]] = {
    "adopt_orphans": (start, lambda store, _: store.adopt_orphans(["default"])),
    "announce": (
        start,
        lambda store, _: store.announce(worker="w", queues=["q"], kinds=["k"], host="h", pid=1),
    ),
    "cancel_workflow": (_workflow, lambda store, flow: store.cancel_workflow(flow)),
    "get_workflow": (_workflow, lambda store, flow: store.get_workflow(flow)),
    "retry_workflow": (_workflow, lambda store, flow: store.retry_workflow(flow)),
    "workflow_graph": (_workflow, lambda store, flow: store.workflow_graph(flow)),
    "workflow_jobs": (_workflow, lambda store, flow: store.workflow_jobs(flow)),
    "workflows": (_workflow, lambda store, _: store.workflows()),
    "cancel": (enqueue, lambda store, job: store.cancel(job.id)),
    "claim": (enqueue, lambda store, _: store.claim(worker="w", queues=["default"])),
    "crash": (start, lambda store, lease: store.crash([lease], "segfault")),
    "declare_limits": (start, lambda store, _: store.declare_limits([_DECLARED])),
    "declare_schedules": (_schedule, lambda store, _: store.declare_schedules([], kinds=["k"])),
    "delete": (_dead, lambda store, job_id: store.delete(job_id)),
    "delete_schedule": (_schedule, lambda store, name: store.delete_schedule(name)),
    "depart": (start, lambda store, _: store.depart("w1")),
    "enqueue": (start, lambda store, _: store.enqueue([made()])),
    "fail": (start, lambda store, lease: store.fail(lease, "boom")),
    "finish_cancelled": (start, lambda store, lease: store.finish_cancelled(lease)),
    "fire_due": (_schedule, lambda store, _: store.fire_due()),
    "get": (enqueue, lambda store, job: store.get(job.id)),
    "heartbeat": (start, lambda store, lease: store.heartbeat([lease])),
    "limit_keys": (_limit, lambda store, name: store.limit_keys(name)),
    "limits": (_limit, lambda store, _: store.limits()),
    "list": (enqueue, lambda store, _: store.list(JobFilter())),
    "list_schedules": (_schedule, lambda store, _: store.list_schedules()),
    "log": (start, lambda store, lease: store.log(lease, ["line"])),
    "pause": (enqueue, lambda store, _: store.pause("default")),
    "pause_limit": (_limit, lambda store, name: store.pause_limit(name)),
    "pause_schedule": (_schedule, lambda store, name: store.pause_schedule(name)),
    "progress": (start, lambda store, lease: store.progress(lease, fraction=0.5)),
    "prune": (_dead, lambda store, _: store.prune()),
    "put_schedule": (start, lambda store, _: _schedule(store)),
    "read_log": (start, lambda store, lease: store.read_log(lease.id)),
    "recover": (start, lambda store, _: store.recover()),
    "release": (start, lambda store, lease: store.release(lease)),
    "release_worker": (start, lambda store, _: store.release_worker("w1")),
    "reroute": (enqueue, lambda store, job: store.reroute(job.id, "other")),
    "reschedule": (enqueue, lambda store, job: store.reschedule(job.id, delay=60)),
    "resume": (enqueue, lambda store, _: store.resume("default")),
    "resume_limit": (_limit, lambda store, name: store.resume_limit(name)),
    "resume_schedule": (_schedule, lambda store, name: store.resume_schedule(name)),
    "retry": (_dead, lambda store, job_id: store.retry(job_id)),
    "retry_dead": (_dead, lambda store, _: store.retry_dead(JobFilter())),
    "run_again": (_dead, lambda store, job_id: store.run_again(job_id)),
    "run_now": (enqueue, lambda store, job: store.run_now(job.id)),
    "run_schedule_now": (_schedule, lambda store, name: store.run_schedule_now(name)),
    "set_limit": (
        _limit,
        lambda store, name: store.set_limit(name, None, ChosenNumbers(concurrency=2)),
    ),
    "set_order": (enqueue, lambda store, _: store.set_order("default", "created")),
    "settle": (start, lambda store, lease: store.settle([Settlement(lease, Succeeded())])),
    "stats": (enqueue, lambda store, _: store.stats()),
    "succeed": (start, lambda store, lease: store.succeed([lease])),
    "unset_limit": (_limit, lambda store, name: store.unset_limit(name)),
    "why": (enqueue, lambda store, job: store.why(job.id)),
    "workers": (start, lambda store, _: store.workers()),
}


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    store = open_store(postgres_url)
    yield store
    store.close()


def drop_connections(url: str) -> None:
    """End every other connection to the database, and wait until these are gone."""
    with psycopg.connect(url, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
        assert ended, "nobody was connected"
        left = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (%s)"
        pids = [pid for pid, _ in ended]
        wait_until(lambda: connection.execute(left, [pids]).fetchone() == (0,), seconds=60)


class Twins:
    """The coroutines of a store under the names of the blocking methods, on one loop."""

    def __init__(self, store: Store, runner: asyncio.Runner) -> None:
        self._store = store
        self._runner = runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        twin = getattr(self._store, f"a{name}")
        return lambda *given, **named: self._runner.run(twin(*given, **named))


def test_every_verb_is_here():
    """A verb that is added later must be tried too."""
    verbs = [each for _, each in inspect.getmembers(Store) if isinstance(each, Verb)]

    assert {each.name for each in verbs if not each.is_async} | {"enqueue"} == set(VERBS)


COLOURS = ("blocking", "async")
NOTICES = ("noticed", "unnoticed")


@pytest.fixture
def store_of_verbs(
    store: Store, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Store:
    """Where it is not noticed before, the connection is lost in the middle of the verb."""
    if request.param == "unnoticed":
        monkeypatch.setattr(engine, "is_alive", lambda _: True)
        store.engine.after_fork()
    return store


@pytest.mark.parametrize(
    ("name", "colour", "store_of_verbs"),
    [
        (name, colour, noticed)
        for number, name in enumerate(VERBS)
        for colour, noticed in zip(COLOURS, NOTICES[:: 1 if number % 2 else -1], strict=True)
    ],
    indirect=["store_of_verbs"],
)
def test_a_verb_after_its_connection_was_dropped(
    store_of_verbs: Store, postgres_url: str, name: str, colour: str
):
    """It does what it is to do.

    Each verb in both colours, noticed and unnoticed, but not in all four: whether a verb may be
    sent again is its own affair, and who sends it again is the colour's.
    """
    store = store_of_verbs
    prepare, verb = VERBS[name]
    with asyncio.Runner() as runner:
        twin: Any = store if colour == "blocking" else Twins(store, runner)
        needed = prepare(store)
        twin.stats()
        drop_connections(postgres_url)
        try:
            verb(twin, needed)
        finally:
            runner.run(store.aclose())


def _claimed(store: Store, _: Any) -> Op[Any]:
    """A worker's claim: one statement, which is a transaction of its own."""
    view = store.run(look_for_lanes(queues=["default"], kinds=None))
    limits = {"default": 1}
    request = ClaimRequest("w", limits, None, None, limit=1, lease=30_000_000)
    return claim_seen(request, view)


# Verbs of workers and servers, which are not methods of the store.
OPS: dict[str, tuple[Callable[[Store], Any], Callable[[Store, Any], Op[Any]]]] = {
    "claim_seen": (enqueue, _claimed),
    "report": (start, lambda _, lease: hold.report([hold.Report(lease, lines=["a"])], lease=30)),
    "write_events": (start, lambda *_: events.write_events([])),
    "sweep": (start, lambda *_: recover.sweep(LocalState(), {})),
    "release_unknown": (start, lambda *_: recover.release_unknown("w1", known=())),
    "dead_groups": (_dead, lambda *_: dead.dead_groups()),
}


@pytest.mark.parametrize("colour", ["blocking", "async"])
@pytest.mark.parametrize("name", OPS)
def test_an_op_after_its_connection_was_dropped(
    store: Store, postgres_url: str, name: str, colour: str
):
    """Also those of a single statement, which could not be repeated: nothing was sent."""
    prepare, make = OPS[name]
    with asyncio.Runner() as runner:
        op = make(store, prepare(store))
        if colour == "async":
            runner.run(store.astats())
        drop_connections(postgres_url)
        try:
            store.run(op) if colour == "blocking" else runner.run(store.arun(op))
        finally:
            runner.run(store.aclose())


def test_a_lost_commit_is_not_begun_anew(store: Store, monkeypatch: pytest.MonkeyPatch):
    """It may have been done, and was: whoever called hears that nobody knows."""
    lease: Lease = start(store)
    execute = BoundedConnection.execute
    is_due = [True]

    def execute_unheard(connection: BoundedConnection, query: Any, *rest: Any, **named: Any) -> Any:
        answer = execute(connection, query, *rest, **named)
        if query == "COMMIT" and is_due:
            is_due.clear()
            raise psycopg.OperationalError("connection socket closed")
        return answer

    monkeypatch.setattr(BoundedConnection, "execute", execute_unheard)
    with pytest.raises(StoreUnavailable):
        store.log(lease, ["once"])

    assert [line.text for line in store.read_log(lease.id)] == ["once"]


def test_a_connection_whose_end_has_not_arrived_yet(postgres_url: str):
    """The server says that it closes it before it does; between the two, it is no more used."""
    with FaultyProxy(postgres_url) as proxy:
        store = open_store(proxy.url)
        store.stats()
        (connection,) = store.engine.pool.idle
        proxy.keeps_clients = True
        drop_connections(postgres_url)
        wait_until(lambda: select.select([connection.fileno()], [], [], 0)[0] != [])

        store.run(events.write_events([]))

        assert store.engine.pool.idle != [connection]
        store.close()


def test_an_idle_connection_is_used_again(store: Store):
    """What is alive is not replaced: its process stays the same."""
    store.stats()
    pids = set()
    for _ in range(5):
        connection = store.engine.pool.take()
        pids.add(connection.info.backend_pid)
        store.engine.pool.give(connection, is_sound=True)
        store.stats()

    assert len(pids) == 1
