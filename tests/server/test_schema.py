"""Schemathesis: requests made from the document itself, to every call.

What the document promises is what comes: statuses, types, shapes, methods; never a 5xx. `make fuzz`
tries many more, on each store. Schemathesis is imported by the process that runs a test, not by all
that collect.
"""

from __future__ import annotations

import pytest

from rowlock.server.routes import ROUTES
from rowlock.store.ops.schedule import new_schedule
from tests.support.server import Running, empty

CALLS = [route.operation for route in ROUTES if not route.is_page]


@pytest.mark.one_store("requests and answers are of one document")
@pytest.mark.parametrize("call", CALLS)
def test_the_server_keeps_its_promises(running: Running, call: str) -> None:
    """Whatever fits the document, or just does not, is answered as it says."""
    from tests.support.promises import examination_of

    examination_of(call)(running)


def test_links_can_be_followed(running: Running, module_url: str) -> None:
    """What an answer names is there for the next call: jobs, leases, bulk work, tokens."""
    from tests.support.promises import follow_links

    def prepare() -> None:
        empty(module_url)
        job = running.app.prepare({"kind": "ping"})
        running.app.store.put_schedule(new_schedule("nightly", job, cron="0 3 * * *"))

    found = follow_links(running, prepare)

    assert found.failures == []
    assert found.links


def test_every_call_is_tried() -> None:
    """The run covers the table of routes."""
    from tests.support.promises import documented_calls

    assert documented_calls() == set(CALLS)


pytestmark = pytest.mark.timeout(600)
