"""Sees that source files have changed, by looking: for `rowlock worker --reload`."""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rowlock import config

logger: logging.Logger = logging.getLogger("rowlock.worker")


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
        """Whether a file came, went or was written since the last look; one look a second."""
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
