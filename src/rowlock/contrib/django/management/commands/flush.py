"""`manage.py flush`, which empties rowlock's tables, too.

Django flushes the tables of models only. Its `TransactionTestCase` runs this command after each
test, so without this one the jobs of a test would be there in the next.
"""

from __future__ import annotations

from typing import Any

from django.core.management.commands import flush
from django.db import connections

from rowlock.contrib.django.project import project_app

_QUESTION = """\
You have requested a flush of the database.
This will IRREVERSIBLY DESTROY all data currently in the "{name}" database, jobs included,
and return each table to an empty state.
Are you sure you want to do this?

    Type 'yes' to continue, or 'no' to cancel: """


class Command(flush.Command):
    """Empties all tables of a database."""

    def handle(self, **options: Any) -> None:
        """Ask, as Django does, and empty everything. Django calls this."""
        alias = options["database"]
        name = connections[alias].settings_dict["NAME"]
        if options["interactive"] and input(_QUESTION.format(name=name)) != "yes":
            self.stdout.write("Flush cancelled.")
            return
        super().handle(**{**options, "interactive": False})
        app = project_app()
        if alias == app.settings.database:
            app.empty()
