"""The fixtures of Celery's integration tests, with rowlock's shim and a worker in this process.

`canvas.py` puts it in the place of the suite's own `conftest.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fakeredis
import pytest

from rowlock.contrib.celery import Celery

TEST_BACKEND = "redis://"
_SERVER = fakeredis.FakeServer()
# Tests write to a Redis from tasks, as an effect that they can see.
redis_connection: Callable[[], Any] = partial(fakeredis.FakeStrictRedis, server=_SERVER)
get_redis_connection = redis_connection
ended: dict[str, str] = {}


class StoreBackend:
    """Tests ask whether it can run chords, before they start one."""

    def ensure_chords_allowed(self) -> None:
        """Do nothing: it can."""


class BaseKeyValueStoreBackend:
    """Tests of this one's internals are skipped: no backend here is one."""


class SuiteApp(Celery):
    """The shim with a backend to ask."""

    backend = StoreBackend()


class Manager:
    """What tests ask of Celery's own manager of tests."""

    def __init__(self, app: Celery) -> None:
        self.app = app

    def inspect(self) -> Any:
        """Return the workers."""
        return self.app.control.inspect()


suite_app: Celery = SuiteApp("suite", broker=os.environ["SUITE_DATABASE_URL"])
suite_app.conf.result_backend = TEST_BACKEND
suite_app.load_tasks()


def kept_command(**_: Any) -> Callable[[Any], Any]:
    """Commands of Celery's workers have no place here."""
    return lambda function: function


def flaky(function: Any) -> Any:
    """Nothing is tried again."""
    return function


def get_active_redis_channels() -> list[Any]:
    """Return the channels on which results are awaited: there are none."""
    return []


def check_for_logs(caplog: Any, message: str, max_wait: float = 1.0, interval: float = 0.1) -> bool:
    """Return whether a message is logged soon."""
    until = time.monotonic() + max_wait
    while time.monotonic() < until:
        if any(re.search(message, record.getMessage()) for record in caplog.records):
            return True
        time.sleep(interval)
    return False


@pytest.fixture(scope="session", autouse=True)
def worker() -> Iterator[None]:
    """Run a worker until the last test has ended."""
    stop, begun = threading.Event(), threading.Event()

    async def serve() -> None:
        async with suite_app, suite_app.worker():
            begun.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    begun.wait(60)
    yield
    stop.set()
    thread.join()


@pytest.fixture
def app() -> Celery:
    """The app."""
    return suite_app


@pytest.fixture
def celery_session_app() -> Celery:
    """The app."""
    return suite_app


@pytest.fixture
def manager() -> Manager:
    """The app and its workers."""
    return Manager(suite_app)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Each test begins with an empty Redis, and without the receivers of others."""
    from rowlock.contrib.celery import signals

    get_redis_connection().flushall()
    yield
    for signal in (signals.before_task_publish, signals.task_received):
        for receiver in signal.receivers:
            signal.disconnect(receiver)
    suite_app.conf.task_always_eager = False


def pytest_runtest_logreport(report: Any) -> None:
    """Note how a test ended: "" if it passed."""
    name = report.nodeid.partition("::")[2]
    if report.skipped:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.wasxfail
        ended[name] = f"skipped: {why}"
    elif report.failed:
        ended[name] = ended.get(name) or report.longrepr.reprcrash.message
    elif report.when == "call":
        ended.setdefault(name, "")


def pytest_sessionfinish() -> None:
    """Write how all tests ended."""
    with contextlib.suppress(KeyError):
        Path(os.environ["SUITE_REPORT"]).write_text(json.dumps(ended), "utf-8")
