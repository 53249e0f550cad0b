"""What `ps` and `top` show of our processes: a short name always, a full title with setproctitle.

Only for processes of our own: an embedded worker leaves the name of its host alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import signal
import time
from collections.abc import Callable
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_NAME_BYTES_MAX = 15
_PAUSE_SECONDS = 1.0


class Title:
    """The title of this process. From its main thread only: the kernel names threads."""

    def __init__(
        self,
        name: str,
        *,
        pause_seconds: float = _PAUSE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._next = 0.0
        self._shown = ""
        self._set_full = _full_title()
        _prctl(_PR_SET_NAME, name.encode()[:_NAME_BYTES_MAX])

    def show(self, title: str) -> None:
        """Show what goes on; by default at most once a second, so that it costs nothing."""
        if self._set_full is None or title == self._shown or self._clock() < self._next:
            return
        self._shown, self._next = title, self._clock() + self._pause_seconds
        self._set_full(title)


def die_with_parent() -> None:
    """Have this process killed when its parent dies, whatever it is busy with.

    The kernel does so before anyone is told of that death: whoever gives the parent's jobs to
    others may count on it.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _full_title() -> Callable[[str], Any] | None:
    with contextlib.suppress(ImportError):
        set_title: Callable[[str], Any] = importlib.import_module("setproctitle").setproctitle
        return set_title
    return None


def _prctl(option: int, value: bytes | int) -> None:
    # Elsewhere than on Linux there is none; it is a nicety there, as the pipe's end is seen too.
    with contextlib.suppress(OSError, AttributeError):
        argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
        ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)
