"""A pooler in front of the server is noticed, and which kind it is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rowlock.errors import StoreUnavailable
from rowlock.store.postgres.pooler import Pooler, find_pooler
from rowlock.store.url import PostgresUrl


class Pooled:
    """A client's connection through a pooler: it names another process than it is served by."""

    def __init__(self, serving: list[int], *, keeps: bool) -> None:
        self.info = SimpleNamespace(backend_pid=999)
        self._serving = serving
        self._mine = serving.pop() if keeps else None

    def __enter__(self) -> Pooled:
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, _: object) -> SimpleNamespace:
        pid = self._mine if self._mine is not None else self._serving.pop()
        return SimpleNamespace(fetchone=lambda: (pid,))


@pytest.mark.parametrize(
    ("keeps", "expected"), [(True, Pooler.SESSION), (False, Pooler.TRANSACTION)]
)
def test_a_pooler_is_told_by_its_processes(keeps, expected):
    """In session mode a client keeps its process, in transaction mode it may get another."""
    serving = [5, 4, 3, 2, 1]
    url = PostgresUrl.parse("postgresql://pooled/x")

    assert expected is find_pooler(url, connect=lambda _: Pooled(serving, keeps=keeps))


@pytest.mark.direct("there is none")
def test_no_pooler(postgres_url):
    """A server itself tells the process that answers."""
    assert Pooler.NONE is find_pooler(PostgresUrl.parse(postgres_url))


def test_a_server_that_is_not_there():
    """That it can't be reached is our error, without the password."""
    url = PostgresUrl.parse("postgresql://u:secret@127.0.0.1:1/x")

    with pytest.raises(StoreUnavailable) as caught:
        find_pooler(url)
    assert "secret" not in str(caught.value)
