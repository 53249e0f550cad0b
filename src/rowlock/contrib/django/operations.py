"""The operation by which Django's migrations run rowlock's own."""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation
from django.db.utils import NotSupportedError

from rowlock.contrib.django.project import chosen_settings
from rowlock.store.caller.django import borrow_django
from rowlock.store.caller.schema import BorrowedSchema


class RowlockSchema(Operation):
    """Bring rowlock's schema up to one of its migrations, on the database that `ROWLOCK` names.

    On any other database it does nothing, and what `rowlock migrate` has done it does not repeat.
    Only the first can be taken back: with it go all tables, and all jobs.
    """

    reduces_to_sql = False
    reversible = True

    def __init__(self, *, newest: int) -> None:
        self.newest = newest

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """For Django's writer of migrations."""
        return type(self).__name__, [], {"newest": self.newest}

    def state_forwards(self, app_label: str, state: Any) -> None:
        """No model of Django's is changed."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Apply what is missing."""
        schema = self._schema(schema_editor)
        if schema is not None:
            schema.migrate(newest=self.newest)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Take all of it away."""
        schema = self._schema(schema_editor)
        if schema is not None:
            schema.drop()

    def describe(self) -> str:
        """For `manage.py migrate --plan`."""
        return f"Bring rowlock's schema up to its migration {self.newest}"

    def _schema(self, schema_editor: Any) -> BorrowedSchema | None:
        chosen = chosen_settings()
        wrapper = schema_editor.connection
        if wrapper.alias != chosen.database:
            return None
        if schema_editor.collect_sql:
            raise NotSupportedError(
                "rowlock's schema is not written out by sqlmigrate: "
                "manage.py rowlock migrate --sql prints it"
            )
        return BorrowedSchema(borrow_django(wrapper), schema=chosen.schema)
