"""`/v1/jobs`: enqueue over HTTP, and look."""

from __future__ import annotations

import json

import pytest

import rowlock
from rowlock.ids import id_of_tenant
from tests.support.server import Running, make_app

BIG = 10**400 + 7


def test_a_job_is_enqueued_and_read(api):
    """201 with a receipt, and its location leads to the whole job."""
    made = api().post("/v1/jobs", json={"kind": "send_email", "payload": {"to": "a@b.c"}})
    job = api("read").get(made.headers["location"]).json()

    assert made.status_code == 201
    assert {"created": True, "queue": "mail", "state": "ready"}.items() <= made.json().items()
    assert made.json()["id"] == job["id"]
    assert (job["payload"], job["max_attempts"], job["errors"]) == ({"to": "a@b.c"}, 5, [])
    assert job["meta"]["origin"].startswith("token:")


def test_every_option_travels(api):
    """What a job can be told in Python it can be told over HTTP."""
    options = {
        "id": "018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a",
        "queue": "own/queue?",
        "priority": -7,
        "key": "k",
        "key_hold": "kept",
        "run_at": "2040-01-31T12:00:00Z",
        "tenant": "acme",
        "max_attempts": 3,
        "keep": None,
        "tags": ["a", "b"],
        "meta": {"trace": "t"},
    }
    made = api().post("/v1/jobs", json={"kind": "elsewhere", **options})
    job = api().get(f"/v1/jobs/{made.json()['id']}").json()

    assert made.status_code == 201, made.text
    assert job["state"] == "scheduled"
    for name in options.keys() - {"key_hold", "meta"}:
        assert options[name] == job[name]
    assert job["meta"]["trace"] == "t"


def test_a_debounce(api):
    """The last payload counts. The answer is 200, with the job that waits."""
    options = {"kind": "elsewhere", "key": "k", "quiet": 60, "max_wait": 600}
    first = api().post("/v1/jobs", json={**options, "payload": {"n": 1}})
    again = api().post("/v1/jobs", json={**options, "payload": {"n": 2}})
    batch = api().post(
        "/v1/jobs/batch", json={"jobs": [{**options, "payload": {"n": n}} for n in (3, 4)]}
    )
    job = api().get(first.headers["location"]).json()

    assert (first.status_code, again.status_code, batch.status_code) == (201, 200, 200)
    assert (again.json()["id"], again.json()["created"]) == (first.json()["id"], False)
    assert (batch.json()["existing"], job["payload"], job["state"]) == (2, {"n": 4}, "scheduled")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"quiet": 5}, "quiet"),
        ({"key": "k", "quiet": 5, "delay": 1}, "quiet"),
        ({"key": "k", "quiet": 5, "if_held": "keep"}, "if_held"),
        ({"key": "k", "quiet": 5, "max_wait": 4}, "max_wait"),
        ({"key": "k", "max_wait": 5}, "max_wait"),
        ({"if_held": "replace"}, "if_held"),
        ({"key": "k", "if_held": "drop"}, "if_held"),
        ({"key": "k", "key_hold": "started"}, "key_hold"),
    ],
)
def test_a_debounce_that_contradicts_itself_is_refused(api, options, field):
    """The answer names the option, and nothing is enqueued."""
    refused = api().post("/v1/jobs", json={"kind": "elsewhere", **options})

    assert (refused.status_code, refused.json()["code"]) == (422, "option_invalid")
    assert [error["field"] for error in refused.json()["errors"]] == [field]
    assert api().get("/v1/jobs").json()["jobs"] == []


def test_a_kind_that_is_not_known_here_gets_its_worker_s_rules(api):
    """A `keep` that was sent stays; the rest is as the task says that runs it."""
    made = api().post("/v1/jobs", json={"kind": "elsewhere", "keep": 7})
    with make_app(api.app.url) as app:

        @app.task(name="elsewhere", max_attempts=2, retry=rowlock.retry.fixed(5), timeout=60)
        def elsewhere() -> None:
            raise RuntimeError

        app.drain()
    job = api().get(made.headers["location"]).json()

    assert (*(job["keep"], job["timeout"], job["max_attempts"], job["retry"]),) == (
        7,
        60,
        2,
        ["fixed", 5],
    )


def test_integers_are_exact(api):
    """JSON integers of any length come back as they were sent, whatever languages are between."""
    body = f'{{"kind": "big", "payload": {{"n": {BIG}, "less": -{BIG}, "id": 9007199254740993}}}}'
    made = api().post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    read = api().get(made.headers["location"])

    assert json.loads(read.text)["payload"] == {"n": BIG, "less": -BIG, "id": 2**53 + 1}


def test_a_key_answers_with_the_job_in_flight(api):
    """200 and the same id."""
    body = {"kind": "send_email", "payload": {"to": "a@b.c"}, "key": "k"}
    first, again = (api().post("/v1/jobs", json=body) for _ in range(2))

    assert (first.status_code, again.status_code) == (201, 200)
    assert (again.json()["id"], again.json()["created"]) == (first.json()["id"], False)


def test_who_may_only_enqueue_reads_nothing(api):
    """A receipt holds no payload: by a key that is in flight, others' jobs could be read."""
    api().post("/v1/jobs", json={"kind": "big", "payload": {"secret": "canary"}, "key": "k"})
    again = api("enqueue").post("/v1/jobs", json={"kind": "big", "key": "k"})

    assert again.status_code == 200
    assert "canary" not in again.text


def test_a_bad_payload_names_every_field(api):
    """422 before anything is written, by the task's signature, with paths of the request."""
    payload = {"items": [{"name": "a", "count": 0}, {"count": 1}], "note": 5, "extra": 1}
    refused = api().post("/v1/jobs", json={"kind": "order", "payload": payload})

    assert (refused.status_code, refused.json()["code"]) == (422, "payload_invalid")
    assert {error["field"] for error in refused.json()["errors"]} == {
        "payload.items[0].count",
        "payload.items[1].name",
        "payload.note",
        "payload.extra",
    }


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"kind": ""}, "option_invalid", "kind"),
        ({}, "option_invalid", "kind"),
        ({"kind": "x", "priority": 101}, "option_invalid", "priority"),
        ({"kind": "x", "priority": "high"}, "option_invalid", "priority"),
        ({"kind": "x", "colour": "red"}, "option_invalid", "colour"),
        ({"kind": "x", "run_at": "2030-01-31T12:00:00"}, "option_invalid", "run_at"),
        ({"kind": "x", "delay": -1}, "option_invalid", "delay"),
        (
            {"kind": "x", "delay": 1, "run_at": "2030-01-31T12:00:00Z"},
            "option_invalid",
            "delay",
        ),
        ({"kind": "x", "id": "no"}, "option_invalid", "id"),
        ({"kind": "x", "tags": ["t"] * 21}, "option_invalid", "tags"),
        ({"kind": "x", "payload": [1]}, "payload_invalid", "payload"),
        ({"kind": "x", "payload": {"a": "b\0c"}}, "payload_invalid", "payload.a"),
        ({"kind": "send_email"}, "payload_invalid", "payload.to"),
    ],
)
def test_bad_values_are_named(api, body, code, field):
    """Each with its path, and nothing is enqueued."""
    refused = api().post("/v1/jobs", json=body)

    assert (refused.status_code, refused.json()["code"]) == (422, code)
    assert [error["field"] for error in refused.json()["errors"]] == [field]
    assert api.app.list().jobs == []


OWN_ID = "018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a"


def test_an_id_is_a_tenants_own(api):
    """Each tenant can use the same id, finds its own job by it, and can't tell of another's."""
    body = {"kind": "big", "id": OWN_ID}
    api.app.enqueue("big", id=OWN_ID)
    first, again = (api("enqueue", tenant="acme").post("/v1/jobs", json=body) for _ in range(2))
    other = api("enqueue", tenant="zoo").post("/v1/jobs", json=body)

    assert [each.status_code for each in (first, again, other)] == [201, 200, 201]
    assert first.json()["id"] == again.json()["id"]
    assert len({OWN_ID, first.json()["id"], other.json()["id"]}) == 3
    assert {job.tenant for job in api.app.list()} == {None, "acme", "zoo"}


def test_an_id_of_a_tenant_is_in_the_answer(api):
    """The job is read by the id of the answer. The id that was sent is nobody's."""
    made = api(tenant="acme").post("/v1/jobs", json={"kind": "big", "id": OWN_ID})
    read = api(tenant="acme").get(made.headers["location"])
    by_own = api(tenant="acme").get(f"/v1/jobs/{OWN_ID}")

    assert (read.status_code, read.json()["id"]) == (200, made.json()["id"])
    assert by_own.status_code == 404


def test_ids_in_a_batch_are_a_tenants_own(api):
    """As in a single call: the same id, sent either way, is the same job."""
    body = {"kind": "big", "id": OWN_ID}
    batches = [
        api("enqueue", tenant=tenant).post("/v1/jobs/batch", json={"jobs": [body]}).json()
        for tenant in ("acme", "zoo", "acme")
    ]
    single = api("enqueue", tenant="acme").post("/v1/jobs", json=body).json()

    assert [each["created"] for each in batches] == [1, 1, 0]
    assert single["id"] == batches[0]["jobs"][0]["id"] == batches[2]["jobs"][0]["id"]


def test_an_id_of_a_token_without_a_tenant_is_kept(api):
    """Such a token acts for all tenants. The same id finds the same job."""
    body = {"kind": "big", "id": OWN_ID, "tenant": "acme"}
    made = [api("enqueue").post("/v1/jobs", json=body) for _ in range(2)]

    assert [each.status_code for each in made] == [201, 200]
    assert {each.json()["id"] for each in made} == {OWN_ID}


def test_unknown_ids_are_not_found(api):
    """Also what is no id at all."""
    for id in ("018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a", "no-id", "%00", "%ff"):
        answer = api().get(f"/v1/jobs/{id}")

        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_batch_tells_of_each(api):
    """All are enqueued, in order; those that were there already are told one by one."""
    api().post("/v1/jobs", json={"kind": "big", "key": "k"})
    jobs = [{"kind": "big", "payload": {"n": n}} for n in range(3)]
    jobs[1]["key"] = "k"
    made = api().post("/v1/jobs/batch", json={"jobs": jobs})
    again = api().post("/v1/jobs/batch", json={"jobs": [jobs[1]]})

    assert (made.status_code, made.json()["created"], made.json()["existing"]) == (201, 2, 1)
    assert [job["created"] for job in made.json()["jobs"]] == [True, False, True]
    assert (again.status_code, again.json()["created"], again.json()["existing"]) == (200, 0, 1)
    assert len(api.app.list()) == 3


def test_a_batch_is_all_or_none(api):
    """Every bad field of every job is named by its path, and nothing is enqueued."""
    jobs = [
        {"kind": "send_email", "payload": {"to": "a@b.c"}},
        {"kind": "send_email", "payload": {"to": 5, "extra": 1}},
        {"kind": "x", "delay": 1, "run_at": "2030-01-31T12:00:00Z"},
        {"kind": "order", "payload": {"items": [{}]}},
    ]
    refused = api().post("/v1/jobs/batch", json={"jobs": jobs})

    assert (refused.status_code, refused.json()["code"]) == (422, "payload_invalid")
    assert {error["field"] for error in refused.json()["errors"]} == {
        "jobs[1].payload.to",
        "jobs[1].payload.extra",
        "jobs[2].delay",
        "jobs[3].payload.items[0].name",
    }
    assert api.app.list().jobs == []


def test_a_batch_is_bounded(api):
    """Ten thousand are taken, one more is not; none is no batch."""
    most = api().post("/v1/jobs/batch", json={"jobs": [{"kind": "big"}] * 10_000})
    more = api().post("/v1/jobs/batch", json={"jobs": [{"kind": "big"}] * 10_001})
    none = api().post("/v1/jobs/batch", json={"jobs": []})

    assert (most.status_code, most.json()["created"]) == (201, 10_000)
    assert [more.status_code, none.status_code] == [422, 422]
    assert more.json()["errors"][0]["field"] == "jobs"


def test_a_taken_id_undoes_a_batch(api):
    """If trusted code gave the very id of a tenant to another, nothing is enqueued or revealed."""
    api.app.enqueue("big", tenant="acme", id=id_of_tenant(OWN_ID, "zoo"))
    jobs = [{"kind": "big"}, {"kind": "big", "id": OWN_ID}]
    batch = api("enqueue", tenant="zoo").post("/v1/jobs/batch", json={"jobs": jobs})
    single = api("enqueue", tenant="zoo").post("/v1/jobs", json=jobs[1])

    assert (batch.status_code, single.status_code) == (422, 422)
    assert "acme" not in batch.text + single.text
    assert [job.tenant for job in api.app.list()] == ["acme"]


def test_many_bad_fields_are_named_up_to_a_bound(api):
    """An answer has an end, however much is wrong."""
    refused = api().post("/v1/jobs/batch", json={"jobs": [{"kind": "send_email"}] * 5_000})

    assert len(refused.json()["errors"]) == 1_000


def test_a_strict_app_takes_its_own_kinds_only(any_url):
    """Others are refused by name, with the one that was meant."""
    app = make_app(any_url)
    app.is_strict = True
    with Running(app, is_open=True) as running:
        refused = running.client().post("/v1/jobs", json={"kind": "send_emial"})
        taken = running.client().post(
            "/v1/jobs", json={"kind": "send_email", "payload": {"to": "a@b.c"}}
        )

    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "kind")
    assert "'send_email'" in refused.json()["detail"]
    assert taken.status_code == 201
