"""Spans and measures of enqueues and runs, as the SDK's exporters in memory have them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import rowlock
from rowlock import config
from rowlock.contrib.opentelemetry import instrument
from tests.worker.waiting import wait_until

ROOT = Path(__file__).parents[2]


class Telemetry:
    """An app of some tasks, and what was told of it."""

    def __init__(self, url: str, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        meters = MeterProvider([self.reader])
        self.app = rowlock.App(url)
        self.app.migrate()
        self.seen: list[int] = []

        # One before and one after: both are traced.
        @self.app.task(queue="mail", max_attempts=1)
        def send(to: str) -> None:
            self.seen.append(trace.get_current_span().get_span_context().span_id)
            if to == "nobody":
                raise ConnectionError("no answer")
            if to == "later":
                raise rowlock.Cancel("not today")

        instrument(self.app, tracer_provider=self.tracers, meter_provider=meters, **options)

        @self.app.task(max_attempts=1, timeout=0.05)
        async def dawdle() -> None:
            await asyncio.sleep(60)

        @self.app.task
        async def fetch(ctx: rowlock.Context, url: str) -> None:
            send("the function itself")
            ctx.enqueue_on_success(send, to=url)

        self.send, self.fetch = send, fetch

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.kind is kind]

    def figures(self) -> dict[tuple[str, str, str | None], float]:
        """What was measured: by name, queue and error; of times, how many."""
        told = self.reader.get_metrics_data()
        assert told is not None
        return {
            (
                metric.name,
                str(point.attributes["messaging.destination.name"]),
                point.attributes.get("error.type"),
            ): getattr(point, "count", None) or point.value
            for resource in told.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }


@pytest.fixture
def telemetry(any_url: str) -> Iterator[Telemetry]:
    made = Telemetry(any_url)
    yield made
    made.app.close()


def place(context: trace.SpanContext) -> tuple[int, int]:
    """Which span it is, wherever it was told of."""
    return context.trace_id, context.span_id


def test_runs_are_linked_to_their_enqueue(telemetry):
    """A run has a trace of its own, with a link to the span that enqueued its job."""
    with telemetry.tracers.get_tracer("shop").start_as_current_span("request") as request:
        job = telemetry.send.enqueue(to="ada")
    telemetry.app.drain()
    (producer,) = telemetry.spans(SpanKind.PRODUCER)
    (consumer,) = telemetry.spans(SpanKind.CONSUMER)

    assert producer.parent is not None
    assert request.get_span_context().span_id == producer.parent.span_id
    assert [producer.name, consumer.name] == ["enqueue mail", "run mail"]
    assert [place(link.context) for link in consumer.links] == [place(producer.context)]
    assert consumer.parent is None
    assert telemetry.seen == [consumer.context.span_id]
    assert producer.attributes == {
        "messaging.system": "rowlock",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": job.id,
        "rowlock.job.kind": "send",
    }
    assert consumer.attributes is not None
    assert consumer.attributes["messaging.message.id"] == job.id
    assert (
        consumer.attributes["messaging.operation.type"],
        consumer.attributes["rowlock.job.attempt"],
    ) == ("process", 1)


def test_runs_can_be_children(any_url):
    """By choice a run is part of the trace that enqueued its job."""
    telemetry = Telemetry(any_url, follow="parent")
    with telemetry.app:
        telemetry.send.enqueue(to="ada")
        telemetry.app.drain()
    (producer,) = telemetry.spans(SpanKind.PRODUCER)
    (consumer,) = telemetry.spans(SpanKind.CONSUMER)

    assert consumer.parent is not None
    assert place(producer.context) == place(consumer.parent)
    assert not consumer.links


def test_failures(telemetry):
    """A failed run says how; one that was cancelled has not failed; a refused enqueue has."""
    telemetry.send.enqueue(to="nobody")
    telemetry.send.enqueue(to="later")
    telemetry.app.drain()
    with pytest.raises(rowlock.OptionInvalid):
        telemetry.send.using(conn=object()).enqueue(to="ada")
    failed, cancelled = telemetry.spans(SpanKind.CONSUMER)
    refused = telemetry.spans(SpanKind.PRODUCER)[-1]

    assert StatusCode.ERROR is failed.status.status_code
    assert failed.attributes["error.type"] == "ConnectionError"
    assert [event.name for event in failed.events] == ["exception"]
    assert StatusCode.UNSET is cancelled.status.status_code
    assert cancelled.attributes["rowlock.run.ended_by"] == "rowlock.Cancel"
    assert StatusCode.ERROR is refused.status.status_code


def test_a_time_limit_that_is_passed(telemetry):
    """It is a failure, though the handler itself was cancelled."""
    telemetry.app.enqueue("dawdle")
    telemetry.app.drain()
    (run,) = telemetry.spans(SpanKind.CONSUMER)

    assert (
        run.status.status_code,
        run.attributes["error.type"],
    ) == (StatusCode.ERROR, "TimeoutError")


def test_many_and_what_follows(telemetry):
    """A batch is one span; what a success enqueues is linked to the run; meta stays."""
    app = telemetry.app
    marked = telemetry.send.using(meta={"origin": "shop"})
    jobs = app.enqueue_many([marked.job(to="a"), telemetry.fetch.job("b")])
    app.drain()
    (producer,) = telemetry.spans(SpanKind.PRODUCER)
    runs = telemetry.spans(SpanKind.CONSUMER)
    (fetched,) = [run for run in runs if run.attributes["rowlock.job.kind"] == "fetch"]
    origins = [place(link.context) for run in runs for link in run.links]

    assert producer.attributes["messaging.batch.message_count"] == 2
    assert "messaging.destination.name" not in producer.attributes
    assert set(app.get(jobs[0].id).meta) == {"origin", "traceparent"}
    assert len(runs) == 3
    expected = [place(producer.context)] * 2 + [place(fetched.context)]
    assert sorted(origins) == sorted(expected)


def test_measures(telemetry):
    """Counts and times have the conventions' names, by queue and error."""
    telemetry.send.enqueue(to="ada")
    telemetry.send.enqueue(to="nobody")
    telemetry.app.drain()

    assert telemetry.figures() == {
        ("messaging.client.sent.messages", "mail", None): 2,
        ("messaging.client.operation.duration", "mail", None): 2,
        ("messaging.client.consumed.messages", "mail", None): 1,
        ("messaging.client.consumed.messages", "mail", "ConnectionError"): 1,
        ("messaging.process.duration", "mail", None): 1,
        ("messaging.process.duration", "mail", "ConnectionError"): 1,
    }


def test_in_a_worker(telemetry):
    """A worker's runs are traced too, in threads and on the loop, and none below another's."""

    async def work() -> None:
        jobs = [await telemetry.fetch.aenqueue(str(number)) for number in range(3)]
        async with telemetry.app.worker():
            for job in jobs:
                await telemetry.app.await_(job.id, timeout=60)
            await asyncio.to_thread(
                wait_until, lambda: len(telemetry.spans(SpanKind.CONSUMER)) == 6, seconds=60
            )
        await telemetry.app.aclose()

    asyncio.run(asyncio.wait_for(work(), 90))
    runs = telemetry.spans(SpanKind.CONSUMER)

    assert len({run.context.trace_id for run in runs}) == 6
    assert all(run.parent is None and len(run.links) == 1 for run in runs)


@pytest.mark.parametrize("parent", ["00-nonsense", 5, ["00"], None])
def test_damaged_meta(sqlite_url, caplog, parent):
    """A trace context that is none is left out, and the job is run."""
    caplog.set_level(logging.ERROR)
    telemetry = Telemetry(sqlite_url)
    with telemetry.app:
        damaged = {"traceparent": parent, "tracestate": "?"}
        job = telemetry.send.using(meta=damaged).enqueue(to="x")
        telemetry.app.drain()
        (consumer,) = telemetry.spans(SpanKind.CONSUMER)

        assert not consumer.links
        assert telemetry.app.get(job.id).state == "succeeded"


def test_full_meta(sqlite_url):
    """Where there is no room for a trace context, the job is enqueued without."""
    telemetry = Telemetry(sqlite_url)
    full = {"note": "x" * (config.META_BYTES_MAX - 20)}
    with telemetry.app:
        job = telemetry.send.using(meta=full).enqueue(to="x")

        assert full == telemetry.app.get(job.id).meta


def test_names_are_documented():
    """Every attribute and instrument is on the page."""
    source = (ROOT / "src/rowlock/contrib/opentelemetry.py").read_text("utf-8")
    names = set(re.findall(r'"((?:messaging|rowlock|error)\.[\w.]+)"', source))
    page = (ROOT / "docs/how-to/opentelemetry.md").read_text("utf-8")

    assert names
    assert {name for name in names if f"`{name}`" not in page} == set()
