"""`/v1/workflows`, and jobs of workflows in the calls that lease and settle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.server import Running, make_app

UNKNOWN = "01890000-0000-7000-8000-000000000000"
CRAWL: dict[str, Any] = {
    "name": "crawl",
    "jobs": [
        # Before those that it waits for: the order does not matter.
        {
            "name": "index",
            "kind": "index",
            "after": ["home", "about"],
            "inputs": {"pages": ["home", "about"], "first": "home"},
        },
        {"name": "home", "kind": "fetch", "payload": {"url": "/"}, "queue": "net"},
        {"name": "about", "kind": "fetch", "payload": {"url": "/about"}, "queue": "net"},
        {"kind": "report", "after": ["index"], "when": "ended", "inputs": {"pages": "index"}},
    ],
}


@pytest.fixture(scope="module")
def running(module_url: str) -> Iterator[Running]:
    """A server whose app knows some of the tasks of a workflow, and not `report`."""
    app = make_app(module_url)

    @app.task(max_attempts=1)
    def fetch(url: str) -> str:
        return url

    @app.task
    def index(pages: list[str], first: str) -> int:
        return len(pages) + len(first)

    with Running(app) as running:
        running.make_tokens()
        yield running


def create(api: Running, body: Any, *, tenant: str | None = None, **headers: str) -> httpx.Response:
    """Enqueue a workflow."""
    return api("enqueue", tenant=tenant).post("/v1/workflows", json=body, headers=headers)


def lease(api: Running, *kinds: str) -> list[dict[str, Any]]:
    """Lease jobs of these kinds."""
    asked = {"worker": "w", "kinds": kinds, "limit": 10}
    leases: list[dict[str, Any]] = api("work").post("/v1/leases", json=asked).json()["leases"]
    return leases


def settle(api: Running, leases: list[dict[str, Any]], **how: Any) -> None:
    """Settle leases, by default as succeeded, with the URL of each as its result."""
    settlements = [
        {
            "id": held["id"],
            "token": held["token"],
            **(how or {"outcome": "succeeded", "result": held["payload"]["url"]}),
        }
        for held in leases
    ]
    answer = api("work").post("/v1/leases/settle", json={"settlements": settlements})
    assert answer.json()["settled"] == len(leases), answer.text


def test_a_workflow_over_http(api: Running):
    """From its creation by names to its end: nodes are leased with inputs, and release others."""
    made = create(api, CRAWL)
    flow, jobs = made.json()["id"], made.json()["jobs"]
    early = lease(api, "index", "report")
    pages = lease(api, "fetch")
    settle(api, pages)
    (indexing,) = lease(api, "index")
    settle(api, [indexing], outcome="failed", permanent=True)
    (reporting,) = lease(api, "report")
    client = api("read")
    found = client.get(f"/v1/workflows/{flow}").json()
    graph = client.get(f"/v1/workflows/{flow}/graph").json()
    dead = client.get(f"/v1/workflows/{flow}/jobs?state=dead").json()
    related = client.get(f"/v1/jobs/{jobs['index']}/related").json()

    assert (made.status_code, made.headers["location"]) == (201, f"/v1/workflows/{flow}")
    assert jobs.keys() == {"home", "about", "index"}
    assert (early, {held["id"] for held in pages}) == ([], {jobs["home"], jobs["about"]})
    assert indexing["payload"] == {"pages": ["/", "/about"], "first": "/"}
    assert (indexing["id"], indexing["workflow"]) == (jobs["index"], flow)
    # It runs whatever happened, and the job whose result it would get has none.
    assert reporting["payload"] == {"pages": None}
    assert (found["name"], found["state"]) == ("crawl", "running")
    assert found["counts"]["succeeded"] == {"value": 2, "exact": True}
    assert sorted(stack["kind"] for stack in graph["stacks"]) == ["fetch", "index", "report"]
    assert [job["id"] for job in dead["jobs"]] == [jobs["index"]]
    assert {job["id"] for job in related["waits_for"]} == {jobs["home"], jobs["about"]}
    assert [job["id"] for job in related["waited_for_by"]] == [reporting["id"]]


def test_few_of_many_neighbours_are_listed(api: Running):
    """At most 20 of the jobs that one waits for, and whether there are more."""
    fetches = [
        {"name": f"p{place}", "kind": "fetch", "payload": {"url": "/"}} for place in range(21)
    ]
    last = {"name": "last", "kind": "report", "after": [each["name"] for each in fetches]}
    jobs = create(api, {"name": "wide", "jobs": [*fetches, last]}).json()["jobs"]
    of_last = api("read").get(f"/v1/jobs/{jobs['last']}/related").json()
    of_first = api("read").get(f"/v1/jobs/{jobs['p0']}/related").json()

    assert (len(of_last["waits_for"]), of_last["is_cut"]) == (20, True)
    assert [job["id"] for job in of_first["waited_for_by"]] == [jobs["last"]]
    assert not of_first["is_cut"]


def test_a_workflow_is_retried_and_cancelled(api: Running):
    """The answer says how many jobs, and how the workflow is now. Each leaves a line."""
    made = create(api, CRAWL).json()
    settle(api, lease(api, "fetch"), outcome="failed", permanent=True)
    flow = f"/v1/workflows/{made['id']}"
    why = api("read").get(f"/v1/jobs/{made['jobs']['index']}/why").json()
    dead = api("read").get(flow).json()["state"]
    retried = api().post(f"{flow}/retry").json()
    cancelled = api().post(f"{flow}/cancel").json()
    lines = api().get("/v1/audit?limit=2").json()["entries"]

    assert (why["code"], why["jobs"][0]["kind"], dead) == ("stuck", "fetch", "dead")
    assert (retried["jobs"], retried["workflow"]["state"]) == (2, "running")
    assert (cancelled["jobs"], cancelled["workflow"]["state"]) == (4, "cancelled")
    assert [(line["action"], line["detail"]) for line in lines] == [
        ("workflow.cancel", {"jobs": 4}),
        ("workflow.retry", {"jobs": 2}),
    ]
    assert api().post(f"/v1/workflows/{UNKNOWN}/retry").status_code == 404
    assert api().get("/v1/workflows/x/graph").status_code == 404


def test_workflows_are_listed_in_pages(api: Running):
    """Newest first, by name and state. A tenant's token lists its own."""
    ids = [create(api, {**CRAWL, "name": name}).json()["id"] for name in "abc"]
    own = create(api, CRAWL, tenant="acme").json()["id"]
    first = api("read").get("/v1/workflows?limit=2").json()
    rest = api("read").get(f"/v1/workflows?limit=2&cursor={first['next']}").json()
    listed = [flow["id"] for flow in first["workflows"] + rest["workflows"]]
    by_name = api("read").get("/v1/workflows?name=b&state=running").json()["workflows"]
    of_tenant = api("read", tenant="acme").get("/v1/workflows").json()["workflows"]
    pages = f"/v1/workflows/{own}/jobs?limit=3"
    some = api("read", tenant="acme").get(pages).json()
    others = api("read", tenant="acme").get(f"{pages}&cursor={some['next']}").json()

    assert listed == [own, *reversed(ids)]
    assert [flow["id"] for flow in by_name] == [ids[1]]
    assert [(flow["id"], flow["tenant"]) for flow in of_tenant] == [(own, "acme")]
    assert (len(some["jobs"]), len(others["jobs"])) == (3, 1)


def test_a_workflow_is_sent_again(api: Running):
    """By its id, its key, or the key of the request, it is found, and nothing is enqueued."""
    with_id = [create(api, {**CRAWL, "id": UNKNOWN}) for _ in range(2)]
    with_key = [create(api, {**CRAWL, "key": "monday"}) for _ in range(2)]
    header = {"Idempotency-Key": "order-42"}
    once = [create(api, CRAWL, **header) for _ in range(2)]
    other = create(api, {**CRAWL, "name": "other"}, **header)
    bound = create(api, {**CRAWL, "id": UNKNOWN}, tenant="acme")

    assert [answer.status_code for answer in (*with_id, *with_key)] == [201, 200, 201, 200]
    assert [answer.json()["id"] for answer in with_id] == [UNKNOWN] * 2
    assert with_key[0].json()["id"] == with_key[1].json()["id"]
    assert (once[1].content, once[1].status_code) == (once[0].content, 201)
    assert once[1].headers["idempotency-replayed"] == "true"
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert (bound.status_code, bound.json()["id"] == UNKNOWN) == (201, False)
    assert len(api("read").get("/v1/workflows").json()["workflows"]) == 4


def test_a_job_that_exists_is_waited_for(api: Running):
    """By its id, also for its result. One of another tenant is not found."""
    job = api.app.enqueue("fetch", {"url": "/old"}, tenant="acme")
    body = {"name": "after", "jobs": [{"kind": "x", "after": [job.id], "inputs": {"old": job.id}}]}
    foreign = create(api, body, tenant="zoo")
    made = create(api, body, tenant="acme")
    settle(api, lease(api, "fetch"))
    (held,) = lease(api, "x")

    assert (foreign.status_code, foreign.json()["code"]) == (404, "not_found")
    assert (made.status_code, held["payload"]) == (201, {"old": "/old"})


def nodes(*jobs: dict[str, Any]) -> dict[str, Any]:
    return {"name": "bad", "jobs": [{"kind": "x", **job} for job in jobs]}


BAD = {
    "circle": (
        nodes(
            {"name": "start"},
            {"name": "a", "after": ["start", "c"]},
            {"name": "b", "after": ["a"]},
            {"name": "c", "after": ["b"]},
        ),
        "jobs[1].after",
        "in a circle: 'a' → 'b' → 'c' → 'a'; take one out",
    ),
    "itself": (nodes({"name": "a", "after": ["a"]}), "jobs[0].after", "'a' → 'a'"),
    "unknown name": (nodes({"after": ["b"]}), "jobs[0].after", "neither the name of a job here"),
    "name twice": (nodes({"name": "a"}, {"name": "a"}), "jobs[1].name", "jobs[0] already"),
    "input without after": (
        nodes({"name": "a"}, {"inputs": {"n": "a"}}),
        "jobs[1].x(n=...)",
        "name it in `after`",
    ),
    "input from later": (
        nodes({"inputs": {"n": "a"}}, {"name": "a", "after": ["b"]}, {"name": "b"}),
        "jobs[0].inputs.n",
        "in `after`, too",
    ),
    "input twice": (
        nodes({"name": "a"}, {"after": ["a"], "payload": {"n": 1}, "inputs": {"n": "a"}}),
        "jobs[1].inputs.n",
        "give it once",
    ),
    "wrong type": (
        nodes(
            {"name": "a", "kind": "index", "payload": {"pages": [], "first": ""}},
            {"kind": "fetch", "after": ["a"], "inputs": {"url": "a"}},
        ),
        "jobs[1].fetch(url=...)",
        "is int, not str",
    ),
    "unknown argument": (
        nodes({"name": "a"}, {"kind": "fetch", "after": ["a"], "inputs": {"uri": "a"}}),
        "jobs[1].payload.url",
        "required",
    ),
    "bad payload": (nodes({"kind": "fetch"}), "jobs[0].payload.url", "required"),
    "if_dead without use": (nodes({"when": "ended", "if_dead": "run"}), "jobs[0].if_dead", "does"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_workflow_is_refused(api: Running, name: str):
    """By a code, with the path of the field, and nothing is written."""
    body, field, text = BAD[name]
    answer = create(api, body)
    problem = answer.json()

    assert (answer.status_code, problem["code"][-8:]) == (422, "_invalid")
    assert field in [error["field"] for error in problem["errors"]], problem
    assert text in " ".join(error["message"] for error in problem["errors"])
    assert api("read").get("/v1/workflows").json()["workflows"] == []
