"""`/metrics`: what this server did, and what is in the database, for Prometheus."""

from __future__ import annotations

from starlette.responses import Response

from rowlock.observe.metrics import CONTENT_TYPE, exposition, of_counts
from rowlock.server.gate import Reach
from rowlock.server.routing import AnyRoute, Call, Route, scopes
from rowlock.tokens import Scope


async def get_metrics(call: Call[None, None]) -> Response:
    gauges = await call.service.gauges.read()
    metrics = [*of_counts(call.service.ledger.totals), *gauges]
    return Response(exposition(metrics), headers={"content-type": CONTENT_TYPE})


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/metrics",
        operation="getMetrics",
        summary="Metrics for Prometheus",
        description="Of queues as they were ten seconds ago at most.",
        handler=get_metrics,
        scopes=scopes(Scope.READ),
        reach=Reach.SYSTEM,
        answers={200: str},
        media_type="text/plain",
    ),
]
