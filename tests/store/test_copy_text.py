"""The text of a COPY: the server reads every value as it was written."""

from __future__ import annotations

import psycopg
import pytest

from rowlock.store.postgres.session import copy_text

ODD = [
    "plain",
    "",
    "\\",
    "\\N",
    "\\.",
    "a\tb",
    "a\nb",
    "a\r\nb",
    '{"a":"\\n"}',
    "\N{ROWBOAT}",
    "\x7f",
]


@pytest.mark.parametrize("odd", ODD, ids=ascii)
def test_odd_texts_come_back(postgres_url: str, odd: str):
    """As a value of its own, and as one that is the same in many rows."""
    rows = [(str(number), odd, odd, None, number // 2) for number in range(200)]
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TEMPORARY TABLE copied (a text, b text, c text, d text, e int)")
        with connection.cursor().copy("COPY copied FROM STDIN") as copy:
            for part in copy_text(rows):
                copy.write(part)
        found = connection.execute("SELECT * FROM copied ORDER BY a::int").fetchall()

    assert found == rows


def test_large_rows_come_in_small_parts():
    """So that other work of an event loop gets its turn."""
    rows = [(str(number), "x" * 100_000) for number in range(10)]

    assert max(map(len, copy_text(rows))) < 300_000
