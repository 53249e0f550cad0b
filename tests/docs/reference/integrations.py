"""Integrations: what `rowlock.contrib` has for other frameworks and libraries."""

from __future__ import annotations

from rowlock.contrib import (
    asgi,
    fastapi,
    flask,
    litestar,
    opentelemetry,
    sentry,
    sqlalchemy,
    starlette,
    structlog,
)
from tests.docs.reference.library import module_section

# Each where it is made; FastAPI's module passes on what Starlette's has, and both what is of ASGI.
NAMES = {
    asgi: ("Dashboard", "serving"),
    starlette: ("lifespan", "queue_of"),
    fastapi: ("transaction",),
    flask: ("Rowlock", "queue_of"),
    litestar: ("RowlockPlugin", "transaction"),
    sqlalchemy: ("after_commit",),
    opentelemetry: ("instrument",),
    sentry: ("instrument",),
    structlog: ("add_job_fields",),
}


def sections() -> dict[str, str]:
    """A section for each module."""
    return {module.__name__: module_section(module, names) for module, names in NAMES.items()}
