"""Children whose event loop stands still, because a handler blocks it; and who keeps house then.

1. A child is stalled when its pulse has not changed for some seconds that its supervisor was awake.
2. What a stalled child holds and has not begun is revoked, and given back a moment later, once per
   stall (`table` says why that is safe).
3. One child at a time keeps house: it fires schedules, finds expired leases, removes old jobs. When
   it stalls or dies, another that does not is told to. Two that do it for a moment do no harm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from rowlock import config
from rowlock.worker.children import Child
from rowlock.worker.table import Slot

logger: logging.Logger = logging.getLogger("rowlock.worker")

GiveBack = Callable[[Child, list[Slot]], None]


@dataclass(slots=True)
class Pulse:
    """What a supervisor has seen of the pulse of a child."""

    value: int = 0
    seen_at: float = 0.0
    # For how long it has not changed.
    still_seconds: float = 0.0
    # Since when what it holds is revoked, and whether that was given back, in this stall.
    revoked_at: float | None = None
    is_over: bool = False

    def see(self, value: int, now: float) -> None:
        """Note what it is now. A supervisor that stood still itself has seen nothing meanwhile."""
        if value != self.value:
            self.value, self.still_seconds = value, 0.0
            self.revoked_at, self.is_over = None, False
        elif value:
            self.still_seconds += min(now - self.seen_at, config.PULSE_SECONDS)
        self.seen_at = now

    @property
    def is_stalled(self) -> bool:
        return self.still_seconds > config.STALL_SECONDS


class Stalls:
    """Watches the children of a supervisor; called in its every turn.

    Args:
        give_back: Called with leases of a child that it will not begin.
    """

    def __init__(self, give_back: GiveBack) -> None:
        self._give_back = give_back
        self._pulses: dict[int, Pulse] = {}
        # The process that keeps house.
        self._keeper: int | None = None

    @property
    def needs_keeper(self) -> bool:
        """Whether no child keeps house that could."""
        if self._keeper is None:
            return True
        pulse = self._pulses.get(self._keeper)
        return pulse is None or pulse.is_stalled

    def appoint(self, child: Child) -> None:
        """Note that a child keeps house."""
        self._keeper = child.process.pid
        self._pulses[child.process.pid] = Pulse()

    def look(self, children: Collection[Child]) -> None:
        """See whether they all go on, and do what is to be done if one does not."""
        now = time.monotonic()
        alive = {child.process.pid: child for child in children}
        self._pulses = {pid: self._pulses.get(pid) or Pulse() for pid in alive}
        for pid, child in alive.items():
            pulse = self._pulses[pid]
            pulse.see(child.table.last_pulse(), now)
            # One that is stopped may hold a lock of the database: nothing is written for it.
            if pulse.is_stalled and not pulse.is_over and not child.is_stopped():
                self._revoke(child, pulse, now)
        if self.needs_keeper:
            self._move_house(alive)

    def _revoke(self, child: Child, pulse: Pulse, now: float) -> None:
        if pulse.revoked_at is None:
            pulse.revoked_at = now
            child.table.revoke()
        elif now - pulse.revoked_at > config.REVOKE_SECONDS:
            pulse.is_over = True
            revoked = [slot for slot in child.table.slots() if slot.is_revoked]
            logger.warning(
                "child %d does not respond: a handler blocks its event loop; %d jobs that it holds "
                "and has not begun are given back",
                child.number,
                len(revoked),
            )
            if revoked:
                self._give_back(child, revoked)

    def _move_house(self, alive: dict[int, Child]) -> None:
        # Not one that is about to end, as all of them are at a stop.
        staying = [pid for pid, child in alive.items() if child.leaving_since is None]
        fit = [pid for pid in staying if self._pulses[pid].value]
        fit = [pid for pid in fit if not self._pulses[pid].is_stalled]
        if not fit:
            return
        before = None if self._keeper is None else alive.get(self._keeper)
        if before is not None:
            before.tell({"house": False})
        self._keeper = min(fit, key=lambda pid: alive[pid].number)
        keeper = alive[self._keeper]
        keeper.tell({"house": True})
        logger.info("child %d fires schedules and recovers jobs from now on", keeper.number)
