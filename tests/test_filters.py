"""The filters of jobs: every surface has the declared ones."""

from __future__ import annotations

from dataclasses import fields

import click
import msgspec
import pytest

from rowlock.cli.options import filters
from rowlock.filters import FILTERS, FilterOptions, JobFilter
from rowlock.server.schemas import JobChoice
from rowlock.store.statements import Dialect, source


def test_every_surface_has_every_filter():
    """The library, its checked form, the HTTP API and the command line name the same filters."""
    command = click.command()(filters(lambda: None))

    assert [*FilterOptions.__annotations__] == [*FILTERS]
    assert [field.name for field in fields(JobFilter)] == [*FILTERS]
    assert [*JobChoice.__struct_fields__] == ["state", *FILTERS]
    assert [option.name for option in command.params] == [*FILTERS]


@pytest.mark.parametrize("dialect", [*Dialect])
def test_every_filter_is_in_the_statement(dialect: Dialect):
    """A filter that no condition reads would match all jobs."""
    sql = source("list_dead", dialect, "rowlock")

    assert [name for name in FILTERS if f":{name}" not in sql] == []


@pytest.mark.parametrize(
    "text", ["plain", 'a "quote"', "C:\\temp", "two\nlines", "\x01\x7f", "é😀"]
)
def test_errors_are_searched_as_they_are_stored(text: str):
    """The text is escaped as the stored JSON of the errors is."""
    stored = msgspec.json.encode([text]).decode()

    assert f'"{JobFilter(error=text).parameters()["error"]}"' == stored[1:-1]
