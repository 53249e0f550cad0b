"""`/v1/bulk`: a preview, what was expected, and progress that can be read."""

from __future__ import annotations

import time

import httpx
import pytest

from rowlock import config
from rowlock.ids import new_id
from rowlock.job import JobState
from rowlock.server import service
from rowlock.store.ops.audit import Actor
from rowlock.store.ops.bulk import BulkAction, selection, start_bulk
from rowlock.store.ops.manage import job_filter
from tests.support.server import Running, make_app


def ended(client: httpx.Client, place: str) -> dict:
    """The work at that place, once it has ended."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        bulk = client.get(place).json()
        if bulk["state"] != "running":
            return bulk
        time.sleep(0.01)
    raise AssertionError(bulk)


def test_from_a_preview_to_the_end(api):
    """What the preview counted is what is done; the rest stays."""
    mail = api.app.enqueue_many([{"kind": "big", "queue": "mail"}] * 1_200)
    other = api.app.enqueue("big", queue="other")
    asked = {"action": "cancel", "filter": {"queue": "mail"}}
    preview = api().post("/v1/bulk", json={**asked, "preview": True})
    count = preview.json()["count"]
    begun = api().post("/v1/bulk", json={**asked, "expected": count["value"]})
    bulk = ended(api("read"), begun.headers["location"])

    assert (preview.status_code, count) == (200, {"value": 1_200, "exact": True})
    assert (begun.status_code, begun.json()["filter"]["queue"]) == (202, "mail")
    assert (bulk["state"], bulk["done"], bulk["skipped"]) == ("done", 1_200, 0)
    assert JobState.CANCELLED is api.app.get(mail[-1].id).state
    assert JobState.READY is api.app.get(other.id).state


def test_more_than_expected_is_refused(api):
    """Nothing is done to jobs that nobody has seen, and the answer says how many there are."""
    api.app.enqueue_many([{"kind": "big"}] * 3)
    refused = api().post("/v1/bulk", json={"action": "cancel", "expected": 2})
    entries = api().get("/v1/audit").json()["entries"]

    assert (refused.status_code, refused.json()["code"]) == (409, "count_changed")
    assert "3 jobs match, and 2 were expected" in refused.json()["detail"]
    assert entries == []
    assert {job.state for job in api.app.list()} == {"ready"}


def test_a_tenant_reaches_its_own(api):
    """Whatever its filter says, a token's tenant is part of it."""
    for tenant in ("acme", "zoo"):
        api.app.enqueue("big", tenant=tenant)
    acme = api("admin", tenant="acme")
    begun = acme.post("/v1/bulk", json={"action": "cancel", "expected": 5})
    bulk = ended(acme, begun.headers["location"])
    other = acme.post("/v1/bulk", json={"action": "cancel", "filter": {"tenant": "zoo"}})

    assert (bulk["done"], bulk["filter"]["tenant"]) == (1, "acme")
    assert other.status_code == 403
    assert api("admin", tenant="zoo").get(begun.headers["location"]).status_code == 404
    assert {job.tenant: job.state for job in api.app.list()} == {
        "acme": "cancelled",
        "zoo": "ready",
    }


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"action": "cancel"}, "expected"),
        ({"action": "explode", "expected": 1}, "action"),
        ({"action": "delete", "expected": 1}, "state"),
        ({"action": "cancel", "filter": {"state": "dead"}, "expected": 1}, "state"),
        ({"action": "cancel", "filter": {"colour": "red"}, "expected": 1}, "filter.colour"),
        ({"action": "cancel", "expected": -1}, "expected"),
    ],
)
def test_what_can_not_be_asked(api, body, field):
    """422, by the field."""
    refused = api().post("/v1/bulk", json=body)

    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)


def test_skipped_jobs_are_named(api):
    """Those whose key is in flight again."""
    job = api.app.enqueue("big", key="k", max_attempts=1)
    (lease,) = api.app.store.claim(worker="w", queues=["default"])
    api.app.store.fail(lease, "boom")
    api.app.enqueue("big", key="k")
    begun = api().post("/v1/bulk", json={"action": "retry", "expected": 1})
    bulk = ended(api(), begun.headers["location"])

    assert (bulk["done"], bulk["skipped"], bulk["skipped_ids"]) == (0, 1, [job.id])


def test_work_of_a_server_that_died_is_gone_on_with(any_url, monkeypatch):
    """The next server that starts takes the steps that are left."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 10)
    app = make_app(any_url)
    app.enqueue_many([{"kind": "big"}] * 25)
    wanted = selection(BulkAction.CANCEL, None, job_filter())
    op = start_bulk(wanted, id=new_id(), expected=25, actor=Actor("gone"))
    begun = app.store.run(op)
    with Running(app, is_open=True) as running:
        bulk = ended(running.client(), f"/v1/bulk/{begun.id}")

    assert (bulk["state"], bulk["done"]) == ("done", 25)


def test_a_step_that_fails_is_told(any_url, monkeypatch):
    """Work that can't go on says so, instead of standing still for ever."""

    def broken(id: str):
        raise ZeroDivisionError("a mistake of ours")

    with Running(make_app(any_url), is_open=True) as running:
        running.app.enqueue("big")
        monkeypatch.setattr(service, "advance_bulk", broken)
        begun = running.client().post("/v1/bulk", json={"action": "cancel", "expected": 1})
        bulk = ended(running.client(), begun.headers["location"])

    assert (bulk["state"], bulk["problem"]) == ("failed", "given up: ZeroDivisionError")


def test_jobs_of_a_misspelt_queue_are_moved(api):
    """The preview and the work say where to; the audit, too."""
    api.app.enqueue_many([{"kind": "big", "queue": "mial"}] * 3)
    asked = {"action": "reroute", "filter": {"state": "ready", "queue": "mial"}, "to": "mail"}
    preview = api().post("/v1/bulk", json={**asked, "preview": True}).json()
    begun = api().post("/v1/bulk", json={**asked, "expected": preview["count"]["value"]})
    bulk = ended(api("read"), begun.headers["location"])
    (entry,) = api().get("/v1/audit").json()["entries"]

    assert (bulk["state"], bulk["done"], bulk["to"]) == ("done", 3, "mail")
    assert [job.queue for job in api.app.list()] == ["mail"] * 3
    assert entry["detail"]["to"] == "mail"


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("to", {"action": "reroute", "filter": {"state": "ready"}}),
        ("to", {"action": "cancel", "to": "mail"}),
        ("run_at", {"action": "reschedule", "filter": {"state": "ready"}}),
        (
            "run_at",
            {"action": "run_now", "filter": {"state": "retrying"}, "run_at": "2035-01-31T12:00Z"},
        ),
        ("state", {"action": "run_now", "filter": {"state": "ready"}}),
        ("state", {"action": "reroute", "to": "mail"}),
        ("state", {"action": "run_again", "filter": {"state": "running"}}),
    ],
)
def test_options_that_do_not_fit_the_action(api, field, asked):
    """Each is refused by the name of its field, also for a preview."""
    refused = api().post("/v1/bulk", json={**asked, "preview": True})

    assert refused.status_code == 422
    assert field in refused.json()["detail"]
