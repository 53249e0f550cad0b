"""Rates as people write them."""

from __future__ import annotations

import pytest

from rowlock.limit_info import rate_text
from rowlock.limits import rate_of


@pytest.mark.parametrize(
    "text", ["1/s", "7/s", "100/s", "333/s", "1/m", "10/m", "59/m", "500/h", "1000/d", "1/d"]
)
def test_a_rate_is_shown_as_it_was_written(text: str):
    """Though what is stored is the time between two starts, in whole microseconds."""
    assert rate_text(rate_of(text, option="rate")[0]) == text


@pytest.mark.parametrize(
    ("given", "shown"),
    [("60/m", "1/s"), ("1.5/s", "90/m"), ("24/d", "1/h"), ("1/7d", "0.1429/d"), ("0.5/s", "30/m")],
)
def test_a_rate_is_shown_in_the_shortest_unit(given: str, shown: str):
    """In which it is a whole number."""
    assert rate_text(rate_of(given, option="rate")[0]) == shown


def test_no_rate_is_shown_as_none():
    """A limit may have none."""
    assert rate_text(None) is None
