"""Sentry errors and traces: a run is a transaction with its job's name and fields.

    import sentry_sdk

    from rowlock.contrib.sentry import instrument

    sentry_sdk.init(dsn=...)
    instrument(app)

It needs the extra `sentry`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import sentry_sdk
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.utils import event_from_exception

from rowlock import config
from rowlock.app import App
from rowlock.columns import JobRow
from rowlock.job import Lease
from rowlock.store import NewJob
from rowlock.worker.instrumentation import NO_FAILURE, install, texts_of
from rowlock.worker.report import fields_of
from rowlock.worker.run import is_last

# The key in `meta` for Sentry's trace headers.
MARK = "sentry"
_ORIGIN = "auto.queue.rowlock"


def instrument(app: App, *, failures: Literal["all", "last"] = "all") -> None:
    """Report every enqueue and run of an app to Sentry.

    Args:
        failures: Which failures become events: those of all attempts, or only the last one, after
            which the job is dead.
    """
    # Log lines about failures would be a second event for each.
    ignore_logger("rowlock.worker")
    install(app, _Sentry(app, only_last=failures == "last"))


class _Sentry:
    """The scopes, transactions and events of one app."""

    def __init__(self, app: App, *, only_last: bool) -> None:
        self._app = app
        self._only_last = only_last

    def marks(self) -> Mapping[str, object]:
        """Return the headers that continue the current trace."""
        headers = {
            "sentry-trace": sentry_sdk.get_traceparent(),
            "baggage": sentry_sdk.get_baggage(),
        }
        known = {name: value for name, value in headers.items() if value}
        return {MARK: known} if known else {}

    @contextmanager
    def sending(self, jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
        """Open a span, if the current code is traced."""
        names = sorted({job.queue for job in jobs})
        with sentry_sdk.start_span(
            op="queue.publish", name=", ".join(names), origin=_ORIGIN
        ) as span:
            if len(names) == 1:
                span.set_data("messaging.destination.name", names[0])
            if len(jobs) == 1:
                span.set_data("messaging.message.id", jobs[0].id)
            yield [job.marked(self.marks()) for job in jobs]

    @contextmanager
    def running(self, lease: Lease) -> Iterator[None]:
        """Open a transaction, and a scope of its own for the handler."""
        row = lease.row
        assert row is not None
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            scope.set_context("rowlock", fields_of(lease))
            for name in ("kind", "queue"):
                scope.set_tag(f"rowlock.{name}", getattr(row, name))
            transaction = sentry_sdk.continue_trace(
                texts_of(lease.job.meta.get(MARK)),
                op="queue.process",
                name=row.kind,
                source="task",
                origin=_ORIGIN,
            )
            ended: BaseException | None = None
            with sentry_sdk.start_transaction(transaction) as span:
                span.set_data("messaging.destination.name", row.queue)
                span.set_data("messaging.message.id", lease.id)
                span.set_data("messaging.message.retry.count", max(0, row.attempt - 1))
                span.set_status("ok")
                try:
                    yield
                except NO_FAILURE as error:
                    span.set_status("cancelled")
                    ended = error
                except BaseException as error:
                    span.set_status("internal_error")
                    self._tell(error, row)
                    raise
            if ended is not None:
                # Raised outside the span, which would count it as a failure.
                raise ended

    def _tell(self, error: BaseException, row: JobRow) -> None:
        most = row.max_attempts or config.MAX_ATTEMPTS_DEFAULT
        task = self._app.find(row.kind)
        if self._only_last and not is_last(
            error, attempt=row.attempt, max_attempts=most, task=task
        ):
            return
        client = sentry_sdk.get_client()
        event, hint = event_from_exception(
            error,
            client_options=client.options,
            mechanism={"type": "rowlock", "handled": False},
        )
        sentry_sdk.capture_event(event, hint=hint)
