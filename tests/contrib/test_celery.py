"""The shim for Celery gives what the real one gives, and refuses what it can't, saying why."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import rowlock
from rowlock import JobState
from rowlock.contrib import celery as shim
from rowlock.contrib.celery import Celery, Unsupported, crontab, shared_task, signals
from rowlock.contrib.celery.result import GroupResult
from rowlock.contrib.celery.schedules import expression_of, solar
from rowlock.contrib.celery.schedules import schedule as schedule_class
from rowlock.lifecycle import Failed
from rowlock.scheduler import declare_schedules
from tests.contrib.processes import ROOT
from tests.support.states import settle


def run_script(*words: str, script: str = "celery_script") -> list[str]:
    clean = {name: each for name, each in os.environ.items() if not name.startswith("ROWLOCK_")}
    done = subprocess.run(
        [sys.executable, "-m", f"tests.contrib.{script}", *words],
        cwd=ROOT, env=clean, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@cache
def real_lines() -> tuple[str, ...]:
    """What the script prints under Celery itself, with a broker in memory."""
    return tuple(run_script("real", "-"))


def test_one_script_under_both(postgres_url: str):
    """Results, errors, retries, times, ids and names are the same, line by line.

    On PostgreSQL: the other tests here are on SQLite.
    """
    lines = run_script("shim", postgres_url)

    assert list(real_lines()) == lines
    assert len(lines) > 30


def test_canvases_under_both(postgres_url: str):
    """Chains, groups, chords, maps, callbacks and errbacks give the same, line by line."""
    lines = run_script("shim", postgres_url, script="celery_canvas")

    assert run_script("real", "-", script="celery_canvas") == lines
    assert len(lines) > 100


@pytest.fixture
def app(sqlite_url: str):
    with Celery("shop", broker=sqlite_url) as app:
        yield app


def make_task(app: Celery, **options: Any) -> Any:
    @app.task(**options)
    def note(x: int = 1) -> int:
        return x

    return note


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda app: Celery(broker="redis://:secret@host/0"), "ROWLOCK_DATABASE_URL"),
        (lambda app: app.conf.update(broker_url="amqp://u:secret@h"), "ROWLOCK_DATABASE_URL"),
        (lambda app: Celery(amqp="my.amqp:AMQP"), "no such part"),
        (lambda app: app.conf.update(task_serializer="pickle"), "JSON"),
        (lambda app: app.conf.update(accept_content=["pickle"]), "JSON"),
        (lambda app: app.conf.update(task_annotations={"*": {"base": 1}}), "task itself"),
        (lambda app: app.conf.update(task_routes={"a": {"routing_key": "x"}}), "name a queue"),
        (lambda app: app.conf.update(beat_scheduler="django_celery_beat:X"), "rowlock cron"),
        (
            lambda app: app.conf.update(beat_schedule={"a": {"task": "b", "schedule": 0.5}}),
            "1 or more",
        ),
        (lambda app: app.conf.beat_schedule.update(a={"schedule": 60, "at": 1}), "leave it out"),
        (lambda app: make_task(app, acks_late=False), "max_attempts=1"),
        (lambda app: make_task(app, serializer="pickle"), "JSON"),
        (lambda app: make_task(app, backend="redis://"), "stored with their jobs"),
        (lambda app: make_task(app, routing_key="x"), "name a queue"),
        (lambda app: make_task(app, unheard_of=3), "leave it out"),
        (lambda app: make_task(app).apply_async(link="x"), "import its module"),
        (lambda app: make_task(app).apply_async(chain=["x"]), "write chain"),
        (lambda app: make_task(app).apply_async(serializer="pickle"), "JSON"),
        (lambda app: make_task(app).apply_async(routing_key="x"), "name a queue"),
        (lambda app: make_task(app).apply_async(unheard_of=3), "headers"),
        (lambda app: shim.chain(make_task(app).s(), shim.signature("a"))(), "send_task"),
        (lambda app: shim.chord([make_task(app).s()])(), "without a body"),
        (lambda app: shim.signature({"subtask_type": "group"}), "as JSON"),
        (lambda app: shim.chain().freeze(), "add a task"),
        (lambda app: GroupResult("a").save(), "keep the ids"),
        (lambda app: GroupResult.restore("a"), "keep the ids"),
        (lambda app: GroupResult("a").then(print), r"group \| task"),
        (lambda app: app.send_task("unknown", [1]), "kwargs"),
        (lambda app: app.control.inspect().scheduled(), "rowlock top"),
        (lambda app: app.control.purge(), "bulk"),
        (lambda app: app.worker_main(), "rowlock --app"),
        (lambda app: app.amqp, "no broker"),
        (lambda app: app.autodiscover_tasks(), "name the packages"),
        (lambda app: signals.beat_init.connect(print), "worker_ready"),
        (lambda app: expression_of(0.5), "whole number of seconds"),
        (lambda app: solar("sunset", 0, 0), "crontab"),
        (lambda app: expression_of(crontab(day_of_week=1, day_of_month=1).expression), "one of"),
        (lambda app: make_task(app).delay().get(on_message=print), "leave it out"),
        (lambda app: make_task(app).delay().then(print), "task_success"),
    ],
)
def test_what_is_refused(app: Celery, use: Any, advice: str):
    """By one class, with what to do instead; and no password in it."""
    with pytest.raises(Unsupported, match=advice) as caught:
        use(app)

    assert caught.value.code == "unsupported"
    assert "secret" not in str(caught.value)


def test_a_canvas_is_a_workflow(app: Celery):
    """What follows a dead job is cancelled, and goes on when the workflow is retried."""
    is_down = True

    @app.task
    def fetch(x: int) -> int:
        if is_down:
            raise ConnectionError("away")
        return x

    @app.task
    def last(numbers: list[int]) -> list[int]:
        return numbers

    note = make_task(app)
    result = (shim.group(fetch.s(1), note.s(2)) | last.s()).delay()
    rest = (fetch.s(3) | note.s()).delay()
    app.drain()
    before = [result.state, str(result.result.__cause__), rest.state, str(rest.result)]
    is_down = False
    retried = [app.retry_workflow(each.job.workflow) for each in (result, rest)]
    app.drain()

    assert before == ["FAILURE", "away", "REVOKED", "away"]
    assert (retried, result.get(), rest.get()) == ([2, 2], [1, 2], 3)


def test_nothing_of_a_canvas_is_written_if_a_part_of_it_is_wrong(app: Celery):
    """Here: an argument of the last step."""
    steps = shim.chain(make_task(app).s(1), make_task(app, name="b").s(y=3))
    with pytest.raises(rowlock.PayloadInvalid):
        steps.delay()

    assert list(app.list()) == []


def test_an_id_of_a_canvas_is_of_one_job(app: Celery):
    """A frozen canvas starts once, and a task id is used once in it."""
    note = make_task(app)
    steps = note.s(1) | note.s()
    known = steps.freeze()
    started = steps.delay()
    with pytest.raises(rowlock.OptionInvalid, match=f"{known.parent.id} belongs to another job"):
        steps.delay()
    twice = note.si(1).set(task_id=str(UUID(int=7)))
    with pytest.raises(rowlock.OptionInvalid, match="used twice"):
        shim.group(twice, twice).delay()

    app.drain()
    assert (started.id, known.get(), len(list(app.list()))) == (known.id, 1, 2)


def test_a_task_adds_to_its_chord(app: Celery):
    """The body gets the results of what was added, too; outside of a chord it is an error."""

    @app.task(bind=True)
    def spread(self: Any, n: int) -> int:
        self.add_to_chord(note.s(n + 1))
        self.add_to_chord(shim.group(note.s(n + 2), note.s(n + 3)))
        return n

    @app.task
    def last(numbers: list[Any]) -> list[Any]:
        return numbers

    note = make_task(app)
    result = (shim.group([spread.s(1), note.s(10)]) | last.s()).delay()
    alone = spread.delay(1)
    app.drain()

    assert result.get() == [1, 2, [3, 4], 10]
    with pytest.raises(ValueError, match="not member of any chord"):
        alone.get()


def test_a_task_that_is_replaced_passes_a_typed_value_on(app: Celery):
    """It is checked against the annotation of the next one."""

    @app.task(bind=True)
    def becomes(self: Any, x: Any) -> Any:
        return self.replace(same.s(x))

    @app.task
    def same(x: Any) -> Any:
        return x

    @app.task
    def later(when: datetime) -> str:
        return when.date().isoformat()

    good, bad = [(becomes.s(x) | later.s()).delay() for x in ("2026-01-02T03:04:05Z", 5)]
    app.drain()

    assert good.get() == "2026-01-02"
    with pytest.raises(rowlock.PayloadInvalid):
        bad.get()


def test_a_result_reads_no_job_of_another_workflow(app: Celery):
    """Whoever returns what the result of a replaced task looks like gets it back as it is."""
    secret = make_task(app, name="secret").delay(42)
    forged = {"celery.replaced": {"by": secret.id, "value": None, "more": []}}

    @app.task
    def same(x: Any) -> Any:
        return x

    result = (same.s(forged) | same.s()).delay()
    app.drain()

    assert result.parent.result == result.get() == forged


def test_a_group_is_revoked_as_one(app: Celery):
    """Only those that have not ended."""
    note = make_task(app)
    group = shim.group(note.s(n) for n in range(3)).delay()
    app.drain(limit=1)
    group.revoke()

    assert sorted(each.state for each in group) == ["REVOKED", "REVOKED", "SUCCESS"]
    assert (group.ready(), group.completed_count()) == (True, 1)


def test_a_rate_limit_is_a_limit_of_the_task(app: Celery):
    """For all workers together; a number is per second, and 0 is none."""
    rates = {"10/m": 6_000_000, "2/s": 500_000, "0.5/h": 7_200_000_000, 4: 250_000, "4": 250_000}
    tasks = [
        make_task(app, name=f"t{number}", rate_limit=rate) for number, rate in enumerate(rates)
    ]
    free = [
        make_task(app, name=f"f{number}", rate_limit=rate)
        for number, rate in enumerate([None, 0, "0", "0/m", ""])
    ]

    limits = {limit.name: limit.numbers.interval_us for limit in app.declared_limits}
    assert limits == {f"t{number}": us for number, us in enumerate(rates.values())}
    assert [task.delay().job.limit for task in (*tasks, *free)] == [*limits, *[None] * 5]


@pytest.mark.parametrize("rate", ["fast", "1/w", "-1/s", -1, True, [1], "nan"])
def test_a_rate_limit_that_is_none_is_refused(app: Celery, rate: Any):
    """At its task, and as the default, which stays as it was."""
    calls = [
        lambda: make_task(app, rate_limit=rate),
        lambda: app.conf.update(task_default_rate_limit=rate),
    ]
    for call in calls:
        with pytest.raises(rowlock.OptionInvalid, match=r"rate_limit: must be a rate|more than 0"):
            call()

    assert (list(app.declared_limits), app.conf.task_default_rate_limit) == ([], None)


def test_a_rate_limit_holds(app: Celery):
    """Jobs above it wait."""
    note = make_task(app, rate_limit="1/h")
    results = [note.delay(number) for number in range(3)]

    assert app.drain() == 1
    assert [result.status for result in results] == ["SUCCESS", "PENDING", "PENDING"]


def test_the_default_rate_limit_may_come_before_and_after_tasks(app: Celery):
    """Each task without a rate of its own has one of its own; it can be taken back."""
    early, own = make_task(app, name="early"), make_task(app, name="own", rate_limit="1/h")
    app.conf.task_default_rate_limit = "1/m"
    make_task(app, name="late")
    make_task(app, name="free", rate_limit=0)
    limits = {limit.name: limit.numbers.interval_us for limit in app.declared_limits}
    app.conf.task_default_rate_limit = None

    wanted = {"early": 60_000_000, "late": 60_000_000, "own": 3_600_000_000}
    assert (limits | wanted, "free" in limits) == (limits, False)
    assert [limit.name for limit in app.declared_limits] == ["own"]
    assert [early.delay().job.limit, own.delay().job.limit] == [None, "own"]


def test_a_throttled_task_is_not_failed(app: Celery):
    """`rowlock.Throttled` means what it means in any other task."""

    @app.task(rate_limit="1000/s")
    def call() -> None:
        raise rowlock.Throttled(3600, reason="429")

    results = [call.delay(), call.delay()]
    app.drain()

    assert [(result.status, result.job.attempt) for result in results] == [("PENDING", 0)] * 2


def test_a_coroutine_is_refused(app: Celery):
    """Rowlock's own tasks are for that."""
    with pytest.raises(Unsupported, match="a rowlock task"):

        @app.task
        async def later() -> None: ...


def test_payloads_are_those_of_rowlock(app: Celery):
    """Checked against the annotations when enqueued, with the function's own names."""
    note = make_task(app)
    job = note.delay(5).job

    assert job is not None and (job.payload, job.max_attempts) == ({"x": 5}, 21)
    with pytest.raises(rowlock.PayloadInvalid, match="x"):
        note.delay("five")
    with pytest.raises(rowlock.OptionInvalid, match="UUID"):
        note.apply_async(task_id="report-42")


def test_what_would_change_its_type_is_refused(app: Celery):
    """Without an annotation nothing comes back as another type; with one it comes as it was."""
    got: list[object] = []

    @app.task
    def free(at):
        got.append(at)

    @app.task
    def typed(at: datetime):
        got.append(at)

    moment = datetime(2026, 1, 1, tzinfo=UTC)
    for changed in (moment, UUID(int=1), Decimal("1.5"), b"a", {1}):
        with pytest.raises(rowlock.PayloadInvalid, match=r"at: .* annotate the parameter"):
            free.delay(changed)
        with pytest.raises(rowlock.PayloadInvalid, match=r"at: .* annotate the parameter"):
            free.apply_async(kwargs={"at": changed})
    typed.delay(moment)
    free.delay([1, 2])
    free.delay((1, 2))
    app.drain()

    assert got == [moment, [1, 2], [1, 2]]


def test_a_dead_job_has_the_errors_own_name(app: Celery):
    """With its traceback from the user's line on; a retry counts as an attempt."""

    @app.task(bind=True)
    def fails(self: Any) -> None:
        if self.request.retries == 0:
            self.retry(countdown=0)
        raise LookupError("lost")

    result = fails.delay()
    app.drain()
    job = result.job

    assert job is not None
    assert (job.state, job.attempt, result.status) == (JobState.DEAD, 2, "FAILURE")
    assert (job.errors[-1].type, job.errors[-1].message) == ("LookupError", "lost")
    assert job.errors[-1].traceback.splitlines()[1].strip().endswith("in fails")
    assert result.traceback == job.errors[-1].traceback
    assert isinstance(result.result, LookupError)


def test_other_errors_are_told_by_name(app: Celery):
    """A class that is not Python's own is not imported because a row names it."""

    class OwnError(Exception):
        pass

    @app.task
    def fails() -> None:
        raise OwnError("mine")

    result = fails.delay()
    app.drain()

    with pytest.raises(shim.TaskFailed, match="OwnError: mine"):
        result.get()


def test_steering(app: Celery):
    """Ignore and Reject, and a revoke before it has begun."""

    @app.task
    def steered(how: str) -> None:
        if how == "ignore":
            raise shim.Ignore("not now")
        raise shim.Reject("bad", requeue=how == "requeue")

    results = [steered.delay(how) for how in ("ignore", "reject", "requeue", "revoke")]
    results[3].revoke()
    app.drain()

    assert [each.status for each in results] == ["REVOKED", "FAILURE", "PENDING", "REVOKED"]
    with pytest.raises(shim.TaskRevokedError, match="revoked"):
        results[3].get()
    results[3].forget()
    assert results[3].status == "PENDING"


def test_shared_tasks_belong_to_every_app(app: Celery, tmp_path: Any):
    """To those that come later too; the last one is where its jobs go."""

    @shared_task(name="tests.shared_by_all")
    def shared() -> str:
        return "done"

    with Celery("later", broker=f"sqlite:///{tmp_path / 'later.db'}") as later:
        result = shared.delay()
        later.drain()

        assert result.get(timeout=1) == "done"
        assert app.find("tests.shared_by_all") is not None


@pytest.mark.parametrize(
    ("when", "expression"),
    [
        (crontab(), "* * * * *"),
        (crontab(minute=0, hour="*/3"), "0 */3 * * *"),
        (crontab(minute={0, 30}, hour=[7, 8], day_of_week="mon, fri"), "0,30 7,8 * * 1,5"),
        (crontab(hour="22-3", day_of_week="friday-mon"), "* 0,1,2,3,22,23 * * 0,1,5,6"),
        (crontab(hour="20-4/3", month_of_year="jan,nov-dec"), "* 2,20,23 * 1,11-12 *"),
        (crontab(minute="*/20,5-9/2", day_of_week="MON-FRI"), "*/20,5-9/2 * * * 1-5"),
        (schedule_class(30), "*/30 * * * * *"),
        (timedelta(weeks=1), "0 0 * * 0"),
        (crontab(0, 4, day_of_month="1,15", month_of_year=6), "0 4 1,15 6 *"),
        (10, "*/10 * * * * *"),
        (30.0, "*/30 * * * * *"),
        (timedelta(minutes=15), "*/15 * * * *"),
        (timedelta(hours=6), "0 */6 * * *"),
        (45, "every 45s"),
        (86_400, "0 0 * * *"),
    ],
)
def test_schedules(when: Any, expression: str):
    """As a cron expression says it; names count by three letters, and ranges may wrap."""
    assert expression_of(when) == expression


@pytest.mark.parametrize("field", ["60", "5/2", "*/0", "a-b", "", "1-", "-1"])
def test_a_field_that_is_none_is_refused(field: str):
    """Where it is used, as in Celery."""
    with pytest.raises(rowlock.OptionInvalid, match="not a minute of a crontab"):
        expression_of(crontab(minute=field))


def test_beat_schedule(app: Celery):
    """A worker writes it down, and removes what is gone from it."""
    note = make_task(app)
    app.conf.timezone = "Europe/Berlin"
    app.conf.beat_schedule = {
        "nightly": {"task": note.name, "schedule": crontab(30, 2), "args": (7,)},
        "often": {
            "task": note.name,
            "schedule": 30,
            "kwargs": {"x": 8},
            "options": {"priority": 5},
        },
    }

    @app.on_after_configure.connect
    def setup(sender: Celery, **_: Any) -> None:
        sender.add_periodic_task(60.0, note.s(9), name="minutely")

    declare_schedules(app.store, app)
    first = {each.name: (each.cron, each.timezone) for each in app.store.list_schedules()}
    job = app.store.run_schedule_now("often")
    del app.conf.beat_schedule["often"]
    declare_schedules(app.store, app)

    assert first == {
        "nightly": ("30 2 * * *", "Europe/Berlin"),
        "often": ("*/30 * * * * *", "Europe/Berlin"),
        "minutely": ("*/1 * * * *", "Europe/Berlin"),
    }
    assert (job.payload, job.priority) == ({"x": 8}, 5)
    assert {each.name for each in app.store.list_schedules()} == {"nightly", "minutely"}
    app.conf.beat_schedule = {"bad": {"task": "unknown", "schedule": 60}}
    with pytest.raises(Unsupported, match="unknown to this app"):
        app.scheduled()


def test_settings(app: Celery):
    """From an object, with a namespace or without; what tunes a broker is not needed."""

    class Django:
        CELERY_TIMEZONE = "Europe/Berlin"
        CELERY_RESULT_BACKEND = "redis://"
        OTHER = 1

    class Plain:
        task_default_queue = "shop"
        worker_concurrency = 4

    app.config_from_object(Django, namespace="CELERY")
    app.config_from_object(Plain)
    job = make_task(app).delay().job

    assert app.conf["timezone"] == "Europe/Berlin"
    assert job is not None and job.queue == "shop"


def test_a_naive_time_is_in_the_apps_zone(app: Celery):
    """As in Celery; UTC if it has none."""
    naive = datetime(2030, 1, 1, 12)  # noqa: DTZ001  # what is tested
    app.conf.timezone = "Europe/Berlin"
    job = make_task(app).apply_async(eta=naive).job

    assert job is not None and datetime(2030, 1, 1, 11, tzinfo=UTC) == job.run_at


def test_a_run_past_its_limit_is_not_tried_again(app: Celery):
    """As in Celery it has failed, though the job has room for more attempts."""
    runs: list[int] = []

    @app.task(time_limit=5, autoretry_for=(Exception,))
    def slow(x: int) -> None:
        runs.append(x)

    result = slow.delay(1)
    (lease,) = app.store.claim(worker="w", queues=["default"])
    # As it is settled by whoever has ended the process.
    ended = Failed("TimeoutError", "took longer than its limit and did not stop", delay=0)
    settle(app, lease, ended)
    app.drain()

    assert (result.status, runs) == ("FAILURE", [])
    with pytest.raises(TimeoutError, match="longer than its limit"):
        result.get()
    assert result.job is not None
    app.retry(result.id)
    app.drain()
    assert (result.status, runs) == ("SUCCESS", [1])


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (rowlock.Cancel("no more"), JobState.CANCELLED),
        (rowlock.Release(delay=60), JobState.SCHEDULED),
        (rowlock.Fail("for good"), JobState.DEAD),
    ],
)
def test_what_rowlock_lets_a_handler_say(app: Celery, error: Exception, state: JobState):
    """It means what it means in a task of rowlock's own."""

    @app.task(autoretry_for=(Exception,))
    def says() -> None:
        raise error

    result = says.delay()
    app.drain(limit=1)

    assert result.job is not None
    assert state is result.job.state


def test_the_default_queue_is_that_of_the_time_of_a_call(app: Celery):
    """As in Celery settings may come after the tasks; a task's own queue is its own."""
    note, own = make_task(app, name="note"), make_task(app, name="own", queue="own")
    app.conf.task_default_queue = "shop"
    app.conf.beat_schedule = {"often": {"task": "note", "schedule": 60}}

    results = [
        note.delay(),
        note.s(2).set(queue="other").delay(),
        own.delay(),
        app.send_task("note"),
        app.send_task("unknown"),
    ]

    queues = [result.job.queue for result in results if result.job is not None]
    assert queues == ["shop", "other", "own", "shop", "shop"]
    assert [job.queue for _, job, _ in app.scheduled()] == ["shop"]


def test_a_shared_task_is_of_the_app_that_was_made_last(tmp_path: Path):
    """As in Celery, where that is the current one; also for one that comes after all of them."""
    apps = [Celery(f"app{n}", broker=f"sqlite:///{tmp_path}/{n}.db") for n in range(8)]

    @shared_task
    def late() -> None: ...

    assert apps[-1] is late.app
    for app in apps:
        app.close()
