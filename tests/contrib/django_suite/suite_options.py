"""Options of backends and tasks: whose count, what is refused, and what only rowlock has."""

from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypedDict

from django.core.exceptions import ImproperlyConfigured
from django.test import TestCase, override_settings
from shop.models import Purchase
from shop.tasks import confirm, greet, task

import rowlock
from rowlock.contrib.django import app, policy, using
from rowlock.contrib.django.backend import RowlockBackend
from rowlock.contrib.django.project import discover
from rowlock.contrib.django.tasks_api import task_enqueued

if TYPE_CHECKING:
    from decimal import Decimal

BACKEND = "rowlock.contrib.django.RowlockBackend"
IMMEDIATE = RowlockBackend.__mro__[1].__module__.replace("base", "immediate.ImmediateBackend")
SEVERAL = {
    "default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": {"max_attempts": 3}},
    "urgent": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"max_attempts": 7, "timeout": 5}},
    "immediate": {"BACKEND": IMMEDIATE, "QUEUES": []},
    "missing": {"BACKEND": "does.not.exist"},
}


class Line(TypedDict):
    """A part of an order."""

    sku: str
    count: int


@task(takes_context=True)
def typed(
    context,
    number: int,
    *lines: int,
    size: Literal["S", "M"] = "S",
    line: Line | None = None,
    price: "Decimal | None" = None,
    purchase: Purchase | None = None,
    **others: str,
) -> str:
    return context.task_result.backend


@task
@policy(cron="0 7 * * *", timezone="Europe/Berlin")
def report(day: str = "today") -> str:
    return day


@task
@policy(retry_for=ConnectionError)
def fetch(number: int) -> int:
    raise ConnectionError if number == 1 else ValueError


@task
@policy(expires=timedelta(microseconds=1))
def at_once() -> int:
    return 1


with override_settings(TASKS=SEVERAL):

    @task(backend="immediate", queue_name="elsewhere")
    def declared_elsewhere(number: int) -> int:
        return number


class Aliases(TestCase):
    """Backends of one project."""

    @override_settings(TASKS=SEVERAL)
    def test_options(self):
        """The options of the alias that enqueues count, and its name is in the result."""
        at = {alias: typed.using(backend=alias).enqueue(1) for alias in ("default", "urgent")}
        jobs = {alias: app.get(result.id) for alias, result in at.items()}
        app.drain()

        self.assertEqual([3, 7], [job.max_attempts for job in jobs.values()])
        self.assertEqual([None, 5.0], [job.timeout for job in jobs.values()])
        for alias, result in at.items():
            result.refresh()
            self.assertEqual((alias, alias), (result.backend, result.return_value))

    @override_settings(TASKS=SEVERAL)
    def test_declared_for_another_backend(self):
        """A worker knows the tasks of other backends, whose jobs may be enqueued here."""
        RowlockBackend.declared.pop(declared_elsewhere.module_path, None)
        discover()
        self.assertIn(declared_elsewhere.module_path, app.kinds)
        self.assertIn(declared_elsewhere.module_path, RowlockBackend.declared)
        result = declared_elsewhere.using(backend="urgent").enqueue(4)

        self.assertEqual(1, app.drain(["elsewhere"]))
        result.refresh()
        self.assertEqual(4, result.return_value)

    def test_invalid_options(self):
        """Nothing is enqueued with half of the options, and no worker starts."""
        wrong = {"default": {**SEVERAL["default"], "OPTIONS": {"max_attempts": 2, "retrys": 1}}}
        with override_settings(TASKS=wrong):
            with self.assertRaisesRegex(ImproperlyConfigured, "'retrys'.*Did you mean 'retry'"):
                confirm.enqueue(1)
            with self.assertRaisesRegex(ImproperlyConfigured, "TASKS.'default'."):
                discover()

        self.assertEqual([], list(app.list()))

    def test_policy_above_task(self):
        """It is a mistake with a text that says where it belongs."""
        with self.assertRaisesRegex(TypeError, "@policy must be below @task"):
            policy(max_attempts=1)(confirm)


class Arguments(TestCase):
    """Arguments and the annotations of parameters."""

    def test_fitting(self):
        """JSON of the right type fits, and what no JSON can be checked against is let through."""
        for kwargs in (
            {"size": "M"},
            {"line": {"sku": "a", "count": 2}},
            {"price": "1.50"},
            {"purchase": 3},
            {"number": True},
            {"note": "for a neighbour"},
        ):
            with self.subTest(kwargs):
                self.assertTrue(typed.enqueue(**{"number": 1, **kwargs}).id)

    def test_not_fitting(self):
        """They are refused when they are enqueued, and the text names the parameter."""
        for kwargs, text in (
            ({"number": "7"}, "number: Expected `int`, got `str`"),
            ({"number": None}, "number: Expected `int`, got `null`"),
            ({"size": "XL"}, "size: Invalid enum value 'XL'"),
            ({"line": {"sku": "a"}}, "line: Object missing required field `count`"),
        ):
            with self.subTest(kwargs), self.assertRaisesRegex(TypeError, f"typed: {text}"):
                typed.enqueue(**{"number": 1, **kwargs})

        self.assertEqual([], list(app.list()))


class Using(TestCase):
    """Options that Django does not have."""

    def test_options(self):
        """They reach the job, beside those of Django."""
        call = using(confirm.using(priority=5), tenant="acme", tags=["a"], delay=60, keep=None)
        job = app.get(call.enqueue(7).id)

        self.assertEqual(
            ("acme", ["a"], 5, None, "scheduled"),
            (job.tenant, job.tags, job.priority, job.keep, job.state),
        )

    def test_key(self):
        """A second enqueue returns the first job, and Django's signal is sent once."""
        heard = []
        task_enqueued.connect(listener := lambda **sent: heard.append(sent["task_result"].id))
        self.addCleanup(task_enqueued.disconnect, listener)
        first, second = (using(confirm, key="7").enqueue(7) for _ in range(2))

        self.assertEqual(first.id, second.id)
        self.assertEqual([first.id], heard)

    def test_many(self):
        """Jobs are enqueued in one statement, and all or none."""
        jobs = app.enqueue_many([using(confirm).job(number) for number in range(3)])

        self.assertEqual([[0], [1], [2]], [job.payload["args"] for job in jobs])
        self.assertEqual({3}, {job.max_attempts for job in jobs})

    async def test_async(self):
        """Coroutines can do it, too."""
        result = await using(confirm, tenant="acme").aenqueue(7)

        self.assertEqual("acme", (await app.aget(result.id)).tenant)

    def test_refused(self):
        """Options of Django's own, unknown ones, and tasks of other backends."""
        for chosen, text in (
            ({"queue": "mail"}, r"task.using\(queue_name="),
            ({"run_at": None}, r"task.using\(run_after="),
            ({"conn": None}, "Django's own connection"),
            ({"kee": 1}, "kee"),
        ):
            with self.subTest(chosen), self.assertRaisesRegex(rowlock.OptionInvalid, text):
                using(confirm, **chosen)
        with override_settings(TASKS=SEVERAL), self.assertRaisesRegex(ValueError, "not rowlock's"):
            using(declared_elsewhere, key="a")


class Retried(TestCase):
    """What `@policy` says about exceptions and late jobs."""

    def test_classes(self):
        """Only some exceptions are worth a retry."""
        jobs = [app.get(fetch.enqueue(number).id) for number in (1, 2)]
        app.drain(limit=2)
        states = [app.get(job.id).state for job in jobs]

        self.assertEqual(["retrying", "dead"], states)

    def test_expires(self):
        """A job that comes too late does not run."""
        job = app.get(at_once.enqueue().id)
        app.drain()

        self.assertEqual("cancelled", app.get(job.id).state)


class Scheduled(TestCase):
    """Django's tasks at the times of a cron expression."""

    def test_policy(self):
        """A worker stores the schedule, and its jobs run with the defaults."""
        (found,) = [each for each in app.scheduled() if each[0] == report.module_path]
        _, job, cron = found
        (sent,) = app.send([job], conn=None)
        app.drain()

        self.assertEqual("Europe/Berlin", cron.timezone)
        self.assertEqual("today", report.get_result(sent.id).return_value)

    def test_required(self):
        """A task that can't be called without arguments needs `app.schedule`."""
        with self.assertRaisesRegex(rowlock.OptionInvalid, "requires number"):
            task(policy(cron="@daily")(needs_a_number))

    def test_schedule(self):
        """`app.schedule` takes a task of Django's, with or without options."""
        plain = app.schedule("a", confirm, cron="@daily", payload={"number": 1})
        chosen = app.schedule(
            "b", using(confirm, tenant="acme"), cron="@daily", payload={"number": 2}
        )

        self.assertEqual({"args": [], "kwargs": {"number": 1}}, plain.payload)
        self.assertEqual(("acme", "mail"), (chosen.tenant, chosen.queue))
        self.assertEqual(
            "greet", app.schedule("c", greet, cron="@daily", payload={"name": "A"}).kind
        )
        with self.assertRaisesRegex(TypeError, "missing"):
            app.schedule("d", confirm, cron="@daily")


def needs_a_number(number: int) -> None: ...
