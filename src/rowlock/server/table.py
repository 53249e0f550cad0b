"""All routes, in the order of the document."""

from __future__ import annotations

from typing import Final

from rowlock.server import health, jobs, pages
from rowlock.server.route import AnyRoute

ROUTES: Final[tuple[AnyRoute, ...]] = (*jobs.ROUTES, *health.ROUTES, *pages.ROUTES)
