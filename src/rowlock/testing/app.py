"""The app under test: the user's own app, on a test's database and clock, for one test.

1. It is the same object, so all code that holds it or its tasks takes part. It has another class
   during the test, and gets its own store and `state` back afterwards. It stays on the test's
   database, whatever URL the program names meanwhile.
2. Inline, a job is run before its enqueue returns. Jobs that handlers enqueue meanwhile are run by
   the same drain, after them.
3. The database is empty when a test begins. Only a database that was empty when a test first used
   it is ever emptied: a wrong URL must not cost anyone's jobs.
4. A crash of a run's process is simulated, to test that handlers can run twice. As after SIGKILL,
   nothing is given back and nothing more is written. The job stays leased until its lease expires,
   and then runs again.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_args

from rowlock.app import App
from rowlock.clock import Clock
from rowlock.job import QUEUED_STATES, Job, Lease
from rowlock.store import NewJob
from rowlock.store import migrate as migrations
from rowlock.store.ops.workflows import Draft, Written
from rowlock.store.statements import Dialect
from rowlock.store.url import masked
from rowlock.task import Task
from rowlock.testing.database import connect, is_sqlite
from rowlock.worker.drain import Drain, ProcessDied

# Files here are never written to a disk, which would take half of the time of most tests.
_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a new directory in it is made by `tempfile`
# A URL that is never connected to: the test's own database replaces it first.
_NOWHERE: Final = "sqlite:///rowlock-not-used-in-tests.db"
APP_VARIABLE: Final = "ROWLOCK_APP"

OnReached = Callable[[str, Lease], None]
Point = Literal["after-claim", "after-handler", "before-settle", "after-settle"]


@dataclass(slots=True)
class AppTestState:
    """The state of a test of an app."""

    is_inline: bool = False
    is_draining: bool = False
    # The enqueued jobs by id, in order. A job that is not kept leaves no row.
    sent: dict[str, Job] = field(default_factory=dict[str, Job])
    # The delays of jobs of workflows by id, in microseconds.
    delays: dict[str, int] = field(default_factory=dict[str, int])
    # Called at every step of a run, and may end the process there.
    on_reached: OnReached | None = None

    @contextmanager
    def draining(self) -> Iterator[None]:
        was, self.is_draining = self.is_draining, True
        try:
            yield
        finally:
            self.is_draining = was


class AppUnderTest(App):
    """An `App` under test. `use_test_database` turns any app into one."""

    test_state: AppTestState

    def use_database(self, url: str) -> None:
        """Do nothing: a program that is set up within a test must not reach its own database."""

    def send(self, jobs: Sequence[NewJob], *, conn: object | None) -> Sequence[Job]:
        answers = super().send(jobs, conn=conn)
        if self._is_run_now(jobs, answers, conn):
            self._drain_here()
        return answers

    async def asend(self, jobs: Sequence[NewJob], *, conn: object | None) -> Sequence[Job]:
        answers = await super().asend(jobs, conn=conn)
        if self._is_run_now(jobs, answers, conn):
            await self.adrain()
        return answers

    def send_workflow(self, draft: Draft, *, conn: object | None) -> Written:
        written = super().send_workflow(draft, conn=conn)
        if self._is_workflow_run_now(draft, written, conn):
            self._drain_here()
        return written

    async def asend_workflow(self, draft: Draft, *, conn: object | None) -> Written:
        written = await super().asend_workflow(draft, conn=conn)
        if self._is_workflow_run_now(draft, written, conn):
            await self.adrain()
        return written

    def drain(self, queues: Sequence[str] | None = None, *, limit: int | None = None) -> int:
        with self.test_state.draining():
            return super().drain(queues, limit=limit)

    async def adrain(self, queues: Sequence[str] | None = None, *, limit: int | None = None) -> int:
        with self.test_state.draining():
            return await super().adrain(queues, limit=limit)

    def _is_run_now(
        self, jobs: Sequence[NewJob], answers: Sequence[Job], conn: object | None
    ) -> bool:
        # On the caller's own connection, the jobs don't exist before its COMMIT.
        if conn is not None:
            return False
        self.test_state.sent.update(
            (answer.id, answer)
            for job, answer in zip(jobs, answers, strict=True)
            if answer.created or (job.replaces and answer.state in QUEUED_STATES)
        )
        return self.test_state.is_inline and not self.test_state.is_draining

    def _is_workflow_run_now(self, draft: Draft, written: Written, conn: object | None) -> bool:
        if conn is not None or not written.created:
            return False
        # A delay begins when a job is released, so that its row does not show it before.
        self.test_state.delays.update((job.id, job.delay) for job in draft.nodes if job.delay)
        return self.test_state.is_inline and not self.test_state.is_draining

    def _drain_here(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.drain()
        else:
            # A coroutine made a blocking call: no other loop can run in its thread.
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
    """Give an app another database and clock while the block lasts.

    Args:
        url: The test's database. Its tables are created if needed, and emptied if an earlier test
            has used them.
        clock: The test's clock. None keeps the app's own.
        inline: Run each job before its enqueue returns.

    Raises:
        ValueError: The database has jobs or other rows that no test wrote.
    """
    kind, before = type(app), (app._store, app._url, app._clock, app.state)
    # Tasks and limits that the test itself defines are removed with it.
    tasks, limits = dict(app._tasks), dict(app._limits)
    tested = _as_app_under_test(app, kind)
    tested.test_state = AppTestState(is_inline=inline)
    app._clock = clock or app._clock
    _under_test.append(tested)
    try:
        super(AppUnderTest, tested).use_database(url)
        app.migrate()
        # Another app of the same test may share its database.
        if not any(each.url == url for each in _under_test if each is not tested):
            _empty(url, schema=app._schema)
        yield tested
    finally:
        _under_test.remove(tested)
        if app._store is not before[0]:
            app.close()
        app.__class__ = kind
        app._store, app._url, app._clock, app.state = before
        app._tasks, app._limits = tasks, limits


# The table that says that a database is for tests.
_MARK: Final = "test_database"


def _empty(url: str, *, schema: str) -> None:
    """Delete all rows of the tests before, or mark an empty database as one for tests."""
    dialect = Dialect.SQLITE if is_sqlite(url) else Dialect.POSTGRES
    tables = migrations.emptied(dialect=dialect, schema=schema)
    mark, found = f"{schema}.{_MARK}", f"SELECT to_regclass('{schema}.{_MARK}')"
    if dialect is Dialect.SQLITE:
        mark = f"{schema}_{_MARK}"
        found = f"SELECT max(name) FROM sqlite_master WHERE name = '{mark}'"  # noqa: S608  # ours
    with closing(connect(url)) as connection:
        is_for_tests = connection.execute(found).fetchone()[0] is not None
        for table in tables:
            if is_for_tests:
                connection.execute(f"DELETE FROM {table}")  # noqa: S608  # ours
            elif connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone():  # noqa: S608  # ours
                raise ValueError(
                    f"{masked(url)} has rows in {table} that no test wrote, and tests empty their "
                    "database; name a database that only tests use"
                )
        connection.execute(f"CREATE TABLE IF NOT EXISTS {mark} (is_for_tests integer)")
        connection.commit()


def _as_app_under_test(app: App, kind: type[App]) -> AppUnderTest:
    # A subclass of the user's stays a base class, because its methods are tested.
    mixed: Any = AppUnderTest if kind is App else type(kind.__name__, (AppUnderTest, kind), {})
    app.__class__ = mixed
    assert isinstance(app, AppUnderTest)
    return app


# The apps of the running test. The last one is used where none is named.
_under_test: list[AppUnderTest] = []


def is_any_under_test() -> bool:
    """Return whether an app is under test."""
    return bool(_under_test)


def current() -> AppUnderTest:
    """Return the app of the running test."""
    if not _under_test:
        raise RuntimeError(
            "no app is under test; use the fixture `rowlock_app` in the test, or run the tests of "
            "a Django project with `manage.py test` or pytest-django"
        )
    return _under_test[-1]


@contextmanager
def rowlock_crash(point: Point, task: Task[..., Any] | str | None = None) -> Iterator[None]:
    """Crash the process of the first run that reaches a point. The drain ends there, too.

    Args:
        point: "after-claim": the job is leased, and its handler was not called. "after-handler":
            the handler has ended. "before-settle": its last progress and log lines are written,
            too. "after-settle": its outcome is written, but the worker got no answer.
        task: Only runs of this task, or of the kind of this name.

    Raises:
        AssertionError: No run reached the point.

    Example:
        with rowlock_crash("after-handler"):
            rowlock_app.drain()
        rowlock_clock.advance(60)  # its lease expires
        rowlock_app.drain()  # it runs again
    """
    if point not in get_args(Point):
        raise ValueError(f"point must be one of {', '.join(get_args(Point))}, not {point!r}")
    kind = task.name if isinstance(task, Task) else task
    test_state = current().test_state
    reached: list[str] = []

    def die(where: str, lease: Lease) -> None:
        if where == point and kind in (None, lease.job.kind) and not reached:
            reached.append(lease.id)
            raise ProcessDied

    before, test_state.on_reached = test_state.on_reached, die
    try:
        yield
    except ProcessDied:
        # What the test does next counts as a new process.
        pass
    finally:
        test_state.on_reached = before
    if not reached:
        whose = "no job" if kind is None else f"no job of {kind!r}"
        raise AssertionError(f"{whose} reached {point!r}; call drain() within the block")


class TempPathFactory(Protocol):
    """pytest's `tmp_path_factory`."""

    def mktemp(self, basename: str) -> Path: ...


@contextmanager
def new_file(directories: TempPathFactory) -> Iterator[str]:
    """Yield the URL of a SQLite file that exists while the block lasts."""
    if os.access(_MEMORY, os.W_OK):
        with tempfile.TemporaryDirectory(prefix="rowlock-test-", dir=_MEMORY) as place:
            yield f"sqlite:///{place}/jobs.db"
    else:
        yield f"sqlite:///{directories.mktemp('rowlock')}/jobs.db"


def named_app(spec: str) -> App:
    """Return the app that `module:app` names, else ROWLOCK_APP's, else a new one."""
    spec = spec or os.environ.get(APP_VARIABLE, "")
    if not spec:
        return App(_NOWHERE)
    module, _, attribute = spec.partition(":")
    if not module or not attribute:
        raise ValueError(f"rowlock_app must be of the form module:app, not {spec!r}")
    app = getattr(import_module(module), attribute)
    if not isinstance(app, App):
        raise TypeError(f"{spec} must be a rowlock.App, not {app!r}")
    return app
