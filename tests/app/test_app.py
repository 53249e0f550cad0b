"""The client calls of `App`, and what it refuses."""

from __future__ import annotations

import asyncio
import inspect
import time
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

import rowlock
from rowlock import JobState, config


def test_plain_call_runs_the_function(app):
    """Calling a task runs its function here and now; nothing is enqueued."""

    @app.task
    def double(number: int) -> int:
        return 2 * number

    assert double(3) == 6
    assert not app.list().jobs


def test_wrong_arguments_name_every_bad_field(app):
    """A payload that does not fit is refused before anything is written, field by field."""

    @app.task
    def send(to: str, subject: str, copies: int = 1) -> None: ...

    with pytest.raises(rowlock.PayloadInvalid) as caught:
        send.enqueue(to=1, copies="two", extra=True)

    assert {error.field for error in caught.value.errors} == {"to", "subject", "copies", "extra"}
    assert caught.value.code == "payload_invalid"
    assert not app.list().jobs


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), "a\0b", "\ud800", 10**4300, {"deep": [[]]}],
    ids=["nan", "infinity", "NUL", "lone surrogate", "4301 digits", "too deep"],
)
def test_values_that_json_or_a_store_cannot_hold(app, value):
    """The same typed error on both stores, and nothing is written."""
    nested = value
    if isinstance(value, dict):
        for _ in range(70):
            nested = [nested]

    with pytest.raises(rowlock.PayloadInvalid):
        app.enqueue("any", {"fine": 1, "bad": nested})

    assert not app.list().jobs


@pytest.mark.parametrize(
    "number",
    [2**53 + 1, 10**400, -(10**4299), 10**4300 - 1],
    ids=["2^53+1", "10^400", "-10^4299", "10^4300-1"],
)
def test_big_integers_come_back_exactly(app, number):
    """Integers of up to 4,300 digits survive both stores."""
    job = app.enqueue("any", {"number": number})

    assert app.get(job.id).payload["number"] == number


def test_too_large_payload(app):
    """A payload beyond 1 MiB is refused."""
    with pytest.raises(rowlock.PayloadInvalid, match=r"1048576|1 MiB|bytes"):
        app.enqueue("any", {"text": "x" * 1_048_577})


def test_options_reach_the_job(app, clock):
    """What `using` says is on the job."""

    @app.task
    def work() -> None: ...

    id = str(uuid.uuid4())
    job = work.using(
        key="k",
        priority=7,
        delay=timedelta(minutes=1),
        tenant="acme",
        queue="other",
        max_attempts=3,
        keep=None,
        tags=["a", "b"],
        meta={"trace": "x"},
        id=id,
    ).enqueue()
    found = app.get(job.id)

    assert (
        found.id,
        found.key,
        found.priority,
        found.tenant,
        found.queue,
        found.max_attempts,
    ) == (id, "k", 7, "acme", "other", 3)
    assert (found.keep, found.tags, found.meta) == (None, ["a", "b"], {"trace": "x"})
    assert (
        found.state,
        (found.run_at - found.created_at).total_seconds(),
    ) == (JobState.SCHEDULED, 60)
    assert job.created
    assert not found.created


def test_same_key_returns_the_first(app):
    """A second enqueue with a key in flight answers with the first job."""

    @app.task
    def work() -> None: ...

    first = work.using(key="k").enqueue()
    second = work.using(key="k").enqueue()

    assert (second.id, second.created) == (first.id, False)


def test_enqueue_many_mixes_items(app):
    """Jobs of tasks, with options, and dicts by name; answers come in the same order."""

    @app.task
    def work(number: int) -> None: ...

    answers = app.enqueue_many(
        [
            work.job(number=1),
            work.using(key="k", priority=2).job(number=2),
            {"kind": "work", "payload": {"number": 3}, "key": "k"},
            {"kind": "elsewhere", "queue": "far"},
        ]
    )

    assert [job.created for job in answers] == [True, True, False, True]
    assert answers[1].id == answers[2].id
    assert [job.payload["number"] for job in answers[:3]] == [1, 2, 2]
    assert (answers[3].kind, answers[3].queue) == ("elsewhere", "far")


def test_enqueue_many_is_all_or_none(app):
    """One bad item, and nothing is written."""

    @app.task
    def work(number: int) -> None: ...

    with pytest.raises(rowlock.PayloadInvalid):
        app.enqueue_many([{"kind": "work", "payload": {"number": n}} for n in (1, "two", 3)])
    with pytest.raises(rowlock.OptionInvalid):
        app.enqueue_many([{"kind": "work", "payload": {"number": 1}}, {"kind": "x", "prio": 1}])

    assert not app.list().jobs


@pytest.mark.parametrize("count", [1, 3, config.COPY_ROWS_MIN + 1])
def test_the_same_items_again_are_the_same_jobs(app, count):
    """Whether they still wait or have ended: none is run twice, and none is told to be new."""

    @app.task
    def work() -> None:
        runs.append(1)

    runs: list[int] = []
    items = [work.job() for _ in range(count)]
    first = app.enqueue_many(items)
    waiting = app.enqueue_many(items)
    assert app.drain() == count
    ended = app.enqueue_many(items)

    assert [
        (one.created, two.created, three.created)
        for one, two, three in zip(first, waiting, ended, strict=True)
    ] == [(True, False, False)] * count
    assert [job.id for job in first] == [job.id for job in ended]
    assert {job.state for job in ended} == {"succeeded"}
    assert app.drain() == 0
    assert len(runs) == count


def test_an_earlier_lease_does_not_settle_what_was_sent_again(app, clock):
    """Its row is gone, and so is its token's: the new one's tokens are others."""

    @app.task(keep=0)
    def work() -> None:
        raise AssertionError("is claimed by hand")

    item = work.job()
    app.enqueue_many([item])
    (late,) = app.store.claim(worker="late", queues=["default"], lease=10)
    clock.advance(20)
    (lease,) = app.store.claim(worker="second", queues=["default"], lease=10)
    app.store.succeed([lease])
    clock.advance(config.ID_REMEMBERED_SECONDS + 1)
    app.store.prune()
    (again,) = app.enqueue_many([item])
    (third,) = app.store.claim(worker="third", queues=["default"], lease=10)

    assert again.created
    with pytest.raises(rowlock.LeaseLost):
        app.store.succeed([late])
    app.store.succeed([third])


def test_a_connection_is_of_the_call(app):
    """One of an item would be taken for the transaction it is in, and is not."""

    @app.task
    def work() -> None: ...

    with pytest.raises(rowlock.OptionInvalid, match="conn: pass it to enqueue_many"):
        app.enqueue_many([work.using(conn=object()).job()])
    with pytest.raises(rowlock.OptionInvalid, match="conn: pass it to enqueue_many"):
        app.enqueue_many([{"kind": "work", "conn": object()}])
    assert app.list().jobs == []


def test_strict_app_refuses_unknown_kinds(any_url):
    """A strict app knows its kinds, and suggests the nearest."""
    with rowlock.App(any_url, strict=True) as app:

        @app.task
        def send_email() -> None: ...

        with pytest.raises(rowlock.OptionInvalid, match="did you mean 'send_email'"):
            app.enqueue("send_emial")


def test_included_tasks_belong_to_the_app(app):
    """Tasks collected without an app are enqueued through the one that includes them."""
    tasks = rowlock.Tasks()

    @tasks.task(name="mail.send")
    def send() -> None: ...

    with pytest.raises(rowlock.OptionInvalid, match="include"):
        send.enqueue()
    app.include(tasks)

    assert send.enqueue().kind == "mail.send"
    assert app.drain() == 1


def test_two_tasks_of_one_name_are_refused(app):
    """A second task of the same name is a mistake, told at once."""

    @app.task(name="work")
    def one() -> None: ...

    with pytest.raises(rowlock.OptionInvalid, match="already"):
        app.task(name="work")(lambda: None)


@pytest.mark.parametrize(
    "options",
    [
        {"queue": ""},
        {"queue": "x" * 201},
        {"priority": 101},
        {"priority": -101},
        {"priority": 1.5},
        {"max_attempts": 0},
        {"timeout": -1},
        {"keep": float("nan")},
        {"retry": "sometimes"},
        {"executor": "moon"},
        {"max_crashes": 0},
    ],
)
def test_bad_task_options(app, options):
    """A task's options are checked when it is defined."""
    with pytest.raises(rowlock.OptionInvalid):
        app.task(**options)(lambda: None)


@pytest.mark.parametrize(
    "options",
    [
        {"delay": -1},
        {"run_at": datetime(2030, 1, 1)},  # noqa: DTZ001  # naive on purpose
        {"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"priority": 101},
        {"tenant": ""},
        {"key": "x" * 201},
        {"key": "a\0b"},
        {"id": "not-a-uuid"},
        {"key": "k", "key_hold": "forever"},
        {"key": "k", "if_held": "forever"},
        {"if_held": "replace"},
        {"quiet": 5},
        {"key": "k", "max_wait": 5},
        {"tags": "one"},
        {"meta": {"x": float("nan")}},
        {"keep": -1},
        {"prio": 1},
    ],
)
def test_bad_enqueue_options(app, options):
    """Bad options raise a typed error, and nothing is written."""
    with pytest.raises(rowlock.OptionInvalid) as caught:
        app.enqueue("any", {}, **options)

    assert isinstance(caught.value, ValueError)
    assert not app.list().jobs


def test_unknown_filters_are_refused(app):
    """A filter that does not exist is a mistake, with the nearest name."""
    with pytest.raises(rowlock.OptionInvalid, match="did you mean 'queue'"):
        app.list(queues="mail")


def test_wait_returns_the_finished_job(app):
    """`wait` gives the job once it is terminal."""

    @app.task
    def work() -> int:
        return 5

    job = work.enqueue()
    app.drain()

    assert app.wait(job.id, timeout=5).result == 5
    assert asyncio.run(_awaited(app, job.id)).result == 5


async def _awaited(app: rowlock.App, id: str) -> rowlock.Job:
    try:
        return await app.await_(id, timeout=5)
    finally:
        await app.aclose()


def test_wait_gives_up(app):
    """A job that is not finished in time is a TimeoutError; an unknown one is NotFound."""
    job = app.enqueue("any")

    with pytest.raises(TimeoutError):
        app.wait(job.id, timeout=0.05)
    with pytest.raises(rowlock.NotFound):
        app.wait(uuid.uuid4(), timeout=5)


def test_wait_looks_once_more_when_its_time_is_over(app, monkeypatch):
    """A job that ends in the last pause is finished in time, in both colours."""
    first, second = app.enqueue("any"), app.enqueue("any")

    def sleep(seconds: float) -> None:
        app.cancel(first.id)
        time.sleep(0.2)

    async def asleep(seconds: float) -> None:
        await app.acancel(second.id)
        await asyncio.sleep(0.2)

    async def awaited() -> rowlock.Job:
        try:
            return await app.await_(second.id, timeout=0.1)
        finally:
            await app.aclose()

    monkeypatch.setattr("rowlock.app.time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr("rowlock.app.asyncio", SimpleNamespace(sleep=asleep))

    assert app.wait(first.id, timeout=0.1).state == JobState.CANCELLED
    assert asyncio.run(awaited()).state == JobState.CANCELLED


def test_retry_with_another_payload(app):
    """A dead job can be retried with a payload that fits; one that does not is refused."""

    @app.task(max_attempts=1)
    def halve(number: int) -> int:
        if number % 2:
            raise ValueError("odd")
        return number // 2

    job = halve.enqueue(number=3)
    app.drain()
    with pytest.raises(rowlock.PayloadInvalid):
        app.retry(job.id, {"number": "four"})
    assert app.get(job.id).state == JobState.DEAD
    app.retry(job.id, {"number": 4})
    app.drain()

    assert (app.get(job.id).state, app.get(job.id).result) == (JobState.SUCCEEDED, 2)


def test_ids_may_be_uuids(app):
    """Every call takes an id as text or as a UUID; garbage is refused."""
    job = app.enqueue("any")

    assert app.get(uuid.UUID(job.id)) is not None
    assert app.cancel(uuid.UUID(job.id)).state == JobState.CANCELLED
    with pytest.raises(rowlock.OptionInvalid):
        app.get("17")


# They have no async twin: nothing waits in them, or they are a loop of their own.
BLOCKING_ONLY = {
    "chain",
    "chord",
    "find",
    "follow",
    "group",
    "include",
    "lifespan",
    "limit",
    "load_tasks",
    "nearest",
    "on_worker_start",
    "on_worker_stop",
    "prepare",
    "run_worker",
    "scheduled",
    "surround",
    "task",
    "use_database",
    "worker",
    "workflow",
}


def test_every_blocking_call_has_its_twin(app):
    """Each client call of App and Store is both blocking and async, with the same parameters."""
    for owner in (app, app.store):
        calls = dict(inspect.getmembers(owner, inspect.isroutine))
        for name, call in calls.items():
            if name.startswith(("_", "a")) or name in BLOCKING_ONLY:
                continue
            twin = calls[
                {"wait": "await_", "wait_workflow": "await_workflow"}.get(name, f"a{name}")
            ]

            assert inspect.iscoroutinefunction(twin), name
            assert inspect.signature(call) == inspect.signature(twin), name


def test_a_verb_has_a_name_and_a_text(app):
    """`help(app.cancel)` shows what it takes and does."""
    assert app.cancel.__name__ == "cancel"
    assert app.cancel.__doc__.startswith("Stop a job")
    assert list(inspect.signature(app.cancel).parameters) == ["id", "tenant"]


def test_keep_dead_is_the_apps(any_url, clock):
    """Dead jobs are kept as long as the app says."""
    with rowlock.App(any_url, keep_dead=60, clock=clock) as app:

        @app.task(max_attempts=1)
        def broken() -> None:
            raise RuntimeError

        job = broken.enqueue()
        app.drain()
        clock.advance(59)
        assert app.store.prune() == 0
        clock.advance(1)

        assert app.store.prune() == 1
        assert app.get(job.id) is None


def test_unknown_scheme_names_the_two():
    """A URL of another database says which ones there are."""
    with pytest.raises(rowlock.UnsupportedStore, match=r"sqlite.*postgresql"):
        rowlock.App("mysql://root@localhost/x")


def test_server_away_is_told_without_the_password():
    """A server that can't be reached is StoreUnavailable; the password is shown nowhere."""
    app = rowlock.App("postgresql://me:hunter2@127.0.0.1:1/jobs?connect_timeout=2")

    with pytest.raises(rowlock.StoreUnavailable) as caught:
        app.stats()

    assert "hunter2" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)
    assert "hunter2" not in repr(app)


def test_environment_gives_the_url(monkeypatch, tmp_path):
    """Without a URL the environment's is taken, also if it was set after the app was made."""
    monkeypatch.delenv("ROWLOCK_DATABASE_URL", raising=False)
    early = rowlock.App()
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")
    with rowlock.App() as app, early:
        app.enqueue("any")
        assert [job.kind for job in early.list()] == ["any"]

    assert (tmp_path / "other.db").exists()


def test_no_database_is_refused_at_the_first_use(monkeypatch, tmp_path):
    """An app without a URL can be imported and closed. Its first use says what to do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", "")
    with rowlock.App() as app:

        @app.task
        def add(a: int) -> int:
            return a

        for use in (lambda: add.enqueue(1), app.drain, app.stats, app.migrate, lambda: app.url):
            with pytest.raises(rowlock.OptionInvalid, match="set ROWLOCK_DATABASE_URL"):
                use()
        assert (repr(app), app.has_database) == ("<App without a database>", False)
    assert list(tmp_path.iterdir()) == []

    app.use_database(f"sqlite:///{tmp_path / 'late.db'}")
    add.enqueue(1)
    assert (app.drain(), app.has_database) == (1, True)
    app.close()


def test_an_empty_url_is_refused(monkeypatch, tmp_path):
    """A variable that was not set must not lead to another database; nothing is made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")
    with pytest.raises(rowlock.UnsupportedStore, match="empty"):
        rowlock.App("")

    assert list(tmp_path.iterdir()) == []


def test_handlers_may_use_the_app(app):
    """A job may enqueue and look while it runs, on the same database."""

    @app.task
    def parent() -> str:
        return app.enqueue("child").id

    job = parent.enqueue()
    app.drain()

    assert app.get(app.get(job.id).result).kind == "child"
