"""How a process ended, in words."""

from __future__ import annotations

import signal


def how_it_ended(code: int) -> str:
    """The exit code of a process, or the signal that ended it (told as a negative code)."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"
