"""The operation with which Django's migrations run rowlock's own."""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation
from django.db.utils import NotSupportedError

from rowlock.contrib.django.project import chosen_settings
from rowlock.store.borrowed.libraries import borrow_django
from rowlock.store.borrowed.schema import BorrowedSchema


class RowlockSchema(Operation):
    """Brings rowlock's schema up to one of its migrations, on the database that `ROWLOCK` names.

    On other databases it does nothing, and it does not repeat what `rowlock migrate` has done. Only
    the first migration can be reversed, which removes all tables and all jobs.
    """

    reduces_to_sql = False
    reversible = True

    def __init__(self, *, newest: int) -> None:
        self.newest = newest

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return the arguments for Django's writer of migrations."""
        return type(self).__name__, [], {"newest": self.newest}

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Do nothing: no Django model is changed."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Apply missing migrations."""
        schema = self._schema(schema_editor)
        if schema is not None:
            schema.migrate(newest=self.newest)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Remove all tables."""
        schema = self._schema(schema_editor)
        if schema is not None:
            schema.drop()

    def describe(self) -> str:
        """Return the text for `manage.py migrate --plan`."""
        return f"Bring rowlock's schema up to its migration {self.newest}"

    def _schema(self, schema_editor: Any) -> BorrowedSchema | None:
        chosen = chosen_settings()
        wrapper = schema_editor.connection
        if wrapper.alias != chosen.database:
            return None
        if schema_editor.collect_sql:
            raise NotSupportedError(
                "sqlmigrate can't print rowlock's schema; use manage.py rowlock migrate --sql"
            )
        return BorrowedSchema(borrow_django(wrapper), schema=chosen.schema)
