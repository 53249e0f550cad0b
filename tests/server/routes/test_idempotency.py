"""`Idempotency-Key`: a request that is sent again gets the first answer, and does nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import httpx
import pytest

from rowlock import config
from rowlock.job import JobState
from rowlock.server.routes.enqueue import packed, receipts_of, unpacked
from rowlock.store.ops.enqueue import Copied
from rowlock.store.options import new_job
from tests.store.triggers import allow, refuse
from tests.support.server import Running, make_app

BODY = {"kind": "big", "payload": {"n": 1}}
BATCH = {"jobs": [BODY, {"kind": "send_email", "payload": {"to": "a@b.c"}, "key": "k"}]}


def post(
    api: Running,
    body: dict[str, Any] = BODY,
    *,
    key: str | bytes = "order-42",
    path: str = "/v1/jobs",
    tenant: str | None = None,
) -> httpx.Response:
    """Enqueue with that header."""
    name = b"Idempotency-Key"
    value = key if isinstance(key, bytes) else key.encode()
    return api("enqueue", tenant=tenant).post(path, json=body, headers=[(name, value)])


@pytest.mark.parametrize(("path", "body"), [("/v1/jobs", BODY), ("/v1/jobs/batch", BATCH)])
def test_a_repeat_gets_the_first_answer(api, path, body):
    """The same status and body, also once the jobs have ended, and nothing is enqueued."""
    first = post(api, body, path=path)
    for job in api.app.list():
        api.app.cancel(job.id)
        api.app.delete(job.id)
    again = post(api, body, path=path)

    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content
    assert again.headers.get("location") == first.headers.get("location")
    assert first.headers.get("idempotency-replayed") is None
    assert again.headers["idempotency-replayed"] == "true"
    assert api.app.list().jobs == []


def test_the_first_answer_may_be_of_a_job_that_existed(api):
    """The key of the request is not the key of the job: both are found on their own."""
    body = {**BODY, "key": "order-42"}
    existing = api("enqueue").post("/v1/jobs", json=body)
    first, again = post(api, body), post(api, body)
    other = post(api, BODY, key="another")

    assert existing.status_code == 201
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.content == again.content
    assert (other.status_code, other.json()["key"]) == (201, None)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/jobs", {"kind": "big", "payload": {"n": 2}}), ("/v1/jobs/batch", {"jobs": [BODY]})],
)
def test_another_body_is_refused(api, path, body):
    """422 with a code of its own, for either call, and nothing is enqueued."""
    post(api)
    refused = post(api, body, path=path)

    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert len(api.app.list()) == 1


def test_a_body_is_compared_by_what_it_says(api):
    """Not by its spaces, nor by the order of its fields."""
    post(api)
    headers = {"Idempotency-Key": "order-42", "content-type": "application/json"}
    text = '{ "payload": {"n":1},\n "kind": "big"}'
    again = api("enqueue").post("/v1/jobs", content=text, headers=headers)

    assert again.headers.get("idempotency-replayed") == "true"


def test_a_key_is_a_tenants_own(api):
    """Two tenants may use the same one, and a token without a tenant too."""
    made = [post(api, tenant=tenant) for tenant in ("acme", "zoo", None)]

    assert [each.status_code for each in made] == [201, 201, 201]
    assert len({each.json()["id"] for each in made}) == 3
    assert post(api, tenant="acme").content == made[0].content


def test_a_quoted_key_is_the_same(api):
    """The draft of the header has a quoted string, and most clients send it bare."""
    post(api)

    assert post(api, key='"order-42"').headers.get("idempotency-replayed") == "true"


def test_a_key_may_have_quotes_and_any_language(api):
    """Escaped in a quoted string. Other alphabets are UTF-8."""
    assert post(api, key='a"b\\c').status_code == 201
    assert post(api, key='"a\\"b\\\\c"').headers.get("idempotency-replayed") == "true"
    assert post(api, key="заказ-42").status_code == 201
    assert post(api, key="заказ-42").headers.get("idempotency-replayed") == "true"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "must have 1 to 200 characters"),
        ('""', "must have 1 to 200 characters"),
        ("x" * 201, "must have 1 to 200 characters, not 201"),
        ('"open', "does not end with one, or has a wrong escape"),
        ('"a\\-b"', "does not end with one, or has a wrong escape"),
        (b"caf\xe9", "UTF-8"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/batch"])
def test_bad_keys_are_refused(api, key, words, path):
    """422 that names the header and says what is wrong with it."""
    refused = post(api, BODY if path == "/v1/jobs" else BATCH, key=key, path=path)

    assert (refused.status_code, refused.json()["code"]) == (422, "option_invalid")
    assert refused.json()["errors"][0]["field"] == "Idempotency-Key"
    assert words in refused.text
    assert api.app.list().jobs == []


def test_two_keys_are_refused(api):
    """Nobody could say which of them counts."""
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    refused = api("enqueue").post("/v1/jobs", json=BODY, headers=headers)

    assert (refused.status_code, "more than once" in refused.text) == (422, True)


def test_repeats_at_once_enqueue_once(api):
    """Each waits for the first, and gets its answer, on whichever server it arrives."""
    number = 6
    together = Barrier(number)
    api("enqueue")

    with Running(make_app(api.app.url)) as second:
        second.tokens = api.tokens
        second("enqueue")

        def send(place: int) -> httpx.Response:
            together.wait(60)
            return post(api if place % 2 else second)

        with ThreadPoolExecutor(number) as pool:
            answers = list(pool.map(send, range(number)))

    assert {each.status_code for each in answers} == {201}
    assert len({each.content for each in answers}) == 1
    assert sum("idempotency-replayed" not in each.headers for each in answers) == 1
    assert len(api.app.list()) == 1


def test_a_request_that_failed_leaves_its_key_free(api):
    """The note of the key is written with the jobs, or not at all."""
    refuse(api.app.url, table="job", when="NEW.kind = 'big'")
    failed = post(api)
    allow(api.app.url, table="job")
    again = post(api)

    assert (failed.status_code, failed.json()["code"]) == (422, "store_refused")
    assert (again.status_code, "idempotency-replayed" in again.headers) == (201, False)


def test_a_request_that_is_invalid_leaves_its_key_free(api):
    """A client may mend its body and keep the key."""
    invalid = post(api, {"kind": "send_email"})
    mended = post(api, {"kind": "send_email", "payload": {"to": "a@b.c"}})

    assert (invalid.status_code, mended.status_code) == (422, 201)


def test_a_large_batch_is_stored_in_little_room(api):
    """Ten thousand receipts take less than 50 bytes each, and come back as they were."""
    body = {"jobs": [{"kind": "big", "payload": {"n": n}} for n in range(config.HTTP_BATCH_MAX)]}
    first, again = (post(api, body, path="/v1/jobs/batch") for _ in range(2))
    jobs = api.app.list(limit=1_000).jobs

    assert again.content == first.content
    assert len(first.json()["jobs"]) == config.HTTP_BATCH_MAX
    assert len(packed(jobs)) < 50 * len(jobs)


def test_receipts_are_unpacked_as_they_were(api):
    """Whatever differs between the jobs."""
    api.app.enqueue("big", tenant="acme", key="k", priority=3, delay=60)
    api.app.enqueue("small", queue="other")
    api.app.cancel(api.app.enqueue("big", queue="株").id)
    jobs = api.app.list().jobs

    assert {job.state for job in jobs} == {
        *(JobState.SCHEDULED, JobState.READY, JobState.CANCELLED)
    }
    assert unpacked(packed(jobs)) == receipts_of(jobs)
    assert unpacked(packed(jobs[:1])) == receipts_of(jobs[:1])


def test_copied_jobs_are_packed_as_others(api):
    """A large batch is packed without making its jobs, with the same result."""
    many = [
        new_job(kind="big", payload="{}", priority=number % 3, delay=number % 2)
        for number in range(config.COPY_ROWS_MIN)
    ]
    jobs = api.app.store.enqueue(many)

    assert isinstance(jobs, Copied)
    assert packed(jobs) == packed(list(jobs))


def test_repeats_are_not_counted(api):
    """A metric counts jobs, not requests."""

    def enqueued() -> float:
        text = api("read").get("/metrics").text
        lines = [line for line in text.splitlines() if line.startswith("rowlock_jobs_enqueued")]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    before = enqueued()
    for _ in range(3):
        post(api)

    assert enqueued() - before == 1
