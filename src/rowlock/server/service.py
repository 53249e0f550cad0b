"""What all requests of a server share: the app, its store, the gate, and background work.

A service is made without an event loop. Background work starts with the first request that needs
it, because a mounted application isn't told when its host starts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from random import Random
from typing import Any, NamedTuple, ParamSpec, TypeVar

from rowlock import config
from rowlock.app import App
from rowlock.errors import OptionInvalid, RowlockError
from rowlock.scheduler import Janitor
from rowlock.server.alerts import Alerts, AlertSettings
from rowlock.server.background import Background
from rowlock.server.cursors import CursorSeal
from rowlock.server.gate import Access, Gate
from rowlock.server.live import Doorbell, Feed
from rowlock.server.monitoring import Gauges, Readiness
from rowlock.server.problems import Refusal
from rowlock.server.request import BodyBudget
from rowlock.server.shares import Shares, Turns
from rowlock.server.write_batcher import WriteBatcher
from rowlock.store import KnownPolicy, Store, options
from rowlock.store.ops.bulk import advance_bulk, fail_bulk, running_bulks
from rowlock.store.ops.claim import LimitOf
from rowlock.store.ops.health import cursor_key
from rowlock.store.ops.hold import announce
from rowlock.store.ops.tokens import use_tokens
from rowlock.tally import Ended
from rowlock.worker.claims import PayloadSize, limit_of
from rowlock.worker.counts import ProcessCounts, names_of
from rowlock.worker.trouble import ServiceName, Trouble, jittered, repeat

P = ParamSpec("P")
R = TypeVar("R")

logger: logging.Logger = logging.getLogger("rowlock.server")


class EnvironmentColor(StrEnum):
    """The color in which the dashboard shows the name of its environment."""

    GREY = "grey"
    RED = "red"
    AMBER = "amber"
    GREEN = "green"
    BLUE = "blue"
    VIOLET = "violet"


class Environment(NamedTuple):
    """Where this server runs, for people: production, staging."""

    name: str
    color: EnvironmentColor


def environment_of(text: str | None) -> Environment | None:
    """The environment from "production" or "production:red". Raises `OptionInvalid`."""
    if not text:
        return None
    name, _, color = text.partition(":")
    if not name.strip() or len(name) > config.ENVIRONMENT_CHARACTERS_MAX:
        raise OptionInvalid(
            "environment", f"needs a name of 1 to {config.ENVIRONMENT_CHARACTERS_MAX} characters"
        )
    color = color or EnvironmentColor.GREY
    return Environment(name.strip(), options.choice(EnvironmentColor, color, option="environment"))


class Service:
    """The shared state of one server."""

    def __init__(
        self,
        app: App,
        *,
        access: Access,
        has_dashboard: bool,
        alerts: AlertSettings | None = None,
        environment: str | None = None,
    ) -> None:
        self.app = app
        self._alerts = alerts
        self.has_dashboard = has_dashboard
        self.environment: Environment | None = environment_of(environment)
        # The bytes of large bodies in progress.
        self.bodies: BodyBudget = BodyBudget()
        self._threads: ThreadPoolExecutor | None = None
        self.readiness: Readiness = Readiness(app.store)
        # Set once the server is to stop: calls that wait then answer at once.
        self.stopping: asyncio.Event = asyncio.Event()
        # Counts the runs settled here, and the errors of background work.
        self.ledger: ProcessCounts = ProcessCounts(names_of(app))
        self.background: Background = Background(self.ledger.errors)
        self.token_uses: TokenUses = TokenUses(app.store, self.background)
        self.gate: Gate = Gate(app.store, access, used=self.token_uses.note)
        self.doorbell: Doorbell = Doorbell(app.store, self.background)
        self.write_batcher: WriteBatcher = WriteBatcher(app.store, self.background)
        self.bulk: BulkRunner = BulkRunner(app.store, self.background)
        self.roster: Roster = Roster(app.store)
        # The payload size of jobs leased here. The first guess is the largest possible.
        self.payload_size: PayloadSize = PayloadSize(config.PAYLOAD_BYTES_MAX)
        # Expensive reads have connections of their own, and wait for their turn.
        self.reads: Store = app.store.apart()
        self.turns: Turns = Turns(
            lambda: config.HTTP_READS_MAX, waiting_max=lambda: config.HTTP_READS_WAITING_MAX
        )
        # Claims of calls that wait for jobs. Those that wait for their turn are counted already.
        self.polls: Turns = Turns(
            lambda: config.HTTP_POLLS_MAX, waiting_max=lambda: 2 * config.HTTP_WAITERS_MAX
        )
        self.gauges: Gauges = Gauges(self.reads)
        self.feed: Feed = Feed(app.store, self.background)
        # Open streams of events, and lease calls that wait for jobs.
        self.streams: Shares = Shares()
        self.waiters: Shares = Shares()
        # For backoffs with jitter.
        self.chance: Random = Random()
        # Made now, so that a task whose types have no schema fails at the start.
        self.schemas: dict[str, dict[str, Any]] = {
            task.name: task.schema.json_schema() for task in app
        }
        self._seal: CursorSeal | None = None
        self.policies: dict[str, KnownPolicy] = {task.name: task.known_policy() for task in app}
        self.limits: dict[str, LimitOf] = {
            task.name: limit_of(task) for task in app if task.settings.limit is not None
        }
        self._has_declared = False

    @property
    def store(self) -> Store:
        return self.app.store

    async def seal(self) -> CursorSeal:
        """The seal of cursors, whose key is read once."""
        if self._seal is None:
            self._seal = CursorSeal(await self.store.arun(cursor_key()))
        return self._seal

    async def declare_limits(self) -> None:
        """Write the limits of this app to the database, once: all workers may use HTTP."""
        if self.limits and not self._has_declared:
            declared = [limit.declared for limit in self.app.declared_limits]
            await self.store.adeclare_limits(declared)
            self._has_declared = True

    async def compute(
        self, size: int, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Do work that grows with a request: in a thread, unless the request is small.

        Args:
            size: The bytes of the request, or as many as the work would take.
        """
        if size <= config.HTTP_INLINE_BYTES:
            return work(*args, **kwargs)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(config.HTTP_THREADS, "rowlock-server")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(work, *args, **kwargs))

    def count(self, ended: Sequence[Ended]) -> None:
        """Count runs that workers settled over HTTP, for metrics, history and events."""
        self.ledger.ended(ended)
        self.background.ensure("history", self._write_history)
        self.background.ensure("telling", self._publish)

    async def _write_history(self) -> None:
        what = "the history is not written"
        trouble = Trouble(what, ServiceName.HISTORY, self.ledger.errors, chance=self.chance)
        await repeat(lambda: self.ledger.write_on(self.store), trouble)

    async def _publish(self) -> None:
        await self.ledger.tell_on(self.store)

    def start(self) -> None:
        """Start the background work of a standalone server.

        It gives back expired leases and removes finished jobs whose time is over: if all workers
        use HTTP, no other process would. It continues bulk work that another server left, and
        sends alerts.
        """
        janitor = Janitor(self.store, errors=self.ledger.errors, on_refused=self.ledger.refused)
        self.background.ensure("janitor", janitor.run)
        if self._alerts is not None:
            alerts = Alerts(self.reads, self._alerts, self.ledger.errors)
            self.background.ensure("alerts", alerts.run)
        self.bulk.wake()

    def stop(self) -> None:
        """Let waiting calls answer now. Requests in progress are finished."""
        self.stopping.set()
        self.doorbell.wake_all()
        self.feed.wake_all()

    async def aclose(self) -> None:
        """End background work, and close the connections of this event loop."""
        self.stop()
        await self.background.aclose()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None
        try:
            await self.ledger.atell(self.store)
            await self.ledger.awrite(self.store)
            await self.token_uses.write()
        except Exception as error:  # noqa: BLE001  # the server ends in any case
            logger.info("could not write the last seconds of the history: %s", error)
        await self.store.engine.aclose_loop()
        await self.reads.aclose()


Owner = tuple[str | None, str | None]
"""Whose workers: of a tenant, or of a token that is bound to none."""


class _Served(NamedTuple):
    """What a worker last announced, and when that was and is due again."""

    names: frozenset[str]
    size: int
    seen: float
    due: float


class _Announced:
    """The workers of one owner that were announced lately, the latest last."""

    def __init__(self) -> None:
        self.workers: OrderedDict[str, _Served] = OrderedDict()
        self._names: Counter[str] = Counter()
        self._size = 0

    def forget(self, before: float) -> None:
        """Forget workers that were not seen since."""
        while self.workers and next(iter(self.workers.values())).seen < before:
            self.drop(next(iter(self.workers)))

    def drop(self, worker: str) -> _Served | None:
        served = self.workers.pop(worker, None)
        if served is not None:
            self._size -= served.size
            self._names -= Counter(served.names)
        return served

    def put(self, worker: str, served: _Served) -> None:
        """Replace what a worker serves. Raises, and changes nothing, if there is no room."""
        before = self.drop(worker)
        try:
            self._check(served)
        except BaseException:
            if before is not None:
                self._add(worker, before)
            raise
        self._add(worker, served)

    def _add(self, worker: str, served: _Served) -> None:
        self.workers[worker] = served
        self._size += served.size
        self._names.update(served.names)

    def _check(self, served: _Served) -> None:
        names = len(self._names) + sum(name not in self._names for name in served.names)
        if names > config.HTTP_ANNOUNCED_NAMES_MAX:
            most = config.HTTP_ANNOUNCED_NAMES_MAX
            problem = f"the workers of this token name more than {most:,} kinds and queues"
            raise OptionInvalid("kinds", f"{problem}; name only those that they run")
        is_full = len(self.workers) >= config.HTTP_ANNOUNCED_WORKERS_MAX
        if is_full or self._size + served.size > config.HTTP_ANNOUNCED_BYTES_MAX:
            raise Refusal(
                "too_many_requests",
                "too many workers of this token asked for jobs lately, or they name too many "
                "kinds and queues; let each process keep its name, and name what it runs",
                headers={"retry-after": str(int(config.WORKER_FORGOTTEN_SECONDS))},
            )


class Roster:
    """Announces workers that use HTTP, so that others see which queues and kinds they serve.

    Each is announced once per `config.ANNOUNCE_SECONDS`, however often it asks for jobs.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._owners: dict[Owner, _Announced] = {}

    async def note(
        self, worker: str, *, owner: Owner, queues: Sequence[str], kinds: Sequence[str], host: str
    ) -> None:
        """Announce this worker and what it serves, unless that was done lately.

        Raises:
            OptionInvalid: The workers of this owner name too many kinds and queues.
            Refusal: It has too many workers.
        """
        now = time.monotonic()
        known = self._owners.setdefault(owner, _Announced())
        known.forget(now - config.WORKER_FORGOTTEN_SECONDS)
        names = frozenset((*queues, *kinds))
        before = known.workers.get(worker)
        if before is not None and now < before.due and names == before.names:
            return
        size = sum(len(name.encode()) for name in names)
        # Noted first, so that calls of the same moment don't announce it, too.
        known.put(worker, _Served(names, size, seen=now, due=now + config.ANNOUNCE_SECONDS))
        try:
            await self._store.arun(
                announce(worker=worker, queues=queues, kinds=kinds, host=host, pid=0)
            )
        except BaseException:
            known.drop(worker)
            raise


class TokenUses:
    """Stores when tokens were last used, once a minute, beside the requests."""

    def __init__(self, store: Store, background: Background) -> None:
        self._store = store
        self._background = background
        self._ids: set[str] = set()
        self._chance = Random()

    def note(self, token_id: str) -> None:
        """Note that a token is used."""
        # The next minute is soon enough for those beyond the bound.
        if len(self._ids) < config.TOKENS_KNOWN_MAX:
            self._ids.add(token_id)
        self._background.ensure("token-uses", self._run)

    async def write(self) -> None:
        """Store what was noted."""
        ids, self._ids = self._ids, set()
        try:
            if ids:
                await self._store.arun(use_tokens([*ids]))
        except Exception:
            self._ids |= ids
            raise

    async def _run(self) -> None:
        errors = self._background.errors
        what = "the last use of tokens is not stored"
        await repeat(
            self._write, Trouble(what, ServiceName.BACKGROUND, errors, chance=self._chance)
        )

    async def _write(self) -> float:
        await self.write()
        return jittered(config.TOKEN_USE_SECONDS, self._chance)


class BulkRunner:
    """Advances bulk work, whichever server accepted it, until there is none left.

    Any number of servers on one database take turns, step by step.
    """

    def __init__(self, store: Store, background: Background) -> None:
        self._store = store
        self._background = background
        self._woken = asyncio.Event()
        self._chance = Random()

    def wake(self) -> None:
        """Start if needed, and look for work at once."""
        self._woken.set()
        self._background.ensure("bulk", self._run)

    async def _run(self) -> None:
        # Belongs to this loop: tests may run a mounted application on another one each time.
        self._woken = asyncio.Event()
        errors = self._background.errors
        trouble = Trouble(
            "bulk work is not advancing", ServiceName.BULK, errors, chance=self._chance
        )
        await repeat(self._advance, trouble, woken=self._woken)

    async def _advance(self) -> float:
        """Take one step of each, and return in how many seconds to look again."""
        pauses: list[float] = []
        for id in await self._store.arun(running_bulks()):
            try:
                taken = await self._store.arun(advance_bulk(id))
                if taken.is_more:
                    pauses.append(taken.wait_seconds)
            except RowlockError:
                raise
            except Exception as error:
                # A step that fails with such an error would always fail: give up, and say so.
                logger.exception("gave up bulk work %s", id)
                await self._store.arun(fail_bulk(id, f"given up: {type(error).__name__}"))
        return min(pauses, default=jittered(config.BULK_LOOK_SECONDS, self._chance))
