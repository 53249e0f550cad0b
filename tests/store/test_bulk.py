"""Dead jobs that fit are retried or removed step by step, each step a transaction."""

from __future__ import annotations

import pytest

from rowlock import App, JobState, config
from rowlock.store.ops.bulk import BulkAction, Place, Selection, bulk_step
from rowlock.store.ops.manage import job_filter


@pytest.fixture
def app(any_url):
    """An app without tasks."""
    with App(any_url) as app:
        yield app


def walk(action: BulkAction, place: Place | None = None, **chosen: str):
    """A step over the dead jobs that fit."""
    return bulk_step(Selection(action, JobState.DEAD, job_filter(**chosen)), place)


def kill(app: App, queue: str, count: int, kind: str = "send") -> list[str]:
    ids = [app.enqueue(kind, queue=queue, max_attempts=1).id for _ in range(count)]
    for lease in app.store.claim(worker="w", queues=[queue], kinds=[kind], limit=count):
        app.store.log(lease, ["a line"])
        app.store.fail(lease, "boom")
    return ids


@pytest.mark.parametrize("action", [BulkAction.RETRY, BulkAction.DELETE])
def test_steps_end(app, monkeypatch, action):
    """Each goes on behind the last, to the end of those that were dead at the start."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 2)
    kill(app, "mail", 3)
    kill(app, "other", 1)
    first = app.store.run(walk(action, queue="mail"))
    late = kill(app, "mail", 1, kind="late")
    second = app.store.run(walk(action, first.next, queue="mail"))

    assert (first.done, first.skipped, first.next is not None) == (2, [], True)
    assert (second.done, second.skipped, second.next) == (1, [], None)
    assert {*late} <= {job.id for job in app.list(state="dead")}
    assert len(app.list(state="dead")) == 2


def test_a_key_in_use_is_skipped(app):
    """A dead job whose key is in flight again is left where it is, and named."""
    (dead,) = kill_keyed(app)
    app.enqueue("send", key="k")
    step = app.store.run(walk(BulkAction.RETRY))

    assert (step.done, step.skipped, step.next) == (0, [dead], None)
    assert app.get(dead).state == "dead"


def kill_keyed(app: App) -> list[str]:
    job = app.enqueue("send", key="k", max_attempts=1)
    (lease,) = app.store.claim(worker="w", queues=["default"])
    app.store.fail(lease, "boom")
    return [job.id]


def test_a_purge_takes_the_log_along(app):
    """Nothing of a purged job is left."""
    (id,) = kill(app, "mail", 1)
    app.store.run(walk(BulkAction.DELETE))

    assert None is app.get(id)
    assert app.store.read_log(id) == []
