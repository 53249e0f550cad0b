"""OpenTelemetry traces and metrics: a span per enqueue and per run, linked to each other.

    from rowlock.contrib.opentelemetry import instrument

    instrument(app)

Names and attributes are those of the conventions for messaging. The trace context travels in the
job's `meta`. It needs the extra `otel`, and an SDK that your program has set up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from rowlock.app import App
from rowlock.job import Lease
from rowlock.store import NewJob
from rowlock.version import __version__
from rowlock.worker.instrumentation import NO_FAILURE, install, texts_of

Attributes = dict[str, AttributeValue]

_SYSTEM: Mapping[str, AttributeValue] = {"messaging.system": "rowlock"}


def instrument(
    app: App,
    *,
    follow: Literal["link", "parent"] = "link",
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> None:
    """Trace and measure every enqueue and run of an app.

    Args:
        follow: How a run's span relates to its enqueue's: by a link, in a trace of its own, or as
            its child, in the same trace.
        tracer_provider: The provider to use. Default: the global one.
        meter_provider: The provider to use. Default: the global one.
    """
    tracer = trace.get_tracer("rowlock", __version__, tracer_provider)
    meter = metrics.get_meter("rowlock", __version__, meter_provider)
    install(app, _Telemetry(tracer, meter, is_parent=follow == "parent"))


class _Telemetry:
    """The spans and metrics of one app."""

    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter, *, is_parent: bool) -> None:
        self._tracer = tracer
        self._is_parent = is_parent
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs that were enqueued."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Runs of jobs that have ended."
        )
        self._send_time = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Duration of an enqueue."
        )
        self._run_time = meter.create_histogram(
            "messaging.process.duration", "s", "Duration of a run."
        )

    def marks(self) -> Mapping[str, object]:
        """Return the current trace context."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier

    @contextmanager
    def sending(self, jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
        """Open a producer's span. Its context is stored with the jobs."""
        queues = {job.queue for job in jobs}
        known: Attributes = {**_SYSTEM, "messaging.operation.name": "enqueue"}
        if len(queues) == 1:
            known["messaging.destination.name"] = next(iter(queues))
        attributes: Attributes = {**known, "messaging.operation.type": "send"}
        if len(jobs) == 1:
            attributes |= {"messaging.message.id": jobs[0].id, "rowlock.job.kind": jobs[0].kind}
        else:
            attributes["messaging.batch.message_count"] = len(jobs)
        name = f"enqueue {known.get('messaging.destination.name', '(several)')}"
        began = time.perf_counter()
        with self._tracer.start_as_current_span(
            name, kind=SpanKind.PRODUCER, attributes=attributes
        ) as span:
            try:
                yield [job.marked(self.marks()) for job in jobs]
            except Exception as error:
                known["error.type"] = _name(error)
                span.set_attribute("error.type", known["error.type"])
                raise
            finally:
                self._send_time.record(time.perf_counter() - began, known)
                self._sent.add(len(jobs), known)

    @contextmanager
    def running(self, lease: Lease) -> Iterator[None]:
        """Open a consumer's span around the handler."""
        row = lease.row
        assert row is not None
        known: Attributes = {
            **_SYSTEM,
            "messaging.operation.name": "run",
            "messaging.destination.name": row.queue,
        }
        attributes: Attributes = {
            **known,
            "messaging.operation.type": "process",
            "messaging.message.id": lease.id,
            "messaging.client.id": lease.worker,
            "rowlock.job.kind": row.kind,
            "rowlock.job.attempt": row.attempt,
        }
        came = propagate.extract(texts_of(lease.job.meta))
        origin = trace.get_current_span(came).get_span_context()
        began = time.perf_counter()
        with self._tracer.start_as_current_span(
            f"run {row.queue}",
            context=came if self._is_parent else None,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[Link(origin)] if origin.is_valid and not self._is_parent else None,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except NO_FAILURE as ended:
                span.set_attribute("rowlock.run.ended_by", _name(ended))
                raise
            except BaseException as error:
                known["error.type"] = _name(error)
                span.set_attribute("error.type", known["error.type"])
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, str(error)))
                raise
            finally:
                self._run_time.record(time.perf_counter() - began, known)
                self._consumed.add(1, known)


def _name(error: BaseException) -> str:
    kind: type[Any] = type(error)
    is_builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"
