"""Instance: the random id by which a database is known, whatever it is reached through."""

from __future__ import annotations

from rowlock.store.steps import Op, Statement, Steps, reading


def instance() -> Op[str]:
    """The id of the store's own database."""

    def steps() -> Steps[str]:
        rows = yield Statement("instance")
        return str(rows[0][0])

    return reading("instance", steps)
