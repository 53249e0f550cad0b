"""Jobs of requests that come together share a transaction, and nobody fails for a neighbour."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

import rowlock
from rowlock import config
from rowlock.errors import StoreUnavailable
from rowlock.ids import id_of_tenant
from rowlock.server import write_batcher as module
from rowlock.server.background import Background
from rowlock.server.write_batcher import WriteBatcher
from rowlock.store import NewJob
from rowlock.worker.trouble import ServiceErrors
from tests.store.jobs import made


async def enqueued(app: rowlock.App, jobs: list[NewJob]) -> list[object]:
    """What each caller gets, all asking at once."""
    background = Background(ServiceErrors())
    batcher = WriteBatcher(app.store, background)
    answers = await asyncio.gather(*map(batcher.enqueue, jobs), return_exceptions=True)
    await background.aclose()
    await app.store.engine.aclose_loop()
    return list(answers)


@pytest.fixture
def app(any_url: str):
    with rowlock.App(any_url) as app:
        yield app


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each write has taken."""
    sizes: list[int] = []
    write = module.enqueue

    def noted(jobs, **options):
        sizes.append(len(jobs))
        return write(jobs, **options)

    monkeypatch.setattr(module, "enqueue", noted)
    return sizes


def test_those_that_come_together_are_written_together(app, batches):
    """Each caller gets its own job; keys and ids mean what they always mean."""
    same = made(key="k")
    jobs = [made() for _ in range(50)] + [same, made(key="k"), same]
    answers = asyncio.run(enqueued(app, jobs))

    assert [job.id for job in jobs[:51]] == [answer.id for answer in answers[:51]]
    assert {answer.id for answer in answers[50:]} == {same.id}
    assert [answer.created for answer in answers] == [True] * 51 + [False] * 2
    assert len(batches) < 10
    assert app.stats(["default"])[0].counts["ready"].value == 51


def test_a_write_is_bounded(app, batches, monkeypatch):
    """In jobs and in bytes; one that is larger than the bound goes alone."""
    monkeypatch.setattr(config, "HTTP_GATHER_JOBS", 10)
    asyncio.run(enqueued(app, [made() for _ in range(35)]))
    assert max(batches) <= 10
    batches.clear()
    monkeypatch.setattr(config, "HTTP_GATHER_BYTES", 100)
    asyncio.run(enqueued(app, [made(payload=f'{{"a": "{"x" * 200}"}}') for _ in range(3)]))
    assert batches == [1, 1, 1]


def test_nobody_fails_for_a_neighbour(app, monkeypatch):
    """What can't be written with others is tried alone; only the bad one is refused."""
    write = module.enqueue

    def picky(jobs, **options):
        if any(job.kind == "bad" for job in jobs):
            raise ValueError("refused by the database")
        return write(jobs, **options)

    monkeypatch.setattr(module, "enqueue", picky)
    answers = asyncio.run(enqueued(app, [made(), made(kind="bad"), made()]))

    assert [isinstance(answer, rowlock.Job) for answer in answers] == [True, False, True]
    assert isinstance(answers[1], ValueError)


def test_a_database_that_is_away_is_told_to_each():
    """By an error of its own."""
    app = rowlock.App("postgresql://nobody@127.0.0.1:9/none?connect_timeout=2")
    answers = asyncio.run(enqueued(app, [made(), made()]))

    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
    assert answers[0] is not answers[1]


def test_over_http(api):
    """Many clients at once, with keys, ids and another tenant's id among them."""
    id = "018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a"
    api.app.enqueue("big", id=id_of_tenant(id, "acme"), tenant="zoo")

    def post(number: int) -> tuple[int, str]:
        body = {"kind": "big", "payload": {"n": number}}
        if number % 10 == 0:
            body["key"] = "shared"
        if number % 10 == 1:
            body["id"] = id
        answer = api("enqueue", tenant="acme").post("/v1/jobs", json=body)
        return answer.status_code, answer.json().get("id", "")

    api("enqueue", tenant="acme").post("/v1/jobs", json={"kind": "big", "key": "shared"})
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(post, range(200)))

    assert {status for status, _ in answers[0::10]} == {200}
    assert len({each for _, each in answers[0::10]}) == 1
    assert {status for status, _ in answers[1::10]} == {422}
    others = [each for place, each in enumerate(answers) if place % 10 > 1]
    assert {status for status, _ in others} == {201}
    assert len({each for _, each in others}) == 160
    assert api.app.stats(["default"])[0].counts["ready"].value - 1 == 161
