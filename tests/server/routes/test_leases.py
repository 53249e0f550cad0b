"""`/v1/leases`: work over HTTP, fenced like any worker."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from rowlock import config
from rowlock.job import JobState
from rowlock.server.routes.enqueue import prepare_all
from tests.store.triggers import allow, refuse
from tests.support.metrics import samples
from tests.support.server import Running, make_app

UNKNOWN = "018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a"


FOLLOWING = "settlements[0].follow_ups"


def following(*jobs: Any) -> dict:
    return {"id": UNKNOWN, "token": 1, "outcome": "succeeded", "follow_ups": jobs}


def lease(client: httpx.Client, **options) -> list[dict]:
    """Lease jobs of kind `big`."""
    body = {"worker": "w", "kinds": ["big"], **options}
    answer = client.post("/v1/leases", json=body)
    assert answer.status_code == 200, answer.text
    leases: list[dict] = answer.json()["leases"]
    return leases


def named(held: dict, **more) -> dict:
    return {"id": held["id"], "token": held["token"], **more}


def settle(client: httpx.Client, *settlements: dict) -> list[str]:
    answer = client.post("/v1/leases/settle", json={"settlements": settlements})
    assert answer.status_code == 200, answer.text
    return [each["status"] for each in answer.json()["leases"]]


def beat(client: httpx.Client, *leases: dict, **options) -> list[str]:
    answer = client.post("/v1/leases/heartbeat", json={"leases": leases, **options})
    assert answer.status_code == 200, answer.text
    return [each["status"] for each in answer.json()["leases"]]


def test_from_lease_to_success(api):
    """The payload comes exact, the result is kept exact."""
    job = api.app.enqueue("big", {"n": 10**30}, key="k", tags=["t"], meta={"a": 1})
    answer = api("work").post("/v1/leases", json={"worker": "w", "kinds": ["big"], "lease": 60})
    (held,) = json.loads(answer.text)["leases"]
    statuses = settle(api("work"), named(held, outcome="succeeded", result={"n": 2**70}))
    done = api.app.get(job.id)

    assert (held["id"], held["attempt"], held["payload"]) == (job.id, 1, {"n": 10**30})
    assert (held["key"], held["tags"], held["meta"], held["token"]) == ("k", ["t"], {"a": 1}, 1)
    assert statuses == ["settled"]
    assert (done.state, done.result, done.worker) == (JobState.SUCCEEDED, {"n": 2**70}, "w")


def test_only_kinds_that_are_asked_for(api):
    """And of the queues, in their order, up to the limit."""
    api.app.enqueue("other")
    first, second = api.app.enqueue("big", queue="b"), api.app.enqueue("big", queue="a")
    held = lease(api(), queues=["a", "b"], limit=5)

    assert [each["id"] for each in held] == [second.id, first.id]
    assert lease(api(), limit=500) == []


def test_a_job_that_has_expired_is_not_leased(api):
    """It is cancelled, and the next one is leased instead."""
    task = api.app.find("send_email")
    late = task.using(expires=datetime(2026, 1, 1, tzinfo=UTC)).enqueue("ada@example.com")
    last = task.using(expires=3600).enqueue("ada@example.com")
    held = lease(api(), kinds=["send_email"], limit=1)
    ended = api.app.get(late.id)

    assert [each["id"] for each in held] == [last.id]
    assert (ended.state, ended.errors[-1].message) == (
        JobState.CANCELLED,
        "it expired at 2026-01-01 00:00:00 UTC, before this run",
    )


def test_every_outcome(api):
    """Each is judged alone, in one call."""
    api.app.enqueue_many([{"kind": "big", "payload": {"n": n}} for n in range(6)])
    held = lease(api(), limit=6)
    error = {"type": "TypeError", "message": "no", "traceback": "at index.js:1"}
    statuses = settle(
        api(),
        named(held[0], outcome="succeeded"),
        named(held[1], outcome="failed", error=error, delay=60),
        named(held[2], outcome="failed", permanent=True),
        named(held[3], outcome="released", delay=60),
        named(held[4], outcome="released"),
        named(held[5], outcome="cancelled", reason="asked for"),
    )
    jobs = [api.app.get(each["id"]) for each in held]

    assert statuses == ["settled"] * 6
    assert [job.state for job in jobs] == [
        "succeeded",
        "retrying",
        "dead",
        "scheduled",
        "ready",
        "cancelled",
    ]
    assert [len(job.errors) for job in jobs] == [0, 1, 1, 0, 0, 1]
    assert (
        jobs[1].last_error,
        jobs[1].errors[0].traceback,
    ) == ("TypeError: no", "at index.js:1")
    assert [jobs[3].attempt, jobs[4].attempt] == [0, 0]


def test_a_stale_lease_changes_nothing(api):
    """Once another holds the job, its old holder can neither settle nor beat; nor can a guess."""
    api.app.enqueue("big")
    (old,) = lease(api())
    settle(api(), named(old, outcome="released"))
    (new,) = lease(api(), worker="w2")
    guess = {"id": old["id"], "token": new["token"] + 1}

    assert settle(api(), named(old, outcome="succeeded")) == ["lost"]
    assert beat(api(), named(old), guess) == ["lost", "lost"]
    assert settle(api(), {"id": UNKNOWN, "token": 1, "outcome": "succeeded"}) == ["lost"]
    assert JobState.RUNNING is api.app.get(new["id"]).state
    assert settle(api(), named(new, outcome="succeeded")) == ["settled"]
    assert settle(api(), named(new, outcome="succeeded")) == ["already_settled"]


def test_what_holds_is_settled_beside_what_is_lost(api):
    """One lost lease does not fail the others of its call."""
    api.app.enqueue_many([{"kind": "big"}] * 2)
    first, second = lease(api(), limit=2)
    settle(api(), named(first, outcome="released"))
    statuses = settle(api(), named(first, outcome="succeeded"), named(second, outcome="succeeded"))

    assert statuses == ["already_settled", "settled"]


@pytest.mark.parametrize(("fraction", "kept"), [(1.0000000001, 1.0), (-1, 0.0), (7, 1.0)])
def test_a_fraction_beyond_its_range_costs_no_lease(api, fraction, kept):
    """The beats of all leases of the request count; the nearest fraction is stored."""
    job = api.app.enqueue("big")
    (held,) = lease(api(), lease=5)
    before = api.app.get(job.id).lease_expires_at
    beats = beat(api("work"), named(held, progress={"fraction": fraction}), lease=600)
    after = api.app.get(job.id)

    assert beats == ["kept"]
    assert after.progress.fraction == kept
    assert after.lease_expires_at > before


def test_a_heartbeat_extends_and_tells(api):
    """Progress and lines are stored; a request to cancel is told."""
    job = api.app.enqueue("big")
    (held,) = lease(api(), lease=5)
    before = api.app.get(job.id).lease_expires_at
    told = named(held, progress={"fraction": 0.25, "text": "a quarter"}, log=["one", "two"])
    kept = beat(api("work"), told, lease=600)
    after = api.app.get(job.id)
    api().post(f"/v1/jobs/{job.id}/cancel")

    assert kept == ["kept"]
    assert (after.lease_expires_at - before).total_seconds() > 500
    assert (after.progress.fraction, after.progress.text) == (0.25, "a quarter")
    assert [line.text for line in api.app.store.read_log(job.id)] == ["one", "two"]
    assert beat(api(), named(held)) == ["cancel_requested"]
    assert settle(api(), named(held, outcome="cancelled")) == ["settled"]
    assert JobState.CANCELLED is api.app.get(job.id).state


def test_jobs_that_follow_a_success(api):
    """Enqueued if, and only if, the settlement holds; checked like any others."""
    api.app.enqueue("big")
    (held,) = lease(api())
    follow = [{"kind": "send_email", "payload": {"to": "a@b.c"}}]
    bad = api().post(
        "/v1/leases/settle",
        json={
            "settlements": [named(held, outcome="succeeded", follow_ups=[{"kind": "send_email"}])]
        },
    )
    done = named(held, outcome="succeeded", follow_ups=follow)
    statuses = settle(api(), done) + settle(api(), done)

    assert bad.json()["errors"][0]["field"] == "settlements[0].follow_ups[0].payload.to"
    assert statuses == ["settled", "already_settled"]
    assert len(api.app.list(kind="send_email")) == 1


def test_what_follows_is_bounded(api, monkeypatch):
    """In all settlements of a call together; beyond, none holds, and no job is looked at."""
    monkeypatch.setattr(config, "HTTP_FOLLOW_UPS_MAX", 3)
    api.app.enqueue_many([{"kind": "big"}] * 2)
    ends = [
        named(held, outcome="succeeded", follow_ups=[{"kind": "other"}] * 2)
        for held in lease(api(), limit=2)
    ]
    beyond = [{**end, "follow_ups": [7, 7]} for end in ends]
    refused = api().post("/v1/leases/settle", json={"settlements": beyond})
    ends[1]["follow_ups"].pop()

    assert (
        refused.status_code,
        *refused.json()["errors"][0].values(),
    ) == (422, "settlements", "must have at most 3 follow_ups in total")
    assert settle(api(), *ends) == ["settled"] * 2
    assert len(api.app.list(kind="other")) == 3


def test_others_are_served_while_what_follows_is_checked(api, monkeypatch):
    """Thousands of jobs take a while: not the time of everybody else."""
    begun, answered = threading.Event(), threading.Event()

    def slow(*args: Any, **options: Any) -> Any:
        begun.set()
        assert answered.wait(10)
        return prepare_all(*args, **options)

    monkeypatch.setattr("rowlock.server.routes.leases.prepare_all", slow)
    api.app.enqueue("big")
    (held,) = lease(api())
    done = named(held, outcome="succeeded", follow_ups=[{"kind": "other"}])
    with ThreadPoolExecutor(1) as thread:
        settling = thread.submit(settle, api("work"), done)
        assert begun.wait(30)
        health = api.client().get("/healthz")
        answered.set()

        assert (health.status_code, settling.result()) == (200, ["settled"])


def test_a_tenants_worker_gets_its_jobs(api):
    """And can neither lease, extend nor settle those of others."""
    for tenant in ("acme", "zoo", None):
        api.app.enqueue("big", {"of": tenant}, tenant=tenant)
    acme = api("work", tenant="acme")
    held = lease(acme, limit=10)
    others = lease(api(), limit=10)

    assert [each["payload"] for each in held] == [{"of": "acme"}]
    assert beat(acme, *(named(each, log=["x"]) for each in others)) == ["lost", "lost"]
    assert settle(acme, *(named(each, outcome="failed", permanent=True) for each in others)) == [
        "lost",
        "lost",
    ]
    assert {job.state for job in api.app.list()} == {"running"}
    assert settle(acme, named(held[0], outcome="succeeded")) == ["settled"]


def test_a_tenants_worker_is_its_own(api):
    """It can't have another's name, and what it runs is not told to other tenants."""
    lease(api(), worker="node-1")
    lease(api("work", tenant="acme"), worker="node-1", kinds=["acme_only"])
    workers = {each["id"]: each["kinds"] for each in api().get("/v1/workers").json()["workers"]}
    job = api.app.enqueue("acme_onl", tenant="zoo")
    why = api("read", tenant="zoo").get(f"/v1/jobs/{job.id}/why")

    def kinds(tenant: str | None) -> set[str]:
        listed = api("read", tenant=tenant).get("/v1/kinds").json()["kinds"]
        return {each["kind"] for each in listed}

    assert workers == {"node-1": ["big"], "tenant:acme/node-1": ["acme_only"]}
    assert {"acme_only"} == kinds("acme") - kinds("zoo") == kinds(None) - kinds("zoo")
    assert "acme_only" not in why.text


@pytest.mark.parametrize("tenant", ["t" * 200, "Общество потребителей", "株" * 200])
def test_a_tenant_with_any_name_leases(api, tenant):
    """Its worker has a valid name, is its own, and runs the jobs of that tenant."""
    job = api.app.enqueue("big", tenant=tenant)
    (held,) = lease(api.client(api.make_token("work", tenant=tenant)), worker="w" * 200)
    (shown,) = (each.id for each in api.app.workers())
    waiting = api.app.enqueue("big", tenant=tenant)

    assert held["id"] == job.id
    assert len(shown) <= 200
    assert "no live worker" not in api.app.why(waiting.id).text


def test_ids_of_follow_ups_are_a_tenants_own(api):
    """Two tenants use the same id, and each gets its job."""
    follow_up = {"kind": "after", "id": "018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a"}
    for tenant in ("acme", "zoo"):
        api.app.enqueue("big", tenant=tenant)
        work = api("work", tenant=tenant)
        (held,) = lease(work)
        ends = settle(work, named(held, outcome="succeeded", follow_ups=[follow_up]))
        assert ends == ["settled"]

    assert sorted(job.tenant for job in api.app.list(kind="after")) == ["acme", "zoo"]


def test_workers_with_long_names_stay_apart(api):
    """Two workers whose names differ only at the end are two, and so are those of two tenants."""
    for tenant in ("株" * 199 + "会", "株" * 200):
        work = api.client(api.make_token("work", tenant=tenant))
        for end in "ab":
            lease(work, worker="w" * 199 + end)

    assert len(api.app.workers()) == 4


def test_a_call_waits_for_a_job(api):
    """It is answered when one comes, long before its time is over."""
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        waiting = pool.submit(lease, api(), wait=50)
        while api.server.waiting == 0:
            time.sleep(0.01)
        job = api.app.enqueue("big")
        (held,) = waiting.result()

    assert job.id == held["id"]
    assert time.monotonic() - began < 30


def test_many_wait_for_many_jobs(api):
    """Each job goes to one of them, and all are answered: who finds one wakes the next."""
    with ThreadPoolExecutor(12) as pool:
        waiting = [pool.submit(lease, api(), worker=f"w{n}", wait=50) for n in range(12)]
        while api.server.waiting < 12:
            time.sleep(0.01)
        jobs = api.app.enqueue_many([{"kind": "big"}] * 12)
        held = [each for future in waiting for each in future.result()]

    assert {job.id for job in jobs} == {each["id"] for each in held}
    assert len(held) == 12


def test_a_wait_ends(api):
    """With nothing, when its time is over."""
    began = time.monotonic()

    assert lease(api(), wait=0.3) == []
    assert 0.3 <= time.monotonic() - began < 30


def test_a_job_that_is_due_later_is_waited_for(api):
    """No bell rings when a job becomes due: it is looked for."""
    job = api.app.enqueue("big", delay=0.5)
    (held,) = lease(api(), wait=50)

    assert job.id == held["id"]


def test_beyond_so_many_nobody_waits(api, monkeypatch):
    """They are answered at once: a server has a bound."""
    monkeypatch.setattr(config, "HTTP_WAITERS_MAX", 0)
    began = time.monotonic()

    assert lease(api(), wait=50) == []
    assert time.monotonic() - began < 30


def test_nobody_waits_for_the_answer(any_url):
    """A client that went away while it waited gets no job; the next one does."""
    with Running(make_app(any_url), is_open=True) as running:
        with pytest.raises(httpx.ReadTimeout):
            running.client().post(
                "/v1/leases",
                json={"worker": "gone", "kinds": ["big"], "wait": 50},
                timeout=httpx.Timeout(30, read=0.3),
            )
        job = running.app.enqueue("big")
        (held,) = lease(running.client(), worker="here", wait=50)

    assert (held["id"], held["attempt"]) == (job.id, 1)


def test_a_stop_lets_those_who_wait_answer(any_url):
    """At once, with nothing, and the server ends well before their time is over."""
    answers: list[list[dict]] = []
    with Running(make_app(any_url), is_open=True) as running:
        client = running.client()
        thread = threading.Thread(target=lambda: answers.append(lease(client, wait=50)))
        thread.start()
        while running.server.waiting == 0:
            time.sleep(0.01)
        began = time.monotonic()
        running.server.stop()
        thread.join(30)

    assert answers == [[]]
    assert time.monotonic() - began < 25


def test_workers_are_announced(api):
    """So that others see who serves what, and `why` knows of them."""
    lease(api(), worker="node-1", queues=["mail"])
    (worker,) = api().get("/v1/workers").json()["workers"]
    job = api.app.enqueue("big", queue="mail")

    assert (worker["id"], worker["queues"], worker["kinds"]) == ("node-1", ["mail"], ["big"])
    assert api.app.why(job.id).code == "next"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("", {"worker": "w", "kinds": []}, "kinds"),
        ("", {"worker": "w"}, "kinds"),
        ("", {"worker": "", "kinds": ["x"]}, "worker"),
        ("", {"worker": "w", "kinds": ["x"], "limit": 501}, "limit"),
        ("", {"worker": "w", "kinds": ["x"], "lease": 0.5}, "lease"),
        ("", {"worker": "w", "kinds": ["x"], "wait": 56}, "wait"),
        ("/heartbeat", {"leases": []}, "leases"),
        ("/heartbeat", {"leases": [{"id": "x", "token": 1}]}, "leases[0].id"),
        ("/heartbeat", {"leases": [{"id": UNKNOWN, "token": 2**63}]}, "leases[0].token"),
        (
            "/heartbeat",
            {"leases": [{"id": UNKNOWN, "token": 1, "progress": {"fraction": "half"}}]},
            "leases[0].progress.fraction",
        ),
        ("/settle", {"settlements": [{"id": UNKNOWN, "token": 1}]}, "settlements[0].outcome"),
        (
            "/settle",
            {"settlements": [{"id": UNKNOWN, "token": 1, "outcome": "exploded"}]},
            "settlements[0].outcome",
        ),
        (
            "/settle",
            {"settlements": [{"id": UNKNOWN, "token": 1, "outcome": "released"}] * 2},
            "leases",
        ),
        *(
            ("/settle", {"settlements": [following({"kind": "a"}, bad)]}, f"{FOLLOWING}[1]{field}")
            for bad, field in (
                (7, ""),
                ({}, ".kind"),
                ({"kind": 7}, ".kind"),
                ({"kind": "a", "?": 1}, ".?"),
            )
        ),
        ("/settle", {"settlements": [following(*[{"kind": "a"}] * 101)]}, FOLLOWING),
    ],
)
def test_bad_requests_are_named(api, path, body, field):
    """422, by the path of what is wrong."""
    answer = api().post(f"/v1/leases{path}", json=body)

    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field), answer.text


def test_a_result_that_can_not_be_kept(api):
    """The job has succeeded; why there is no result is noted."""
    job = api.app.enqueue("big")
    (held,) = lease(api())
    body = (
        f'{{"settlements": [{{"id": "{job.id}", "token": {held["token"]}, '
        f'"outcome": "succeeded", "result": {"9" * 4_301}}}]}}'
    )
    answer = api().post(
        "/v1/leases/settle", content=body, headers={"content-type": "application/json"}
    )
    done = api.app.get(job.id)

    assert (answer.status_code, answer.json()["settled"]) == (200, 1)
    assert (done.state, done.result) == (JobState.SUCCEEDED, None)
    assert done.errors[0].type == "ResultNotStored"


def test_an_answer_has_a_bound_of_bytes(api):
    """Of large payloads as many come as fit, the others stay in line; of small ones all do."""
    large = "x" * (config.PAYLOAD_BYTES_MAX * 3 // 4)
    jobs = [api.app.enqueue("big", {"text": large}) for _ in range(14)]
    small = api.app.enqueue_many([{"kind": "big"} for _ in range(300)])
    answers = [lease(api("work"), limit=500) for _ in range(2)]
    rest: list[dict] = []
    while more := lease(api("work"), limit=500):
        rest += more

    ids = [[each["id"] for each in answer] for answer in answers]
    assert ids[0] == [job.id for job in jobs[:10]]
    assert ids[1][:4] == [job.id for job in jobs[10:]]
    assert ids[1][4:] + [each["id"] for each in rest] == [job.id for job in small]
    assert {each["attempt"] for answer in [*answers, rest] for each in answer} == {1}


def test_what_does_not_fit_into_an_answer_is_given_back(api):
    """By the last ones it should have fit: it is the next one's, as if it had not been leased."""
    small = [api.app.enqueue("big") for _ in range(100)]
    while lease(api("work"), limit=500):
        pass
    large = "é" * (config.PAYLOAD_BYTES_MAX * 3 // 8)
    jobs = [api.app.enqueue("big", {"text": large}) for _ in range(14)]
    answer = lease(api("work"), limit=500)
    states = [api.app.get(job.id).state for job in jobs]

    assert len(small) == 100
    assert [each["id"] for each in answer] == [job.id for job in jobs[: len(answer)]]
    assert len(answer) == 10
    assert states == [JobState.RUNNING] * 10 + [JobState.READY] * 4
    assert [job.attempt for job in map(api.app.get, [job.id for job in jobs[10:]])] == [0] * 4


def test_one_job_always_fits(api, monkeypatch):
    """However large it is."""
    monkeypatch.setattr(config, "HTTP_LEASE_BYTES", 10)
    first, second = (api.app.enqueue("big", {"text": "x" * 100}) for _ in range(2))
    answers = [lease(api("work"), limit=5) for _ in range(3)]

    assert [[each["id"] for each in answer] for answer in answers] == [[first.id], [second.id], []]


def refusals(api: Running) -> float:
    """What the server's metric says."""
    found = samples(api("read").get("/metrics").content)
    return found["rowlock_settles_refused_total", ()]


def successes(api: Running) -> float:
    """How many jobs of kind `big` it has counted."""
    found = samples(api("read").get("/metrics").content)
    name = {"queue": "default", "kind": "big", "outcome": "succeeded"}
    return found.get(("rowlock_jobs_finished_total", tuple(sorted(name.items()))), 0)


@pytest.mark.owner("puts a trigger on our table")
def test_a_lost_job_that_cannot_be_buried_stops_no_claim(api):
    """Jobs are leased all the same, and the metric counts the one that is refused."""
    before = refusals(api)
    jobs = [api.app.enqueue("lost", max_attempts=1) for _ in range(6)]
    api.app.store.claim(worker="gone", queues=["default"], limit=6, lease=0.001)
    due = api.app.enqueue("big")
    refuse(api.app.url, table="finished", when=f"NEW.id = '{jobs[3].id}'")
    held: list[dict] = []
    while not all(api.app.get(job.id).state is JobState.DEAD for job in jobs if job != jobs[3]):
        held += lease(api("work"))
    after = refusals(api)
    allow(api.app.url, table="finished")

    assert [each["id"] for each in held] == [due.id]
    assert api.app.get(jobs[3].id).state is JobState.RUNNING
    assert after - before == 1


@pytest.mark.owner("puts a trigger on our table")
def test_a_settlement_that_is_refused_fails_no_other(api):
    """A result that the database refuses is left out; what is refused whole is named last."""
    before = refusals(api), successes(api)
    jobs = [api.app.enqueue("big", {"n": number}) for number in range(6)]
    held = lease(api("work"), limit=6)
    when = f"NEW.result = '\"bad\"' OR NEW.id = '{jobs[4].id}'"
    refuse(api.app.url, table="finished", when=when)
    results = ["good", "bad", "good", "good", "good", "good"]
    settlements = [
        named(each, outcome="succeeded", result=result)
        for each, result in zip(held, results, strict=True)
    ]
    body = {"settlements": settlements}
    answer = api("work").post("/v1/leases/settle", json=body)
    allow(api.app.url, table="finished")
    found = [api.app.get(job.id) for job in jobs]

    assert (answer.status_code, answer.json()["code"]) == (422, "store_refused")
    assert [job.result for job in found] == ["good", None, "good", "good", None, "good"]
    assert [job.state for job in found if job is not found[4]] == [JobState.SUCCEEDED] * 5
    assert found[4].state is JobState.RUNNING
    assert (refusals(api) - before[0], successes(api) - before[1]) == (2, 5)
    again = settle(api("work"), *settlements[4:5])
    assert again == ["settled"]


def announcing(api, tenant: str):
    """Asks for jobs as a worker of a new tenant, of which the server has seen no worker."""
    client = api.client(api.make_token("work", tenant=tenant))

    def announce(worker: str, kinds: list[str]) -> httpx.Response:
        return client.post("/v1/leases", json={"worker": worker, "kinds": kinds})

    return announce


def test_one_tenant_announces_a_bounded_number_of_names(api, monkeypatch):
    """All announcements are read by others, so one token must not make them long."""
    monkeypatch.setattr(config, "HTTP_ANNOUNCED_NAMES_MAX", 10)
    first, second = announcing(api, "names-1"), announcing(api, "names-2")
    answers = [
        first("a", [f"a{number}" for number in range(6)]),
        first("b", [f"b{number}" for number in range(6)]),
        first("b", [f"a{number}" for number in range(6)]),
        first("a", [f"a{number}" for number in range(8)]),
        second("b", [f"b{number}" for number in range(6)]),
    ]
    kinds = {each["kind"] for each in api("read").get("/v1/kinds").json()["kinds"]}

    assert [answer.status_code for answer in answers] == [200, 422, 200, 200, 200]
    assert answers[1].json()["errors"][0]["field"] == "kinds"
    assert len(kinds - {"order", "send_email"}) == 8 + 6


@pytest.mark.parametrize(
    ("name", "most"), [("HTTP_ANNOUNCED_WORKERS_MAX", 2), ("HTTP_ANNOUNCED_BYTES_MAX", 400)]
)
def test_one_tenant_announces_a_bounded_number_of_workers(api, monkeypatch, name, most):
    """A worker that is known goes on, and says what it serves."""
    monkeypatch.setattr(config, name, most)
    announce = announcing(api, name)
    kinds = ["k" * 150]
    statuses = [announce(worker, kinds).status_code for worker in ("c", "d", "e", "d")]
    refused = announce("e", kinds)
    seen = {each["id"] for each in api("admin").get("/v1/workers").json()["workers"]}

    assert statuses == [200, 200, 429, 200]
    assert refused.json()["code"] == "too_many_requests"
    assert refused.headers["retry-after"] == "600"
    assert seen == {f"tenant:{name}/c", f"tenant:{name}/d"}
