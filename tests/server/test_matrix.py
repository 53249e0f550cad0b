"""Every route, by every sort of caller, generated from the table of routes: who may do what.

All that there is belongs to the tenant acme and is marked. Whoever may not see it never sees the
mark, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from rowlock.ids import new_id
from rowlock.job import Job
from rowlock.limits import TENANT, chosen_numbers
from rowlock.server.gate import Reach
from rowlock.server.routes import ROUTES
from rowlock.server.routing import AnyRoute
from rowlock.store.ops.audit import Actor, Deed, audited
from rowlock.store.ops.bulk import BulkAction, selection, start_bulk
from rowlock.store.ops.manage import job_filter, pause
from rowlock.store.ops.schedule import new_schedule
from rowlock.store.ops.tokens import new_token
from rowlock.store.options import new_job
from rowlock.tokens import Scope
from tests.support.limits import declare, put
from tests.support.server import Running

MARK = "canary"
QUEUE = f"{MARK}/queue"
TENANTS = (None, "acme", "zoo")
CALLERS = [None, *((scope, tenant) for tenant in TENANTS for scope in Scope)]
API = [route for route in ROUTES if not route.is_page]
# Their path names something that is a tenant's.
OWNED = ("{id}", "{name}")


@dataclass
class World:
    """Marked things of acme's, made anew for each request."""

    running: Running
    job: Job | None = None

    def make_job(self, *, is_running: bool = False, is_dead: bool = False) -> Job:
        store = self.running.app.store
        new = new_job(
            kind="marked",
            payload=f'{{"secret": "{MARK}"}}',
            queue=QUEUE,
            tenant="acme",
            key=f"{MARK} {new_id()}",
            tags=[MARK],
        )
        (self.job,) = store.enqueue([new])
        if is_running or is_dead:
            leases = store.claim(worker=MARK, queues=[QUEUE], limit=1_000)
            lease = next(lease for lease in leases if lease.id == self.job.id)
            store.log(lease, [MARK])
            if is_dead:
                store.fail(lease, MARK, permanent=True)
        self.job = store.get(self.job.id)
        assert self.job is not None
        return self.job

    def make_bulk(self) -> str:
        wanted = selection(BulkAction.CANCEL, None, job_filter(queue=QUEUE, tenant="acme"))
        actor = Actor(MARK, tenant="acme")
        bulk = start_bulk(wanted, id=new_id(), expected=10_000, actor=actor)
        return self.running.app.store.run(bulk).id

    def make_schedule(self) -> str:
        new = new_schedule(
            "nightly", new_job(kind=MARK, payload="{}", tenant="acme"), cron="@daily"
        )
        return self.running.app.store.put_schedule(new).name

    def make_token(self) -> str:
        new = new_token(name=MARK, scopes=["read"], tenant="acme")
        return self.running.app.store.run(new.add()).id

    def make_limit(self) -> str:
        store = self.running.app.store
        declare(store, "exports", per=TENANT, weights={MARK: 2})
        store.set_limit("exports", MARK, chosen_numbers(key=MARK, concurrency=1))
        store.pause_limit("exports", "acme", reason=MARK)
        put(store, "exports", MARK, tenant="acme", queue=QUEUE)
        return "exports"

    def make_workflow(self) -> str:
        with self.running.app.workflow(MARK, tenant="acme", meta={"secret": MARK}) as flow:
            first = flow.add(_node("marked"))
            flow.add(_node("after"), after=first)
        self.job = self.running.app.get(first.id)
        return flow.id

    def make_audit(self) -> None:
        deed = Deed(Actor(MARK, tenant="acme"), "queue.pause", MARK)
        self.running.app.store.run(audited(pause("quiet"), deed))


def _node(kind: str) -> Any:
    return new_job(kind=kind, payload=f'{{"secret": "{MARK}"}}', queue=QUEUE, tags=[MARK])


Request = tuple[str, Any]


def of_job(world: World, route: AnyRoute, **options: bool) -> Request:
    return route.path.replace("{id}", world.make_job(**options).id), None


def of_lease(world: World, route: AnyRoute) -> Request:
    job = world.make_job(is_running=True)
    lease = {"id": job.id, "token": job.token}
    if route.operation == "extendLeases":
        return route.path, {"leases": [{**lease, "log": ["x"]}]}
    return route.path, {"settlements": [{**lease, "outcome": "succeeded"}]}


def with_job(body: Any) -> Callable[[World, AnyRoute], Request]:
    def request(world: World, route: AnyRoute) -> Request:
        world.make_job(is_dead=True)
        world.make_job()
        world.make_audit()
        world.make_schedule()
        world.make_token()
        return route.path, body

    return request


# How a request to each route is made; one that is not named has neither a body nor an owner.
REQUESTS: dict[str, Callable[[World, AnyRoute], Request]] = {
    "createJob": with_job({"kind": "x"}),
    "createJobs": with_job({"jobs": [{"kind": "x"}, {"kind": "y"}]}),
    "getJob": lambda world, route: of_job(world, route, is_dead=True),
    "explainJob": of_job,
    "getRelatedJobs": of_job,
    "getJobLog": lambda world, route: of_job(world, route, is_dead=True),
    "deleteJob": of_job,
    "cancelJob": of_job,
    "retryJob": lambda world, route: of_job(world, route, is_dead=True),
    "runJobAgain": lambda world, route: of_job(world, route, is_dead=True),
    "runJobNow": of_job,
    "rescheduleJob": lambda world, route: (of_job(world, route)[0], {"delay": 60}),
    "rerouteJob": lambda world, route: (of_job(world, route)[0], {"queue": "other"}),
    "createBulk": with_job({"action": "cancel", "expected": 10_000}),
    "getBulk": lambda world, route: (route.path.replace("{id}", world.make_bulk()), None),
    "streamEvents": lambda world, route: (
        f"{route.path}?seconds=0&job={world.make_job(is_running=True).id}",
        None,
    ),
    "createLeases": with_job({"worker": "w", "kinds": ["marked"], "limit": 500}),
    "extendLeases": of_lease,
    "settleLeases": of_lease,
    "createSession": lambda world, route: (
        route.path,
        {"token": world.running.tokens["admin", None]},
    ),
    "createToken": with_job({"name": "t", "scopes": ["read"]}),
    "deleteToken": lambda world, route: (route.path.replace("{id}", world.make_token()), None),
}
for operation in ("runSchedule", "pauseSchedule", "resumeSchedule"):
    REQUESTS[operation] = lambda world, route: (
        route.path.replace("{name}", world.make_schedule()), None,
    )  # fmt: skip
for operation, body in (
    ("listLimits", None), ("getLimit", None), ("setLimit", {"concurrency": 2}), ("unsetLimit", {}),
    ("pauseLimit", {"key": "acme"}), ("resumeLimit", {"key": "acme"}),
):  # fmt: skip
    REQUESTS[operation] = lambda world, route, body=body: (
        route.path.replace("{limit}", world.make_limit()), body,
    )  # fmt: skip
for operation in (
    "listWorkflows", "getWorkflow", "getWorkflowGraph", "listWorkflowJobs", "cancelWorkflow",
    "retryWorkflow",
):  # fmt: skip
    REQUESTS[operation] = lambda world, route: (
        route.path.replace("{id}", world.make_workflow()), None,
    )  # fmt: skip
REQUESTS["createWorkflow"] = with_job({"name": "w", "jobs": [{"kind": "x"}]})
for operation in ("pauseQueue", "resumeQueue"):
    REQUESTS[operation] = lambda world, route: (
        route.path.replace("{queue}", quote(QUEUE, safe="")), None,
    )  # fmt: skip


def expected(route: AnyRoute, caller: tuple[Scope, str | None] | None) -> int:
    """The status that a caller gets; 200 stands for any that is good."""
    if route.scopes is None:
        return 200
    if caller is None:
        return 401
    scope, tenant = caller
    if route.scopes and scope is not Scope.ADMIN and scope not in route.scopes:
        return 403
    if route.reach is Reach.SYSTEM and tenant is not None:
        return 403
    is_owned = any(part in route.path for part in OWNED) or route.operation == "streamEvents"
    return 404 if is_owned and tenant == "zoo" else 200


@pytest.mark.parametrize("route", API, ids=lambda route: route.operation)
def test_who_may_do_what(api: Running, route: AnyRoute):
    """Each caller gets what its scope and tenant allow; nobody else sees or changes anything."""
    for caller in CALLERS:
        world = World(api)
        make = REQUESTS.get(route.operation, with_job(None))
        path, body = make(world, route)
        client = api.client() if caller is None else api(caller[0], tenant=caller[1])
        answer = client.request(route.method, path, json=body)
        status = 200 if answer.is_success else answer.status_code

        assert expected(route, caller) == status, (caller, answer.text)
        assert status == 200 or answer.headers["content-type"] == "application/problem+json"
        is_denied = status != 200
        is_foreign = caller is None or caller[1] == "zoo"
        if is_denied or is_foreign:
            assert MARK not in answer.text, caller
            unchanged(world)


def unchanged(world: World) -> None:
    if world.job is not None:
        now = world.running.app.get(world.job.id)
        assert world.job == now


def test_the_owner_sees_the_marks(api: Running):
    """So that the absence of marks means something."""
    for operation in ("listJobs", "getJob", "getJobLog", "listSchedules", "listTokens",
                      "listAudit", "listQueues", "createLeases", "getBulk",
                      "streamEvents", "listWorkflows", "getWorkflow",
                      "listWorkflowJobs"):  # fmt: skip
        (route,) = [route for route in API if route.operation == operation]
        path, body = REQUESTS.get(operation, with_job(None))(World(api), route)
        answer = api("admin", tenant="acme").request(route.method, path, json=body)

        assert MARK in answer.text, operation


def test_every_mutating_route_leaves_a_line(api: Running):
    """Of those that change what is there; a job that is enqueued or run tells of itself.

    A token has no session to end.
    """
    quiet = {"createJob", "createJobs", "createLeases", "extendLeases", "settleLeases"}
    quiet |= {"deleteSession", "createWorkflow"}
    for route in API:
        if route.method == "GET" or route.operation in quiet:
            continue
        path, body = REQUESTS[route.operation](World(api), route)
        before = len(api().get("/v1/audit?limit=200").json()["entries"])
        api().request(route.method, path, json=body).raise_for_status()
        entries = api().get("/v1/audit?limit=200").json()["entries"]

        assert before + 1 == len(entries), route.operation
        assert (
            entries[0]["actor"],
            entries[0]["token_id"],
        ) == ("admin", api.tokens["admin", None].split("_")[1])
