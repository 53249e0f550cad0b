"""`/v1/jobs`: look at jobs, cancel, retry, move, run again and delete them."""

from __future__ import annotations

import msgspec
import pytest

from rowlock.lifecycle import Succeeded
from rowlock.store.ops.settle import Settlement
from rowlock.store.options import new_job
from tests.support.server import Running

UNKNOWN = "018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a"


def started(api: Running, **options):
    """A lease of a new job."""
    job = api.app.enqueue("big", **options)
    (lease,) = api.app.store.claim(worker="w", queues=[job.queue], limit=1)
    assert job.id == lease.id
    return lease


def killed(api: Running, **options) -> str:
    """A dead job."""
    lease = started(api, **options)
    api.app.store.fail(lease, ValueError("boom"), permanent=True)
    return lease.id


def test_pages_lead_through_all_jobs(api):
    """Newest first; `next` is null at the end."""
    ids = [job.id for job in api.app.enqueue_many([{"kind": "big"}] * 5)]
    seen, cursor = [], None
    while True:
        query = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        page = api("read").get("/v1/jobs", params=query).json()
        seen += [job["id"] for job in page["jobs"]]
        if (cursor := page["next"]) is None:
            break

    assert ids[::-1] == seen


def test_every_filter_of_a_list(api):
    """As `app.list`: by state, kind, queue, tenant, key, tag and time."""
    options = {"queue": "q/ü", "tenant": "acme", "key": "k", "tags": ["a"]}
    job = api.app.enqueue("wanted", **options)
    api.app.enqueue("other")
    dead = killed(api, queue="dying")

    def found(**query):
        return [each["id"] for each in api().get("/v1/jobs", params=query).json()["jobs"]]

    for query in (
        {"kind": "wanted"}, {"queue": "q/ü"}, {"tenant": "acme"}, {"key": "k"}, {"tag": "a"},
    ):  # fmt: skip
        assert found(**query) == [job.id]
    assert found(state="dead") == [dead]
    assert len(found(since="2020-01-01T00:00:00Z")) == 3
    assert found(until="2020-01-01T00:00:00+02:00") == []


@pytest.mark.parametrize(
    "query",
    [
        "state=lost", "limit=0", "limit=201", "limit=ten", "cursor=x", "since=yesterday",
        "since=2020-01-01T00:00:00", "kind=", "kind=a&kind=b", "colour=red",
        "since=99999999999999999999", "since=null", "limit=1e1", "cursor=%00", "kind=%00",
    ],
)  # fmt: skip
def test_bad_queries_are_refused(api, query):
    """By the parameter's name."""
    answer = api().get(f"/v1/jobs?{query}")

    assert (answer.status_code, answer.json()["code"]) == (422, "option_invalid")
    assert query.partition("=")[0] == answer.json()["errors"][0]["field"]


def test_a_list_holds_nothing_large(api):
    """Neither payloads nor results nor tracebacks; the last error as a line."""
    killed(api, queue="q")
    (job,) = api().get("/v1/jobs").json()["jobs"]

    assert not {"payload", "result", "errors", "meta"} & job.keys()
    assert job["last_error"] == "ValueError: boom"


def test_the_history_of_a_job(api):
    """Each attempt that failed or was lost, with its error, oldest first."""
    job = api.app.enqueue("big", max_attempts=3)
    for number in range(2):
        (lease,) = api.app.store.claim(worker="w", queues=["default"])
        api.app.store.fail(lease, ValueError(f"boom {number}"), delay=0)
    (lease,) = api.app.store.claim(worker="w", queues=["default"])
    api.app.store.progress(lease, fraction=0.5, text="half")
    found = api().get(f"/v1/jobs/{job.id}").json()

    assert [(error["attempt"], error["message"]) for error in found["errors"]] == [
        (1, "boom 0"),
        (2, "boom 1"),
    ]
    assert "ValueError" in found["errors"][0]["traceback"]
    assert (
        found["state"],
        found["attempt"],
        found["worker"],
        found["token"],
    ) == ("running", 3, "w", 3)
    assert found["progress"] == {"fraction": 0.5, "text": "half"}


def test_why_it_is_not_running(api):
    """A code to match on, and a text to read."""
    job = api.app.enqueue("big", queue="mail")
    api.app.pause("mail")
    told = api("read").get(f"/v1/jobs/{job.id}/why").json()

    assert (told["code"], told["text"]) == ("paused", "its queue 'mail' is paused")
    assert set(msgspec.to_builtins(api.app.why(job.id))) == told.keys()
    assert api().get(f"/v1/jobs/{UNKNOWN}/why").status_code == 404


def test_why_is_of_ones_tenant(api):
    """How many jobs of others come first is not told."""
    api.app.enqueue_many([{"kind": "big", "tenant": "zoo"}] * 3)
    job = api.app.enqueue("big", tenant="acme")
    api.app.store.announce(worker="w", queues=[], kinds=["big"], host="h", pid=1)
    bound = api("read", tenant="acme").get(f"/v1/jobs/{job.id}/why").json()
    free = api("read").get(f"/v1/jobs/{job.id}/why").json()

    assert (bound["code"], bound["ahead"]) == ("next", None)
    assert (free["code"], free["ahead"]) == ("behind", {"value": 3, "exact": True})


def test_the_log(api):
    """Line by line, with times; a job that is not there has none."""
    lease = started(api)
    api.app.store.log(lease, ["one", "two\x1b[2J"])
    lines = api("read").get(f"/v1/jobs/{lease.id}/log").json()["lines"]

    assert [line["text"] for line in lines] == ["one", "two\x1b[2J"]
    assert all(line["time"].endswith("Z") for line in lines)
    assert api().get(f"/v1/jobs/{UNKNOWN}/log").status_code == 404


def test_cancel(api):
    """At once, by its worker, or too late; and what is unknown is not found."""
    waiting, lease = api.app.enqueue("big", delay=60), started(api)
    answers = [
        api().post(f"/v1/jobs/{id}/cancel") for id in (waiting.id, lease.id, waiting.id, UNKNOWN)
    ]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 404]
    assert [answer.json() for answer in answers[:3]] == [
        {"outcome": "cancelled", "state": "cancelled"},
        {"outcome": "pending_on_worker", "state": "running"},
        {"outcome": "already_terminal", "state": "cancelled"},
    ]


def test_retry(api):
    """A dead job is ready again; one that is not dead, or has succeeded, is not touched."""
    dead = killed(api)
    retried = api().post(f"/v1/jobs/{dead}/retry")
    again = api().post(f"/v1/jobs/{dead}/retry")

    assert (
        retried.status_code,
        retried.json()["state"],
        retried.json()["attempt"],
    ) == (200, "ready", 0)
    assert len(retried.json()["errors"]) == 1
    assert (again.status_code, again.json()["code"]) == (409, "invalid_transition")
    assert api().post(f"/v1/jobs/{UNKNOWN}/retry").status_code == 404


def test_retry_with_another_payload(api):
    """Checked like that of a new job."""
    job = api.app.enqueue("send_email", {"to": "wrong"})
    (lease,) = api.app.store.claim(worker="w", queues=["mail"])
    api.app.store.fail(lease, "no such address", permanent=True)
    bad = api().post(f"/v1/jobs/{job.id}/retry", json={"payload": {"to": 5}})
    good = api().post(f"/v1/jobs/{job.id}/retry", json={"payload": {"to": "a@b.c"}})

    assert (bad.status_code, bad.json()["errors"][0]["field"]) == (422, "payload.to")
    assert (good.status_code, good.json()["payload"]) == (200, {"to": "a@b.c"})


def test_a_retry_may_say_nothing(api):
    """No body, an empty object, with or without a type."""
    for place, options in enumerate(({}, {"json": {}}, {"headers": {"content-length": "0"}})):
        answer = api().post(f"/v1/jobs/{killed(api, queue=str(place))}/retry", **options)

        assert answer.status_code == 200, answer.text


def test_delete(api):
    """Gone, with its log; a running one stays."""
    lease = started(api)
    running = api().delete(f"/v1/jobs/{lease.id}")
    api.app.store.succeed([lease])
    gone = [api().delete(f"/v1/jobs/{lease.id}") for _ in range(2)]

    assert (running.status_code, running.json()["code"]) == (409, "invalid_transition")
    assert [answer.status_code for answer in gone] == [204, 404]
    assert gone[0].content == b""
    assert None is api.app.get(lease.id)


def test_delete_a_job_that_others_wait_for(api):
    """Only with `cascade`. What needs its success is cancelled."""
    task = api.app.task(name="send")(lambda: None)
    with api.app.workflow("pair") as flow:
        first = flow.add(task.job())
        second = flow.add(task.job(), after=first)
    wrong = api().delete(f"/v1/jobs/{first.id}?cascade=yes")
    refused = api().delete(f"/v1/jobs/{first.id}")
    deleted = api().delete(f"/v1/jobs/{first.id}?cascade=true")

    assert (wrong.status_code, refused.status_code) == (422, 409)
    assert (deleted.status_code, api.app.get(second.id).state) == (204, "cancelled")


def test_what_was_done_is_in_the_audit(api):
    """By whom, and with what outcome; what was refused is not."""
    job = api.app.enqueue("big")
    api().post(f"/v1/jobs/{job.id}/cancel")
    api().post(f"/v1/jobs/{job.id}/retry", json={"payload": {"n": 1}})
    api().post(f"/v1/jobs/{job.id}/retry")
    api().delete(f"/v1/jobs/{job.id}")
    entries = api().get("/v1/audit", params={"target": job.id}).json()["entries"]

    assert [(entry["action"], entry["detail"]) for entry in entries] == [
        ("job.delete", {}),
        ("job.retry", {"new_payload": True}),
        ("job.cancel", {"outcome": "cancelled", "state": "cancelled"}),
    ]
    assert {entry["actor"] for entry in entries} == {"admin"}


def test_parents_and_those_that_follow(api):
    """The id of the parent is in `meta`, beside what the user put there; each finds the other."""
    store = api.app.store
    (parent,) = store.enqueue([new_job(kind="order", payload="{}", queue="q", tenant="acme")])
    (lease,) = store.claim(worker="w", queues=["q"])
    follow_ups = [
        new_job(kind="mail", payload="{}", tenant="acme"),
        new_job(kind="bill", payload="{}", tenant="acme", meta={"trace": "t"}),
        new_job(kind="own", payload="{}", tenant="zoo", meta={"parent": "of my own"}),
    ]
    store.settle([Settlement(lease, Succeeded(), follow_ups)])
    told = api("read", tenant="acme").get(f"/v1/jobs/{parent.id}/related").json()
    child = api("read").get(f"/v1/jobs/{follow_ups[1].id}").json()
    back = api("read").get(f"/v1/jobs/{child['id']}/related").json()
    own = api("read").get(f"/v1/jobs/{follow_ups[2].id}/related").json()

    assert None is told["parent"]
    assert [each["kind"] for each in told["follow_ups"]] == ["mail", "bill"]
    assert child["meta"] == {"parent": parent.id, "trace": "t"}
    assert (back["parent"]["id"], back["follow_ups"]) == (parent.id, [])
    assert (own["parent"], own["follow_ups"], own["waits_for"]) == (None, [], [])


def test_run_now(api):
    """A scheduled job is due; one that has ended is not, and the answer says what to do."""
    job = api.app.enqueue("big", delay=600)
    answer = api().post(f"/v1/jobs/{job.id}/run-now")
    api.app.cancel(job.id)
    refused = api().post(f"/v1/jobs/{job.id}/run-now")

    assert (answer.status_code, answer.json()["state"]) == (200, "ready")
    assert (refused.status_code, refused.json()["code"]) == (409, "invalid_transition")
    assert "run_again" in refused.json()["detail"]


def test_reschedule(api):
    """To a time or by a delay, not both and not neither."""
    job = api.app.enqueue("big")
    path = f"/v1/jobs/{job.id}/reschedule"
    at = api().post(path, json={"run_at": "2035-01-31T12:00:00Z"})
    later = api().post(path, json={"delay": 600})
    bad = [
        api().post(path, json=body) for body in ({}, {"delay": 1, "run_at": "2035-01-31T12:00Z"})
    ]

    assert (at.json()["state"], at.json()["run_at"]) == ("scheduled", "2035-01-31T12:00:00Z")
    assert later.json()["state"] == "scheduled"
    assert later.json()["run_at"] < at.json()["run_at"]
    assert [answer.status_code for answer in bad] == [422, 422]


def test_reroute(api):
    """A job that waits goes to another queue, and the audit has it."""
    job = api.app.enqueue("big", queue="mial")
    answer = api().post(f"/v1/jobs/{job.id}/reroute", json={"queue": "mail"})
    (entry,) = api().get("/v1/audit").json()["entries"]

    assert (answer.status_code, answer.json()["queue"]) == (200, "mail")
    assert (entry["action"], entry["detail"]) == ("job.reroute", {"queue": "mail"})


def test_run_again(api):
    """An ended job is enqueued as a new one, which the answer names and shows."""
    dead = killed(api)
    answer = api().post(f"/v1/jobs/{dead}/run-again")
    made = api().get(answer.headers["location"]).json()
    early = api().post(f"/v1/jobs/{made['id']}/run-again")

    assert (answer.status_code, made) == (201, answer.json())
    assert (made["state"], made["meta"]["run_again_of"]) == ("ready", dead)
    assert (early.status_code, early.json()["code"]) == (409, "invalid_transition")
