"""Workflows in which keys are held by others, and jobs that add such jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from rowlock import App, Context, ManualClock
from rowlock.store.ops.workflow_manage import tend_workflows
from rowlock.workflow import Workflow


class Yard:
    """An app whose job adds what a test wants, and what ran."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.log: list[str] = []
        self.broken: set[str] = set()
        self.grow: Callable[[Context], object] = lambda _: None

        @app.task(max_attempts=1)
        def step(name: str) -> str:
            if name in self.broken:
                raise ValueError(name)
            self.log.append(name)
            return name

        @app.task(max_attempts=1)
        def growing(ctx: Context, name: str) -> str:
            self.log.append(name)
            self.grow(ctx)
            return name

        self.step, self.growing = step, growing

    def states(self, flow: Workflow) -> dict[str, str]:
        """The state of each job, by its name."""
        jobs = [self.app.get(each.id) for each in self.app.workflow_jobs(flow.id)]
        return {job.payload["name"]: job.state.value for job in jobs if job is not None}


@pytest.fixture
def yard(app: App) -> Yard:
    """A yard on each store."""
    return Yard(app)


def test_growth_before_a_callback_on_death(yard: Yard):
    """A callback on a death is not needed when all added jobs have succeeded."""
    yard.grow = lambda ctx: ctx.workflow.add(yard.step.job(name="added"))
    with yard.app.workflow("w") as flow:
        first = flow.add(yard.growing.job(name="grows"))
        flow.add(yard.step.job(name="callback"), after=first, when="dead")
    yard.app.drain()

    assert yard.log == ["grows", "added"]


def test_two_nodes_of_one_key(yard: Yard):
    """They are one job, and what waits for both waits for it once."""
    with yard.app.workflow("w") as flow:
        pair = flow.map(yard.step.using(key="k").job(name=n) for n in ("a", "b"))
        flow.add(yard.step.job(name="after"), after=pair)
    yard.app.drain()

    assert yard.log == ["a", "after"]


def test_growth_by_a_node_whose_key_is_held(yard: Yard):
    """What waits for the growing job waits for the holder."""
    holder = yard.step.using(key="k", delay=60).enqueue(name="holder")
    yard.grow = lambda ctx: ctx.workflow.add(yard.step.using(key="k").job(name="added"))
    with yard.app.workflow("w") as flow:
        first = flow.add(yard.growing.job(name="grows"))
        flow.add(yard.step.job(name="after"), after=first)
    yard.app.drain()
    before = list(yard.log)
    yard.app.store.run_now(holder.id)
    yard.app.drain()

    assert (before, yard.log) == (["grows"], ["grows", "holder", "after"])


def test_growth_by_a_node_that_is_the_job_itself(yard: Yard):
    """It holds the key: nothing is added, and nothing waits twice."""
    yard.grow = lambda ctx: ctx.workflow.add(yard.growing.using(key="k").job(name="added"))
    with yard.app.workflow("w") as flow:
        first = flow.add(yard.growing.using(key="k").job(name="grows"))
        flow.add(yard.step.job(name="after"), after=first)
    yard.app.drain()

    assert yard.log == ["grows", "after"]


def test_growth_after_a_cancelled_job(yard: Yard):
    """The added job is cancelled at once, and so is what waits for it."""
    gone = yard.step.using(delay=60).enqueue(name="gone")
    yard.app.cancel(gone.id)
    yard.grow = lambda ctx: ctx.workflow.add(yard.step.job(name="added"), after=gone.id)
    with yard.app.workflow("w") as flow:
        first = flow.add(yard.growing.job(name="grows"))
        flow.add(yard.step.job(name="after"), after=first)
    yard.app.drain()

    assert yard.states(flow) == {"grows": "succeeded"} | dict.fromkeys(
        ["gone", "added", "after"], "cancelled"
    )


def test_the_jobs_of_a_workflow_whose_key_was_taken_over_expire(yard: Yard, clock: ManualClock):
    """Before a sweep has noted that the first has ended."""
    flows = []
    for name in "ab":
        with yard.app.workflow("w", key="k") as flow:
            flow.add(yard.step.job(name=name))
        yard.app.drain()
        flows.append(flow)
    yard.app.store.run(tend_workflows())
    clock.advance(timedelta(days=2))
    yard.app.store.prune()

    assert [yard.states(flow) for flow in flows] == [{}, {}]


def test_a_job_that_succeeds_in_its_own_transaction(yard: Yard):
    """Its children are released, and wait for what it adds, as after any other success."""

    def in_a_transaction(ctx: Context) -> None:
        with ctx.transaction():
            ctx.workflow.add(yard.step.job(name="added"))

    yard.grow = in_a_transaction
    with yard.app.workflow("w") as flow:
        first = flow.add(yard.growing.job(name="grows"))
        flow.add(yard.step.job(name="after"), after=first)
    yard.app.drain()

    assert yard.log == ["grows", "added", "after"]


def test_pruning_a_cancelled_job_cancels_what_waits_for_its_retry(yard: Yard, clock: ManualClock):
    """It was retried alone. Nothing else would end it."""
    with yard.app.workflow("w") as first:
        parent = first.add(yard.step.job(name="parent"))
    with yard.app.workflow("w") as second:
        child = second.add(yard.step.job(name="child"), after=parent.id)
    yard.app.cancel(parent.id)
    yard.app.retry(child.id)
    waiting = yard.states(second)
    yard.app.store.run(tend_workflows())
    clock.advance(timedelta(days=2))
    yard.app.store.prune()

    assert (waiting["child"], yard.states(second)["child"]) == ("waiting", "cancelled")
