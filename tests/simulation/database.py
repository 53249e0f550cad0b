"""The real SQLite store in memory, behind a simulated line: slow, cut, deaf, or full.

1. A verb is run as its engine would run it: in one transaction as on SQLite, or, as on PostgreSQL,
   statement by statement until it asks for a transaction. Between transactions others have a turn.
2. Before every statement it may fail, and after every COMMIT the answer may be lost; both look the
   same to whoever asked. As on PostgreSQL, what can be repeated may be, by the same rule.
3. What a dead process has asked for may still be done.
4. Every change of a job's row is noted by triggers, in the same transaction, and told to the
   witness when it is committed: what the verbs say of themselves is not believed.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from rowlock import config
from rowlock.clock import Clock
from rowlock.errors import StoreUnavailable
from rowlock.store import drive
from rowlock.store.sqlite.engine import _migrate
from rowlock.store.sqlite.file import SqliteFile
from rowlock.store.sqlite.session import SqliteSession
from rowlock.store.statements import Dialect, ParameterStyle
from rowlock.store.steps import Begin, Commit, News, Op, Ring, Rows, Step, Steps
from tests.simulation.loop import Host, SimulatedLoop
from tests.simulation.world import BEGINNING

T = TypeVar("T")

BINDER = drive.Binder(Dialect.SQLITE, "rowlock", ParameterStyle.NAMED)


class Change(NamedTuple):
    """A change of a row: inserted, updated, deleted; of `job`, or of `finished` (in capitals)."""

    what: str
    id: str
    kind: str
    queue: str
    key: str | None
    tenant: str | None
    key_hold: int | None
    max_attempts: int | None
    meta: str | None
    state: str | None
    expires_at: int | None
    token: int
    attempt: int
    crashes: int
    run_at: int
    leased_until: int | None
    worker: str | None
    cancel_requested: int
    errors: int
    begun: int
    new_token: int
    new_attempt: int
    new_crashes: int
    new_run_at: int
    new_leased_until: int | None
    new_worker: str | None
    new_cancel_requested: int
    new_errors: int
    new_begun: int
    limit_name: str | None
    new_limit_name: str | None
    limit_key: str | None
    place: int | None
    held_by: int | None
    old_held_by: int | None
    pending: int
    new_pending: int
    workflow: str | None
    # Why it was cancelled, if not by a request.
    cause: int | None


_JOB = (
    "{0}.id, {0}.kind, {0}.queue, {0}.key, {0}.tenant, {0}.key_hold, {0}.max_attempts, {0}.meta, "
    "NULL, NULL"
)
_ENDED = (
    "{0}.id, {0}.kind, {0}.queue, {0}.key, {0}.tenant, {0}.key_hold, {0}.max_attempts, NULL, "
    "{0}.state, {0}.expires_at"
)
_HELD = (
    "{0}.token, {0}.attempt, {0}.crashes, {0}.run_at, {0}.lease_expires_at, {0}.worker, "
    "{0}.cancel_requested, json_array_length(coalesce({0}.errors, '[]')), {0}.begun"
)
_OVER = (
    "{0}.token, {0}.attempt, {0}.crashes, {0}.run_at, NULL, {0}.worker, {0}.cancel_requested, "
    "json_array_length(coalesce({0}.errors, '[]')), 0"
)
_WATCHED = (
    "token, attempt, crashes, run_at, lease_expires_at, worker, cancel_requested, progress, "
    "log_lines, begun, held_by, pending, workflow"
)


def _trigger(name: str, event: str, table: str, values: str) -> str:
    return (
        f"CREATE TEMP TRIGGER witness_{name} AFTER {event} ON main.rowlock_{table} "
        f"BEGIN INSERT INTO witnessed VALUES ({values}); END"
    )


def _twice(columns: str, first: str, second: str) -> str:
    limit = "{0}.limit_name, {1}.limit_name, {1}.limit_key, {1}.place"
    if columns is _OVER:
        held = f"NULL, NULL, 0, 0, {second}.workflow, {second}.cause"
    else:
        held = "{1}.held_by, {0}.held_by, coalesce({0}.pending, 0), coalesce({1}.pending, 0), "
        held += "{1}.workflow, NULL"
    limited = f"{limit.format(first, second)}, {held.format(first, second)}"
    return f"{columns.format(first)}, {columns.format(second)}, {limited}"


_TRIGGERS = [
    _trigger("new", "INSERT", "job", f"'i', {_JOB.format('NEW')}, {_twice(_HELD, 'NEW', 'NEW')}"),
    _trigger(
        "change",
        f"UPDATE OF {_WATCHED}",
        "job",
        f"'u', {_JOB.format('OLD')}, {_twice(_HELD, 'OLD', 'NEW')}",
    ),
    _trigger("gone", "DELETE", "job", f"'d', {_JOB.format('OLD')}, {_twice(_HELD, 'OLD', 'OLD')}"),
    _trigger(
        "ended",
        "INSERT",
        "finished",
        f"'I', {_ENDED.format('NEW')}, {_twice(_OVER, 'NEW', 'NEW')}",
    ),
    _trigger(
        "dropped",
        "DELETE",
        "finished",
        f"'D', {_ENDED.format('OLD')}, {_twice(_OVER, 'OLD', 'OLD')}",
    ),
]


class Witness(Protocol):
    """Who is told of every commit, and of everything that may be of interest in a journal."""

    def committed(self, host: Host, op: str, now: int, changes: list[Change]) -> None: ...
    def note(self, *words: object) -> None: ...


class Weather(Protocol):
    """What goes wrong now."""

    def delay(self, op: str = "") -> float: ...
    def fails_before(self, op: str, *, writes: bool) -> str | None:
        """Why the next statement fails, if it does."""
        ...

    def loses_answer(self, op: str) -> bool: ...
    def loses_ring(self) -> bool: ...


class DatabaseClock(Clock):
    """The database's clock: it can be set, and nothing else."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.offset = 0.0

    def now_us(self) -> int:
        return int((BEGINNING + self._loop.now + self.offset) * 1_000_000)

    def monotonic(self) -> float:
        return self._loop.now


class HostClock(Clock):
    """What a process sees: the database's time, and its own monotonic clock."""

    def __init__(self, database: DatabaseClock, loop: SimulatedLoop, host: Host) -> None:
        self._database = database
        self._loop = loop
        self._host = host

    def now_us(self) -> int:
        return self._database.now_us()

    def monotonic(self) -> float:
        return self._loop.now + self._host.offset


class MemorySession(SqliteSession):
    """A session on a database in memory, which no file, lock or other process is needed for."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        super().__init__(_no_file(), BINDER, clock)
        self._connection = connection

    def begin(self, *, writes: bool) -> None:
        # What only reads is not interrupted here, and needs no transaction.
        if writes:
            self.connection.execute("BEGIN IMMEDIATE")
        self.now = self._clock.now_us()

    def dispose(self) -> None:
        """The connection is the database's."""

    def end(self, *, writes: bool = True, is_good: bool) -> None:
        if self.connection.in_transaction:
            self.connection.execute("COMMIT" if is_good else "ROLLBACK")


@cache
def _no_file() -> SqliteFile:
    return SqliteFile(Path("simulation.db"))


@cache
def _template() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    session = MemorySession(connection, _NoClock())
    session.begin(writes=True)
    _migrate(session, schema="rowlock")
    session.end(is_good=True)
    return connection


class _NoClock(Clock):
    def now_us(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0


class AwayError(Exception):
    """The line was cut, or the statement refused: nobody can tell what was done."""


@dataclass(eq=False, slots=True)
class _Call:
    """A verb on its way through the database."""

    host: Host
    op: Op[Any]
    steps: Steps[Any]
    answer: Callable[[Any, Exception | None], None]
    # What it asks for next, if that is known already.
    step: Step | None = None
    rows: Rows = field(default_factory=list)
    in_transaction: bool = False
    rung: set[str] = field(default_factory=set)


class Database:
    """One database, for all hosts."""

    def __init__(
        self,
        loop: SimulatedLoop,
        chance: Random,
        *,
        witness: Witness,
        weather: Weather,
        is_postgres: bool,
        bell: str,
    ) -> None:
        self.loop = loop
        self.clock = DatabaseClock(loop)
        self.witness = witness
        self.weather = weather
        # How verbs are run and repeated: as one engine does, or as the other.
        self.is_postgres = is_postgres
        self._bell = bell
        self._chance = chance
        self._host = Host("database")
        self._listeners: dict[Engine, asyncio.Event] = {}
        connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
        _template().backup(connection)
        connection.execute(f"CREATE TEMP TABLE witnessed ({', '.join(Change._fields)})")
        for trigger in _TRIGGERS:
            connection.execute(trigger)
        self.connection = connection
        self._session = MemorySession(connection, self.clock)
        self._changes = connection.total_changes
        self.statements = 0

    def ask(self, host: Host, op: Op[T], steps: Steps[T]) -> asyncio.Future[T]:
        """Have a verb run; the answer is a future of the host that asked."""
        future: asyncio.Future[T] = self.loop.create_future()

        def answer(result: T | None, error: Exception | None) -> None:
            self.loop.on(host, _resolve, future, result, error, delay=self.weather.delay())

        call = _Call(host, op, steps, answer)
        self.loop.on(self._host, self._start, call, future, delay=self.weather.delay(op.name))
        return future

    def ask_at_once(self, host: Host, op: Op[T], steps: Steps[T]) -> T:
        """As `ask`, for a thread that waits."""
        answers: list[tuple[Any, Exception | None]] = []
        call = _Call(host, op, steps, lambda result, error: answers.append((result, error)))
        while not answers:
            self._go_on(call, is_alone=True)
        result, error = answers[0]
        if error is not None:
            raise error
        return result

    def _start(self, call: _Call, future: asyncio.Future[Any]) -> None:
        # Nobody waits any more. What was sent may be done all the same.
        if (call.host.is_dead or future.cancelled()) and self._chance.random() < 0.5:
            return
        self._go_on(call)

    def _go_on(self, call: _Call, *, is_alone: bool = False) -> None:
        """Run a verb until it ends, fails, or lets others have their turn."""
        session = self._session
        session.begin(writes=call.op.writes)
        try:
            is_over, result = self._run_on(call)
        except AwayError as error:
            session.end(is_good=False)
            call.steps.close()
            call.answer(None, error)
            return
        except Exception as error:  # noqa: BLE001  # whatever a verb raises is for its caller
            session.end(is_good=False)
            call.answer(None, error)
            return
        session.end(is_good=True)
        self._tell(call)
        if self.weather.loses_answer(call.op.name):
            self.witness.note("answer lost", call.host, call.op.name)
            call.steps.close()
            call.answer(None, AwayError("the answer was lost"))
        elif is_over:
            call.answer(result, None)
        elif not is_alone:
            self.loop.on(self._host, self._go_on, call, delay=self.weather.delay())

    def _run_on(self, call: _Call) -> tuple[bool, Any]:
        """Whether the verb has ended, and its result; otherwise it goes on after a COMMIT."""
        try:
            step = next(call.steps) if call.step is None else call.step
            while True:
                is_apart = self._do(call, step)
                step = call.step = call.steps.send(call.rows)
                if is_apart:
                    return False, None
        except StopIteration as end:
            return True, end.value

    def _do(self, call: _Call, step: Step) -> bool:
        """Do one step; whether it is committed by itself, before the next."""
        call.rows = []
        if isinstance(step, Begin | Commit):
            call.in_transaction = isinstance(step, Begin)
            return isinstance(step, Commit)
        if isinstance(step, Ring):
            call.rung |= step.queues
            return False
        problem = self.weather.fails_before(call.op.name, writes=call.op.writes)
        if problem is not None:
            self.witness.note("fails", call.host, call.op.name, problem)
            raise AwayError(problem)
        self.statements += 1
        call.rows = self._session.perform(step)
        return self.is_postgres and not call.in_transaction

    def _tell(self, call: _Call) -> None:
        connection = self.connection
        if connection.total_changes == self._changes:
            return
        rows = connection.execute("SELECT * FROM witnessed ORDER BY rowid").fetchall()
        if rows:
            connection.execute("DELETE FROM witnessed")
        self._changes = connection.total_changes
        now = self._session.now
        self.witness.committed(call.host, call.op.name, now, [Change._make(row) for row in rows])
        if self._bell == "file" or (self._bell == "notify" and call.rung):
            for engine, news in self._listeners.items():
                if engine.host is not call.host and not self.weather.loses_ring():
                    queues = set(call.rung) if self._bell == "notify" else {""}
                    self.loop.on(engine.host, engine.hear, news, queues, delay=self.weather.delay())
            call.rung.clear()

    # The bell

    @property
    def has_bell(self) -> bool:
        return self._bell != "none"

    def listen(self, engine: Engine) -> asyncio.Event:
        self._listeners[engine] = news = asyncio.Event()
        return news

    def deafen(self, engine: Engine) -> None:
        self._listeners.pop(engine, None)

    def deafen_host(self, host: Host) -> None:
        """It is dead."""
        for engine in [each for each in self._listeners if each.host is host]:
            self.deafen(engine)

    def cut_bells(self) -> None:
        """Nobody hears anything until they listen again."""
        for engine, news in list(self._listeners.items()):
            self.deafen(engine)
            self.loop.on(engine.host, engine.cut, news)


class Engine:
    """The engine of one host's store: what `Store` asks of SQLite's and of PostgreSQL's."""

    dialect = Dialect.SQLITE
    schema = "rowlock"
    binder = BINDER
    address = "sqlite:///simulation.db"

    def __init__(self, database: Database, host: Host) -> None:
        self.database = database
        self.host = host
        self.clock: Clock = HostClock(database.clock, database.loop, host)
        self._rung: set[str] = set()
        self._is_cut = False

    def run(self, op: Op[T]) -> T:
        for tries in range(1, config.STORE_TRIES_MAX + 1):
            steps = (op.start if tries == 1 else op.repeat or op.start)()
            try:
                return self.database.ask_at_once(self.host, op, steps)
            except AwayError as error:
                self._check_again(op, error, tries)
        raise AssertionError("the last try raises")

    async def arun(self, op: Op[T]) -> T:
        for tries in range(1, config.STORE_TRIES_MAX + 1):
            steps = (op.start if tries == 1 else op.repeat or op.start)()
            try:
                return await self.database.ask(self.host, op, steps)
            except AwayError as error:
                self._check_again(op, error, tries)
            pause = config.STORE_RETRY_SECONDS * 2.0**tries
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        raise AssertionError("the last try raises")

    def _check_again(self, op: Op[Any], error: AwayError, tries: int) -> None:
        is_again = self.database.is_postgres and op.repeat is not None
        if not is_again or tries == config.STORE_TRIES_MAX:
            raise StoreUnavailable(str(error)) from error

    async def notifications(self) -> AsyncIterator[News | None]:
        if not self.database.has_bell:
            return
        self._is_cut = False
        self._rung.clear()
        news = self.database.listen(self)
        yield None
        while True:
            await news.wait()
            news.clear()
            if self._is_cut:
                raise StoreUnavailable("the bell was cut")
            rung = sorted(self._rung)
            self._rung.clear()
            for queue in rung:
                yield News(queue)

    def hear(self, news: asyncio.Event, queues: set[str]) -> None:
        self._rung |= queues
        news.set()

    def cut(self, news: asyncio.Event) -> None:
        self._is_cut = True
        news.set()

    def migrate(self) -> list[int]:
        return []

    def applied(self) -> dict[int, str]:
        return {}

    def close(self) -> None:
        """There is nothing to close."""

    async def aclose(self) -> None:
        """There is nothing to close."""

    async def aclose_loop(self) -> None:
        """There is nothing to close."""


def _resolve(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
