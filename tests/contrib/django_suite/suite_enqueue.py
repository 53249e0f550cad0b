"""Enqueue, transactions and results, in Django's own tests: run by `manage.py test`."""

import datetime as dt
import math
import uuid
from datetime import timedelta
from decimal import Decimal

from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings
from django.utils import timezone
from shop.models import Purchase
from shop.tasks import confirm, confirm_later, count, greet, reluctant, task

import rowlock
from rowlock.contrib.django import app, policy
from rowlock.contrib.django.engine import DjangoEngine
from rowlock.contrib.django.tasks_api import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
    task_finished,
    task_started,
)

try:
    from django.tasks.exceptions import InvalidTask, TaskResultMismatch
except ModuleNotFoundError:
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultMismatch


stripe = rowlock.Limit("stripe", per="customer", rate_per_key="1/h")


@task
@policy(limit=stripe)
def charge(customer="acme", cents: int = 1) -> int:
    return cents


@task
def take(anything) -> None: ...


@task(takes_context=True)
@policy(limit=stripe)
async def refund(context, customer: str) -> None: ...


@task
@policy(limit=rowlock.Limit(per=lambda arguments: f"{arguments['to']}/{arguments['copies']}"))
def send(to: str, copies: int = 1) -> None: ...


class Limited(TestCase):
    """Tasks with a limit in their policy."""

    def test_keys(self):
        """They are arguments by name, however they were given, and defaults."""
        results = [
            charge.enqueue("bolt"),
            charge.enqueue(cents=5, customer="cato"),
            charge.enqueue(),
            refund.enqueue("bolt"),
            send.enqueue("ada"),
        ]
        found = [app.get(result.id) for result in results]

        self.assertEqual(
            ["bolt", "cato", "acme", "bolt", "ada/1"], [job.limit_key for job in found]
        )
        self.assertEqual({"stripe", send.module_path}, {job.limit for job in found})
        self.assertEqual("READY", results[0].status)

    def test_drain(self):
        """It obeys, and a key that is no key is refused."""
        for _ in range(3):
            charge.enqueue("bolt")

        self.assertEqual(1, app.drain())
        with self.assertRaisesRegex(rowlock.OptionInvalid, "limit_key"):
            charge.enqueue(["bolt"])


class Enqueued(TestCase):
    """In a transaction that is never committed, as Django's `TestCase` has it."""

    def test_result(self):
        """A result that was just enqueued is ready, and says what was asked for."""
        result = confirm.enqueue(7)

        self.assertEqual("READY", result.status)
        self.assertEqual(([7], {}, "default", 0), (result.args, result.kwargs, result.backend, 0))
        self.assertFalse(result.is_finished)
        self.assertEqual("mail", result.task.queue_name)
        self.assertEqual("shop.tasks.confirm", app.get(result.id).kind)
        self.assertAlmostEqual(0, (timezone.now() - result.enqueued_at).total_seconds(), delta=60)

    def test_options(self):
        """Queue, priority, time, and the policy of OPTIONS and of the task reach the job."""
        later = timezone.now() + timedelta(hours=1)
        chosen = confirm.using(priority=-100, queue_name="default", run_after=later).enqueue(
            number=1
        )
        job = app.get(chosen.id)

        self.assertEqual((-100, "default", later), (job.priority, job.queue, job.run_at))
        self.assertEqual(
            ({"args": [], "kwargs": {"number": 1}}, 3), (job.payload, job.max_attempts)
        )
        self.assertEqual(["exponential", 1.0, 1048576.0], job.retry)
        self.assertEqual(later, chosen.task.run_after)
        self.assertEqual(2, app.get(reluctant.enqueue(1).id).max_attempts)
        self.assertEqual("READY", confirm.get_result(chosen.id).status)
        self.assertEqual(1, app.drain(["default"]))

    def test_refusals(self):
        """Queues and priorities that Django refuses, arguments that do not fit, what is no JSON."""
        for bad in ({"queue_name": "nowhere"}, {"priority": 101}):
            with self.subTest(bad), self.assertRaises(InvalidTask):
                confirm.using(**bad)
        naive = dt.datetime(2030, 1, 1)  # noqa: DTZ001  # that is the point
        with self.assertRaises(InvalidTask):
            confirm.using(run_after=naive)
        with self.assertRaisesRegex(TypeError, "shop.tasks.confirm: missing"):
            confirm.enqueue()
        with self.assertRaisesRegex(TypeError, "unexpected"):
            confirm.enqueue(1, colour="red")
        with self.assertRaises(TypeError):
            confirm.enqueue(object())
        with self.assertRaises(rowlock.PayloadInvalid):
            take.enqueue(math.nan)
        for changed in (b"a", uuid.UUID(int=1), Decimal(1), timezone.now(), {1}, {1: 2}):
            with self.subTest(changed), self.assertRaisesRegex(TypeError, r"args\[0\].*; pass "):
                confirm.enqueue(changed)
        with self.assertRaisesRegex(TypeError, r"\[0\]\[1\]: Unsupported type: .* set"):
            confirm.enqueue(number=[(1, {2})])

        self.assertEqual([], list(app.list()))

    def test_drain(self):
        """What was enqueued can be run, though it is never committed, and its result be read."""
        Purchase.objects.create(number=1)
        plain, coroutine = confirm.enqueue(1), confirm_later.enqueue(1)

        self.assertEqual(2, app.drain())

        self.assertEqual("SUCCESSFUL", confirm.get_result(plain.id).status)
        plain.refresh()
        self.assertEqual((1, 1), (plain.return_value["number"], plain.attempts))
        self.assertEqual(1, confirm_later.get_result(coroutine.id).return_value)
        self.assertEqual("confirm_later", Purchase.objects.get().confirmed_by)
        self.assertTrue(connection.in_atomic_block)

    def test_failure(self):
        """An attempt that fails is ready again; without any left the task has failed."""
        good, bad = reluctant.enqueue(2), reluctant.enqueue(3)

        self.assertEqual(1, app.drain(limit=1))
        waiting = reluctant.get_result(good.id)
        self.assertEqual(("READY", 1, 1), (waiting.status, waiting.attempts, len(waiting.errors)))
        with self.assertRaisesRegex(ValueError, "not finished"):
            waiting.return_value  # noqa: B018  # it raises
        self.assertEqual(3, app.drain())

        waiting.refresh()
        self.assertEqual(f"attempt 2 of {good.id}", waiting.return_value)
        bad.refresh()
        self.assertEqual((TaskResultStatus.FAILED, 2), (bad.status, bad.attempts))
        self.assertEqual([ValueError, ValueError], [each.exception_class for each in bad.errors])
        self.assertRegex(bad.errors[1].traceback, r"(?s)in reluctant.*attempt 2 is not the one")
        self.assertNotIn("rowlock", bad.errors[1].traceback)
        with self.assertRaisesRegex(ValueError, "failed"):
            bad.return_value  # noqa: B018  # it raises

    def test_cancelled(self):
        """A job that was cancelled has failed, as Django's tasks know no other word."""
        result = confirm.enqueue(1)
        app.cancel(result.id)

        self.assertEqual("FAILED", confirm.get_result(result.id).status)

    def test_looked_up(self):
        """An id that is none, of nobody, of another task, or of no task of Django's."""
        for id in ("x", "", rowlock.ids.new_id(), greet.enqueue(name="Ada").id):
            with self.subTest(id), self.assertRaises(TaskResultDoesNotExist):
                confirm.get_result(id)
        with self.assertRaises(TaskResultMismatch):
            reluctant.get_result(confirm.enqueue(1).id)

    def test_own_tasks(self):
        """Tasks of rowlock's own are enqueued and run in the same transaction."""
        jobs = [
            count.enqueue(),
            greet.enqueue(name="Ada"),
            count.using(priority=1).enqueue(least=9),
        ]
        Purchase.objects.create(number=5)
        app.drain()

        self.assertEqual([1, "Hello Ada", 0], [app.get(job.id).result for job in jobs])

    def test_signals(self):
        """Django's signals are sent: started with each attempt, finished with the last."""
        heard = []
        signals = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}

        def hear(name):
            return lambda task_result, **_: heard.append((name, str(task_result.status)))

        ears = {name: hear(name) for name in signals}
        for name, signal in signals.items():
            signal.connect(ears[name])
            self.addCleanup(signal.disconnect, ears[name])
        reluctant.enqueue(2)
        app.drain()

        self.assertEqual(
            [
                ("enqueued", "READY"),
                ("started", "RUNNING"),
                ("started", "RUNNING"),
                ("finished", "SUCCESSFUL"),
            ],
            heard,
        )

    async def test_async(self):
        """Coroutines enqueue, look and drain as well."""
        result = await confirm.aenqueue(3)
        self.assertEqual(1, await app.adrain())
        again = await confirm.aget_result(result.id)
        await result.arefresh()

        self.assertEqual(3, result.return_value["number"])
        self.assertEqual(again.finished_at, result.finished_at)
        job = await greet.aenqueue(name="Bo")
        self.assertEqual("ready", (await app.aget(job.id)).state)

    @override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo")
    def test_naive_times(self):
        """A project without time zones gives and gets local times."""
        naive = dt.datetime(2031, 5, 1, 9)  # noqa: DTZ001  # that is the point
        result = confirm.using(run_after=naive).enqueue(1)

        self.assertEqual(dt.datetime(2031, 5, 1, tzinfo=dt.UTC), app.get(result.id).run_at)
        self.assertEqual(naive, confirm.get_result(result.id).task.run_after)
        self.assertIsNone(result.enqueued_at.tzinfo)

    def test_view(self):
        """A view that fails leaves neither its purchase nor its job; one that does not, both."""
        with self.assertRaises(RuntimeError):
            self.client.get("/buy/1?fail=1")
        self.assertEqual((0, []), (Purchase.objects.count(), list(app.list())))
        id = self.client.get("/buy/2").json()["result"]
        self.assertEqual(1, app.drain())

        self.assertEqual(
            {"status": "SUCCESSFUL", "attempts": 1}, self.client.get(f"/look/{id}").json()
        )
        self.assertTrue(Purchase.objects.get(number=2).is_confirmed)


class Committed(TransactionTestCase):
    """With transactions that end."""

    def test_rollback(self):
        """What a transaction enqueued goes with it, inner ones by themselves."""
        with self.assertRaises(InterruptedError), transaction.atomic():
            confirm.enqueue(1)
            greet.enqueue(name="Ada")
            self.assertEqual(2, len(app.list().jobs))
            raise InterruptedError
        self.assertEqual([], list(app.list()))
        with transaction.atomic():
            kept = confirm.enqueue(2)
            with self.assertRaises(InterruptedError), transaction.atomic():
                confirm.enqueue(3)
                raise InterruptedError

        self.assertEqual([kept.id], [job.id for job in app.list()])

    def test_autocommit(self):
        """Outside of a transaction an enqueue is committed at once."""
        result = confirm.enqueue(1)
        with self.assertRaises(InterruptedError), transaction.atomic():
            raise InterruptedError

        self.assertFalse(connection.in_atomic_block)
        self.assertEqual(result.id, confirm.get_result(result.id).id)
        self.assertEqual(1, app.drain())
        self.assertEqual(1, app.retry_dead().retried + len(app.list(state="succeeded").jobs))

    def test_bell(self):
        """A doorbell that can't be rung fails nothing: the job is committed by then."""
        if connection.vendor == "sqlite":
            self.assertEqual([], connection.run_on_commit)  # There the log file is the bell.
            return
        # No channel can have such a name.
        broken = DjangoEngine("default", schema="x" * 70)
        with self.assertLogs("rowlock.bell", "WARNING"):
            broken.ring(frozenset({"mail"}))
