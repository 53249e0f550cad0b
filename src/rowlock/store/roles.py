"""SQL for those who give each part of a system its own role on PostgreSQL. Printed, never run here.

Roles are a server's, and whoever may make them is seldom who may migrate: so rowlock only says how.
"""

from __future__ import annotations

from pathlib import Path


def roles(schema: str) -> str:
    """The roles migrator, worker, producer and reader, and what each may do."""
    return _read("roles.sql", schema)


def row_security(schema: str) -> str:
    """Policies that bind producers and readers to the tenant of their session. After `roles`."""
    return _read("row_security.sql", schema)


def _read(name: str, schema: str) -> str:
    text = (Path(__file__).with_name("grants") / name).read_text(encoding="utf-8")
    return text.replace("{schema}", schema).rstrip()
