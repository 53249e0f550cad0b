"""Two databases, of every two kinds, with the same tasks on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import rowlock
from tests.conftest import FreshDatabase

PAIRS = ("sqlite-postgres", "postgres-postgres", "sqlite-sqlite", "postgres-sqlite")


@pytest.fixture(params=PAIRS)
def urls(
    request: pytest.FixtureRequest,
    fresh_database: FreshDatabase,
    migrated_template: str,
    tmp_path: Path,
) -> tuple[str, str]:
    """Two databases, of every two kinds."""

    def make(kind: str, name: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / name}.db"
        return fresh_database(migrated_template)

    old, new = request.param.split("-")
    return make(old, "old"), make(new, "new")


@pytest.fixture
def apps(urls: tuple[str, str]) -> Iterator[tuple[rowlock.App, rowlock.App]]:
    """The same tasks on both."""
    with rowlock.App(urls[0]) as old, rowlock.App(urls[1]) as new:
        for app in (old, new):
            define(app)
        yield old, new


def define(app: rowlock.App) -> None:
    @app.task(max_attempts=1)
    def failing() -> None:
        raise ValueError("no")

    @app.task(max_attempts=1)
    def sometimes(fails: bool = True) -> None:
        if fails:
            raise ValueError("this time")

    @app.task
    def logging(ctx: rowlock.Context, n: int = 0) -> int:
        ctx.log(f"line of {n}")
        ctx.progress(0.5, "half")
        return n
