"""What tests ask of a PostgreSQL server past the store, and do to it."""

from __future__ import annotations

import psycopg


def is_any_waiting(url: str) -> bool:
    """Whether a connection to the database waits for a lock."""
    with psycopg.connect(url) as connection:
        ask = (
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock')"
        )
        return connection.execute(ask).fetchone() == (True,)


def end_other_connections(url: str) -> int:
    """End every other connection to the database; returns how many there were."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
        assert row is not None
        count: int = row[0]
        return count
