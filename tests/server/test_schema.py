"""Schemathesis: requests made from the document itself, to every call, on each store.

What the document promises is what comes: statuses, types, shapes, methods; never a 5xx. `make fuzz`
tries many more.
"""

from __future__ import annotations

import os

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from rowlock import config
from rowlock.server.openapi import document
from rowlock.server.routes import ROUTES
from tests.support.server import Running

EXAMPLES = int(os.environ.get("ROWLOCK_SCHEMA_EXAMPLES", "5"))
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
    checks.allow_header_conformance,
    checks.missing_required_header,
]
schema = schemathesis.openapi.from_dict(document(ROUTES))
# Who may come in is tested by the matrix.
schema.config.generation.update(with_security_parameters=False)
# A body that breaks the schema may be too large as well.
schema.config.checks.negative_data_rejection.expected_statuses.append("413")


@schema.parametrize()
@hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
def test_the_server_keeps_its_promises(running: Running, case: schemathesis.Case) -> None:
    """Whatever fits the document, or just does not, is answered as it says."""
    wait = case.body.get("wait") if isinstance(case.body, dict) else None
    if isinstance(wait, int | float) and 0 < wait <= config.HTTP_WAIT_SECONDS_MAX:
        # To wait for a minute is right, and of no use here. A copy: it may be the example itself.
        case.body = {**case.body, "wait": 0}
    if case.operation.definition.raw["operationId"] == "streamEvents":
        # To listen for ever, too.
        case.query = {**(case.query or {}), "seconds": 0}
    token = running.tokens["admin", None]
    case.call_and_validate(
        base_url=running.address,
        headers={"Authorization": f"Bearer {token}"},
        checks=CHECKS,
        timeout=60,
    )


def test_every_call_is_tried() -> None:
    """The run covers the table of routes."""
    tried = {each.ok().definition.raw["operationId"] for each in schema.get_all_operations()}

    assert {route.operation for route in ROUTES if not route.is_page} == tried


pytestmark = pytest.mark.timeout(600)
