"""What a loop of ours has to do later: actions, and from when on."""

from __future__ import annotations

import time
from collections.abc import Callable

Action = Callable[[], None]


class Later:
    """Actions that wait for their time. Not for several threads at once."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, Action]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, seconds: float, action: Action) -> None:
        """Have it done after a pause."""
        self._waiting.append((time.monotonic() + seconds, action))

    def do_due(self, *, all_of_them: bool) -> None:
        """Do what is due, or all of it now; what that adds waits for the next time."""
        now = time.monotonic()
        due = [action for at, action in self._waiting if all_of_them or at <= now]
        self._waiting = [each for each in self._waiting if not all_of_them and each[0] > now]
        for action in due:
            action()
