"""Dead jobs that fit are retried or removed step by step, each step a transaction."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from rowlock import App, JobState, OptionInvalid, config
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


def test_all_scheduled_jobs_are_made_due(app):
    """Those that wait for another reason stay as they are."""
    due = [app.enqueue("send", delay=60).id for _ in range(3)]
    other = app.enqueue("other", delay=60)
    answer = app.bulk("run_now", "scheduled", kind="send")

    assert (answer.done, answer.skipped) == (3, [])
    assert {job.id for job in app.list(state="ready")} == {*due}
    assert app.get(other.id).state == "scheduled"


def test_all_are_put_off(app):
    """To one time; a second walk finds them again and changes nothing."""
    at = datetime(2035, 1, 31, tzinfo=UTC)
    app.enqueue_many([{"kind": "send"}] * 3)
    answers = [app.bulk("reschedule", state, run_at=at) for state in ("ready", "scheduled")]

    assert [answer.done for answer in answers] == [3, 3]
    assert {(job.state, job.run_at) for job in app.list()} == {("scheduled", at)}


def test_all_of_a_queue_are_moved(app, monkeypatch):
    """In several steps; running ones are not in the state that was named."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 2)
    jobs = app.enqueue_many([{"kind": "send", "queue": "mial"}] * 5)
    (lease,) = app.store.claim(worker="w", queues=["mial"])
    answer = app.bulk("reroute", "ready", queue="mial", to="mail")

    assert answer.done == 4
    assert {job.id for job in app.list(queue="mail")} == {job.id for job in jobs} - {lease.id}


def test_all_dead_jobs_are_run_again(app, monkeypatch):
    """As new jobs; one whose key is in flight is skipped and named."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 2)
    dead = kill(app, "mail", 3)
    (keyed,) = kill_keyed(app)
    app.enqueue("send", key="k", delay=60)
    answer = app.bulk("run_again", "dead")
    again = app.list(state="ready", full=True)

    assert (answer.done, answer.skipped) == (3, [keyed])
    assert {job.meta["run_again_of"] for job in again} == {*dead}
    assert len(app.list(state="dead")) == 4


def test_a_repeated_step_runs_nothing_twice(app):
    """After an unknown COMMIT the jobs that it made are known by their ids."""
    kill(app, "mail", 3)
    op = walk(BulkAction.RUN_AGAIN)
    first = app.store.run(op)
    repeated = app.store.run(msgspec.structs.replace(op, start=op.repeat))

    assert (first.done, repeated.done, repeated.skipped) == (3, 3, [])
    assert len(app.list(state="ready")) == 3


@pytest.mark.parametrize(
    ("option", "asked"),
    [
        ("action", {"action": "explode"}),
        ("state", {"action": "cancel", "state": "asleep"}),
        ("state", {"action": "delete"}),
        ("to", {"action": "reroute", "state": "ready"}),
        ("to", {"action": "reroute", "state": "ready", "to": ""}),
        ("run_at", {"action": "reschedule", "state": "ready"}),
    ],
)
def test_bad_input_changes_nothing(app, option, asked):
    """It is refused by the name of the option."""
    app.enqueue("send")
    with pytest.raises(OptionInvalid, match=f"^{option}: "):
        app.bulk(**asked)

    assert [job.state for job in app.list()] == ["ready"]
