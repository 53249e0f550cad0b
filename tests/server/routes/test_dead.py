"""`/v1/dead/groups`, and what `/v1/bulk` does to a group."""

from __future__ import annotations

from tests.support.server import Running
from tests.worker.waiting import wait_until


def kill(api: Running, count: int, *, error: str = "OSError", **options: str) -> None:
    store = api.app.store
    api.app.enqueue_many([{"kind": "send", "queue": "mail", **options} for _ in range(count)])
    for lease in store.claim(worker="w", queues=["mail"], limit=count):
        store.fail(lease, f"{error}: no", permanent=True)


def test_groups_are_told(api: Running):
    """With a count, times and a sample; to a tenant, its own."""
    kill(api, 2, tenant="acme")
    kill(api, 3, tenant="zoo")
    (group,) = api("read").get("/v1/dead/groups").json()["groups"]
    (own,) = api("read", tenant="acme").get("/v1/dead/groups").json()["groups"]

    assert (
        group["count"], group["kind"], group["sample_queue"],
    ) == ({"value": 5, "exact": True}, "send", "mail")  # fmt: skip
    assert own["count"]["value"] == 2
    sample = api("read", tenant="acme").get(f"/v1/jobs/{own['sample_id']}").json()
    assert sample["tenant"] == "acme"
    assert api("read", tenant="acme").get("/v1/dead/groups?tenant=zoo").status_code == 403


def test_a_group_is_retried_at_a_rate(api: Running):
    """By its fingerprint; how far it is can be read."""
    kill(api, 6)
    (group,) = api("read").get("/v1/dead/groups").json()["groups"]
    chosen = {"fingerprint": group["fingerprint"]}
    wanted = {"action": "retry", "filter": chosen}
    preview = api().post("/v1/bulk", json={**wanted, "preview": True}).json()
    begun = api().post("/v1/bulk", json={**wanted, "expected": 6, "per_second": 8}).json()
    assert preview["count"] == {"value": 6, "exact": True}
    assert (begun["per_second"], begun["filter"]["fingerprint"]) == (8, group["fingerprint"])

    def done() -> dict:
        found = api().get(f"/v1/bulk/{begun['id']}").json()
        return found if found["state"] == "done" else {}

    assert wait_until(done)["done"] == 6
    assert api("read").get("/v1/dead/groups").json()["groups"] == []


def test_jobs_of_a_group_are_listed(api: Running):
    """Among the dead only."""
    kill(api, 2)
    (group,) = api("read").get("/v1/dead/groups").json()["groups"]
    asked = {"state": "dead", "fingerprint": group["fingerprint"]}

    assert len(api("read").get("/v1/jobs", params=asked).json()["jobs"]) == 2
    asked["fingerprint"] = "0" * 16
    assert api("read").get("/v1/jobs", params=asked).json()["jobs"] == []
    assert api("read").get("/v1/jobs", params={"fingerprint": "x"}).status_code == 422
