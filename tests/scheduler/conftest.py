"""An app of the test's own, on each store, with a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rowlock


@pytest.fixture
def clock() -> rowlock.ManualClock:
    return rowlock.ManualClock()


@pytest.fixture
def app(any_url: str, clock: rowlock.ManualClock) -> Iterator[rowlock.App]:
    with rowlock.App(any_url, clock=clock) as app:
        yield app
