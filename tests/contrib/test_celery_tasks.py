"""Tasks of the Celery shim: their options, classes, hooks, signals, limits and settings.

What real Celery prints for the same is compared in `celery_script`.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rowlock
from rowlock import config
from rowlock.contrib.celery import (
    Celery,
    Task,
    Unsupported,
    crontab,
    current_app,
    current_task,
    shared_task,
    signals,
    states,
)
from rowlock.contrib.celery.exceptions import Ignore, NotRegistered, SoftTimeLimitExceeded
from rowlock.contrib.celery.result import AsyncResult
from rowlock.contrib.celery.utils.log import get_task_logger


@pytest.fixture
def app(sqlite_url: str) -> Iterator[Celery]:
    with Celery("shop", broker=sqlite_url) as app:
        yield app


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"acks_late": True, "reject_on_worker_lost": True, "acks_on_failure_or_timeout": True},
        {"serializer": "json", "compression": "zlib", "throws": (KeyError,), "typing": False},
        {"rate_limit": None, "soft_time_limit": None, "time_limit": None, "queue": None},
        {"track_started": True, "send_events": False, "trail": True, "lazy": False},
        {"store_errors_even_if_ignored": True, "pydantic": True, "resultrepr_maxsize": 10},
        {"queue": "mail", "routing_key": "mail", "exchange_type": "direct", "delivery_mode": 1},
    ],
)
def test_what_is_already_true_is_accepted(app: Celery, options: dict[str, Any]):
    """And so is what tunes a broker, and None."""

    @app.task(**options)
    def note(x: int) -> int:
        return x

    result = note.delay(3)
    app.drain()

    assert result.get(timeout=1) == 3


def test_annotations_are_checked_as_far_as_they_can_be(app: Celery):
    """Celery checks none. One that is unknown here, or no type of a payload, is not checked."""
    got: list[Any] = []

    class Model: ...

    @app.task
    def of_a_class(model: Model, models: list[Model] = ()) -> None:  # type: ignore[assignment]
        got.append([model, models])

    @app.task
    def free(
        a: str | uuid.UUID,
        b: NotThere,  # type: ignore[name-defined]  # noqa: F821  # what is tested
        c: int = None,  # type: ignore[assignment]  # noqa: RUF013  # what is tested
        d: datetime | None = None,
    ) -> None:
        got.append([a, b, c, d])

    moment = datetime(2026, 1, 1, tzinfo=UTC)
    free.delay("x", [1], None, moment)
    free.delay("x", 2, 3)
    of_a_class.delay(7, models=[8])
    app.drain()

    assert got == [["x", [1], None, moment], ["x", 2, 3, None], [7, [8]]]
    with pytest.raises(rowlock.PayloadInvalid, match="c: "):
        free.delay("x", 2, "three")


def test_values_without_names(app: Celery):
    """`*args` are a list in the payload; positional-only parameters have their names there."""
    got: list[Any] = []

    @app.task
    def free(a: int, /, b: int, *rest: int, c: int = 0, **named: Any) -> None:
        got.append([a, b, rest, c, named])

    first = free.delay(1, 2, 3, 4, c=5, d=6)
    free.delay(1, b=2)
    app.drain()

    assert got == [[1, 2, (3, 4), 5, {"d": 6}], [1, 2, (), 0, {}]]
    assert first.kwargs == {"a": 1, "b": 2, "rest": [3, 4], "c": 5, "d": 6}
    with pytest.raises(rowlock.PayloadInvalid, match="rest"):
        free.delay(1, 2, "three")


# Classes


def test_a_base_class_has_options_and_attributes(app: Celery):
    """The decorator's options come before the class's; unknown ones must be in the class."""

    class Base(Task):
        abstract = True
        queue = "slow"
        max_retries = 7
        lock_seconds = 10

        def __init__(self) -> None:
            self.opened = 1

    @app.task(base=Base, bind=True, lock_seconds=20)
    def own(self: Any) -> list[Any]:
        return [self.lock_seconds, self.opened, self.max_retries, self.queue]

    result = own.delay()
    queue = result.queue
    app.drain()

    assert (result.get(timeout=1), queue) == ([20, 1, 7, "slow"], "slow")
    with pytest.raises(rowlock.OptionInvalid, match="derives from this Task"):
        app.task(base=dict)(lambda: None)
    with pytest.raises(Unsupported, match="base class"):
        app.task(base=Base, lock_second=1)(lambda: None)


def test_what_a_run_keeps_on_its_task_is_shared(app: Celery, caplog: pytest.LogCaptureFixture):
    """In Celery's processes it is not; so it is said, once for each name."""

    class Keeping(Task):
        def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
            self.data = args[0]

    @app.task(base=Keeping, bind=True)
    def keeps(self: Any, x: int) -> int:
        return self.data

    results = [keeps.delay(1), keeps.delay(2)]
    app.drain()
    keeps.data = 3

    assert [result.get(timeout=1) for result in results] == [1, 2]
    assert caplog.text.count("sets self.data while it runs") == 1


def test_the_class_of_an_apps_tasks(tmp_path: Any):
    """Of tasks without a base, whether they came before it or after, and of shared ones."""

    class InContext(Task):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return ["in context", self.run(*args, **kwargs)]

    @shared_task(name="tests.shared_in_context")
    def shared(x: int) -> int:
        return x

    with Celery("a", broker=f"sqlite:///{tmp_path}/a.db", task_cls=InContext) as app:
        result = shared.delay(1)
        app.drain()
        assert result.get(timeout=1) == ["in context", 1]

    with Celery("b", broker=f"sqlite:///{tmp_path}/b.db") as app:

        @app.task
        def early() -> int:
            return 2

        app.Task = InContext
        result = early.delay()
        app.drain()
        assert (result.get(timeout=1), early()) == (["in context", 2], ["in context", 2])


def test_a_hook_that_raises_is_logged(app: Celery, caplog: pytest.LogCaptureFixture):
    """It changes nothing; `before_start` does."""

    class Loud(Task):
        def on_success(self, *args: Any) -> None:
            raise RuntimeError("in a hook")

    class Picky(Task):
        def before_start(self, *args: Any) -> None:
            raise LookupError("not today")

    @app.task(base=Loud)
    def loud() -> int:
        return 1

    @app.task(base=Picky)
    def picky() -> None: ...

    good, bad = loud.delay(), picky.delay()
    app.drain()

    assert (good.get(timeout=1), bad.status) == (1, "FAILURE")
    assert "on_success raised" in caplog.text


# Signals


def connected(signal: Any, receiver: Any, **options: Any) -> Any:
    """Connect for one test: signals belong to the process."""
    signal.connect(receiver, weak=False, **options)
    return lambda: signal.disconnect(receiver, options.get("sender"))


def test_signals_of_a_sender(app: Celery, caplog: pytest.LogCaptureFixture):
    """A receiver hears of its sender only; one that raises is logged."""

    @app.task
    def one() -> None: ...

    @app.task
    def other() -> None: ...

    heard: list[str] = []

    def hear(sender: Any, **_: Any) -> None:
        heard.append(sender.name)
        raise RuntimeError("in a receiver")

    end = connected(signals.task_success, hear, sender=one)
    results = [one.delay(), other.delay()]
    app.drain()

    assert end()
    assert heard == [one.name]
    assert [result.status for result in results] == ["SUCCESS"] * 2
    assert "in a receiver" in caplog.text
    assert (signals.task_success.has_listeners(), end()) == (False, False)


def test_receivers_are_held_weakly(app: Celery):
    """As in Celery, unless asked otherwise; a name connects one only once."""
    signal = signals.Signal("made_up")
    signal.connect(lambda **_: None)
    for _ in range(2):
        signal.connect(lambda **_: "once", weak=False, dispatch_uid="mine")

    assert [answer for _, answer in signal.send(sender=None)] == ["once"]


def test_a_task_that_was_revoked_or_expired_is_told(app: Celery):
    """By the worker that ran it, or found it too late."""
    told: list[Any] = []

    def hear(request: Any, expired: bool, terminated: bool, **_: Any) -> None:
        told.append((request.id, expired, terminated))

    @app.task
    def leaves() -> None:
        raise rowlock.Cancel("enough")

    @app.task
    def late() -> None: ...

    end = connected(signals.task_revoked, hear)
    past = datetime(2020, 1, 1, tzinfo=UTC)
    results = [leaves.delay(), late.apply_async(expires=past), late.apply_async(expires=-1)]
    app.drain()
    end()

    first, second, third = (result.id for result in results)
    assert set(told) == {(first, False, True), (second, True, False), (third, True, False)}
    assert {result.status for result in results} == {"REVOKED"}


def test_signals_of_a_workers_process(app: Celery):
    """In the order of Celery; who sets the log up by himself hears of nothing after it."""
    heard: list[str] = []
    names = ["worker_init", "worker_process_init", "worker_ready", "worker_shutting_down"]
    names += ["worker_process_shutdown", "worker_shutdown", "after_setup_logger"]

    def hear(signal: Any, **_: Any) -> None:
        heard.append(signal.name)

    ends = [connected(getattr(signals, name), hear) for name in names]
    with app.worker_hooks.in_process(None):
        pass
    ends.append(connected(signals.setup_logging, hear))
    with app.worker_hooks.in_process(None):
        pass
    for end in ends:
        end()

    assert heard == [names[-1], *names[:-1], "setup_logging", *names[:-1]]


# Limits


def test_a_soft_limit_raises_inside_the_function(app: Celery):
    """Once; what the function does then decides. The task's own, the app's, or the call's."""
    waiting = threading.Event()

    @app.task(soft_time_limit=0.05)
    def patient(wait: float) -> str:
        try:
            for _ in range(1000):
                waiting.wait(wait)
        except SoftTimeLimitExceeded:
            return "stopped"
        return "ended"

    @app.task(bind=True)
    def impatient(self: Any) -> None:
        for _ in range(1000):
            waiting.wait(0.05)

    app.conf.task_soft_time_limit = 0.05
    results = [patient.delay(0.05), impatient.delay()]
    results.append(patient.apply_async((0,), soft_time_limit=3600))
    app.drain()

    assert [results[0].get(timeout=1), results[2].get(timeout=1)] == ["stopped", "ended"]
    with pytest.raises(SoftTimeLimitExceeded, match="soft time limit"):
        results[1].get(timeout=1)


def test_hard_limits_come_from_the_task_the_call_or_the_settings(app: Celery):
    """Settings count for tasks that were made before them, too."""

    def note() -> None: ...

    early = app.task(name="early")(note)
    own = app.task(name="own", time_limit=5)(note)
    app.conf.update(task_time_limit=60, result_expires=3600)
    late = app.task(name="late")(note)
    results = [early.delay(), own.delay(), late.delay(), early.apply_async(time_limit=7)]
    jobs = [result.job for result in results]

    assert [job.timeout for job in jobs if job is not None] == [60, 5, 60, 7]
    assert {job.keep for job in jobs if job is not None} == {3600}
    app.conf.result_expires = None
    last = own.delay().job
    assert last is not None and last.keep is None


# State


def test_a_reported_state(app: Celery):
    """Is the status while the job runs, and stays if the job is then ignored."""
    seen: list[Any] = []

    @app.task(bind=True)
    def works(self: Any, end: str) -> str:
        self.update_state(state="HALF", meta={"current": 1, "total": 2})
        self.request.context._notes.flush()
        result = AsyncResult(self.request.id)
        seen.append([result.state, result.info])
        if end == "ignore":
            raise Ignore
        return end

    first, second = works.delay("well"), works.delay("ignore")
    app.drain()
    progress = first.job.progress if first.job is not None else None

    assert seen == [["HALF", {"current": 1, "total": 2}]] * 2
    assert progress is not None and progress.fraction == 0.5
    assert [first.state, first.info] == ["SUCCESS", "well"]
    assert [second.state, second.info, second.ready()] == ["HALF", {"current": 1, "total": 2}, True]


def test_a_state_that_can_not_be_reported(app: Celery):
    """It is too large, no JSON, or of another job."""

    @app.task(bind=True)
    def works(self: Any) -> None:
        self.update_state(state="FINE")
        for meta in ({"a": "x" * config.PROGRESS_TEXT_BYTES_MAX}, {"a": object()}):
            with pytest.raises(rowlock.OptionInvalid, match="meta"):
                self.update_state(state="BAD", meta=meta)
        with pytest.raises(Unsupported, match="its own"):
            self.update_state(task_id="other", state="BAD")

    result = works.delay()
    app.drain()
    works()

    assert result.get(timeout=1) is None
    assert states.state("PROGRESS") > states.state(states.STARTED)
    assert states.precedence("SUCCESS") == 0 and states.state("FAILURE") >= states.state("MINE")


# Settings


def test_a_call_is_routed(app: Celery):
    """By the call, the task, a route, the default, in this order; priorities too."""

    def note() -> None: ...

    plain = app.task(name="shop.mail.send")(note)
    own = app.task(name="shop.mail.own", queue="own", priority=3)(note)
    app.conf.update(
        task_default_queue="rest",
        task_default_priority=1,
        task_routes=[
            {"shop.mail.exact": {"queue": "exact"}},
            [("shop.mail.*", {"queue": "mail", "priority": 9, "routing_key": "mail"})],
            lambda name, args, kwargs, options, task=None, **_: (
                "by_function" if name == "f" else None
            ),
        ],
    )
    results = [
        plain.delay(),
        plain.apply_async(queue="chosen", priority=0),
        own.delay(),
        app.send_task("shop.mail.exact"),
        app.send_task("f"),
        app.send_task("other"),
    ]

    jobs = [result.job for result in results]
    assert [(job.queue, job.priority) for job in jobs if job is not None] == [
        ("mail", 9),
        ("chosen", 0),
        ("own", 3),
        ("exact", 1),
        ("by_function", 1),
        ("rest", 1),
    ]
    for wrong in (7, [("shop.*", "mail")]):
        with pytest.raises(rowlock.OptionInvalid, match="task_routes"):
            app.conf.task_routes = wrong


def test_annotations_change_tasks(app: Celery):
    """Those of all, then those of one; also of tasks that come later."""

    def note() -> None: ...

    early = app.task(name="early", time_limit=5)(note)
    app.conf.task_annotations = [
        {"*": {"time_limit": 60, "queue": "slow"}, "late": {"rate_limit": "1/m"}},
    ]
    late = app.task(name="late")(note)
    jobs = [early.delay().job, late.delay().job]

    assert [(job.timeout, job.queue, job.limit) for job in jobs if job is not None] == [
        (60, "slow", None),
        (60, "slow", "late"),
    ]
    app.conf.worker_disable_rate_limits = True
    assert list(app.declared_limits) == []
    app.conf.worker_disable_rate_limits = False
    assert [limit.name for limit in app.declared_limits] == ["late"]


def test_a_derived_app(tmp_path: Any):
    """May have `on_configure` as a method; zones may be objects."""
    told: list[str] = []

    class Derived(Celery):
        def on_configure(self) -> None:
            told.append("configured")

    with Derived("derived", broker=f"sqlite:///{tmp_path}/a.db", timezone=UTC) as app:
        app.drain()

        assert (told, app.conf.timezone, str(app.timezone)) == (["configured"], "UTC", "UTC")


def test_settings_that_belong_elsewhere_are_said(
    app: Celery, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """They are accepted, and a line in the log says where; a misspelt one is found."""
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", app.url)
    with caplog.at_level(logging.INFO, logger="rowlock.contrib.celery"):
        app.conf.update(
            worker_concurrency=4,
            worker_max_tasks_per_child=100,
            task_acks_late=False,
            result_backend="redis://:secret@host",
            task_route={"a": "b"},
            broker_url="redis://:secret@host",
        )

    assert "rowlock worker -c 4" in caplog.text
    assert "--max-jobs 100" in caplog.text
    assert "task_acks_late has no effect: a job whose worker dies runs again" in caplog.text
    assert "stored with their jobs" in caplog.text
    assert "did you mean task_routes?" in caplog.text
    assert "redis:// is not used" in caplog.text
    assert "secret" not in caplog.text
    assert app.conf.worker_concurrency == 4


def test_settings_are_kept_and_read(app: Celery):
    """Own values, old names, and what was never set."""
    app.conf.update({"DEBUG": True, "CELERY_TIMEZONE": "Europe/Berlin", "my_own": 1})
    app.conf.CELERYBEAT_SCHEDULE = {"a": {"task": "b", "schedule": crontab()}}

    assert (app.conf.DEBUG, app.conf.timezone, app.conf["my_own"]) == (True, "Europe/Berlin", 1)
    assert list(app.conf.beat_schedule) == ["a"]
    assert (app.conf.task_serializer, app.conf.worker_pool) == ("json", None)
    assert (app.conf.get("nothing", 5), "timezone" in app.conf) == (5, True)
    with pytest.raises(AttributeError):
        assert app.conf.nothing


def test_settings_are_read_once_for_all_threads(app: Celery):
    """Another thread waits for them: it would enqueue to the wrong queue."""
    begun, may_end = threading.Event(), threading.Event()
    found: list[str] = []

    def read() -> dict[str, str]:
        begun.set()
        may_end.wait(60)
        return {"task_default_queue": "theirs", "timezone": "Europe/Oslo"}

    app.conf.timezone = "Europe/Rome"
    app.conf.read_later(read)
    look = lambda: found.append(app.conf.task_default_queue)  # noqa: E731  # for two threads
    threads = [threading.Thread(target=look) for _ in range(2)]
    threads[0].start()
    begun.wait(60)
    threads[1].start()
    may_end.set()
    for thread in threads:
        thread.join()

    assert found == ["theirs"] * 2
    assert app.conf.timezone == "Europe/Rome"


def test_a_broker_that_is_a_database_is_used(app: Celery, tmp_path: Any):
    """Also as a setting."""
    app.conf.broker_url = f"sqlite:///{tmp_path}/other.db"

    assert app.url.endswith("/other.db")


def test_a_schedules_jobs_expire_by_themselves(app: Celery):
    """An expiry in seconds counts from each of them."""

    @app.task
    def note(x: int) -> int:
        return x

    app.conf.beat_schedule = {
        "a": {"task": note.name, "schedule": 60, "args": [1], "options": {"expires": 3600}},
        "b": {"task": note.name, "schedule": 60, "args": [2], "options": {"expires": -1}},
    }
    schedules = {name: job for name, job, _ in app.scheduled()}
    good, bad = app.enqueue_many([schedules["a"], schedules["b"]])
    app.drain()

    assert app.AsyncResult(good.id).get(timeout=1) == 1
    assert app.AsyncResult(bad.id).status == "REVOKED"


# The rest of the surface


def test_the_current_app_and_task(app: Celery):
    """Stand for the last app, and for the task that runs here."""

    @app.task
    def looks() -> list[Any]:
        return [current_task.name, bool(current_task), current_app.main]

    result = looks.delay()
    app.drain()

    assert result.get(timeout=1) == [looks.name, True, "shop"]
    assert not current_task
    assert (current_app == app, current_app.tasks[looks.name] is looks) == (True, True)
    assert AsyncResult(result.id).name == looks.name
    assert get_task_logger("a").name == "a"
    with pytest.raises(NotRegistered):
        assert app.tasks["unknown"]


def test_eager_tasks(app: Celery):
    """Run in the call, with retries and hooks; nothing is stored."""
    app.conf.task_always_eager = True

    @app.task(bind=True, autoretry_for=(OSError,), retry_backoff=True)
    def works(self: Any, x: int) -> int:
        if self.request.retries < 2:
            raise OSError(x)
        return x

    @app.task
    def fails() -> None:
        raise LookupError("lost")

    good, bad = works.delay(5), fails.delay()

    assert (good.get(), good.state, bad.failed(), type(bad.result)) == (
        5,
        "SUCCESS",
        True,
        LookupError,
    )
    assert [*app.list().jobs] == []
    app.conf.task_eager_propagates = True
    with pytest.raises(LookupError):
        fails.delay()


def test_inspect_and_ping(app: Celery):
    """Say what the database knows of the workers. None: there is none."""
    inspect = app.control.inspect()

    assert (app.control.ping(), inspect.ping(), inspect.active()) == ([], None, None)


def test_an_unknown_argument_of_a_retry(app: Celery):
    """The job keeps its arguments; the same ones may be said again."""

    @app.task(bind=True, max_retries=1)
    def again(self: Any, x: int) -> int:
        if self.request.retries == 0:
            self.retry(args=[x], kwargs={}, countdown=timedelta(0).total_seconds())
        return x

    @app.task(bind=True)
    def other(self: Any, x: int) -> None:
        self.retry(args=[x + 1])

    good, bad = again.delay(1), other.delay(1)
    app.drain()

    assert good.get(timeout=1) == 1
    assert bad.job is not None and bad.job.errors[-1].type.endswith("Unsupported")
