"""Fitness: whether this version still works on the schema, which a newer one may have migrated."""

from __future__ import annotations

from rowlock.store import migrate
from rowlock.store.statements import Dialect
from rowlock.store.steps import Op, Statement, Steps, reading


def check_schema(dialect: Dialect) -> Op[None]:
    """Raise `MigrationNeeded` once the schema has something that this version had to know."""

    def steps() -> Steps[None]:
        known = len(migrate.migrations(dialect))
        rows = yield Statement("unfit_migrations", {"known": known})
        if rows:
            raise migrate.too_new(max(number for (number,) in rows), known)

    return reading("check_schema", steps)
