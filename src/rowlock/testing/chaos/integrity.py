"""Whether a database says of itself that it is whole."""

from __future__ import annotations

from rowlock.testing.chaos.stage import Stage
from rowlock.testing.database import execute

# Every row that a full scan finds must be found by the primary key, and none else.
_SCANNED = "SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off"


def problems(stage: Stage) -> list[str]:
    """What is wrong with it; nothing, if it is whole."""
    if stage.is_sqlite:
        rows = execute(stage.url, "PRAGMA integrity_check")
        return [row[0] for row in rows if row[0] != "ok"]
    return []
