"""Workflows in tests of users: run to their end, and asserted."""

from __future__ import annotations

import pytest

import rowlock
from rowlock import JobState
from rowlock.testing import AppUnderTest, VirtualClock, assert_enqueued, assert_workflow
from rowlock.testing.app import use_test_database

app = rowlock.App("sqlite:///never-opened.db")


@app.task(max_attempts=1)
def fetch(page: int) -> int:
    if page < 0:
        raise ValueError(f"there is no page {page}")
    return page


@app.task
def index(ctx: rowlock.Context, pages: list[int], title: str = "") -> int:
    ctx.workflow.add(notify.job(total=len(pages)))
    return len(pages)


@app.task
def notify(total: int) -> None: ...


def crawl(*pages: int) -> None:
    """What is tested."""
    with app.workflow("crawl", key="all") as flow:
        found = flow.map(fetch.job(page=page) for page in pages)
        flow.add(index.using(delay=60).job(pages=found.results, title="site"), after=found)


@pytest.fixture
def rowlock_target() -> rowlock.App:
    return app


def test_a_drain_runs_a_workflow_to_its_end(rowlock_app: AppUnderTest, rowlock_clock: VirtualClock):
    """With delays, by the clock, and with jobs that are added at run time."""
    crawl(1, 2)
    waiting = assert_enqueued(index.using(delay=60), title="site")
    assert_enqueued(fetch, page=2)
    first = rowlock_app.drain()
    assert_workflow("crawl", state="running")
    rowlock_clock.advance(60)
    second = rowlock_app.drain()
    flow = assert_workflow(
        "crawl", state="succeeded", key="all", jobs={"fetch": 2, "index": 1, "notify": 1}
    )

    assert (waiting.state, first, second) == (JobState.WAITING, 2, 2)
    assert flow.counts[JobState.SUCCEEDED].value == 4
    assert_enqueued(notify, total=2)


def test_a_workflow_that_is_not_as_expected(rowlock_app: AppUnderTest):
    """The message says what it is instead, and names the errors of dead jobs."""
    with pytest.raises(AssertionError, match="there are none at all"):
        assert_workflow("crawl")
    crawl(1, -1)
    rowlock_app.drain()
    with pytest.raises(AssertionError) as refused:
        assert_workflow("crawl", state="succeeded", jobs={"fetch": 3})
    text = str(refused.value)

    assert "state: expected <WorkflowState.SUCCEEDED: 'succeeded'>, but found" in text
    assert "jobs of 'fetch': expected 3, but found 2" in text
    assert "is dead: ValueError: there is no page -1" in text
    with pytest.raises(AssertionError, match="but: 'crawl'"):
        assert_workflow("crawling")


def test_a_workflow_inline(any_url: str):
    """It has run before its block ends."""
    with use_test_database(app, any_url, inline=True):
        with app.workflow("inline") as flow:
            first = flow.add(fetch.job(page=1))
            flow.add(notify.job(total=first.result), after=first)
        assert_workflow("inline", state="succeeded", jobs={"fetch": 1, "notify": 1})
