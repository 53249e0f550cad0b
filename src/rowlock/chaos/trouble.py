"""What may befall the database, and the lines to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rowlock.chaos.database import CONNECTIONS_MAX, Stage
from rowlock.chaos.plan import Fault
from rowlock.chaos.proxy import FaultyProxy, Mode
from rowlock.testing.database import away, connect, execute

# Of those that last: so many leases, at least and at most.
SHORT: Final = (0.2, 0.6)
LONG: Final = (1.2, 2.0)
# A worker's clock may be wrong by so much, in both directions.
CLOCK_SECONDS_MAX: Final = 7_200


@dataclass(frozen=True, slots=True)
class Lasting:
    """Trouble that goes on for so many leases, and how it is ended."""

    leases: float
    end: Callable[[], object]


class Troubles:
    """Troubles a stage."""

    def __init__(self, stage: Stage, chance: random.Random, *, workers: int) -> None:
        self._stage = stage
        self._workers = workers
        self._chance = chance
        self._held: list[Any] = []
        self._acts: dict[Fault, Callable[[], Lasting | None]] = {
            Fault.CRASH: self._crash,
            Fault.KILL_BACKEND: self._kill_backend,
            Fault.EXHAUST: self._exhaust,
            Fault.SWALLOW: self._swallow,
            Fault.CUT: self._cut,
            Fault.DELAY: partial(self._set, Mode.DELAY, SHORT),
            Fault.BLACKHOLE: partial(self._set, Mode.BLACKHOLE, LONG),
            Fault.STEP_CLOCK: self._step_clock,
            Fault.FILL_DISK: self._fill_disk,
        }

    def strike(self, fault: Fault) -> Lasting | None:
        """Do it; what is to be ended later, if it lasts."""
        return self._acts[fault]()

    def end(self) -> None:
        """Nothing goes wrong any more."""
        for line in self._stage.lines:
            line.mode = Mode.PASS
            line.swallow_no_more()
        self._let_go()

    def _line(self) -> FaultyProxy:
        return self._chance.choice(self._stage.lines)

    def _crash(self) -> None:
        assert self._stage.server is not None
        # Those that we hold would not be there any more.
        self._let_go()
        self._stage.server.restart(immediate=True)

    def _kill_backend(self) -> None:
        """One of a worker's or a producer's, whatever it is busy with."""
        with suppress(*away()):
            execute(
                self._stage.url,
                "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE "
                "application_name ~ '^(worker|producer)-[0-9]' AND datname = current_database() "
                "ORDER BY random() LIMIT 1) AS one",
            )

    def _swallow(self) -> None:
        self._line().swallow_commit()

    def _cut(self) -> None:
        self._line().cut()

    def _set(self, mode: Mode, leases: tuple[float, float]) -> Lasting:
        line = self._line()
        line.mode = mode

        def end() -> None:
            line.mode = Mode.PASS

        return Lasting(self._chance.uniform(*leases), end)

    def _step_clock(self) -> None:
        assert self._stage.clocks is not None
        seconds = self._chance.randint(-CLOCK_SECONDS_MAX, CLOCK_SECONDS_MAX)
        self._stage.clocks.set(self._chance.randrange(self._workers), seconds)

    def _fill_disk(self) -> Lasting:
        assert self._stage.disk is not None
        self._stage.disk.fill()
        return Lasting(self._chance.uniform(*SHORT), self._stage.disk.free)

    def _exhaust(self) -> Lasting:
        """Take every connection that is left, so that nobody else gets a new one."""
        # The last one is refused.
        with suppress(*away()):
            for _ in range(CONNECTIONS_MAX):
                self._held.append(connect(self._stage.url))
        return Lasting(self._chance.uniform(*LONG), self._let_go)

    def _let_go(self) -> None:
        while self._held:
            # The server may have crashed meanwhile.
            with suppress(*away()):
                self._held.pop().close()
