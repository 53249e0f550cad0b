"""`/v1/limits`, and limits in the calls that enqueue, lease and settle jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

import rowlock
from rowlock.limits import TENANT
from tests.support.limits import declare, put
from tests.support.server import Running, make_app


@pytest.fixture(scope="module")
def running(module_url: str) -> Iterator[Running]:
    """A server with tokens of every sort, whose app has tasks with limits."""
    app = make_app(module_url)
    stripe = app.limit("stripe", concurrency=2, per="customer")

    @app.task(limit=stripe)
    def charge(customer: str) -> None: ...

    @app.task(limit=app.limit("exports", per=TENANT))
    def export() -> None: ...

    with Running(app) as running:
        running.make_tokens()
        yield running


@pytest.fixture(autouse=True)
def declared(api: Running) -> None:
    """The limits of the app are in the database."""
    api.app.store.declare_limits([limit.declared for limit in api.app.declared_limits])


def names(answer: Any) -> list[str]:
    """Of the limits of a page."""
    return [limit["name"] for limit in answer.json()["limits"]]


def lease(api: Running, *, scope: str = "admin", **options: Any) -> list[dict[str, Any]]:
    """Lease jobs under limits."""
    asked = {"worker": "w", "kinds": ["charge", "export", "task"], "limit": 10, **options}
    tenant = asked.pop("tenant", None)
    answer = api(scope, tenant=tenant).post("/v1/leases", json=asked)
    leases: list[dict[str, Any]] = answer.json()["leases"]
    return leases


def throttle(api: Running, held: dict[str, Any], *, tenant: str | None = None) -> None:
    """Settle a lease as throttled for a minute."""
    settlement = {"id": held["id"], "token": held["token"], "outcome": "throttled"}
    body = {"settlements": [{**settlement, "seconds": 60, "reason": "429"}]}
    answer = api("work", tenant=tenant).post("/v1/leases/settle", json=body)
    assert answer.json()["settled"] == 1


def test_limits_are_listed_by_page(api):
    """With their numbers, what runs and what waits."""
    put(api.app.store, "stripe", "acme", jobs=3)
    put(api.app.store, "ghost")
    lease(api)
    whole = api("read").get("/v1/limits")
    first = api("read").get("/v1/limits?limit=2")
    rest = api("read").get(f"/v1/limits?limit=2&cursor={first.json()['next']}")

    assert names(whole) == ["exports", "ghost", "stripe"]
    assert (names(first), names(rest), rest.json()["next"]) == (
        ["exports", "ghost"],
        ["stripe"],
        None,
    )
    (stripe,) = rest.json()["limits"]
    assert (stripe["running"], stripe["waiting"]) == (
        {"value": 2, "exact": True},
        {"value": 1, "exact": True},
    )
    assert stripe["rules"] == stripe["declared"]
    assert (stripe["rules"]["concurrency"], stripe["per"], stripe["chosen"]) == (
        2,
        "customer",
        None,
    )
    assert whole.json()["limits"][1]["declared"] is None


def test_a_limit_has_its_keys(api):
    """The busiest first, or by name and page by page."""
    for key, jobs in (("a", 1), ("b", 3), ("c", 2)):
        put(api.app.store, "stripe", key, jobs=jobs)
    busiest = api("read").get("/v1/limits/stripe?limit=2").json()
    first = api("read").get("/v1/limits/stripe?limit=2&order=name").json()
    rest = f"/v1/limits/stripe?limit=2&order=name&cursor={first['next']}"
    last = api("read").get(rest).json()

    assert [key["key"] for key in busiest["keys"]] == ["b", "c"]
    assert (busiest["is_cut"], busiest["next"]) == (True, None)
    assert [key["key"] for key in first["keys"]] == ["a", "b"]
    assert ([key["key"] for key in last["keys"]], last["next"]) == (["c"], None)
    assert busiest["limit"]["name"] == "stripe"


def test_an_unknown_limit_is_not_found(api):
    """Whatever is to be done with it; one that jobs name is shown, and can't be changed."""
    put(api.app.store, "ghost")

    for name in ("nobody", "ghost"):
        for action in ("set", "unset", "pause", "resume"):
            body = {} if action != "set" else {"concurrency": 1}
            answer = api().post(f"/v1/limits/{name}/{action}", json=body)
            assert answer.status_code == 404, (name, action)
    assert api().get("/v1/limits/nobody").status_code == 404
    assert api().get("/v1/limits/ghost").json()["keys"] == []


def test_numbers_are_set_and_unset(api):
    """For the limit and for a key; the audit says which."""
    put(api.app.store, "stripe", "acme")
    chosen = api().post("/v1/limits/stripe/set", json={"concurrency": 9, "rate": "10/m"}).json()
    api().post("/v1/limits/stripe/set", json={"key": "acme", "weight": 3}).raise_for_status()
    keys = api().get("/v1/limits/stripe").json()["keys"]
    entries = api().get("/v1/audit").json()["entries"]
    back = api().post("/v1/limits/stripe/unset").json()
    api().post("/v1/limits/stripe/unset", json={"key": "acme"}).raise_for_status()

    assert (chosen["rules"]["concurrency"], chosen["rules"]["rate"]) == (9, "10/m")
    assert (keys[0]["weight"], keys[0]["is_own"]) == (3, True)
    assert [(each["action"], each["target"]) for each in entries] == [("limit.set", "stripe")] * 2
    assert entries[0]["detail"] == {"key": "acme", "weight": 3}
    assert (back["rules"], back["chosen"]) == (back["declared"], None)
    assert api().get("/v1/limits/stripe").json()["keys"][0]["is_own"] is False


def test_limits_are_paused_and_resumed(api):
    """With an end and a reason, as a whole and by key."""
    put(api.app.store, "stripe", "acme", jobs=2)
    whole = api().post("/v1/limits/stripe/pause").json()
    resumed = api().post("/v1/limits/stripe/resume").json()
    body = {"key": "acme", "seconds": 600, "reason": "429"}
    of_key = api().post("/v1/limits/stripe/pause", json=body).json()
    (key,) = api().get("/v1/limits/stripe").json()["keys"]

    assert (whole["is_paused"], whole["paused_until"]) == (True, None)
    assert (resumed["is_paused"], of_key["is_paused"]) == (False, False)
    assert of_key["paused_keys"]["value"] == 1
    assert (key["is_paused"], key["paused_reason"]) == (True, "429")
    assert key["paused_until"].endswith("Z")
    assert lease(api) == []
    api().post("/v1/limits/stripe/resume", json={"key": "acme"}).raise_for_status()
    assert len(lease(api)) == 2


@pytest.mark.parametrize(
    ("action", "body", "field"),
    [
        ("set", {}, "concurrency"),
        ("set", {"concurrency": 0}, "concurrency"),
        ("set", {"rate": "5"}, "rate"),
        ("set", {"weight": 2}, "weight"),
        ("set", {"key": "a", "rate_per_key": "1/s"}, "key"),
        ("set", {"burst": 3}, "burst"),
        ("pause", {"seconds": -1}, "seconds"),
        ("pause", {"key": ""}, "key"),
    ],
)
def test_mistakes_are_refused(api, action, body, field):
    """By the name of the field, and nothing is written."""
    before = api().get("/v1/limits/stripe").json()
    refused = api().post(f"/v1/limits/stripe/{action}", json=body)

    assert refused.status_code == 422, refused.text
    assert refused.json()["errors"][0]["field"] == field
    assert api().get("/v1/limits/stripe").json() == before
    assert api().get("/v1/audit").json()["entries"] == []


def test_a_key_of_a_limit_without_keys_is_refused(api):
    """It has none that could be paused."""
    declare(api.app.store, "pool", concurrency=1)
    refused = api().post("/v1/limits/pool/pause", json={"key": "acme"})

    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "key")


def test_any_name_is_a_limit(api):
    """Encoded in the path."""
    name = "a/b ü?#"
    declare(api.app.store, name, concurrency=1)
    found = api().get(f"/v1/limits/{quote(name, safe='')}").json()

    assert found["limit"]["name"] == name


def test_a_tenant_sees_its_own_key(api):
    """Of limits whose keys are tenants, and counts of its own jobs; it changes nothing."""
    store = api.app.store
    for tenant in ("acme", "zoo"):
        put(store, "exports", tenant, jobs=2, tenant=tenant)
    put(store, "stripe", "acme", tenant="acme")
    store.pause_limit("exports", "zoo", reason="zoo owes us")
    client = api("admin", tenant="acme")
    listed = client.get("/v1/limits")
    shown = client.get("/v1/limits/exports")

    assert names(listed) == ["exports"]
    assert listed.json()["limits"][0]["waiting"]["value"] == 2
    assert [key["key"] for key in shown.json()["keys"]] == ["acme"]
    assert "zoo" not in listed.text + shown.text
    assert client.get("/v1/limits/stripe").status_code == 404
    for action in ("set", "unset", "pause", "resume"):
        assert client.post(f"/v1/limits/exports/{action}", json={}).status_code == 403


def test_a_job_has_its_limit_and_key(api):
    """In lists, alone, leased, and in its reason."""
    made = api("enqueue").post("/v1/jobs", json={"kind": "charge", "payload": {"customer": "acme"}})
    id = made.json()["id"]
    job = api().get(f"/v1/jobs/{id}").json()
    (listed,) = api().get("/v1/jobs").json()["jobs"]
    api().post("/v1/limits/stripe/pause").raise_for_status()
    api.app.store.announce(worker="w", queues=[], kinds=[], host="h", pid=1)
    why = api().get(f"/v1/jobs/{id}/why").json()
    api().post("/v1/limits/stripe/resume").raise_for_status()
    (held,) = lease(api)

    assert [(each["limit"], each["limit_key"]) for each in (job, listed, held)] == [
        ("stripe", "acme")
    ] * 3
    assert (why["code"], why["limit"]) == ("limit_closed", "stripe")


def test_an_enqueue_may_choose_the_key(api):
    """Where the server knows the task; a key that names nothing is refused."""
    body = {"kind": "charge", "payload": {"customer": "acme"}, "limit_key": "bolt"}
    made = api("enqueue").post("/v1/jobs", json=body).json()
    many = api("enqueue").post("/v1/jobs/batch", json={"jobs": [body, body]}).json()
    unknown = api("enqueue").post("/v1/jobs", json={"kind": "nope", "limit_key": "bolt"})

    ids = [made["id"], *(job["id"] for job in many["jobs"])]
    assert [api.app.get(id).limit_key for id in ids] == ["bolt"] * 3
    assert unknown.status_code == 422
    assert unknown.json()["errors"][0]["field"] == "limit_key"
    assert "unknown here" in unknown.text


def test_a_tenant_can_not_use_the_key_of_another(api):
    """At a limit whose keys are tenants, its own is the only one."""
    client = api("enqueue", tenant="acme")
    own = client.post("/v1/jobs", json={"kind": "export", "limit_key": "acme"})
    other = client.post("/v1/jobs", json={"kind": "export", "limit_key": "zoo"})

    assert api.app.get(own.json()["id"]).limit_key == "acme"
    assert (other.status_code, other.json()["errors"][0]["field"]) == (422, "limit_key")


def test_a_throttled_job_closes_its_key(api):
    """No attempt is used, and other keys go on."""
    put(api.app.store, "stripe", "acme", jobs=2)
    held = lease(api, limit=1)
    throttle(api, held[0])
    put(api.app.store, "stripe", "bolt")
    (key, *_) = [key for key in api.app.limit_keys("stripe") if key.key == "acme"]

    assert [each["limit_key"] for each in lease(api)] == ["bolt"]
    assert (key.is_paused, key.paused_reason) == (True, "429")
    assert api.app.get(held[0]["id"]).attempt == 0


def test_a_throttled_job_without_a_limit_waits(api):
    """It alone."""
    job = api.app.enqueue("task")
    (held,) = lease(api)
    throttle(api, held)

    assert api.app.get(job.id).state == "scheduled"


def test_a_tenant_throttles_nobody_else(api):
    """Its worker closes the key that is the tenant's own; at others, only its job waits."""
    store = api.app.store
    (shared,) = put(store, "stripe", "customer 7", tenant="acme")
    (held,) = lease(api, scope="work", tenant="acme")
    throttle(api, held, tenant="acme")
    put(store, "exports", "acme", jobs=2, tenant="acme", kind="export")
    (own, *_) = lease(api, scope="work", tenant="acme", limit=1)
    throttle(api, own, tenant="acme")

    assert [key.is_paused for key in api.app.limit_keys("stripe")] == []
    assert api.app.get(shared.id).state == "scheduled"
    assert [key.is_paused for key in api.app.limit_keys("exports")] == [True]


def test_a_server_declares_the_limits_of_its_app(module_url, api):
    """If all workers use HTTP, nobody else would."""
    app = rowlock.App(module_url)

    @app.task(limit=rowlock.Limit(concurrency=1))
    def fresh() -> None: ...

    with Running(app) as running:
        running.tokens["admin", None] = running.make_token("admin")
        running().post("/v1/jobs/batch", json={"jobs": [{"kind": "fresh"}] * 2})
        held = lease(running, kinds=["fresh"])

        metrics = running().get("/metrics").text

    assert len(held) == 1
    assert [limit.name for limit in app.limits(["fresh"])] == ["fresh"]
    assert 'rowlock_limit_running{limit="fresh"} 1.0' in metrics
    assert 'rowlock_limit_waiting{limit="fresh"} 1.0' in metrics
