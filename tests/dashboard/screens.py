"""What tests do with the dashboard, and what they put into its database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Locator, Page, expect

import rowlock
from rowlock.ids import new_id
from rowlock.job import Job, Lease
from rowlock.store.ops.workflows import Draft
from rowlock.store.options import new_job
from rowlock.workflow import Plan

HOSTILE = """<img src=x onerror="alert(1)"><script>alert(2)</script>"'&amp; \u202e"""


@dataclass
class Dashboard:
    """A page that shows it, and the app whose jobs it shows."""

    page: Page
    address: str
    app: rowlock.App

    def show(self, path: str = "", heading: str | None = None) -> Page:
        """Go to a screen, and wait until its heading is there."""
        self.page.goto(f"{self.address}#/{path}")
        if heading is not None:
            expect(self.page.get_by_role("heading", level=1)).to_contain_text(heading)
        return self.page

    def show_job(self, job: Job | Lease) -> Page:
        return self.show(f"jobs/{job.id}", "")

    def button(self, name: str, **options: Any) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True, **options)

    def forgive(self, told: str) -> None:
        """The browser tells by itself of answers that were refused, as these are meant to be.

        One that is under way may still be told of later, until the test has ended.
        """
        said: list[str] = self.page.said  # type: ignore[attr-defined]
        assert any(told in line for line in said)
        self.page.forgiven.append(told)  # type: ignore[attr-defined]

    def leave(self) -> None:
        """Close what is shown, as people close tabs: what was decided is done then."""
        self.page.goto("about:blank")


def enqueue(app: rowlock.App, **options: Any) -> Job:
    """A job of any sort."""
    options.setdefault("kind", "send_email")
    options.setdefault("payload", '{"to": "ada@example.com"}')
    options.setdefault("queue", "mail")
    (job,) = app.store.enqueue([new_job(**options)])
    return job


def start(app: rowlock.App, *, worker: str = "w1", **options: Any) -> Lease:
    """A job that runs."""
    job = enqueue(app, **options)
    (lease,) = app.store.claim(worker=worker, queues=[job.queue], lease=600)
    assert lease.id == job.id
    return lease


def kill(app: rowlock.App, error: str | Exception = "it broke", **options: Any) -> Job:
    """A job that is dead."""
    lease = start(app, **options)
    app.store.fail(lease, error, permanent=True)
    return job_of(app, lease.id)


def enqueue_workflow(
    app: rowlock.App, jobs: Mapping[str, tuple[str, list[str]]], *, name: str = "crawl"
) -> str:
    """A workflow of jobs that have names here, a kind each, and the names that they wait for."""
    draft = Draft(
        id=new_id(), name=name, key=None, tenant=None, deadline_us=None, meta=None, is_resend=False
    )
    plan = Plan(app.find, draft, what="a workflow")
    nodes: dict[str, Any] = {}
    for own, (kind, after) in jobs.items():
        job: Any = app.prepare({"kind": kind, "payload": {}, "queue": "flows"}, {})
        nodes[own] = plan.add(job, after=[nodes[each] for each in after])
    app.send_workflow(plan.finished(), conn=None)
    return draft.id


def job_of(app: rowlock.App, id: str) -> Job:
    job = app.get(id)
    assert job is not None
    return job


def wait_for(page: Page, is_so: Any, *, seconds: float = 30.0) -> None:
    """Wait for something at the store that the page brings about."""
    for _ in range(int(seconds / 0.05)):
        if is_so():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not come about")
