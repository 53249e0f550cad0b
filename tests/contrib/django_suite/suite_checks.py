"""`manage.py check`: what it says of settings that are wrong; and the admin."""

from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import SimpleTestCase, TestCase, TransactionTestCase, override_settings
from shop.tasks import confirm, reluctant

from rowlock.contrib.django import app, using
from rowlock.contrib.django.asgi import visitor_of
from rowlock.contrib.django.management.commands.rowlock import without_djangos
from rowlock.contrib.django.project import chosen_settings
from rowlock.contrib.django.settings import check_settings, postgres_url, sqlite_url
from rowlock.store import migrate as migrations
from rowlock.store.ops.audit import list_audit

FILE = {"ENGINE": "django.db.backends.sqlite3", "NAME": "a.sqlite3"}
BACKEND = "rowlock.contrib.django.RowlockBackend"


class Checks(SimpleTestCase):
    """The setting ROWLOCK, DATABASES and TASKS."""

    databases = "__all__"

    def found(self):
        """What is said, by id and hint."""
        return {each.id: each.hint for each in run_checks() if each.id.startswith("rowlock.")}

    def test_all_is_well(self):
        """The example's settings are right, in tests on a database in memory too."""
        self.assertEqual({}, self.found())

    def test_rowlock(self):
        """Every mistake has an id and a hint, and stops the app that would be made of it."""
        for raw, id, hint in (
            ("default", "E001", "ROWLOCK = {"),
            ({"DATABSE": "x"}, "E002", "Did you mean 'DATABASE'?"),
            ({"colour": "x"}, "E002", "The options are DATABASE, SCHEMA"),
            ({"DATABASE": ""}, "E003", "non-empty"),
            ({"SCHEMA": "My Jobs"}, "E003", "lower-case"),
            ({"SCHEMA": 3}, "E003", "string"),
            ({"STRICT": "yes"}, "E003", "True or False"),
            ({"KEEP_DEAD": -1}, "E003", "keep"),
            ({"IMPORTS": "shop.jobs"}, "E003", "a list"),
            ({"DASHBOARD_URL": ""}, "E003", "non-empty"),
        ):
            with self.subTest(raw), override_settings(ROWLOCK=raw):
                self.assertIn(hint, self.found()[f"rowlock.{id}"])
                with self.assertRaisesRegex(ImproperlyConfigured, f"rowlock.{id}"):
                    chosen_settings()

    def test_database(self):
        """An alias that is not there, and a database that is neither of ours."""
        with override_settings(ROWLOCK={"DATABASE": "jobs"}):
            self.assertEqual({"rowlock.E004": "The aliases are 'default'."}, self.found())
        before = connection.vendor
        try:
            connection.vendor = "oracle"
            self.assertIn("SQLite file", self.found()["rowlock.E005"])
        finally:
            connection.vendor = before

    def test_sqlite(self):
        """Deferred transactions, and a database that nobody else sees, are warned of."""
        settings = connection.settings_dict
        before = dict(settings)
        vendor = connection.vendor
        try:
            connection.vendor = "sqlite"
            settings.update(FILE, OPTIONS={})
            self.assertIn("IMMEDIATE", self.found()["rowlock.W002"])
            settings["NAME"] = ":memory:"
            self.assertIn("Name a file", self.found()["rowlock.W001"])
        finally:
            settings.update(before)
            connection.vendor = vendor

    def test_backend(self):
        """Options of the backend are checked; and that the app is installed."""
        for options, hint in (
            ({"max_atempts": 3}, "Did you mean 'max_attempts'?"),
            ({"max_attempts": 0}, "max_attempts"),
            ({"retry": "fixed"}, "rowlock.retry.fixed(seconds)"),
            ({"timeout": -1}, "timeout"),
            ({"max_retries": 3}, "Use 'max_attempts', which counts the first run"),
        ):
            with (
                self.subTest(options),
                override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": options}}),
            ):
                self.assertIn(hint, self.found()["rowlock.E008"])

    def test_imports(self):
        """A module that is not there is found before a worker looks for it."""
        for missing in ("shop.nothing", "nowhere.tasks"):
            with override_settings(ROWLOCK={"IMPORTS": ["shop.tasks", missing]}):
                self.assertIn("a module with tasks", self.found()["rowlock.E009"])

    def test_urls(self):
        """A worker opens what Django opens."""
        for params, url in (
            ({"dbname": "a"}, "postgresql:///a"),
            (
                {"dbname": "a b", "user": "u@x", "password": "p:/?", "host": "h", "port": 5433},
                "postgresql://u%40x:p%3A%2F%3F@h:5433/a%20b",
            ),
            (
                {"dbname": "a", "user": "u", "host": "/run/pg", "sslmode": "disable"},
                "postgresql:///a?user=u&sslmode=disable&host=%2Frun%2Fpg",
            ),
            ({"dbname": "a", "host": "::1"}, "postgresql://[::1]/a"),
            (
                {"service": "s", "client_encoding": "UTF8", "pool": True, "assume_role": "r"},
                "postgresql:///?service=s",
            ),
        ):
            with self.subTest(url):
                self.assertEqual(url, postgres_url(params))
        self.assertEqual("sqlite:////srv/a.db", sqlite_url({"NAME": "/srv/a.db"}))
        with self.assertRaises(ImproperlyConfigured):
            sqlite_url({"NAME": "file:memorydb_default?mode=memory&cache=shared"})

    def test_words(self):
        """Options of manage.py itself are not handed on."""
        words = ["--settings", "a.b", "worker", "-q", "mail", "--pythonpath=/x", "--drain"]

        self.assertEqual(["worker", "-q", "mail", "--drain"], without_djangos(words))


class Admin(TestCase):
    """The link in the admin."""

    def setUp(self):
        """Somebody of the staff without any rights."""
        self.user = User.objects.create(username="ada", is_staff=True)
        self.client.force_login(self.user)

    def test_link(self):
        """Whoever may view the dashboard is shown the link, and led there."""
        self.assertNotContains(self.client.get("/admin/"), "/admin/rowlock/dashboard/")
        self.assertEqual(403, self.client.get("/admin/rowlock/dashboard/").status_code)
        self.user.user_permissions.add(Permission.objects.get(codename="view_dashboard"))

        self.assertContains(self.client.get("/admin/"), "/admin/rowlock/dashboard/")
        answer = self.client.get("/admin/rowlock/dashboard/")
        self.assertRedirects(answer, "/jobs/", fetch_redirect_response=False)
        with override_settings(ROWLOCK={}):
            self.assertNotContains(self.client.get("/admin/"), "/admin/rowlock/dashboard/")
            self.assertEqual(404, self.client.get("/admin/rowlock/dashboard/").status_code)
        self.assertEqual(404, self.client.get("/admin/rowlock/dashboard/1/change/").status_code)

    def test_permissions(self):
        """One to look, and one of its own to act. The audit log has the user's name."""
        self.assertIs(False, visitor_of(self.user))
        for codename, scope in (("view_dashboard", "read"), ("change_dashboard", "admin")):
            self.user.user_permissions.add(Permission.objects.get(codename=codename))
            # Django remembers the permissions of a user object.
            found = visitor_of(User.objects.get(pk=self.user.pk))

            self.assertEqual(("ada", [scope]), (found.name, found.scopes))
            self.assertIs(False, found.can_create_tokens)
        self.user.is_active = False
        self.assertIs(False, visitor_of(self.user))


class AdminJobs(TestCase):
    """The jobs in the admin."""

    def setUp(self):
        """Somebody of the staff who may look, a dead job, and one that waits."""
        self.user = User.objects.create(username="ada", is_staff=True)
        self.client.force_login(self.user)
        self.allow("view_dashboard")
        self.waiting = confirm.enqueue(7)
        self.dead = reluctant.enqueue(9)
        app.drain(["default"])

    def allow(self, codename):
        self.user.user_permissions.add(Permission.objects.get(codename=codename))

    def test_look(self):
        """A list with filters, and a page of a job with its arguments and errors."""
        self.assertContains(self.client.get("/admin/"), "/admin/rowlock/job/")
        page = self.client.get("/admin/rowlock/job/")
        self.assertContains(page, f"/admin/rowlock/job/{self.dead.id}/")
        self.assertContains(page, f"/admin/rowlock/job/{self.waiting.id}/")
        self.assertNotContains(page, 'name="action"')
        page = self.client.get("/admin/rowlock/job/?state=dead&kind=shop.tasks.reluctant&queue=")
        self.assertContains(page, self.dead.id)
        self.assertNotContains(page, self.waiting.id)
        page = self.client.get(f"/admin/rowlock/job/{self.dead.id}/")
        self.assertContains(page, "ValueError: attempt 2 is not the one")
        self.assertContains(page, "2 of 2")
        self.assertNotContains(page, "Retry this job")
        for id in ("x", "0192f0c1-2345-7000-8000-000000000000"):
            self.assertEqual(404, self.client.get(f"/admin/rowlock/job/{id}/").status_code)

    def test_pages(self):
        """The next page has the same filters. A cursor that is none is said to be."""
        app.enqueue_many([using(confirm).job(number) for number in range(60)])
        page = self.client.get("/admin/rowlock/job/?queue=mail")
        link = page.content.decode().partition('href="?queue=mail&amp;cursor=')[2].partition('"')[0]
        page = self.client.get(f"/admin/rowlock/job/?queue=mail&cursor={link}")
        self.assertContains(page, "11 jobs on this page")

        wrong = self.client.get("/admin/rowlock/job/?cursor=x", follow=True)
        self.assertContains(wrong, "cursor")

    def test_act(self):
        """With the permission to change, and written to the audit log with the user's name."""
        both = {"id": [self.dead.id, self.waiting.id, "x"], "action": "retry"}
        self.assertEqual(403, self.client.post("/admin/rowlock/job/", both).status_code)
        self.assertEqual("dead", app.get(self.dead.id).state)
        self.allow("change_dashboard")
        self.assertContains(
            self.client.get(f"/admin/rowlock/job/{self.dead.id}/"), "Retry this job"
        )
        page = self.client.post("/admin/rowlock/job/", both, follow=True)
        self.assertContains(page, "1 job was retried.")
        self.assertContains(page, f"{self.waiting.id}: ")
        self.assertEqual("ready", app.get(self.dead.id).state)
        both = {**both, "action": "cancel"}
        self.assertContains(
            self.client.post("/admin/rowlock/job/", both, follow=True), "2 jobs were"
        )
        nothing = self.client.post("/admin/rowlock/job/", {"action": "dance"}, follow=True)
        self.assertContains(nothing, "Nothing was changed")

        entries = app.store.run(list_audit(limit=10)).entries
        self.assertEqual({"ada"}, {entry.actor for entry in entries})
        self.assertEqual(
            ["job.cancel", "job.cancel", "job.retry"], [entry.action for entry in entries]
        )

    def test_nobody_else(self):
        """Who may not view the dashboard sees neither."""
        self.user.user_permissions.clear()
        self.assertNotContains(self.client.get("/admin/"), "/admin/rowlock/job/")
        for path in ("", f"{self.dead.id}/"):
            self.assertEqual(403, self.client.get(f"/admin/rowlock/job/{path}").status_code)


class Migrations(TransactionTestCase):
    """`manage.py migrate`."""

    def test_covers_all(self):
        """The newest of Django's migrations brings the newest of rowlock's."""
        store = app.store
        known = migrations.migrations(store.engine.dialect)

        self.assertEqual({each.number for each in known}, set(store.engine.applied()))

    def test_there_and_back(self):
        """Back to zero all tables are gone, and come again; what is there is left alone."""
        engine = app.store.engine
        call_command("migrate", "rowlock", "zero", verbosity=0)
        self.assertEqual({}, engine.applied())
        self.assertEqual([], [name for name in self.tables() if name.startswith("rowlock")])
        self.assertIn("shop_purchase", self.tables())
        with override_settings(ROWLOCK={"DATABASE": "another"}):
            call_command("migrate", "rowlock", verbosity=0)
        self.assertEqual({}, engine.applied())
        call_command("migrate", "rowlock", "zero", verbosity=0)
        self.assertEqual(app.migrate(), sorted(engine.applied()))
        call_command("migrate", "rowlock", verbosity=0)

        self.assertEqual([], app.migrate())
        self.assertEqual([], list(app.list()))

    def test_without_migrations(self):
        """Where tests do without them, the tables are created nevertheless."""
        call_command("migrate", "rowlock", "zero", verbosity=0)
        with override_settings(MIGRATION_MODULES={"rowlock": None}):
            call_command("migrate", run_syncdb=True, verbosity=0)

        self.assertEqual([], app.migrate())
        call_command("migrate", "rowlock", verbosity=0)

    def tables(self):
        """Of SQLite; on PostgreSQL a schema of their own has them."""
        with connection.cursor() as cursor:
            return connection.introspection.table_names(cursor)

    def test_command(self):
        """`call_command` runs rowlock's commands, and tells of failure as Django's do."""
        with self.assertRaisesRegex(CommandError, "There is no command 'rowlock dance'"):
            call_command("rowlock", "dance")

    def test_nothing_to_make(self):
        """The models and the migrations agree."""
        call_command("makemigrations", "--check", "--dry-run", verbosity=0)
        self.assertEqual([], [each for each in check_settings() if each.is_serious()])
