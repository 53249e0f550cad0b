"""The app under test: the user's own, on a database and a clock of the test's, for one test.

1. It is the same object, so whatever holds it or its tasks takes part without being told. It has
   another class for the time of the test, and its own store and `state` again afterwards. Whatever
   names another database meanwhile, it stays on the test's.
2. Inline, what is enqueued is run before the call returns; what handlers enqueue meanwhile is run
   by the same drain, after them.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

from rowlock.app import App
from rowlock.clock import Clock
from rowlock.job import Job, Lease
from rowlock.store import NewJob
from rowlock.worker.drain import Drain

# Files here are never written to a disk: half of the time of most tests.
_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a new directory in it is made by `tempfile`
# Nobody connects before the test's own database is there.
_NOWHERE: Final = "sqlite:///rowlock-not-used-in-tests.db"
APP_VARIABLE: Final = "ROWLOCK_APP"

OnReached = Callable[[str, Lease], None]


@dataclass(slots=True)
class AppTestState:
    """What a test knows of its app."""

    is_inline: bool = False
    is_draining: bool = False
    # By id, in their order: a job that is not kept leaves no row.
    sent: dict[str, Job] = field(default_factory=dict[str, Job])
    # Hears of every step of a run, and may end the process there.
    on_reached: OnReached | None = None

    @contextmanager
    def draining(self) -> Iterator[None]:
        was, self.is_draining = self.is_draining, True
        try:
            yield
        finally:
            self.is_draining = was


class AppUnderTest(App):
    """An `App` that a test looks at; `use_test_database` makes one of any app."""

    test_state: AppTestState

    def use_database(self, url: str) -> None:
        """Nothing: a program that is set up within a test names its own, and must not get there."""

    def send(self, jobs: Sequence[NewJob], *, conn: object | None) -> Sequence[Job]:
        answers = super().send(jobs, conn=conn)
        if self._is_run_now(answers, conn):
            self._drain_here()
        return answers

    async def asend(self, jobs: Sequence[NewJob], *, conn: object | None) -> Sequence[Job]:
        answers = await super().asend(jobs, conn=conn)
        if self._is_run_now(answers, conn):
            await self.adrain()
        return answers

    def drain(self, queues: Sequence[str] | None = None, *, limit: int | None = None) -> int:
        with self.test_state.draining():
            return super().drain(queues, limit=limit)

    async def adrain(self, queues: Sequence[str] | None = None, *, limit: int | None = None) -> int:
        with self.test_state.draining():
            return await super().adrain(queues, limit=limit)

    def _is_run_now(self, answers: Sequence[Job], conn: object | None) -> bool:
        # On a connection of the caller's own they are not there before its COMMIT.
        if conn is not None:
            return False
        self.test_state.sent.update((job.id, job) for job in answers if job.created)
        return self.test_state.is_inline and not self.test_state.is_draining

    def _drain_here(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.drain()
        else:
            # A blocking call of a coroutine: no other loop can be run in its thread.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(self.drain).result()

    def _drain(self, queues: Sequence[str] | None, limit: int | None) -> Drain:
        drain = super()._drain(queues, limit)
        drain.on_reached = self.test_state.on_reached
        return drain


@contextmanager
def use_test_database(
    app: App, url: str, *, clock: Clock | None = None, inline: bool = False
) -> Iterator[AppUnderTest]:
    """Give an app another database and clock for as long as the block lasts.

    Args:
        url: The test's database; its tables are made if they are not there.
        clock: None: the app's own.
        inline: Run what is enqueued before the call returns.
    """
    kind, before = type(app), (app.store, app._url, app._clock, app.state)
    # Tasks that the test itself defines are gone with it.
    tasks = dict(app._tasks)
    tested = _as_app_under_test(app, kind)
    tested.test_state = AppTestState(is_inline=inline)
    app._clock = clock or app._clock
    _under_test.append(tested)
    try:
        super(AppUnderTest, tested).use_database(url)
        app.migrate()
        yield tested
    finally:
        _under_test.remove(tested)
        if app.store is not before[0]:
            app.close()
        app.__class__ = kind
        app.store, app._url, app._clock, app.state = before
        app._tasks = tasks


def _as_app_under_test(app: App, kind: type[App]) -> AppUnderTest:
    # A class of the user's own stays below: its methods are those that are tested.
    mixed: Any = AppUnderTest if kind is App else type(kind.__name__, (AppUnderTest, kind), {})
    app.__class__ = mixed
    assert isinstance(app, AppUnderTest)
    return app


# Those of the running test; the last one is meant where none is named.
_under_test: list[AppUnderTest] = []


def current() -> AppUnderTest:
    """The app of the running test."""
    if not _under_test:
        raise RuntimeError("no app is under test: the test must use the fixture `rowlock_app`")
    return _under_test[-1]


class TempPathFactory(Protocol):
    """pytest's `tmp_path_factory`."""

    def mktemp(self, basename: str) -> Path: ...


@contextmanager
def new_file(directories: TempPathFactory) -> Iterator[str]:
    """The URL of a SQLite file that is there for as long as the block lasts."""
    if os.access(_MEMORY, os.W_OK):
        with tempfile.TemporaryDirectory(prefix="rowlock-test-", dir=_MEMORY) as place:
            yield f"sqlite:///{place}/jobs.db"
    else:
        yield f"sqlite:///{directories.mktemp('rowlock')}/jobs.db"


def named_app(spec: str) -> App:
    """The app that `module:app` names, or else ROWLOCK_APP; a new one if neither does."""
    spec = spec or os.environ.get(APP_VARIABLE, "")
    if not spec:
        return App(_NOWHERE)
    module, _, attribute = spec.partition(":")
    if not module or not attribute:
        raise ValueError(f"rowlock_app must be of the form module:app, not {spec!r}")
    app = getattr(import_module(module), attribute)
    if not isinstance(app, App):
        raise TypeError(f"{spec} is not a rowlock.App but {app!r}")
    return app
