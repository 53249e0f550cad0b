"""A process as the system shows it: its title in `ps`, its memory, how it ended, its source files.

A short title is always shown, a full one with setproctitle. Only processes of our own have one: an
embedded worker leaves the name of its host alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import itertools
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rowlock import config

logger: logging.Logger = logging.getLogger("rowlock.worker")

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
        """Show a title. By default at most once a second, so that it costs nothing."""
        if self._set_full is None or title == self._shown or self._clock() < self._next:
            return
        self._shown, self._next = title, self._clock() + self._pause_seconds
        self._set_full(title)


def die_with_parent() -> None:
    """Have this process killed when its parent dies, whatever it is busy with.

    The kernel does so before it reports that death: the process that gives the parent's jobs to
    others may rely on it.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _full_title() -> Callable[[str], Any] | None:
    with contextlib.suppress(ImportError):
        set_title: Callable[[str], Any] = importlib.import_module("setproctitle").setproctitle
        return set_title
    return None


def _prctl(option: int, value: bytes | int) -> None:
    # Only Linux has it. Elsewhere the end of the pipe is noticed too.
    with contextlib.suppress(OSError, AttributeError):
        argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
        ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def how_it_ended(code: int) -> str:
    """The exit code of a process, or the signal that ended it (a negative code), in words."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"


def resident_bytes(pid: int) -> int | None:
    """Its resident memory. None if it is gone, or if the system has no /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    except (OSError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


class SourceWatch:
    """The Python files below a directory, as they were at the last look."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._next = 0.0
        self._seen = self._look()
        if len(self._seen) >= config.RELOAD_FILES_MAX:
            logger.warning("only %d files below %s are watched", len(self._seen), root)

    def has_changed(self) -> bool:
        """Whether a file came, went or was written since the last look. Looks once a second."""
        if self._clock() < self._next:
            return False
        self._next = self._clock() + config.RELOAD_SECONDS
        before, self._seen = self._seen, self._look()
        return before != self._seen

    def _look(self) -> dict[str, int]:
        files = itertools.islice(_sources(self._root), config.RELOAD_FILES_MAX)
        return {path: modified for path in files if (modified := _modified(path)) is not None}


def _sources(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        # In one order, so that the bound always cuts off the same ones.
        folders[:] = sorted(name for name in folders if _is_ours(folder, name))
        yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".py"))  # noqa: PTH118  # text, 10,000 times


def _is_ours(folder: str, name: str) -> bool:
    """Whether to look into a directory: not hidden, no cache, no virtual environment."""
    if name.startswith(".") or name in ("__pycache__", "node_modules"):
        return False
    return not Path(folder, name, "pyvenv.cfg").exists()


def _modified(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116  # text, 10,000 times
    except OSError:
        return None
