"""Tests that don't leak: what Django's test cases leave behind, and what they can assert."""

from io import StringIO
from unittest.mock import patch

from django.core.management import call_command
from django.test import TestCase, TransactionTestCase
from shop.models import Purchase
from shop.tasks import confirm, greet

from rowlock.contrib.django import app, using
from rowlock.testing import assert_enqueued, enqueued, refute_enqueued


class Leaving(TransactionTestCase):
    """Its jobs are committed. Each test begins without those of the other."""

    def leave(self):
        self.assertEqual([], list(app.list()))
        self.assertEqual([], list(app.store.list_schedules()))
        confirm.enqueue(1)
        app.schedule("nightly", greet, cron="@daily", payload={"name": "Ada"})
        app.pause("mail")
        self.assertEqual(1, len(app.list().jobs))

    def test_one(self):
        self.leave()

    def test_another(self):
        self.leave()

    def test_flush(self):
        """A flush that is not confirmed changes nothing. A confirmed one leaves the schema."""
        self.leave()
        Purchase.objects.create(number=1)
        with patch("builtins.input", return_value="no") as asked:
            call_command("flush", verbosity=0, stdout=StringIO())
        self.assertIn("jobs included", asked.call_args.args[0])
        self.assertEqual((1, 1), (len(app.list().jobs), Purchase.objects.count()))
        with patch("builtins.input", return_value="yes"):
            call_command("flush", verbosity=0)

        self.assertEqual((0, 0), (len(app.list().jobs), Purchase.objects.count()))
        self.assertEqual([], app.migrate())


class Asserted(TestCase):
    """`rowlock.testing` in Django's tests, without a fixture."""

    def test_django_tasks(self):
        """Arguments are compared by name, however they were given, defaults included."""
        confirm.enqueue(7)
        confirm.using(priority=3, queue_name="default").enqueue(number=8)
        using(confirm, key="nine", delay=60).enqueue(9)

        job = assert_enqueued(confirm, number=7)
        self.assertEqual("shop.tasks.confirm", job.kind)
        assert_enqueued(confirm.using(priority=3), number=8)
        assert_enqueued(confirm.using(queue_name="default"), number=8)
        assert_enqueued(using(confirm, key="nine", delay=60))
        assert_enqueued("shop.tasks.confirm", number=9)
        refute_enqueued(confirm.using(priority=3), number=7)
        refute_enqueued(confirm, number=10)
        refute_enqueued(greet)
        self.assertEqual(3, len(enqueued(confirm)))

    def test_texts(self):
        """A failure shows what was enqueued, in the words of a call."""
        confirm.enqueue(7)
        with self.assertRaisesRegex(AssertionError, r"shop.tasks.confirm\(number=7\): ready"):
            assert_enqueued(confirm, number=8)
        with self.assertRaisesRegex(AssertionError, "none should be"):
            refute_enqueued(confirm)
        with self.assertRaisesRegex(TypeError, "no parameter 'numbr'; it takes number"):
            refute_enqueued(confirm, numbr=7)
        with self.assertRaisesRegex(TypeError, "must be a task"):
            refute_enqueued(not_a_task)

    def test_own_tasks(self):
        """Tasks of rowlock's own are found as well, and jobs of other tests are not."""
        self.assertEqual([], enqueued(greet))
        greet.using(queue="mail").enqueue(name="Ada")

        assert_enqueued(greet.using(queue="mail"), name="Ada")


def not_a_task() -> None: ...
