"""What Sentry is told, as its transport gets it; and structlog."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
import structlog
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

import rowlock
from rowlock.contrib.sentry import instrument
from rowlock.contrib.structlog import add_job_fields
from rowlock.testing import use_test_database


class Kept(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            if item.payload.json is not None:
                self.told.append(item.payload.json)

    def of(self, kind: str | None) -> list[dict[str, Any]]:
        return [each for each in self.told if each.get("type") == kind]


@pytest.fixture
def sentry() -> Iterator[Kept]:
    """A Sentry of this test alone."""
    kept = Kept()
    with sentry_sdk.isolation_scope() as scope:
        client = sentry_sdk.Client(
            "http://key@127.0.0.1:1/1",
            transport=kept,
            traces_sample_rate=1.0,
            default_integrations=False,
        )
        scope.set_client(client)
        yield kept
        client.close(timeout=0)


def make(url: str, **options: Any) -> tuple[rowlock.App, Any, Any]:
    app = rowlock.App(url)
    instrument(app, **options)

    @app.task(queue="mail", max_attempts=2, retry=rowlock.retry.fixed(0))
    def send(to: str) -> None:
        sentry_sdk.set_tag("to", to)
        if to == "later":
            raise rowlock.Cancel("not today")
        if to == "nobody":
            raise ConnectionError("no answer")
        if to == "never":
            raise rowlock.Fail("no such address")

    @app.task(max_attempts=1, timeout=0.05)
    async def dawdle() -> None:
        await asyncio.sleep(60)

    @app.task
    async def fetch(ctx: rowlock.Context, url: str) -> None:
        ctx.enqueue_on_success(send, to=url)

    return app, send, fetch


def test_failures(sentry, any_url):
    """Each failed attempt is an event, with its job; a cancelled run is none."""
    app, send, _ = make(any_url)
    with app:
        for to in ("nobody", "later", "ada"):
            send.enqueue(to=to)
        app.drain()
        (job,) = app.list(state="dead")
    events = sentry.of(None)

    assert [each["exception"]["values"][0]["type"] for each in events] == ["ConnectionError"] * 2
    assert [each["contexts"]["rowlock"]["attempt"] for each in events] == [1, 2]
    assert {each["contexts"]["rowlock"]["job_id"] for each in events} == {job.id}
    assert events[0]["tags"] == {"rowlock.kind": "send", "rowlock.queue": "mail", "to": "nobody"}
    mechanism = events[0]["exception"]["values"][0]["mechanism"]
    assert (mechanism["type"], mechanism["handled"]) == ("rowlock", False)


def test_a_time_limit_that_is_passed(sentry, any_url):
    """It is a failure, though the handler itself was cancelled; of a drain and of a worker."""
    app, *_ = make(any_url)

    async def work() -> rowlock.Job:
        job = await app.aenqueue("dawdle")
        async with app.worker():
            ended = await app.await_(job.id, timeout=60)
        await app.aclose()
        return ended

    with app:
        app.enqueue("dawdle")
        app.drain()
        ended = asyncio.run(asyncio.wait_for(work(), 90))
    events = sentry.of(None)

    assert [each["exception"]["values"][-1]["type"] for each in events] == ["TimeoutError"] * 2
    told = "took longer than its limit of 0.05 s"
    assert [each["exception"]["values"][-1]["value"] for each in events] == [told] * 2
    assert ended.last_error == f"TimeoutError: {told}"
    assert [each["contexts"]["trace"]["status"] for each in sentry.of("transaction")] == [
        "internal_error"
    ] * 2


def test_a_cancelled_run_has_not_failed(sentry, any_url):
    """Nor has its transaction."""
    app, send, _ = make(any_url)
    with app:
        send.enqueue(to="later")
        app.drain()
    (run,) = sentry.of("transaction")

    assert run["contexts"]["trace"]["status"] == "cancelled"


def test_last_failures_only(sentry, any_url):
    """By choice only what leaves a dead job is told."""
    app, send, _ = make(any_url, failures="last")
    with app:
        send.enqueue(to="nobody")
        send.enqueue(to="never")
        app.drain()
    events = sentry.of(None)

    assert {
        (each["exception"]["values"][0]["type"], each["contexts"]["rowlock"]["attempt"])
        for each in events
    } == {("ConnectionError", 2), ("Fail", 1)}
    assert len(events) == 2


def test_traces(sentry, any_url):
    """A run is a transaction that goes on with the trace of whoever enqueued it."""
    app, _, fetch = make(any_url)
    with app:
        with sentry_sdk.start_transaction(name="request", op="http.server") as request:
            job = fetch.enqueue(url="ada")
        app.drain()
        first, second, third = sentry.of("transaction")

    assert [each["transaction"] for each in (first, second, third)] == ["request", "fetch", "send"]
    assert {each["contexts"]["trace"]["trace_id"] for each in (first, second, third)} == {
        request.trace_id
    }
    (published,) = first["spans"]
    assert (published["op"], published["description"]) == ("queue.publish", "default")
    assert published["span_id"] == second["contexts"]["trace"]["parent_span_id"]
    assert second["contexts"]["trace"]["span_id"] == third["contexts"]["trace"]["parent_span_id"]
    assert third["contexts"]["trace"]["op"] == "queue.process"
    assert job.id == second["contexts"]["trace"]["data"]["messaging.message.id"]


@pytest.mark.owner("a test empties its database")
def test_on_trial(sentry, any_url):
    """Inline jobs of an app that was instrumented before are seen by the test, run, and told."""
    app, send, fetch = make("sqlite:///never-opened.db")
    with use_test_database(app, any_url, inline=True) as tested:
        first = send.enqueue(to="ada")

        async def enqueue() -> rowlock.Job:
            second = await fetch.aenqueue(url="bob")
            await app.aclose()
            return second

        second = asyncio.run(enqueue())

        assert list(tested.test_state.sent) == [first.id, second.id]
        assert {job.state for job in app.list()} == {"succeeded"}
    assert [each["transaction"] for each in sentry.of("transaction") if each["transaction"]] == [
        "send",
        "fetch",
        "send",
    ]


@pytest.mark.parametrize("mark", ["x", {"sentry-trace": 5, "baggage": "?"}, None])
def test_damaged_meta(sentry, sqlite_url, mark):
    """What nobody can continue is left out, and the job is run."""
    app, send, _ = make(sqlite_url)
    with app:
        job = send.using(meta={"sentry": mark}).enqueue(to="ada")
        app.drain()

        assert app.get(job.id).state == "succeeded"
    assert [each["transaction"] for each in sentry.of("transaction")] == ["send"]


def test_structlog(sqlite_url):
    """An event that is logged by a handler has its job's fields, its own first."""
    told: list[Any] = []

    def keep(_: Any, __: str, event: Any) -> Any:
        told.append(dict(event))
        raise structlog.DropEvent

    logger = structlog.wrap_logger(None, processors=[add_job_fields, keep])
    app = rowlock.App(sqlite_url)

    @app.task(queue="mail")
    def send(to: str) -> None:
        logger.info("sent", kind="letter")

    with app:
        job = send.enqueue(to="ada")
        logger.info("outside")
        app.drain()

    outside, inside = told
    assert outside == {"event": "outside"}
    assert inside.pop("worker").startswith("drain-")
    assert inside == {
        "event": "sent",
        "kind": "letter",
        "job_id": job.id,
        "queue": "mail",
        "attempt": 1,
    }
