"""Cancel and retry of large workflows, batch by batch, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from rowlock import App, config
from rowlock.errors import InvalidTransition
from rowlock.scheduler import Janitor
from rowlock.store.ops import workflow_manage
from rowlock.store.steps import Steps
from rowlock.workflow import Workflow


class KilledError(Exception):
    """The process is gone."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of two."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 2)


@contextmanager
def killed_after(batches: int) -> Iterator[None]:
    """A process that cancels a workflow is gone after some batches."""
    cancel_some = workflow_manage._cancel_some
    left = batches

    def cancel_or_die(workflow: str) -> Steps[int]:
        nonlocal left
        if not left:
            raise KilledError
        left -= 1
        return (yield from cancel_some(workflow))

    with mock.patch.object(workflow_manage, "_cancel_some", cancel_or_die):
        yield


def chain(app: App, number: int) -> Workflow:
    """A workflow of jobs of which each waits for the one before it."""
    task = app.find("link") or app.task(name="link", max_attempts=1)(lambda: None)
    with app.workflow("chain") as flow:
        before = flow.add(task.job())
        for _ in range(number - 1):
            before = flow.add(task.job(), after=before)
    return flow


def states(app: App, flow: Workflow) -> list[str]:
    """How many jobs are in which state."""
    return sorted(job.state.value for job in app.workflow_jobs(flow.id))


def last_of(app: App, flow: Workflow, state: str) -> str:
    return [job.id for job in app.workflow_jobs(flow.id, state=state)][-1]


@pytest.mark.usefixtures("small")
def test_a_cancel_that_is_cut_short_is_taken_up(app: App):
    """Each batch is committed by itself. What was cancelled stays, and a sweep does the rest."""
    flow = chain(app, 7)
    with pytest.raises(KilledError), killed_after(2):
        app.cancel_workflow(flow.id)
    before = states(app, flow)
    sweep = Janitor(app.store)
    asyncio.run(sweep._tend())
    after = states(app, flow)

    assert before == ["cancelled"] * 4 + ["ready"] + ["waiting"] * 2
    assert after == ["cancelled"] * 7


@pytest.mark.usefixtures("small")
def test_no_retry_during_a_cancel(app: App):
    """A job of it could wait for ever for one that was cancelled before."""
    flow = chain(app, 5)
    with pytest.raises(KilledError), killed_after(1):
        app.cancel_workflow(flow.id)
    cancelled = last_of(app, flow, "cancelled")
    with pytest.raises(InvalidTransition, match="is being cancelled"):
        app.retry(cancelled)
    app.cancel_workflow(flow.id)
    app.retry(cancelled)

    assert states(app, flow) == ["cancelled"] * 4 + ["waiting"]


@pytest.mark.usefixtures("small")
def test_jobs_of_other_workflows_learn_of_a_cancel(app: App):
    """Even if nobody asks for them."""
    first = chain(app, 3)
    last = last_of(app, first, "waiting")
    task = app.find("link")
    with app.workflow("other") as other:
        other.add(task.job(), after=last)
        other.add(task.job(), after=last, when="ended")
    app.cancel_workflow(first.id)

    assert states(app, other) == ["cancelled", "ready"]


@pytest.mark.usefixtures("small")
def test_a_retry_goes_past_jobs_that_stay(app: App):
    """Their keys are in flight again. All the others are taken back."""

    @app.task(max_attempts=1)
    def fail() -> None:
        raise ValueError

    with app.workflow("keys") as flow:
        for key in "abc":
            flow.add(fail.using(key=key).job())
        flow.add(fail.job())
    app.drain()
    for key in "abc":
        fail.using(key=key, delay=60).enqueue()

    assert (app.retry_workflow(flow.id), states(app, flow)) == (1, ["dead"] * 3 + ["ready"])


def test_a_bulk_retry_leaves_out_what_a_workflow_refuses(app: App):
    """Another workflow holds its key by now. One job must not stop all the others."""

    @app.task(max_attempts=1)
    def fail() -> None:
        raise ValueError

    with app.workflow("keyed", key="k") as flow:
        flow.add(fail.job())
    plain = fail.enqueue()
    app.drain()
    with app.workflow("keyed", key="k") as other:
        other.add(fail.using(delay=60).job())
    done = app.bulk("retry", "dead")

    assert (done.done, len(done.skipped)) == (1, 1)
    assert (app.get(plain.id).state, states(app, flow)) == ("ready", ["dead"])


@pytest.mark.parametrize(("bound", "wanted"), [(7, "succeeded"), (6, "dead")])
def test_only_the_results_that_a_job_gets_are_counted(
    app: App, monkeypatch: pytest.MonkeyPatch, bound: int, wanted: str
):
    """Not those of other jobs that it waits for. A result may be as large as the bound."""

    @app.task
    def make(size: int) -> str:
        return "x" * size

    @app.task
    def take(text: str) -> str:
        return text

    with app.workflow("sizes") as flow:
        small, large = flow.add(make.job(size=5)), flow.add(make.job(size=50))
        last = flow.add(take.job(text=small.result), after=[small, large])
    monkeypatch.setattr(config, "INPUTS_BYTES_MAX", bound)
    app.drain()

    assert app.get(last.id).state == wanted
