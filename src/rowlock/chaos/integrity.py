"""Whether a database says of itself that it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rowlock.chaos.database import Stage
from rowlock.testing.database import execute

_TABLES: Final = ("job", "finished", "key_hold")
_KEYS: Final = {"job": "id", "finished": "id", "key_hold": "holder"}
# All rows by a scan of the table, and by a scan of its primary key.
_BY_TABLE: Final = ("SET LOCAL enable_indexscan = off", "SET LOCAL enable_indexonlyscan = off")
_BY_INDEX: Final = ("SET LOCAL enable_seqscan = off", "SET LOCAL enable_bitmapscan = off")


def problems(stage: Stage) -> list[str]:
    """What is wrong with it; nothing, if it is whole."""
    if stage.is_sqlite:
        rows = execute(stage.url, "PRAGMA integrity_check")
        return [row[0] for row in rows if row[0] != "ok"]
    return list(_postgres(stage))


def _postgres(stage: Stage) -> Iterator[str]:
    for table in _TABLES:
        name, key = f"{stage.schema}.{table}", _KEYS[table]
        look = f"SELECT count({key}), min({key}::text), max({key}::text) FROM {name}"  # noqa: S608  # ours
        scanned, found = (execute(stage.url, *how, look) for how in (_BY_TABLE, _BY_INDEX))
        if scanned != found:
            yield f"{table} has {scanned}, and its primary key {found}"
    if stage.server is not None and _has_amcheck(stage):
        yield from _amcheck(stage)


def _has_amcheck(stage: Stage) -> bool:
    """Whether PostgreSQL's own check is installed; in a server of others it is not used."""
    question = "SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'"
    return bool(execute(stage.url, question)[0][0])


def _amcheck(stage: Stage) -> Iterator[str]:
    import psycopg

    execute(stage.url, "CREATE EXTENSION IF NOT EXISTS amcheck")
    listed = (
        "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON oid = indrelid "
        "WHERE indisvalid AND relnamespace = "
    )
    indexes = execute(stage.url, f"{listed}'{stage.schema}'::regnamespace")
    for (index,) in indexes:
        try:
            execute(stage.url, f"SELECT bt_index_check('{index}', true)")
        except psycopg.Error as error:
            yield f"{index}: {error}"
