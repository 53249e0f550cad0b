"""The pytest plugin: fixtures for an app under test.

pytest loads it in every project that has rowlock installed. So it imports nothing of rowlock before
a test uses a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from rowlock.app import App
    from rowlock.task import Task
    from rowlock.testing.app import AppUnderTest, Point
    from rowlock.testing.clock import VirtualClock

    Crash = Callable[[Point, Task[..., Any] | str | None], AbstractContextManager[None]]

MODES = ("manual", "inline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("rowlock_app", "module:app of the app to test (default: ROWLOCK_APP)")
    parser.addini(
        "rowlock_mode",
        "manual: jobs wait for a drain, inline: they run when they are enqueued",
        default="manual",
    )


def pytest_configure(config: pytest.Config) -> None:
    line = "rowlock(mode): how the jobs of this test run, 'manual' or 'inline'"
    config.addinivalue_line("markers", line)


@pytest.fixture
def rowlock_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The test's database: a new SQLite file. Override it to test on another."""
    from rowlock.testing.app import new_file

    with new_file(tmp_path_factory) as url:
        yield url


@pytest.fixture
def rowlock_clock() -> VirtualClock:
    """The test's clock, which stands still until you move it."""
    from rowlock.testing.clock import VirtualClock

    return VirtualClock()


@pytest.fixture
def rowlock_target(pytestconfig: pytest.Config) -> App:
    """The app to test: the one that the option `rowlock_app` or ROWLOCK_APP names, or a new one.

    Override it to test another.
    """
    from rowlock.testing.app import named_app

    return named_app(pytestconfig.getini("rowlock_app"))


@pytest.fixture
def rowlock_app(
    request: pytest.FixtureRequest,
    rowlock_target: App,
    rowlock_url: str,
    rowlock_clock: VirtualClock,
) -> Iterator[AppUnderTest]:
    """The app of `rowlock_target`, on the database and the clock of this test."""
    from rowlock.testing.app import use_test_database

    inline = _mode_of(request) == "inline"
    with use_test_database(rowlock_target, rowlock_url, clock=rowlock_clock, inline=inline) as app:
        rowlock_clock.rule(app)
        yield app


@pytest.fixture
def rowlock_crash(rowlock_app: AppUnderTest) -> Crash:
    """`rowlock.testing.rowlock_crash` as a fixture, so that tests need not import it."""
    from rowlock.testing.app import rowlock_crash

    return rowlock_crash


def _mode_of(request: pytest.FixtureRequest) -> str:
    mark = request.node.get_closest_marker("rowlock")
    mode: str = request.config.getini("rowlock_mode")
    if mark is not None:
        mode = mark.kwargs.get("mode", *mark.args, mode) if not mark.args else mark.args[0]
    if mode not in MODES:
        raise pytest.UsageError(f"rowlock's mode must be 'manual' or 'inline', not {mode!r}")
    return mode
