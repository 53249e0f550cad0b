"""`rowlock move`: everything arrives, once, whatever happens on the way."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

import rowlock
from rowlock import cli, config
from rowlock.columns import POSTGRES_COLUMNS
from rowlock.errors import OptionInvalid, StoreUnavailable
from rowlock.ids import new_id
from rowlock.job import JobState
from rowlock.move import BatchRows, Mover
from rowlock.store.ops import move
from rowlock.store.ops.audit import list_audit
from rowlock.store.ops.enqueue import enqueue
from rowlock.store.ops.idempotency import FirstAnswer, KeyedRequest, enqueue_once
from rowlock.store.options import new_job
from rowlock.store.statements import TABLES
from tests.move.killing import Stopped, stop_at


def everything(app: rowlock.App) -> dict[str, dict[str, Any]]:
    """All jobs as users see them, but for what a move must change."""
    shown = {}
    for job in app.list(limit=config.LIST_LIMIT_MAX, full=True):
        fields = {name: getattr(job, name) for name in job.__struct_fields__}
        # It has held them, so that no earlier lease can count.
        del fields["token"]
        shown[job.id] = fields
    return shown


def fill(app: rowlock.App) -> None:
    """Jobs in every state that does not need a worker, with all that can belong to them."""
    far = datetime.now(UTC) + timedelta(days=400)
    app.enqueue("logging", {"n": 1}, queue="a", priority=5, tags=["x"], meta={"m": "ü\n'\""})
    app.drain()
    app.enqueue("failing", tags=["dead"])
    app.drain()
    app.enqueue("logging", {"n": 2**53 + 1}, queue="b", run_at=far, key="k", tenant="acme")
    app.enqueue("logging", {"n": 3}, queue="b", keep=0, max_attempts=3)
    cancelled = app.enqueue("logging", {"n": 4}, queue="c")
    app.cancel(cancelled.id)
    app.enqueue("unknown", {"text": "€\\ud83d" * 50}, queue="c", delay=3600)
    app.pause("b")
    app.schedule("daily", "logging", cron="0 3 * * *", timezone="Europe/Berlin", payload={"n": 9})


@pytest.mark.parametrize("statement_bytes", [1, 1_500, config.MOVE_STATEMENT_BYTES])
def test_all_that_there_was_is_there(
    apps: tuple[rowlock.App, rowlock.App],
    statement_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
):
    """Jobs with their ids and all their fields, logs, schedules, pauses; the source is empty."""
    monkeypatch.setattr(config, "MOVE_STATEMENT_BYTES", statement_bytes)
    old, new = apps
    fill(old)
    before, schedules = everything(old), old.store.list_schedules()
    logged = next(id for id, job in before.items() if job["result"] == 1)

    moved = Mover(old.store, new.store).run()

    assert before == everything(new)
    assert (moved.jobs, moved.finished, moved.schedules) == (3, 3, 1)
    assert everything(old) == {}
    assert schedules == new.store.list_schedules()
    assert old.store.list_schedules() == []
    assert [each.queue for each in new.stats() if each.is_paused] == ["b"]
    assert [line.text for line in new.store.read_log(logged)] == ["line of 1"]


def test_what_was_moved_goes_on_there(apps: tuple[rowlock.App, rowlock.App]):
    """Dead letters can be retried, waiting jobs run, keys are held."""
    old, new = apps
    fill(old)
    first = old.enqueue("logging", {"n": 5}, key="only", key_hold="kept")

    Mover(old.store, new.store).run()
    again = new.enqueue("logging", {"n": 6}, key="only", key_hold="kept")
    new.resume("b")
    retried = new.retry_dead()
    new.drain()

    assert (again.id, again.created) == (first.id, False)
    assert retried.retried == 1
    done = new.get(first.id)
    assert done is not None and (done.state, done.result) == (JobState.SUCCEEDED, 5)


def test_a_debounced_job_goes_on_there(apps: tuple[rowlock.App, rowlock.App]):
    """It is replaced there, and its key is free once it runs."""
    old, new = apps
    first = old.enqueue("logging", {"n": 1}, key="k", quiet=0, max_wait=3600)

    Mover(old.store, new.store).run()
    again = new.enqueue("logging", {"n": 2}, key="k", quiet=0)
    (lease,) = new.store.claim(worker="w", queues=["default"])
    fresh = new.enqueue("logging", {"n": 3}, key="k", quiet=0)

    assert (again.id, again.created, lease.job.payload) == (first.id, False, {"n": 2})
    assert fresh.created


def test_a_key_is_held_while_its_job_is_moved(apps: tuple[rowlock.App, rowlock.App]):
    """Nobody runs the job, and it waits again if the move is given up."""
    old, _ = apps
    first = old.enqueue("logging", {"n": 1}, key="k", key_hold="until_started")
    hold = move.Hold(new_id(), new_id())
    old.store.run(move.take(hold, after=move.FIRST_ID, limit=10))
    during = old.enqueue("logging", {"n": 2}, key="k", if_held="replace")
    old.store.run(move.give_back(hold))
    after = old.enqueue("logging", {"n": 3}, key="k", if_held="replace")

    assert (during.id, during.created, during.payload) == (first.id, False, {"n": 1})
    assert (after.id, after.created, after.payload) == (first.id, False, {"n": 3})


def test_a_database_is_not_moved_to_itself(urls: tuple[str, str]):
    """Nothing is touched."""
    with rowlock.App(urls[0]) as app, rowlock.App(urls[0]) as same:
        app.enqueue("x")

        with pytest.raises(OptionInvalid, match="give another URL"):
            Mover(app.store, same.store).run()

        assert [job.state for job in app.list()] == [JobState.READY]


STOPS = (
    *("take", "put", "put, unknown", "gone", "add", "add, unknown", "drop", "freeze_schedules"),
    *("add_ended", "add_ended, unknown", "drop_ended"),
)


@pytest.mark.parametrize(
    ("stop", "count", "urls"),
    [
        (stop, count, ("sqlite-postgres", "postgres-sqlite")[(number + count) % 2])
        for number, stop in enumerate(STOPS)
        for count in (1, 2)
    ],
    indirect=["urls"],
)
def test_a_killed_move_goes_on(
    apps: tuple[rowlock.App, rowlock.App], stop: str, count: int, monkeypatch: pytest.MonkeyPatch
):
    """Killed anywhere, while workers of the target do what has arrived: each job is run once.

    At each stop the first time on the way to one store, the second time on the way to the other.
    """
    monkeypatch.setattr(config, "MOVE_BATCH_ROWS", 3)
    old, new = apps
    fill(old)
    waiting = [old.enqueue("logging", {"n": n}, keep=0).id for n in range(7)]
    total, runs = len(everything(old)), 0
    for store in (old.store, new.store):
        run = store.run
        with monkeypatch.context() as patch:
            patch.setattr(store, "run", stop_at(stop, count, run))
            try:
                Mover(old.store, new.store).run()
            except Stopped:
                runs += new.drain()
                # Of jobs that are run and gone at once, no row is left to be found.
                assert new.store.prune() >= 0

    Mover(old.store, new.store).run()
    runs += new.drain()

    assert everything(old) == {}
    left = everything(new)
    assert not set(waiting) & set(left)
    assert runs == len(waiting)
    assert len(left) == total - len(waiting)


def test_what_is_under_way_can_be_given_back(
    apps: tuple[rowlock.App, rowlock.App], monkeypatch: pytest.MonkeyPatch
):
    """It waits in the source again, and a late move of it can't put it into the target."""
    old, new = apps
    fill(old)
    before = everything(old)
    with monkeypatch.context() as patch:
        patch.setattr(new.store, "run", stop_at("put", 1, new.store.run))
        with pytest.raises(Stopped):
            Mover(old.store, new.store).run()
    (hold,) = old.store.run(move.open_batches())
    held = old.store.run(move.jobs_of(hold))

    returned = Mover(old.store, new.store).give_back()
    late = new.store.run(move.put(hold.batch, held, [], source="old"))

    assert len(held.jobs) == returned
    assert late.moved == 0
    assert {id for id, job in before.items() if job["state"] not in TERMINAL} == {
        job.id for job in old.list() if job.state not in TERMINAL
    }
    assert [job for job in new.list() if job.state not in TERMINAL] == []


@pytest.mark.parametrize("again", ["move", "give back"])
def test_a_batch_that_was_refused_is_never_taken_for_moved(
    apps: tuple[rowlock.App, rowlock.App], again: str, monkeypatch: pytest.MonkeyPatch
):
    """Killed between the target's refusal and the release in the source: the jobs are not lost."""
    old, new = apps
    ids = {old.enqueue("logging", {"n": n}).id for n in range(3)}
    with monkeypatch.context() as patch:
        patch.setattr(new.store, "run", stop_at("put", 1, new.store.run))
        with pytest.raises(Stopped):
            Mover(old.store, new.store).run()
    with monkeypatch.context() as patch:
        patch.setattr(old.store, "run", stop_at("give_back", 1, old.store.run))
        with pytest.raises(Stopped):
            Mover(old.store, new.store).give_back()

    if again == "move":
        Mover(old.store, new.store).run()
        assert ids == everything(new).keys()
    else:
        assert Mover(old.store, new.store).give_back() == 3
        assert ids == everything(old).keys()
    assert old.store.run(move.open_batches()) == []


TERMINAL = {JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED}


def test_a_running_job_is_waited_for(apps: tuple[rowlock.App, rowlock.App]):
    """Its worker settles it where it was leased; what it leaves is moved."""
    old, new = apps
    job = old.enqueue("logging", {"n": 1})
    (lease,) = old.store.claim(worker="w", queues=["default"], limit=1)
    rests: list[float] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 2:
            old.store.succeed([lease], [7])

    Mover(old.store, new.store, rest=rest).run()

    assert len(rests) == 2
    moved = new.get(job.id)
    assert moved is not None and (moved.state, moved.result) == (JobState.SUCCEEDED, 7)
    assert None is old.get(job.id)


def test_a_cancel_on_the_way_arrives(
    apps: tuple[rowlock.App, rowlock.App], monkeypatch: pytest.MonkeyPatch
):
    """Asked for in the source while the job was in both, it holds in the target."""
    old, new = apps
    job = old.enqueue("logging", {"n": 1})
    run = new.store.run

    def running(op: Any) -> Any:
        result = run(op)
        if op.name == "put":
            old.cancel(job.id)
        return result

    monkeypatch.setattr(new.store, "run", running)
    Mover(old.store, new.store).run()

    moved = new.get(job.id)
    assert moved is not None and JobState.CANCELLED is moved.state


def test_a_resend_that_comes_late_is_no_second_job(
    apps: tuple[rowlock.App, rowlock.App], monkeypatch: pytest.MonkeyPatch
):
    """The target had it: it is not run again, though its row is gone, and the source forgot it."""
    monkeypatch.setattr(config, "ID_REMEMBERED_SECONDS", 0)
    old, new = apps
    id = new_id()
    old.enqueue("logging", {"n": 1}, id=id, keep=0)
    Mover(old.store, new.store).run()
    assert new.drain() == 1

    old.enqueue("logging", {"n": 1}, id=id, keep=0)
    moved = Mover(old.store, new.store).run()

    assert moved.known == 1
    assert new.drain() == 0
    assert everything(old) == {}


def test_of_two_jobs_with_one_key_the_targets_is_the_job(
    apps: tuple[rowlock.App, rowlock.App],
):
    """The other is kept, as cancelled, and says why."""
    old, new = apps
    there = new.enqueue("logging", {"n": 1}, key="k")
    late = old.enqueue("logging", {"n": 2}, key="k")

    moved = Mover(old.store, new.store).run()

    assert moved.stopped == 1
    stopped = new.get(late.id)
    assert stopped is not None
    assert JobState.CANCELLED is stopped.state
    assert "its key 'k' was held" in str(stopped.last_error)
    kept = new.get(there.id)
    assert kept is not None and JobState.READY is kept.state


def test_a_dead_job_that_is_retried_on_the_way_lives(
    apps: tuple[rowlock.App, rowlock.App], monkeypatch: pytest.MonkeyPatch
):
    """Its copy in the target gives way to it."""
    old, new = apps
    job = old.enqueue("failing")
    old.drain()
    run = new.store.run

    def running(op: Any) -> Any:
        result = run(op)
        if op.name == "add_ended":
            old.retry(job.id)
        return result

    monkeypatch.setattr(new.store, "run", running)
    Mover(old.store, new.store).run()

    moved = new.get(job.id)
    assert moved is not None and JobState.READY is moved.state
    assert len(list(new.list())) == 1


def test_a_database_that_is_away_is_borne_with(
    apps: tuple[rowlock.App, rowlock.App], monkeypatch: pytest.MonkeyPatch
):
    """For a while; then the error is told, and the same move goes on later."""
    old, new = apps
    fill(old)
    total, run, calls = len(everything(old)), new.store.run, [0]

    def failing(op: Any) -> Any:
        calls[0] += 1
        if calls[0] in {3, 4, 6}:
            raise StoreUnavailable("away")
        return run(op)

    monkeypatch.setattr(new.store, "run", failing)
    Mover(old.store, new.store, rest=lambda _: None).run()
    assert total == len(everything(new))

    monkeypatch.setattr(config, "MOVE_PATIENCE_SECONDS", -1.0)
    calls[0] = 1
    old.enqueue("logging", {"n": 1})
    with pytest.raises(StoreUnavailable):
        Mover(old.store, new.store).run()


def test_first_answers_are_moved(apps: tuple[rowlock.App, rowlock.App]):
    """A request that is sent again after the move gets the answer from before it."""
    old, new = apps
    request = KeyedRequest.of("k", tenant=None, content=b"")
    for app in apps:
        job = new_job(kind="logging", payload="{}")
        op = enqueue_once(enqueue([job]), request, answer=lambda _: "the first")
        answered = app.store.run(op)
        if app is old:
            Mover(old.store, new.store).run()

    assert answered == FirstAnswer("the first")


def test_the_audit_tells_of_every_batch(apps: tuple[rowlock.App, rowlock.App]):
    """Who looks can see what came from where."""
    old, new = apps
    old.enqueue("logging", {"n": 1})
    Mover(old.store, new.store).run()

    (entry,) = new.store.run(list_audit()).entries

    assert (entry.actor, entry.action, entry.detail["jobs"]) == ("rowlock move", "move.batch", 1)


@pytest.mark.parametrize("name", TABLES)
def test_no_column_is_forgotten(name: str, postgres_url: str):
    """A table that gets a new column is moved with it, unless the target derives the column."""
    with psycopg.connect(postgres_url) as connection:
        described = connection.execute(f"SELECT * FROM rowlock.{name}").description

    stored = {column.name for column in described or ()}
    assert {*TABLES[name].columns} == stored - {*POSTGRES_COLUMNS}


def test_a_retry_is_still_one_where_it_moved_to(sqlite_url: str, postgres_url: str):
    """In a queue ordered by age it goes back to the place of its age."""
    with rowlock.App(sqlite_url) as source, rowlock.App(postgres_url) as target:
        source.migrate()
        source.enqueue("x")
        (lease,) = source.store.claim(worker="w", queues=None)
        source.store.fail(lease, "no", delay=60)
        CliRunner().invoke(cli.main, ["--database-url", sqlite_url, "move", postgres_url])
        (stats,) = target.stats()

    assert stats.counts[JobState.RETRYING].value == 1


def test_a_target_that_is_empty(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch):
    """As of a variable that was not set: nothing is moved to the default database."""
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", urls[1])
    with rowlock.App(urls[0]) as app:
        job = app.enqueue("x")
        done = CliRunner().invoke(cli.main, ["--database-url", urls[0], "move", ""])

        assert (done.exit_code, "is empty" in done.stderr) == (1, True)
        assert app.get(job.id) is not None


def test_told_as_json(urls: tuple[str, str]):
    """By the command."""
    with rowlock.App(urls[0]) as app:
        app.enqueue("x")

    done = CliRunner().invoke(cli.main, ["--database-url", urls[0], "move", urls[1], "--json"])

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["jobs"] == 1


def test_batches_are_bounded_by_bytes(apps: tuple[rowlock.App, rowlock.App]) -> None:
    """Few at first, more while they are small, fewer when they are large; at least one."""
    rows, limits = BatchRows(), []
    for size, times in ((10, 5), (config.MOVE_BATCH_BYTES // 4, 1), (config.MOVE_BATCH_BYTES, 2)):
        for _ in range(times):
            rows.note([{"payload": "x" * size, "result": None}] * 3)
            limits.append(rows.limit)

    assert limits == [40, 80, 160, 200, 200, 4, 1, 1]
    old, new = apps
    jobs = old.enqueue_many([{"kind": "large", "payload": {"t": "x" * 9}} for _ in range(450)])
    Mover(old.store, new.store).run()
    assert {new.get(job.id).state for job in jobs} == {JobState.READY}
