"""Why a job of a workflow does not run, on both stores."""

from __future__ import annotations

import pytest

from rowlock import App, Task, Why, WhyCode
from rowlock.job import Count, JobState
from rowlock.workflow import Node

BROKEN = "broken"


@pytest.fixture
def step(app: App) -> Task[[str], str]:
    """A task that fails if it is given a certain name."""

    @app.task(max_attempts=1)
    def step(name: str) -> str:
        if name == BROKEN:
            raise ValueError(name)
        return name

    return step


def _why(app: App, node: Node[str]) -> Why:
    return app.why(node.id)


def test_a_job_that_waits_for_others(app: App, step: Task[[str], str]):
    """The answer says for how many of them, and names some, those that can run first."""
    with app.workflow("crawl") as flow:
        first = flow.map(step.using(queue="first").job(name=f"{n}") for n in range(4))
        later = flow.add(step.job(name="later"), after=first[3])
        last = flow.add(step.job(name="last"), after=[*first, later])
        any_end = flow.add(step.job(name="any"), after=first[0], when="ended")
        a_death = flow.add(step.job(name="death"), after=first, when="dead")
    app.drain(["first"], limit=1)
    (lease,) = app.store.claim(worker="w", queues=["first"], limit=1)
    answer = _why(app, last)

    assert (answer.code, answer.state) == (WhyCode.WAITS_FOR_JOBS, JobState.WAITING)
    assert (answer.parents, answer.unmet) == (Count(5), Count(4))
    assert answer.text.startswith("it waits for 4 of 5 jobs: step ")
    assert f"step {lease.id} runs" in answer.text
    assert answer.text.endswith(", …")
    assert {each.state for each in answer.jobs} == {JobState.RUNNING, JobState.READY}
    assert _why(app, any_end).code is not WhyCode.STUCK
    assert _why(app, a_death).text.startswith("it runs only if one of 3 of 4 jobs dies: step ")


def test_a_job_that_waits_for_a_dead_one(app: App, step: Task[[str], str]):
    """It is stuck, also if there are jobs between them. The dead job is named."""
    with app.workflow("crawl") as flow:
        dies = flow.add(step.job(name=BROKEN))
        child = flow.add(step.job(name="child"), after=dies)
        between = flow.add(step.job(name="between"), after=child, when="ended")
        last = flow.add(step.job(name="last"), after=between)
        death = flow.add(step.job(name="death"), after=child, when="dead")
    app.drain()
    direct, through = _why(app, child), _why(app, last)

    assert (direct.code, direct.waits_for) == (WhyCode.STUCK, dies.id)
    assert direct.text == f"it waits for step {dies.id}, which is dead: retry or delete it"
    assert [each.state for each in direct.jobs] == [JobState.DEAD]
    assert (through.code, through.waits_for) == (WhyCode.STUCK, dies.id)
    assert through.text.startswith(f"through 2 jobs, it waits for step {dies.id}, which is dead")
    assert [each.id for each in through.jobs] == [between.id]
    assert _why(app, death).code is WhyCode.WAITS_FOR_JOBS
