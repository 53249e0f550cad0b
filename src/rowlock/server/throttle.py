"""Bad tokens, counted by address: beyond a number in a minute they are refused without a look.

Nobody guesses 256 bits; this keeps those who try from costing a query each.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from rowlock import config


@dataclass(slots=True)
class _Window:
    began: float
    failures: int


class Throttle:
    """Remembers a bounded number of addresses; times are of any monotonic clock."""

    def __init__(self) -> None:
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def fail(self, address: str, *, now: float) -> None:
        """One more bad token from there."""
        window = self._windows.pop(address, None)
        if window is None or now - window.began >= config.AUTH_FAILURES_SECONDS:
            window = _Window(now, 0)
        window.failures += 1
        self._windows[address] = window
        if len(self._windows) > config.AUTH_ADDRESSES_MAX:
            self._windows.popitem(last=False)

    def seconds_left(self, address: str, *, now: float) -> float:
        """How long bad tokens from there are refused; 0 if they are not."""
        window = self._windows.get(address)
        if window is None or window.failures < config.AUTH_FAILURES_MAX:
            return 0.0
        return max(0.0, window.began + config.AUTH_FAILURES_SECONDS - now)
