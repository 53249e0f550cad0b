"""A child of the supervisor: the process that runs user code.

The supervisor sends it lines of JSON on a pipe. The end of the pipe means that the supervisor is
dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from rowlock import config
from rowlock.errors import RowlockError
from rowlock.task import prepare_follow_up
from rowlock.worker.counts import ProcessCounts, names_of
from rowlock.worker.engine import WorkerEngine
from rowlock.worker.hooks import HookFailed
from rowlock.worker.process import Title
from rowlock.worker.report import first_names
from rowlock.worker.services import Services, advice, is_ready
from rowlock.worker.settings import (
    EXIT_ENGINE_FAILED,
    EXIT_LEFT_BEHIND,
    EXIT_NOT_STARTED,
    EXIT_UNFIT,
    WorkerSettings,
)
from rowlock.worker.shared_memory import SharedCounts, SharedLeases

if TYPE_CHECKING:
    from rowlock.app import App

logger: logging.Logger = logging.getLogger("rowlock.worker")


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a child needs to know at its start."""

    app: str
    worker: str
    settings: WorkerSettings
    leases_descriptor: int
    leases_slots: int
    hear_descriptor: int
    tell_descriptor: int
    counts_descriptor: int | None = None


def serve(orders: Orders, app: App) -> int:
    """Run an app's jobs until the supervisor says to stop, and return the exit code."""
    try:
        with app.worker_hooks.in_process(app.state) as state:
            return _serve_on_loop(orders, app, state)
    except HookFailed as error:
        _log_not_started(error)
        return EXIT_NOT_STARTED


def _serve_on_loop(orders: Orders, app: App, state: Any) -> int:
    runner = asyncio.Runner()
    try:
        code = runner.run(_serve(orders, app, state))
    except HookFailed:
        runner.close()
        raise
    except BaseException as error:  # noqa: BLE001  # a handler may end the loop by anything
        # The loop is not tidied up: the leases stay as they were, for the supervisor to judge.
        _log_failure(error)
        return 1
    runner.close()
    return code


def _log_not_started(error: HookFailed) -> None:
    # The traceback of the hook, without our own frames around it.
    logger.error("%s", error, exc_info=error.__cause__)


def _log_failure(error: BaseException) -> None:
    """Log why the loop has ended."""
    known = {str(each) for each in _each(error) if isinstance(each, RowlockError)}
    # For a database that is not migrated, or is missing, a traceback does not help.
    for text in sorted(known):
        logger.error("the child can't work: %s", text)
    if not known:
        logger.error("the child has failed", exc_info=error)


def _each(error: BaseException) -> Iterator[BaseException]:
    """The errors inside a group, at any depth."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _each(inner)
    else:
        yield error


def leave(code: int) -> NoReturn:
    """End at once: a plain function that does not stop would keep the interpreter from it."""
    for stream in (sys.stdout, sys.stderr):
        # Its reader may be gone, or a handler may have closed it.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


async def _serve(orders: Orders, app: App, state: Any) -> int:
    async with app.worker_hooks.on_loop(state) as made:
        code = await _serve_jobs(orders, app, made)
    if code == 0:
        await app.aclose()
    return code


async def _serve_jobs(orders: Orders, app: App, state: Any) -> int:
    leases = SharedLeases(orders.leases_descriptor, orders.leases_slots)
    _introduce(
        orders,
        {
            "url": app.store.engine.address,
            "schema": app.store.engine.schema,
            "tasks": first_names(orders.settings.kinds_of(app.kinds)),
        },
    )
    counts = ProcessCounts(names_of(app, orders.settings.queues))
    app.on_enqueued = counts.sent
    services = Services(
        app.store, app, worker=orders.worker, settings=orders.settings, counts=counts
    )
    engine = WorkerEngine(
        app.store,
        app,
        worker=orders.worker,
        settings=orders.settings,
        leases=leases,
        state=state,
        prepare=prepare_follow_up,
        on_news=services.wake,
        counts=counts,
        app=orders.app,
    )
    services.watch(engine.load)
    services.on_unfit = engine.leave
    engine.on_idle = partial(_introduce, orders, {"idle": True})
    services.on_warning = lambda text: _introduce(orders, {"warning": text})
    _show(engine, orders, Title("rowlock child"))
    shared = None if orders.counts_descriptor is None else SharedCounts(orders.counts_descriptor)
    if shared is not None:
        _count_on(shared, engine, counts)
    messages = SupervisorMessages(
        orders.hear_descriptor,
        engine,
        services,
        leases,
        patience=orders.settings.lease_seconds,
    )
    _pulse_on(leases, engine, mark=leases.pulse())
    messages.start()
    try:
        if not await _is_ready(orders, app, engine, counts):
            leases.leave(is_drained=False)
            return 0
        async with services.running():
            left = await engine.run()
    except Unfit as unfit:
        return _leave_unfit(orders, app, leases, unfit.error)
    except Exception as error:  # noqa: BLE001  # it is ours: what handlers raise is their outcome
        _log_failure(error)
        leases.leave(is_drained=False)
        leave(EXIT_ENGINE_FAILED)
    finally:
        messages.stop()
    if shared is not None:
        shared.write(counts.totals, good_at=engine.good_at)
    leases.leave(is_drained=engine.is_drained)
    if left:
        logger.warning("%d jobs did not stop; their process is ended", left)
        # Their slots stay as they are: the supervisor gives the jobs back once we are dead.
        leave(EXIT_LEFT_BEHIND)
    if engine.unfit is not None:
        return _leave_unfit(orders, app, leases, engine.unfit)
    return 0


class Unfit(Exception):
    """The database is not one that this worker can start on."""

    def __init__(self, error: RowlockError) -> None:
        super().__init__(str(error))
        self.error = error


async def _is_ready(orders: Orders, app: App, engine: WorkerEngine, counts: ProcessCounts) -> bool:
    """Wait until this child can start. If it can't, the supervisor logs why, once for all."""
    seconds = orders.settings.start_seconds

    def tell(error: RowlockError) -> None:
        text = advice(error, migrate_command=app.migrate_command)
        _introduce(orders, {"waiting": f"{text}; waiting for it, up to {seconds:g} s"})

    try:
        return await is_ready(
            app.store,
            start_seconds=seconds,
            stopping=engine.stopping,
            errors=counts.errors,
            tell=tell,
        )
    except RowlockError as error:
        raise Unfit(error) from error


def _leave_unfit(orders: Orders, app: App, leases: SharedLeases, error: RowlockError) -> int:
    """Tell the supervisor why this worker can't work here, and return the exit code."""
    _introduce(orders, {"unfit": advice(error, migrate_command=app.migrate_command)})
    leases.leave(is_drained=False)
    return EXIT_UNFIT


def _show(engine: WorkerEngine, orders: Orders, title: Title) -> None:
    """Keep this process's title up to date."""
    queues = ",".join(orders.settings.queues or ["all queues"])
    title.show(f"rowlock worker: {engine.running} running on {queues}")
    asyncio.get_running_loop().call_later(1.0, _show, engine, orders, title)


def _count_on(shared: SharedCounts, engine: WorkerEngine, counts: ProcessCounts) -> None:
    """Keep the counts that the supervisor sees up to date."""
    shared.write(counts.totals, good_at=engine.good_at)
    loop = asyncio.get_running_loop()
    loop.call_later(config.SHARED_COUNTS_SECONDS, _count_on, shared, engine, counts)


def _pulse_on(leases: SharedLeases, engine: WorkerEngine, *, mark: int) -> None:
    """Show the supervisor that the loop is not blocked. If it was, give back the revoked leases."""
    seen = leases.pulse()
    if seen != mark:
        engine.give_back_revoked()
    loop = asyncio.get_running_loop()
    loop.call_later(config.PULSE_SECONDS, partial(_pulse_on, leases, engine, mark=seen))


def _introduce(orders: Orders, message: dict[str, Any]) -> None:
    os.write(orders.tell_descriptor, json.dumps(message).encode() + b"\n")


class SupervisorMessages:
    """Turns the supervisor's messages into calls of the engine and the services."""

    def __init__(
        self,
        descriptor: int,
        engine: WorkerEngine,
        services: Services,
        leases: SharedLeases,
        *,
        patience: float,
    ) -> None:
        """`patience`: how many seconds this process may outlive its supervisor, beside its stop."""
        self._descriptor = descriptor
        self._engine = engine
        self._leases = leases
        self._services = services
        self._patience = patience + 2 * config.STOP_SECONDS
        self._rest = b""

    def start(self) -> None:
        os.set_blocking(self._descriptor, False)
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)

    def _read(self) -> None:
        try:
            heard = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return
        if not heard:
            # The supervisor is dead: these leases have no heartbeat any more.
            self.stop()
            self._engine.stop_at_once()
            # If the database is away as well, no other process ends this one. By then its leases
            # are lost.
            loop = asyncio.get_running_loop()
            loop.call_later(self._patience, leave, EXIT_LEFT_BEHIND)
            return
        *lines, self._rest = (self._rest + heard).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, message: dict[str, Any]) -> None:
        for id in message.get("cancel", []):
            self._engine.cancel(id)
        for id, token in message.get("lost", []):
            self._engine.lose(id, token)
        if "maintain" in message:
            self._services.maintain(bool(message["maintain"]))
        if message.get("stop"):
            self._leases.begin_to_leave()
            self._engine.stop()
