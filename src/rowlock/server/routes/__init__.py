"""All routes, in the order of the OpenAPI document. Each resource is a module, listed here."""

from __future__ import annotations

from typing import Final

from rowlock.server.routes import (
    audit,
    bulk,
    dead,
    enqueue,
    events,
    history,
    jobs,
    leases,
    limits,
    pages,
    queues,
    schedules,
    session,
    system,
    tokens,
    workflows,
)
from rowlock.server.routing import AnyRoute

ROUTES: Final[tuple[AnyRoute, ...]] = (
    *enqueue.ROUTES,
    *jobs.ROUTES,
    *bulk.ROUTES,
    *dead.ROUTES,
    *queues.ROUTES,
    *limits.ROUTES,
    *workflows.ROUTES,
    *schedules.ROUTES,
    *leases.ROUTES,
    *system.ROUTES,
    *history.ROUTES,
    *events.ROUTES,
    *session.ROUTES,
    *tokens.ROUTES,
    *audit.ROUTES,
    *system.MONITORING,
    *pages.ROUTES,
)
