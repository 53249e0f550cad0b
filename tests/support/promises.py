"""Schemathesis on our document: one call's cases, and what each answer is checked for.

Only the process that runs the test of a call makes its cases, which takes a while. Schemathesis has
a plugin that makes the cases of all calls in every process that collects tests, and a lazy form
that this version of pytest breaks. So the builder of both is used here.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import hypothesis
import schemathesis
from hypothesis.errors import FlakyStrategyDefinition
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.generation.feedback import NO_FEEDBACK
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.specs.openapi import checks

from rowlock import config
from rowlock.server.openapi import document
from rowlock.server.routes import ROUTES
from tests.support.server import Running

EXAMPLES = int(os.environ.get("ROWLOCK_SCHEMA_EXAMPLES", "5"))
# Chains of calls by links, and how many calls each has: 50 by default.
SCENARIOS = 4 + EXAMPLES // 4
STEPS = 10
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


@functools.cache
def documented() -> schemathesis.BaseSchema:
    """Return the document as schemathesis reads it."""
    schema = schemathesis.openapi.from_dict(document(ROUTES))
    # Who may come in is tested by the matrix.
    schema.config.generation.update(with_security_parameters=False)
    # A body that breaks the schema may be too large as well.
    schema.config.checks.negative_data_rejection.expected_statuses.append("413")
    # The test of links follows those of the document only.
    schema.config.phases.stateful.inference.algorithms = []
    return schema


def documented_calls() -> set[str]:
    """Return the names of all calls."""
    operations = documented().get_all_operations()
    return {each.ok().definition.raw["operationId"] for each in operations}


@functools.cache
def examination_of(call: str) -> Callable[[Running], None]:
    """Return a function that makes the requests of a call to a server, and checks the answers."""
    load_all_checks()
    schema = documented().include(operation_id=call)
    (operation,) = (each.ok() for each in schema.get_all_operations())
    built: Callable[[Running], None] = build_operation_test(
        config=schema.config,
        operation=operation,
        test_func=_examine,
        given_kwargs={},
        feedback=NO_FEEDBACK,
    )
    return built


SETTINGS = hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)


@SETTINGS
def _examine(running: Running, case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS, **_call_options(running, case))


def _call_options(running: Running, case: schemathesis.Case) -> dict[str, Any]:
    """How to send a case: as an admin, without waiting where a wait would be of no use."""
    wait = case.body.get("wait") if isinstance(case.body, dict) else None
    if isinstance(wait, int | float) and 0 < wait <= config.HTTP_WAIT_SECONDS_MAX:
        # A copy: it may be the example itself.
        case.body = {**case.body, "wait": 0}
    if case.operation.definition.raw["operationId"] == "streamEvents":
        case.query = {**(case.query or {}), "seconds": 0}
    token = running.tokens["admin", None]
    return {
        "base_url": running.address,
        "headers": {"Authorization": f"Bearer {token}"},
        "timeout": 60,
    }


class LinksFollowed(NamedTuple):
    """Which links were followed how often, and the answers that broke a promise."""

    links: Counter[str]
    failures: list[FailureGroup]


def follow_links(running: Running, prepare: Callable[[], None]) -> LinksFollowed:
    """Make chains of calls by the links of the document. `prepare` is called before each chain."""
    found = LinksFollowed(Counter(), [])

    class Following(documented().as_state_machine()):  # type: ignore[misc]
        def setup(self) -> None:
            prepare()

        def step(self, input: Any) -> Any:
            if input.transition is not None and input.is_applied:
                found.links[input.transition.id] += 1
            return super().step(input)

        def get_call_kwargs(self, case: schemathesis.Case) -> dict[str, Any]:
            return _call_options(running, case)

        def validate_response(self, response: Any, case: schemathesis.Case, **options: Any) -> None:
            try:
                case.validate_response(response, checks=CHECKS)
            except FailureGroup as failure:
                found.failures.append(failure)
                raise

    bounds = hypothesis.settings(SETTINGS, max_examples=SCENARIOS, stateful_step_count=STEPS)
    # The server has a clock and work in the background, so the same chain may be answered
    # differently when hypothesis repeats it. It then gives up, which is no failure of the server.
    with suppress(FlakyStrategyDefinition):
        Following.run(settings=bounds)
    return found
